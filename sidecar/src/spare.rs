//! Whether there are files left to open: what waits for signals panics where there are none.
//!
//! In: who needs them. Out: that there are, or what to do. Opens them and closes them again: pipes, for a container need not have any file.

use std::io;

use crate::error::Error;

/// What a command needs when it begins: for its own work, a connection or two, a process that is read.
const FILES: usize = 12;

/// # Errors
/// When there are too few, of which `what` has need.
pub(crate) fn files(what: &str) -> Result<(), Error> {
    let pipes = (0..FILES / 2).map(|_| io::pipe()).collect::<io::Result<Vec<_>>>();
    pipes
        .map(drop)
        .map_err(|error| Error::new(what, error.to_string(), "raise the limit of open files (RLIMIT_NOFILE)"))
}
