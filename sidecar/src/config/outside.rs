//! What settings name outside of them: certificates, keys, folders.
//!
//! In: checked settings. Out: nothing, or an error about what cannot be used, by the setting that names it. Files are read, nothing is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use profiler::serve::Server;
use rustix::fs::Access;

use super::layer::Said;
use super::{Config, of_sdk};
use crate::error::Error;
use crate::pull::Puller;

/// A folder that a setting names.
#[derive(Debug)]
pub(super) struct Folder {
    said: Said<PathBuf>,
    /// Whether it is made where there is none.
    is_made: bool,
}

impl Folder {
    /// Profiles are written to it: it must be there.
    pub(super) fn of_profiles(said: Said<PathBuf>) -> Self {
        Self { said, is_made: false }
    }

    /// What waits to be sent is kept in it.
    pub(super) fn of_spool(said: &Said<String>) -> Self {
        Self { said: Said::new(&*said.origin, PathBuf::from(&said.value)), is_made: true }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let Said { origin, value: path } = &self.said;
        let refused = |why: String| {
            let remedy = match self.is_made {
                true => "name a folder that this process can write to, or one that it can make",
                false => "make it, or name a folder that is there, which this process can write to",
            };
            Err(Error::new(format!("{origin}={}", path.display()), why, remedy))
        };
        let path = &std::path::absolute(path).or_else(|error| refused(error.to_string()).map(|()| PathBuf::new()))?;
        // What is made, is made in the first of these that is there.
        let there = if self.is_made { path.ancestors().find(|path| path.exists()).unwrap_or(path) } else { path };
        let which = if there == path { "it".to_owned() } else { there.display().to_string() };
        match std::fs::metadata(there) {
            Err(error) => refused(error.to_string()),
            Ok(found) if !found.is_dir() => refused(format!("{which} is not a folder")),
            Ok(_) if !is_writable(there) || is_of_kernel(there) => refused(format!("{which} cannot be written to")),
            Ok(_) => Ok(()),
        }
    }
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// `/proc` and `/sys`, where root may write, and nobody can make a file. Source: `include/uapi/linux/magic.h`.
const OF_KERNEL: [u64; 2] = [0x9fa0 /* proc */, 0x6265_6572 /* sysfs */];

fn is_of_kernel(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| OF_KERNEL.contains(&(found.f_type as u64)))
}

/// The tokens and files of `config`.
pub(super) fn check(config: &Config) -> Result<(), Error> {
    // At any port, which is given back: only a server can say what it can be served with.
    if config.serve.is_some()
        && let Ok(server) = Server::bind("127.0.0.1:0")
    {
        server.secured(&config.security).map_err(of_sdk)?;
    }
    let named = config.pulls.iter().map(|endpoint| (endpoint, endpoint.name()));
    let found = config.pull_found.iter().map(|endpoint| (endpoint, "discover".to_owned()));
    for (endpoint, name) in named.chain(found) {
        let of_pull = |error: Error| Error { what: format!("pull {name}: {}", error.what), ..error };
        Puller::new(endpoint, Arc::default()).map_err(of_pull)?;
    }
    Ok(())
}
