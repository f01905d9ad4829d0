//! Why bytes or a message could not be decoded.
//!
//! Every error names the field, in the way the format's own tools write it, and what is wrong with it. The decoders make
//! these; whoever received the bytes reports them to the sender, or counts them.

/// Why a decoder refused its input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are not of the format at all, or are cut off.
    #[error("not valid {format}: {detail}")]
    Malformed {
        /// `protobuf`, `gzip` or `folded stacks`.
        format: &'static str,
        /// Where and why, as the parser says it.
        detail: String,
    },
    /// A reference points to nothing.
    #[error("{path}: {index} is beyond {table} ({len} elements)")]
    OutOfRange {
        /// The field that holds the reference, as `resource_profiles[0].scope_profiles[0].profiles[2].samples[17].stack_index`.
        path: String,
        /// Its value.
        index: i64,
        /// The table it points into.
        table: &'static str,
        /// How many elements that table has.
        len: usize,
    },
    /// A field holds what it must not hold.
    #[error("{path}: {what}")]
    Invalid {
        /// The field.
        path: String,
        /// What it holds, and what it must be.
        what: String,
    },
    /// A bound of [`Limits`](crate::Limits) does not allow the input.
    #[error("{what} go beyond the limit of {limit}")]
    OverLimit {
        /// What is too much.
        what: &'static str,
        /// The bound, in the unit of its field in [`Limits`](crate::Limits).
        limit: usize,
    },
}

impl DecodeError {
    /// `path` holds what it must not: `what`.
    pub(crate) fn invalid(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), what: what.into() }
    }
}
