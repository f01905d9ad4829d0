//! What only Go has: its version, names, inlined calls, the depth of stacks, offsets in the runtime, its variables.
//!
//! In: an open ELF file. Out: a [`Program`], which any thread may ask about addresses as the file counts them (the caller takes off what
//! the loader added). Lazy: opening reads a few pages, a name costs a dozen small reads once, what is kept is bounded. It never reads a
//! process, and nothing that stands in a file makes it panic, wait or grow: what is damaged is answered in part, and counted.

pub mod buildinfo;
mod cache;
pub mod debug_info;
mod find;
pub mod fuzz;
mod header;
mod implied;
mod inline;
pub mod layouts;
mod moduledata;
pub mod offsets;
mod pclntab;
mod pcvalue;
mod role;
#[cfg(test)]
mod tests;
mod version;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use role::{Elision, Role};
pub use version::Version;

use crate::elf::{self, Fault, Why};
use cache::{Frames as FrameCache, Names};
pub(crate) use pclntab::FUNCTIONS;
use pclntab::Table;

/// The functions that an address stands for, innermost inlined call first; none for an address that is not in Go's text.
pub type Frames = Arc<[Frame]>;

/// One function of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its name as the linker wrote it, with the shapes of generics: what a Go program's own profile has.
    pub function: Arc<str>,
    /// The source file; empty where the table does not say it.
    pub file: Arc<str>,
    /// The line that runs, or that calls the frame before; 0 where unknown.
    pub line: u32,
    /// The line where the function begins; 0 before Go 1.20, where the table has none.
    pub start_line: u32,
    /// What it is to whoever shows stacks.
    pub role: Role,
}

/// How an address comes to be in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// The instruction that was interrupted, or that faulted.
    Interrupted,
    /// Where a call will return to: the call is the instruction before.
    Return,
}

/// A function of the text, as the linker laid it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its first instruction.
    pub entry: u64,
    /// Where the next one begins.
    pub end: u64,
    /// Its name.
    pub name: Arc<str>,
    /// Bytes of arguments and results on the stack.
    pub args: i32,
    /// Where the call of `deferreturn` begins, from the entry on; 0 where there is none.
    pub deferreturn: u32,
    /// The linker's number for functions that the runtime knows. Source: internal/abi/symtab.go, `FuncID`.
    pub func_id: u8,
    /// Source: internal/abi/symtab.go, `FuncFlag`.
    pub flags: u8,
    /// The line where it begins; 0 before Go 1.20.
    pub start_line: u32,
    /// What it is to whoever shows stacks.
    pub role: Role,
}

impl Function {
    /// `FuncFlagTopFrame`: nothing called it, a stack ends here.
    pub const TOP_FRAME: u8 = 1;
    /// `FuncFlagSPWrite`: it sets the stack pointer as it likes, so [`Program::stack_depth`] says nothing of its callers.
    pub const WRITES_SP: u8 = 2;
    /// `FuncFlagAsm`: written in assembly.
    pub const ASSEMBLY: u8 = 4;
    /// `FuncID_cgocallback`, by which C calls Go: it writes the stack pointer, too, and [`Program::stack_depth`] is right in it all the same, so that stacks go on to
    /// who called C.
    ///
    /// Source: Go 1.21 to 1.27, internal/abi/symtab.go; runtime/traceback.go, `unwinder.resolveInternal`.
    pub const CGOCALLBACK: u8 = 4;
}

/// A Go program or library, shared by all its processes.
#[derive(Debug)]
pub struct Program {
    elf: Arc<elf::File>,
    version: Version,
    table: Table,
    /// `None`: what its functions' numbers stand for is not known.
    roles: Option<role::Ids>,
    frames: FrameCache,
    names: Names,
    damaged: AtomicU64,
}

impl Program {
    /// Finds Go's tables in `elf`; `None` where it was not made by Go.
    ///
    /// # Errors
    ///
    /// Where it was made by Go and its tables are not there, damaged, or of a Go before 1.18.
    pub fn open(elf: Arc<elf::File>) -> Result<Option<Self>, Fault> {
        let version = buildinfo::version(&elf)?;
        if version.as_ref().is_some_and(|version| version.is_before(18)) {
            return Err(Fault::new("the table of functions", 0, Why::Malformed("written by a Go before 1.18")));
        }
        let Some(table) = Table::find(&elf, version.as_ref())? else {
            let missing = Fault::new("the table of functions", 0, Why::Malformed("not in this Go program"));
            return version.map_or(Ok(None), |_| Err(missing));
        };
        let version = version.unwrap_or_default();
        let roles = role::Ids::of(&version, &table);
        let (frames, names, damaged) = (FrameCache::default(), Names::default(), AtomicU64::new(0));
        Ok(Some(Self { elf, version, table, roles, frames, names, damaged }))
    }

    /// The file.
    #[must_use]
    pub fn elf(&self) -> &Arc<elf::File> {
        &self.elf
    }

    /// The Go that built it.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Addresses of Go's own text.
    #[must_use]
    pub fn text(&self) -> Range<u64> {
        self.table.text()
    }

    /// Whether inlined calls are known: not where `moduledata` was not found.
    #[must_use]
    pub fn knows_inlined_calls(&self) -> bool {
        self.table.knows_inlined_calls()
    }

    /// The functions that `pc` stands for. Wrappers that Go's own traces leave out are among them: [`Elision`] says which.
    #[must_use]
    pub fn frames(&self, pc: u64, call: Call) -> Frames {
        self.frames_in(pc, call).0
    }

    /// The same, and among how many pairs of numbers they were looked for; none where they were known.
    pub(crate) fn frames_in(&self, pc: u64, call: Call) -> (Frames, Option<u32>) {
        let Some(at) = pc.checked_sub(u64::from(call == Call::Return)).filter(|at| self.table.text().contains(at))
        else {
            return Default::default();
        };
        if let Some(known) = self.frames.known(at) {
            return (known, None);
        }
        let (frames, pairs) = inline::frames(self, at);
        let frames: Frames = frames.into();
        self.frames.keep(at, &frames);
        (frames, Some(pairs))
    }

    /// The function that `pc` is in.
    #[must_use]
    pub fn function(&self, pc: u64) -> Option<Function> {
        let function = self.table.function(pc)?;
        Some(Function {
            entry: function.entry,
            end: function.end,
            name: self.name(function.name),
            args: function.args,
            deferreturn: function.deferreturn,
            func_id: function.func_id,
            flags: function.flags,
            start_line: function.start_line,
            role: self.role(function.func_id),
        })
    }

    /// How far the stack pointer is below where it was at the function's entry when the instruction at `pc` runs: on x86-64 the return
    /// address is at the stack pointer plus this, on aarch64 the caller's stack pointer is. It is negative where assembly took the return
    /// address from the stack; `None` where there is no such table, and of no meaning in a function that [`Function::WRITES_SP`].
    #[must_use]
    pub fn stack_depth(&self, pc: u64) -> Option<i32> {
        self.stack_depth_in(pc).0
    }

    /// The same, and among how many pairs of numbers it was looked for.
    pub(crate) fn stack_depth_in(&self, pc: u64) -> (Option<i32>, u32) {
        let Some(function) = self.table.function(pc) else { return (None, 0) };
        let mut steps = pcvalue::Steps::new();
        let depth = self.table.value(function.pcsp, &function, pc, &mut steps);
        ((depth != -1).then_some(depth), steps.taken())
    }

    /// The entry of the function of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u64> {
        self.find_all(&[name]).pop().flatten()
    }

    /// The entries of functions by their names: one walk through the tables, for as many names as are asked for.
    #[must_use]
    pub fn find_all(&self, names: &[&str]) -> Vec<Option<u64>> {
        self.table.find_all(names)
    }

    /// Addresses whose tables said what cannot be: they were answered in part.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Bytes of what was looked up and is kept, about.
    pub(crate) fn kept(&self) -> usize {
        self.frames.bytes() + self.names.bytes()
    }

    /// Keeps nothing of it: all is looked up again.
    pub(crate) fn forget(&self) {
        self.frames.forget();
        self.names.forget();
    }

    fn role(&self, func_id: u8) -> Role {
        self.roles.map_or(Role::Normal, |ids| ids.role(func_id))
    }

    fn name(&self, at: u32) -> Arc<str> {
        self.names.text(self.table.name_offset(at), &self.elf)
    }

    fn file(&self, at: u32) -> Arc<str> {
        self.names.text(self.table.file_offset(at), &self.elf)
    }
}
