//! The folder `/proc/PID` of one process, held open: what is read through it is of that process, or an error, even when its
//! number is given to another one meanwhile.
//!
//! In: a pid. Out: bytes of the files in it, bounded. What stands in those files was written by the kernel, the names and the
//! environment in them by the process.
//!
//! Source: proc(5); fs/proc/base.c, `get_proc_task`: a folder that was opened stands for a `struct pid`, not for its number.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

use super::fault::Fault;

/// `/proc/PID`, open.
#[derive(Debug)]
pub struct Folder {
    pid: u32,
    descriptor: OwnedFd,
}

impl Folder {
    /// Opens the folder of whichever process has the number now.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(pid: u32) -> Result<Self, Fault> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()) {
            Ok(descriptor) => Ok(Self { pid, descriptor }),
            Err(Errno::NOENT) => Err(Fault::Gone { pid }),
            Err(errno) => Err(Fault::from_errno(pid, "/proc", errno)),
        }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// At most `most` bytes of a file, and whether there were more.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub fn read(&self, name: &str, most: usize) -> Result<(Vec<u8>, bool), Fault> {
        let mut bytes = Vec::new();
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let file = self.file(name)?;
        let outcome = (&file).take(most.saturating_add(1)).read_to_end(&mut bytes);
        outcome.map_err(|error| self.fault(name, error))?;
        let is_cut = bytes.len() as u64 > most;
        if is_cut {
            bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        }
        Ok((bytes, is_cut))
    }

    /// A file of the folder, to be read in pieces.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub fn file(&self, name: &str) -> Result<File, Fault> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let outcome = openat(&self.descriptor, name, flags, Mode::empty());
        outcome.map(File::from).map_err(|errno| self.missing(name, errno))
    }

    /// Where a link of the folder leads, as the kernel writes it.
    ///
    /// # Errors
    /// When the process is gone, does not let us, or is one of the kernel's own, which has no program.
    pub fn link(&self, name: &str) -> Result<Vec<u8>, Fault> {
        let outcome = readlinkat(&self.descriptor, name, Vec::new());
        outcome.map(std::ffi::CString::into_bytes).map_err(|errno| self.missing(name, errno))
    }

    /// The fault behind an error of reading.
    pub(super) fn fault(&self, name: &str, error: std::io::Error) -> Fault {
        match Errno::from_io_error(&error) {
            Some(errno) => self.missing(name, errno),
            None => Fault::Io { pid: self.pid, what: name.to_owned(), source: error },
        }
    }

    /// The folder of a process that ended is empty: whether a name is missing or everything is told apart by `stat`.
    pub(super) fn missing(&self, name: &str, errno: Errno) -> Fault {
        if errno == Errno::NOENT && openat(&self.descriptor, "stat", OFlags::PATH, Mode::empty()).is_err() {
            return Fault::Gone { pid: self.pid };
        }
        Fault::from_errno(self.pid, name, errno)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
