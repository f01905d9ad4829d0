//! One thing that was looked at, and what came of it.

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Works,
    /// Something is lost by it.
    Lacks,
    /// CPU time is not sampled because of it.
    Fails,
}

impl Verdict {
    /// As a word of one width.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Works => "ok",
            Self::Lacks => "lacks",
            Self::Fails => "FAILS",
        }
    }
}

/// One thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do; empty: nothing.
    pub remedy: String,
}

impl Check {
    pub(super) fn works(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Works, found: found.into(), remedy: String::new() }
    }

    pub(super) fn lacks(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Lacks, found: found.into(), remedy: remedy.into() }
    }

    pub(super) fn fails(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Fails, found: found.into(), remedy: remedy.into() }
    }
}
