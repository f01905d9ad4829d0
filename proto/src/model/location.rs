//! Places in the code: an address with the source lines that were inlined there.

use super::table::{AttributeSetId, FunctionId, MappingId};

/// A place in the code, keyed by its address. Zero value: "unknown".
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Location {
    /// What is mapped at the address.
    pub mapping: MappingId,
    /// Address in the process. For a caller it may lie behind the call instruction (a return address); 0 is unknown.
    pub address: u64,
    /// The functions inlined there, innermost first, the physical function last; empty where it is not symbolized.
    pub lines: Box<[Line]>,
    /// `profile.frame.type`, `pprof.location.is_folded`.
    pub attributes: AttributeSetId,
}

/// A line of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// Line in its file, from 1; 0 is unknown.
    pub line: u32,
    /// Column, from 1; 0 is unknown.
    pub column: u32,
}
