//! What can go wrong, as a person needs to hear it: what, why, what to do.

/// An error of the sidecar: the message names what was wrong (path, pid, system call, variable) and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct Error {
    /// The thing that was wrong: a path, a pid, a variable, a system call.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

impl Error {
    /// An error about `what`.
    pub fn new(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), remedy: remedy.into() }
    }
}
