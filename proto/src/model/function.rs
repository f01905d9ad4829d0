//! Source functions.

use super::table::StringId;

/// A function of the source. Zero value: "unknown".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Function {
    /// Name for people, demangled.
    pub name: StringId,
    /// Name as the linker knows it; zero if the same or unknown.
    pub system_name: StringId,
    /// Source file.
    pub filename: StringId,
    /// Line of its first statement, from 1; 0 is unknown.
    pub start_line: u32,
}
