//! Whether the descriptors of the profiler are still its own.
//!
//! A host may close all descriptors that it does not know (`close_range(2)`, as daemons do). The numbers of ours then come to
//! mean the host's files, and whoever goes on would write to them and close them. One descriptor of ours, used for nothing else,
//! tells: it is a pipe's end, and every pipe has a number of its own in the kernel. It is looked at before anything of ours
//! that holds descriptors gets its turn. Between a look and what follows it are microseconds, in which the runtime's panic is
//! caught (the host's hook for panics is told of it) and nothing of it is taken down (`io`).
//!
//! It stands for the others only where the host closes all from a number on that is not above its own. It has the lowest of ours
//! that was free at the start, and the exporter connects later: a host that closes only what is above some number, or single
//! descriptors, may take a connection and leave the mark.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// A descriptor that tells whether all of them are still ours.
#[derive(Debug)]
pub(super) struct Mark {
    /// `None` only while it is dropped.
    file: Option<File>,
    identity: (u64, u64),
    gone: AtomicBool,
}

impl Mark {
    /// Opens it: before all others that it stands for, so that whoever closes in the order of numbers begins with it.
    pub(super) fn set() -> io::Result<Self> {
        let (end, _other) = io::pipe()?;
        let file = File::from(OwnedFd::from(end));
        let identity = identity(&file.metadata()?);
        Ok(Self { file: Some(file), identity, gone: AtomicBool::new(false) })
    }

    /// Whether the host has closed it; for ever, for the others do not come back either.
    pub(super) fn is_gone(&self) -> bool {
        // A flag that only ever rises and that nothing is read on the strength of.
        if self.gone.load(Ordering::Relaxed) {
            return true;
        }
        let gone =
            self.file.as_ref().is_none_or(|file| is_another(file.metadata().map(|it| identity(&it)), self.identity));
        self.gone.fetch_or(gone, Ordering::Relaxed);
        gone
    }

    /// As if the host had closed it.
    #[cfg(test)]
    pub(super) fn lose(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Returns while the descriptors are ours. A thread whose state is full of descriptors that are not ends here: it can
    /// neither go on nor take its state down. The memory that it holds is lost.
    pub(super) fn stop_if_gone(&self) {
        while self.is_gone() {
            std::thread::park();
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.is_gone() {
            // The number is the host's.
            std::mem::forget(self.file.take());
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Whether what was found under a number shows that it is no longer the file's with this identity. Another error than that the
/// number is nobody's says nothing: a filter of system calls may refuse to look.
fn is_another(found: io::Result<(u64, u64)>, identity: (u64, u64)) -> bool {
    match found {
        Ok(found) => found != identity,
        Err(error) => error.raw_os_error() == Some(libc::EBADF),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, FromRawFd};

    use super::*;

    /// Check that only a number that is free or another file's counts as closed: being refused a look does not.
    #[test]
    fn a_look_that_is_refused_says_nothing() {
        let failed = |number| Err(io::Error::from_raw_os_error(number));
        for (found, is_gone) in [
            (Ok((1, 2)), false),
            (Ok((1, 3)), true),
            (failed(libc::EBADF), true),
            (failed(libc::EPERM), false),
            (failed(libc::ENOSYS), false),
        ] {
            let shown = format!("{found:?}");
            assert_eq!(is_another(found, (1, 2)), is_gone, "{shown}");
        }
    }

    /// Check that a mark whose number has become another file's is gone, stays so, and leaves that file open.
    #[test]
    fn a_number_that_is_another_file_is_not_ours() {
        let mut mark = Mark::set().unwrap();
        assert!(!mark.is_gone());
        // As if the host had closed ours and been given the same number for its own pipe.
        let (_reader, writer) = io::pipe().unwrap();
        let own = mark.file.replace(File::from(OwnedFd::from(writer)));
        let number = mark.file.as_ref().unwrap().as_raw_fd();
        assert!(mark.is_gone());
        let hosts = mark.file.take();
        mark.file = own;
        assert!(mark.is_gone(), "it came back");
        mark.file = hosts;
        drop(mark);
        // SAFETY: dropping the mark left the descriptor open, and nobody else has it.
        let left = unsafe { File::from_raw_fd(number) };
        assert!(left.as_fd().try_clone_to_owned().is_ok(), "the host's file was closed");
    }
}
