//! What can go wrong, and whose doing it is.
//!
//! Leaf module: every other one may use it. No dependency's type is part of it; a cause is kept as text or `io::Error`.

use std::fmt;
use std::io;

/// Why TLS cannot be had, and what to do about it.
#[cfg(all(not(feature = "tls"), any(feature = "export", feature = "serve")))]
pub(crate) const NO_TLS: &str = "this program is built without TLS";
#[cfg(all(not(feature = "tls"), any(feature = "export", feature = "serve")))]
pub(crate) const ADD_TLS: &str = "build it with the feature `tls` of profiler-sdk, which is a default one";

/// Whose doing an [`Error`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed or configured something that cannot be.
    Misuse,
    /// The machine, the kernel or its limits refused something.
    Environment,
    /// A peer over the network.
    Peer,
    /// A bug of this crate: please report it.
    Bug,
}

/// An error of this crate: what failed, with which value, why, and what to do about it.
pub struct Error {
    kind: ErrorKind,
    /// "PROFILER_RATE_HZ=0", "bind 127.0.0.1:6060", …
    what: String,
    why: String,
    remedy: &'static str,
    source: Option<io::Error>,
}

impl Error {
    /// A setting that cannot be: `name` is the variable or method, `value` what it was set to.
    #[cfg(any(feature = "export", feature = "serve"))]
    pub(crate) fn setting(name: &str, value: impl fmt::Display, why: impl Into<String>, remedy: &'static str) -> Self {
        let what = format!("{name}={:?}", shortened(&value.to_string()));
        Self { kind: ErrorKind::Misuse, what, why: why.into(), remedy, source: None }
    }

    /// A call that cannot be made now.
    #[cfg(feature = "export")]
    pub(crate) fn misuse(what: impl Into<String>, why: impl Into<String>, remedy: &'static str) -> Self {
        Self { kind: ErrorKind::Misuse, what: what.into(), why: why.into(), remedy, source: None }
    }

    /// Something the machine refused; `what` names the system call, path or address.
    #[cfg(any(feature = "export", feature = "serve"))]
    pub(crate) fn environment(what: impl Into<String>, source: io::Error, remedy: &'static str) -> Self {
        let why = source.to_string();
        Self { kind: ErrorKind::Environment, what: what.into(), why, remedy, source: Some(source) }
    }

    /// Whose doing it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.remedy)
    }
}

/// As for people: it is what a program shows whose `main` returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// At most 80 characters of a value, for a message.
#[cfg(any(feature = "export", feature = "serve"))]
fn shortened(value: &str) -> String {
    match value.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

#[cfg(all(test, any(feature = "export", feature = "serve")))]
mod tests {
    use super::*;

    /// Check that a message names value, reason and remedy, and cuts what is long.
    #[test]
    fn a_message_names_value_reason_and_remedy() {
        let error = Error::setting("PROFILER_RATE_HZ", "0", "must be 1 to 10000", "set a rate such as 100");
        assert_eq!(error.to_string(), "PROFILER_RATE_HZ=\"0\": must be 1 to 10000; set a rate such as 100");
        let long = Error::setting("X", "y".repeat(1000), "too long", "cut it");
        assert!(long.to_string().len() < 200);
    }
}
