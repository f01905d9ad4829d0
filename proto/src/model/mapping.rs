//! What was mapped where: an executable, a library, the vDSO.

use super::table::{AttributeSetId, StringId};

/// What identifies the file of a mapping (OpenTelemetry specification, profiles/mappings.md).
pub(crate) const BUILD_IDS: [&str; 3] =
    ["process.executable.build_id.gnu", "process.executable.build_id.go", "process.executable.build_id.htlhash"];

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
