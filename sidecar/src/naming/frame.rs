//! What naming makes of addresses: stacks of locations.
//!
//! Plain data, shared between all that refer to it. Made by the rest of `naming`, taken by `aggregate` and `assemble`.

use std::sync::Arc;

use profiler_proto::loss::Degraded;

/// A sample's stack with names, leaf first: kernel before user, as one follows the other.
#[derive(Debug, Clone, Default)]
pub struct Stack {
    /// The locations; equal ones of a process are mostly one allocation.
    pub frames: Arc<[Arc<Location>]>,
    /// In what way it is less than perfect.
    pub flaws: Degraded,
    /// Two stacks with the same number are the same; one that was not seen before may have none.
    pub number: Option<u64>,
}

/// A place in the code of one process, or a remark where none is known.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// Address in the process or the kernel: of the interrupted instruction, or behind a call. 0 of a remark.
    pub address: u64,
    /// What is mapped there.
    pub module: Option<Arc<Module>>,
    /// The functions there, innermost inlined first; never empty.
    pub lines: Arc<[Line]>,
    /// What it was written in.
    pub kind: Kind,
}

/// How finely places in the code of Go are told, which has a line for each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Granularity {
    /// Each instruction is a place of its own, for who reads disassembly: profiles on demand.
    #[default]
    Addresses,
    /// Those of one line, with the same inlined calls, are one place, which has no address, for it has many: what goes out all the time.
    Lines,
}

/// What tells a location of a profile from others: equal ones are one. In their order, neighbours have much in common, and what takes long to compare comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<'a> {
    has_module: bool,
    /// 0 where module and lines say all that a reader is shown of it.
    pub address: u64,
    /// File, first line of the function, and line of what the others are inlined in.
    outer: Option<(&'a str, u32, u32)>,
    lines: &'a [Line],
    kind: Kind,
    /// What is mapped there, if its build has a name: receivers tell files by their builds.
    pub module: Option<&'a Arc<Module>>,
}

/// What code was written in: `profile.frame.type`.
///
/// Source: OpenTelemetry semantic conventions, `profile.frame.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Go.
    Go,
    /// Rust, by its mangling.
    Rust,
    /// C and whatever else was compiled.
    Native,
    /// The kernel.
    Kernel,
    /// No code: a remark of whoever took the stack.
    Remark,
}

/// A line of a function.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// The function.
    pub function: Arc<Function>,
    /// From 1; 0: not known.
    pub line: u32,
}

/// A function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// For people.
    pub name: Arc<str>,
    /// As the linker knows it, if that differs.
    pub system_name: Arc<str>,
    /// Source file; empty where that is not known.
    pub file: Arc<str>,
    /// Line where it begins, from 1; 0: not known.
    pub start_line: u32,
}

/// A part of a file mapped as code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Module {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Path of the file as the process sees it, or a name like `[vdso]`.
    pub path: Arc<str>,
    /// What names the build; empty where there is no file to tell it.
    pub build_ids: Arc<[(BuildId, Box<str>)]>,
}

/// How a build is named.
///
/// Source: OpenTelemetry specification, profiles/mappings.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BuildId {
    /// The linker's note, hexadecimal.
    Gnu,
    /// Go's note.
    Go,
    /// A hash of the file.
    Hash,
}

impl BuildId {
    /// The attribute's key.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Gnu => "process.executable.build_id.gnu",
            Self::Go => "process.executable.build_id.go",
            Self::Hash => "process.executable.build_id.htlhash",
        }
    }
}

impl Kind {
    /// The attribute's value; remarks have none.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Go => Some("go"),
            Self::Rust => Some("rust"),
            Self::Native => Some("native"),
            Self::Kernel => Some("kernel"),
            Self::Remark => None,
        }
    }
}

impl Location {
    /// A remark.
    #[must_use]
    pub fn remark(text: &str) -> Arc<Self> {
        Arc::new(Self { address: 0, module: None, lines: lines_of(text), kind: Kind::Remark })
    }

    /// What tells it from other locations of a profile.
    #[must_use]
    pub fn place(&self, granularity: Granularity) -> Place<'_> {
        let is_known =
            |module: &&Arc<Module>| (module.start..module.end).contains(&self.address) && !module.build_ids.is_empty();
        let module = self.module.as_ref().filter(is_known);
        // Of what is in no module, the address alone says where it is.
        let is_told_by_lines =
            self.kind == Kind::Go && module.is_some() && self.lines.iter().all(|line| line.line != 0);
        let address = if granularity == Granularity::Lines && is_told_by_lines { 0 } else { self.address };
        let outer = self.lines.last();
        let outer = outer.map(|line| (&*line.function.file, line.function.start_line, line.line));
        Place { has_module: module.is_some(), address, outer, lines: &self.lines, kind: self.kind, module }
    }

    /// Bytes of memory, about, its names counted as if no other location had them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of = |function: &Function| function.name.len() + function.system_name.len() + function.file.len();
        let lines: usize = self.lines.iter().map(|line| size_of::<Line>() + of(&line.function)).sum();
        size_of::<Self>() + lines
    }

    /// The name of the physical function.
    #[must_use]
    pub fn function(&self) -> &str {
        self.lines.last().map_or("", |line| &line.function.name)
    }
}

/// A name that is all that is known.
pub(super) fn lines_of(name: &str) -> Arc<[Line]> {
    Arc::new([Line { function: Arc::new(Function { name: name.into(), ..Function::default() }), line: 0 }])
}
