//! Files of ours in a process whose owner may close all descriptors: a number that has come to mean another file is left alone.
//!
//! In: a file that was just opened. Out: the same, closed when it is dropped only if it is still what was opened; between that look and the closing
//! are microseconds. For files that are read in more than a glance. Used by our own threads.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file that is ours while its number means it.
#[derive(Debug)]
pub(crate) struct OwnFile {
    /// `None` only while it is dropped.
    file: Option<File>,
    identity: Identity,
}

/// What tells a file from what else its number may come to mean: the device, and the number there.
pub(crate) type Identity = (u64, u64);

/// What a file is known by.
pub(crate) fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}

impl OwnFile {
    /// Opens a file for reading.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::of(File::open(path)?)
    }

    /// This file.
    pub(crate) fn of(file: File) -> io::Result<Self> {
        let identity = identity(&file.metadata()?);
        Ok(Self { file: Some(file), identity })
    }

    /// The file.
    pub(crate) fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_ours(&self) -> bool {
        let found = self.file().and_then(File::metadata);
        found.is_ok_and(|found| identity(&found) == self.identity)
    }
}

impl Read for OwnFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file()?.read(bytes)
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if !self.is_ours() {
            // The number is somebody else's, or nobody's.
            std::mem::forget(self.file.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use super::*;

    /// Check that a number that means another file by now is not closed.
    #[test]
    fn a_number_that_means_another_file_is_left_open() {
        let mut own = OwnFile::open(&std::env::current_exe().unwrap()).unwrap();
        // As if the host had closed ours and got its number for a file of its own.
        let hosts = File::open("/dev/null").unwrap();
        let number = hosts.as_raw_fd();
        let _ours = own.file.replace(hosts);
        drop(own);
        // SAFETY: fcntl(2) with numbers only.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0, "the host's file was closed");
        // SAFETY: dropping it left the descriptor open, and nobody else has it.
        drop(unsafe { File::from_raw_fd(number) });
    }

    /// Check that a number that means nothing by now is not closed either: the standard library ends the process for that.
    #[test]
    fn a_number_that_means_nothing_is_let_go() {
        // No process has so many.
        // SAFETY: nothing is done with the descriptor but to ask for what it means.
        let nobodys = unsafe { File::from_raw_fd(i32::MAX) };
        let own = OwnFile { file: Some(nobodys), identity: (1, 1) };
        assert!(!own.is_ours());
        drop(own);
    }

    /// Check that a file that is still ours is closed.
    #[test]
    fn a_file_that_is_ours_is_closed() {
        let (reader, writer) = io::pipe().unwrap();
        let own = OwnFile::of(File::from(OwnedFd::from(writer))).unwrap();
        assert!(own.is_ours());
        drop(own);
        // The writing end is gone: nothing is to be read, ever.
        assert_eq!(File::from(OwnedFd::from(reader)).read(&mut [0]).unwrap(), 0);
    }
}
