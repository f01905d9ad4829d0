//! Samples, and the profile that holds them.

use super::kind::Kind;
use super::table::{AttributeSetId, LinkId, StackId};

/// The samples of one kind over one window of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// What is measured.
    pub kind: Kind,
    /// Start of the window, nanoseconds since 1970 UTC.
    pub time_unix_nanos: u64,
    /// Length of the window in nanoseconds.
    pub duration_nanos: u64,
    /// What is true of the whole profile: `profiler.stacks`, losses by cause, …
    pub attributes: AttributeSetId,
    /// The samples; equal (stack, attributes, link) are merged into one by whoever assembles.
    pub samples: Vec<Sample>,
}

impl Profile {
    /// End of the window, nanoseconds since 1970 UTC.
    #[must_use]
    pub fn end_unix_nanos(&self) -> u64 {
        self.time_unix_nanos.saturating_add(self.duration_nanos)
    }
}

/// A value measured at one stack under one set of attributes in one span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Where.
    pub stack: StackId,
    /// Under which tags, on which thread.
    pub attributes: AttributeSetId,
    /// In which span.
    pub link: LinkId,
    /// How much, in the unit of the profile's sample type.
    pub value: i64,
}
