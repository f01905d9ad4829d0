//! A range of time, as requests ask for it and profiles have it.

/// A range of time, in nanoseconds since 1970 UTC; both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: u64,
    pub(super) to: u64,
}
