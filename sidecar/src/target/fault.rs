//! What can go wrong with a process of others: it is gone, it is not ours to look at, or it is not what it was.

use std::io;

use rustix::io::Errno;

use crate::privilege::{Capability, Privilege};

/// Why something of a process could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It ended, or its number now is another process's.
    #[error("process {pid} is gone")]
    Gone {
        /// Its number.
        pid: u32,
    },
    /// No process has this number.
    #[error("there is no process {pid} in this pid namespace")]
    Nobody {
        /// The number.
        pid: u32,
    },
    /// It is the number of a thread.
    #[error("{pid} is no process, but a thread of process {of}")]
    Thread {
        /// The number.
        pid: u32,
        /// Its process.
        of: u32,
    },
    /// The kernel does not let us.
    #[error(
        "{what} of process {pid}: not permitted (the same user, or {}, is needed, and no security module against it)",
        .needs.name()
    )]
    Refused {
        /// Its number.
        pid: u32,
        /// What was asked for.
        what: String,
        /// What stands for being the same user.
        needs: Capability,
    },
    /// It has none of that.
    #[error("process {pid} has no {what}")]
    Missing {
        /// Its number.
        pid: u32,
        /// What was asked for.
        what: String,
    },
    /// A pipe, a device, a folder: nothing that a program is read from.
    #[error("{what} of process {pid} is no regular file and is not read")]
    NotRegular {
        /// Its number.
        pid: u32,
        /// The file.
        what: String,
    },
    /// By that name there is another file by now.
    #[error("{what} of process {pid} is another file than the one that it has mapped")]
    Replaced {
        /// Its number.
        pid: u32,
        /// The file.
        what: String,
    },
    /// What the kernel said is not what proc(5) promises.
    #[error("{what} of process {pid} cannot be understood")]
    Unclear {
        /// Its number.
        pid: u32,
        /// What was asked for.
        what: String,
    },
    /// Whatever else.
    #[error("{what} of process {pid}: {source}")]
    Io {
        /// Its number.
        pid: u32,
        /// What was asked for.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Fault {
    /// The fault that an answer of the kernel about `what` of `pid` means.
    pub(super) fn from_errno(pid: u32, what: impl Into<String>, errno: Errno) -> Self {
        let what = what.into();
        match errno {
            Errno::SRCH => Self::Gone { pid },
            Errno::ACCESS => Self::Refused { pid, what, needs: opens() },
            Errno::PERM => Self::Refused { pid, what, needs: Capability::SysPtrace },
            Errno::NOENT => Self::Missing { pid, what },
            errno => Self::Io { pid, what, source: errno.into() },
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Gone { .. } => "start it again, or name another one".to_owned(),
            Self::Nobody { .. } => "give the id of a process that `ps` shows".to_owned(),
            Self::Thread { of, .. } => format!("name process {of}"),
            Self::Refused { needs, .. } => {
                format!("run as the same user, with every capability that the process has, or with {}", needs.name())
            }
            Self::Missing { .. } => {
                "name a process that runs a program: a thread of the kernel has none, nor has one that ended".to_owned()
            }
            Self::Io { source, .. } if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                "raise the limit of open files (RLIMIT_NOFILE)".to_owned()
            }
            _ => format!("run as the same user, or with {}", Capability::SysPtrace.name()),
        }
    }

    /// Whether the process is there no more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Nobody { .. })
    }
}

/// What opens a file of another user's: leave to look at its process first, then to pass over the mode of the file, as `environ`, `fd` and
/// programs may have one.
fn opens() -> Capability {
    let may_look = Privilege::current().is_ok_and(|privilege| privilege.has(Capability::SysPtrace));
    if may_look { Capability::DacReadSearch } else { Capability::SysPtrace }
}
