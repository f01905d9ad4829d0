//! The lock of a spool's folder: one process at a time.
//!
//! In: the folder. Out: possession of it until this is dropped or the process ends, however it does; an error if another
//! one has it. A program that closes descriptors it does not know closes this one too, and the number may be another
//! file's afterwards: that one is left alone.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::files::{failed, private, regular};
use crate::error::Error;

/// The folder is ours while this is there.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// `None` only while it is dropped.
    file: Option<File>,
    identity: Identity,
}

/// Device and number of a file; elsewhere than on Unix, descriptors are not closed by number.
type Identity = (u64, u64);

impl Lock {
    /// Takes possession of `folder`.
    ///
    /// # Errors
    /// If another process has it, or the file cannot be made or locked.
    pub(super) fn take(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("lock");
        let held = || io::Error::new(ErrorKind::WouldBlock, "another process keeps its spool there");
        let (file, identity) = open(&path).map_err(|error| failed("open", &path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path, file: Some(file), identity }),
            Err(TryLockError::WouldBlock) => {
                let what = format!("use {}", folder.display());
                Err(Error::environment(what, held(), "give each process a folder of its own"))
            }
            Err(TryLockError::Error(error)) => Err(failed("lock", &path, error)),
        }
    }

    /// Whether the folder is still the one that was taken: not removed, not moved, not closed under us.
    pub(super) fn is_held(&self) -> bool {
        self.has_descriptor() && std::fs::symlink_metadata(&self.path).is_ok_and(|now| identity(&now) == self.identity)
    }

    fn has_descriptor(&self) -> bool {
        let now = self.file.as_ref().and_then(|file| file.metadata().ok());
        now.is_some_and(|now| identity(&now) == self.identity)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let is_ours = self.has_descriptor();
        match self.file.take() {
            // A child that was forked has it too: closing ours alone would leave the folder locked as long as that lives.
            Some(file) if is_ours => _ = file.unlock(),
            other => std::mem::forget(other),
        }
    }
}

fn open(path: &Path) -> io::Result<(File, Identity)> {
    match regular(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = private(OpenOptions::new().write(true).create(true).truncate(false)).open(path)?;
    let identity = identity(&file.metadata()?);
    Ok((file, identity))
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a folder is free once its owner lets go, also while a forked child has the descriptor too, and that a descriptor
    /// that was closed under us is not taken for ours.
    #[test]
    fn letting_go_frees_the_folder() {
        let path = std::env::temp_dir().join(format!("profiler-spool-lock-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mut lock = Lock::take(&path).unwrap();
        // What a fork makes: another descriptor of the same open file.
        let of_child = lock.file.as_ref().unwrap().try_clone().unwrap();
        assert!(Lock::take(&path).is_err());
        drop(lock);
        lock = Lock::take(&path).unwrap();
        drop(of_child);
        assert!(lock.is_held());
        let of_host = File::open("/dev/null").unwrap();
        drop(lock.file.replace(of_host));
        assert!(!lock.is_held());
        std::fs::remove_dir_all(&path).unwrap();
    }
}
