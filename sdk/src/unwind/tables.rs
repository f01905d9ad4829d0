//! The unwind tables of one module: `.eh_frame_hdr` and `.eh_frame`.
//!
//! In: their bytes, as [`modules`](super::modules) finds them. Out: the same to the handler, which reads them ([`cfi`](super::cfi)): where they are, or a
//! copy of them.

use std::ops::{Deref, Range};

/// Where the unwind tables are, and their bytes.
#[derive(Debug)]
pub(crate) struct UnwindTables {
    pub(crate) header: Tables,
    pub(crate) header_range: Range<u64>,
    pub(crate) frames: Tables,
    pub(crate) frames_range: Range<u64>,
}

/// Bytes of a table: in place or copied.
#[derive(Debug)]
pub(crate) enum Tables {
    InPlace(&'static [u8]),
    Copied(Box<[u8]>),
}

impl Default for Tables {
    fn default() -> Self {
        Self::InPlace(&[])
    }
}

impl Deref for Tables {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

impl PartialEq for UnwindTables {
    /// Copied tables are shorter than those in place, by what does not belong to them.
    fn eq(&self, other: &Self) -> bool {
        let length = self.frames.len().min(other.frames.len());
        *self.header == *other.header
            && self.frames_range == other.frames_range
            && self.frames[..length] == other.frames[..length]
    }
}
