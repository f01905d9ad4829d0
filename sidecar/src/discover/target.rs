//! What is known of one process that could be profiled.
//!
//! Made by `classify`, kept by the table, read by whoever names samples, assembles profiles, reads Go's memory, or tells a person. Never
//! changed: when a process becomes another program or says something else of itself, there is another value.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use profiler_proto::resource::Resource;

use super::context::Published;
use super::program::Program;
use crate::target::{Identity, Process};

/// A process.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Which one.
    pub process: Process,
    /// The name of its main thread.
    pub comm: String,
    /// Its program.
    pub exe: Exe,
    /// What kind of program that is.
    pub kind: Kind,
    /// The container that it runs in, where that can be seen.
    pub container_id: Option<String>,
    /// `service.name` of its resource.
    pub service: String,
    /// Who it is, as profiles say it.
    pub resource: Resource,
    /// What it publishes of itself (OTEP 4719), where it does.
    pub context: Option<Arc<Published>>,
    /// It is in a pid namespace below ours: its CPU time is not sampled. Of a Go program, what its runtime keeps is read all the same.
    pub is_below: bool,
    /// Whether it is profiled, or why not.
    pub profiled: Result<(), WhyNot>,
}

#[cfg(test)]
impl Target {
    /// One of which nothing else is known: for tests.
    pub(crate) fn bare(process: Process, kind: Kind) -> Self {
        Self {
            process,
            comm: String::new(),
            exe: Exe::default(),
            kind,
            container_id: None,
            service: String::new(),
            resource: Resource::default(),
            context: None,
            is_below: false,
            profiled: Ok(()),
        }
    }
}

/// The program of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exe {
    /// Where it lay when it was started, as seen from us or from its container.
    pub path: PathBuf,
    /// Whether it was deleted or replaced since.
    pub is_deleted: bool,
    /// Which file; the same for all processes of one program. `None` where it may not be looked at.
    pub identity: Option<Identity>,
    /// What stands in it. `None` where it may not be read.
    pub program: Option<Arc<Program>>,
}

impl Exe {
    /// The last part of the path.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// What kind of program a process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Go, of this version.
    Go(String),
    /// One that carries our SDK or says otherwise that it profiles its CPU time itself.
    Sdk,
    /// Any other.
    Native,
}

impl fmt::Display for Kind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go(version) => write!(to, "Go {}", version.trim_start_matches("go")),
            Self::Sdk => to.write_str("SDK"),
            Self::Native => to.write_str("native"),
        }
    }
}

/// Why a process has no CPU samples, though all else of it may be read.
pub const BELOW: &str = "it is in a pid namespace below the sidecar's (a container in a container, a sandbox), where CPU time is not sampled";

/// Why a process is not profiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WhyNot {
    /// It is the sidecar.
    #[error("it is the sidecar itself")]
    Ourselves,
    /// It samples its own CPU time.
    #[error(
        "it profiles itself with the SDK (its process context says profiler.cpu = on); --profile-sdk profiles it all the same"
    )]
    ProfilesItself,
    /// The settings leave it out.
    #[error("{0}")]
    NotChosen(String),
    /// It cannot be looked at.
    #[error("{0}")]
    Unreadable(String),
    /// A look at it did not come back.
    #[error(
        "its files or its memory gave no answer in time (a network or FUSE file system that hangs?), or too many others did not"
    )]
    NoAnswer,
    /// The kernel side knows no number of it.
    #[error("{BELOW}")]
    Below,
    /// Its program is for another processor, or for the 32-bit mode of this one.
    #[error("its program is {0}: its stacks cannot be walked here")]
    OtherMachine(String),
}

/// A process as settings see it, to choose it or not.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its number.
    pub pid: u32,
    /// The path of its program.
    pub exe: &'a str,
    /// `service.name`.
    pub service: &'a str,
    /// Its container; empty: none is known.
    pub container: &'a str,
}
