//! What is wrong with a file, in terms of the file.

use std::io;

/// A part of a file that is not as it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{part} at {at:#x}: {why}")]
pub struct Fault {
    /// The part: "a program header", "the table of functions".
    pub part: &'static str,
    /// Where it is: an offset in the file or an address, as the part is found.
    pub at: u64,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It is not, or not wholly, in the file.
    #[error("it lies outside of the file")]
    Outside,
    /// The system did not let us read it.
    #[error("it cannot be read: {0}")]
    Unreadable(io::ErrorKind),
    /// It says what cannot be.
    #[error("{0}")]
    Malformed(&'static str),
    /// There is more of it than any program has.
    #[error("{0} is more than any program has")]
    TooMuch(u64),
    /// So many bytes of the file were read through, and still there is no end.
    #[error("{0} bytes were read of the file before it, which is more than any program takes")]
    Exhausting(u64),
}

impl Fault {
    /// A fault of `part`.
    #[must_use]
    pub fn new(part: &'static str, at: u64, why: Why) -> Self {
        Self { part, at, why }
    }
}
