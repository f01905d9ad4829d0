//! What was mapped where: an executable, a library, the vDSO.

use super::table::{AttributeSetId, StringId};

/// A part of a file mapped as code. Zero value: "no mapping".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it. Invariant on the wire: `start < limit`, or both 0.
    pub limit: u64,
    /// Offset of `start` in the file, in bytes.
    pub offset: u64,
    /// Path of the file, or a name like `[vdso]`.
    pub filename: StringId,
    /// `process.executable.build_id.{gnu,go,htlhash}`, `pprof.mapping.has_*`.
    pub attributes: AttributeSetId,
}
