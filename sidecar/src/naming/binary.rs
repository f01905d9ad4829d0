//! A program or library, shared by all processes that run it: what is at an address of its own numbering.
//!
//! In: an open file. Out: functions with lines, Go's depth of the stack, what names the build. Reads the file in pieces, as it is asked;
//! whatever stands in it, an answer.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use profiler_proto::demangle::{Name, Patience, demangled};
use sha2::{Digest, Sha256};

use super::allowance::Allowance;
use super::frame::{BuildId, Function, Kind, Line};
use super::vdso::Frames;
use crate::clock::thread_cpu;
use crate::elf::{self, Segment};
use crate::go::{self, Call, Program, Role};
use crate::target::{Device, Root};

/// Stands for a name that a table of Go does not have, where it has one of a function that is inlined there, or into which it is.
const UNNAMED: &str = "[unnamed]";

/// Longest name that is shown.
const MAX_NAME: usize = 2048;
/// CPU time that C++ names of a file may take beside what is usual: a tenth of what all files of a disk have for one answer.
const SLOW_NAMES: Patience = Patience::of(Duration::from_millis(100));

/// CPU time for a thousand entries of a table of symbols.
const ENTRIES: Duration = Duration::from_micros(12);

/// Which file, which state of it, and, where it has no symbol table of its own, in whose root one that was split off is looked for: another container may have
/// none, or its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    root: Option<Root>,
}

/// An open binary.
#[derive(Debug)]
pub(super) struct Binary {
    /// `None`: not ELF.
    elf: Option<Arc<elf::File>>,
    go: Option<Program>,
    /// Where its symbols are, if they were split off.
    split: Option<elf::File>,
    /// Of the kernel's library: where callers are.
    frames: Option<Frames>,
    build_ids: Arc<[(BuildId, Box<str>)]>,
    /// How long its C++ names may still be slow to read.
    patience: Mutex<Patience>,
    /// What is loaded where.
    segments: Arc<[Segment]>,
    /// Of all files: what reading their symbols may take.
    allowance: Arc<Allowance>,
}

/// What is known of an address.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// Innermost inlined first; empty where there is no name.
    pub(super) lines: Vec<(Line, Role)>,
    /// What it was written in.
    pub(super) kind: Option<Kind>,
    /// Of Go, and of the kernel's library where it has no frame: how far the stack pointer is below the return address there.
    pub(super) depth: Option<i32>,
    /// Of Go: whether the function sets the stack pointer as it likes, so that the depth may say nothing.
    pub(super) writes_sp: bool,
    /// Of Go: where the function begins.
    pub(super) entry: Option<u64>,
    /// Of Go: nothing called it.
    pub(super) is_top: bool,
    /// There may be a name, which is not looked for now.
    pub(super) is_put_off: bool,
}

impl Identity {
    /// That of an open file that has all its symbols.
    pub(super) fn of(file: &File) -> std::io::Result<Self> {
        let stat = file.metadata()?;
        let modified = (stat.mtime(), stat.mtime_nsec());
        Ok(Self { device: stat.dev(), inode: stat.ino(), size: stat.size(), modified, root: None })
    }

    /// Where it lies.
    pub(super) fn device(&self) -> Device {
        Device { major: rustix::fs::major(self.device), minor: rustix::fs::minor(self.device) }
    }

    /// That of the same file, as a process with this root sees it.
    pub(super) fn in_root(self, root: Option<Root>) -> Self {
        Self { root, ..self }
    }

    /// Whether both are of one file, whatever the root.
    pub(super) fn is_same_file(self, other: Self) -> bool {
        self.in_root(None) == other.in_root(None)
    }
}

impl Binary {
    /// Reads the head of `file`, and looks for its symbols by `split` if they are not in it. One that is no ELF file, or a damaged one, has no names.
    pub(super) fn open(
        file: File,
        split: impl FnOnce(&elf::File) -> Option<elf::File>,
        allowance: &Arc<Allowance>,
    ) -> Self {
        let hash = hash(&file);
        match elf::File::open(file) {
            Ok(elf) => {
                let split = split(&elf);
                Self { split, ..Self::of(elf, hash, allowance) }
            }
            Err(fault) => {
                tracing::debug!(%fault, "a mapped file has no names");
                Self {
                    elf: None,
                    segments: Arc::default(),
                    go: None,
                    split: None,
                    frames: None,
                    build_ids: build_ids(None, hash),
                    patience: Mutex::new(SLOW_NAMES),
                    allowance: Arc::clone(allowance),
                }
            }
        }
    }

    /// The same of the image of the kernel's library.
    pub(super) fn of_vdso(bytes: Vec<u8>, allowance: &Arc<Allowance>) -> Option<Self> {
        let library = elf::File::of_bytes(bytes).ok()?;
        let frames = Frames::of(&library);
        Some(Self { frames, ..Self::of(library, None, allowance) })
    }

    fn of(elf: elf::File, hash: Option<String>, allowance: &Arc<Allowance>) -> Self {
        let elf = Arc::new(elf);
        let go = Program::open(Arc::clone(&elf)).unwrap_or_else(|fault| {
            tracing::debug!(%fault, "the tables of a Go program cannot be read");
            None
        });
        Self {
            build_ids: build_ids(Some(&elf), hash),
            segments: elf.loaded().copied().collect(),
            elf: Some(elf),
            go,
            split: None,
            frames: None,
            patience: Mutex::new(SLOW_NAMES),
            allowance: Arc::clone(allowance),
        }
    }

    /// The file.
    #[cfg(test)]
    pub(super) fn elf(&self) -> Option<&elf::File> {
        self.elf.as_deref()
    }

    /// Bytes of memory that its symbols take.
    pub(super) fn symbol_bytes(&self) -> usize {
        [self.elf.as_deref(), self.split.as_ref()].into_iter().flatten().map(elf::File::symbol_bytes).sum()
    }

    /// Bytes of what was looked up in Go's tables and is kept, about.
    pub(super) fn kept(&self) -> usize {
        self.go.as_ref().map_or(0, Program::kept)
    }

    /// Keeps nothing of that.
    pub(super) fn forget(&self) {
        self.go.iter().for_each(Program::forget);
    }

    /// Whether it has no symbol table of its own.
    pub(super) fn is_stripped(&self) -> bool {
        self.elf.as_ref().is_some_and(|elf| !elf.has_symbol_table())
    }

    /// What names the build.
    pub(super) fn build_ids(&self) -> &Arc<[(BuildId, Box<str>)]> {
        &self.build_ids
    }

    /// What of it is loaded where.
    pub(super) fn segments(&self) -> &Arc<[Segment]> {
        &self.segments
    }

    /// What is at an address of the file's numbering.
    pub(super) fn find(&self, address: u64, call: Call) -> Found {
        let go = self.go.as_ref().and_then(|go| in_go(go, address, call)).unwrap_or_default();
        let symbol = if go.lines.is_empty() { self.in_symbols(address, call) } else { None };
        match symbol {
            Some(symbol) => {
                let depth = go.depth.or_else(|| self.frames.as_ref()?.depth(address));
                Found { lines: symbol.lines, kind: symbol.kind, is_put_off: symbol.is_put_off, depth, ..go }
            }
            None => go,
        }
    }

    /// By the symbol table: that which was split off has more than what is left.
    fn in_symbols(&self, address: u64, call: Call) -> Option<Found> {
        let elf = self.elf.as_ref()?;
        let at = address.checked_sub(u64::from(call == Call::Return))?;
        let mut is_put_off = false;
        let mut symbol_in = |file: &elf::File| {
            let work = ENTRIES.saturating_mul(u32::try_from(file.symbol_work()).unwrap_or(u32::MAX)) / 1000;
            is_put_off |= !work.is_zero() && !self.allowance.takes(work, Instant::now());
            if is_put_off { None } else { file.symbols()?.find(file, at) }
        };
        let symbol = self.split.as_ref().and_then(&mut symbol_in).or_else(|| symbol_in(elf));
        let Some(symbol) = symbol else { return is_put_off.then(|| Found { is_put_off, ..Found::default() }) };
        let (name, kind) = self.shown(&symbol.name);
        // Which of several Rust functions of a name it was, build and address tell, too: its other name is long, and says nothing else.
        let has_one_name = kind == Kind::Rust || name == symbol.name;
        let system_name = if has_one_name { Arc::default() } else { symbol.name.into() };
        let function = Function { name: name.into(), system_name, ..Function::default() };
        let lines = vec![(Line { function: Arc::new(function), line: 0 }, Role::Normal)];
        Some(Found { lines, kind: Some(kind), ..Found::default() })
    }

    /// What people call a symbol, and what it was written in.
    fn shown(&self, symbol: &str) -> (String, Kind) {
        let mut patience = self.patience.lock().unwrap_or_else(PoisonError::into_inner);
        let had_patience = !patience.is_over();
        let Name { text, is_rust } = demangled(symbol, MAX_NAME, &mut patience, thread_cpu);
        if had_patience && patience.is_over() {
            tracing::warn!(
                symbol,
                "C++ names of a file take too long to read: from here on they are shown as its linker has them"
            );
        }
        (text, if is_rust { Kind::Rust } else { Kind::Native })
    }
}

/// By Go's tables.
fn in_go(go: &Program, address: u64, call: Call) -> Option<Found> {
    let function = go.function(address);
    // Behind a call there is always something of its function: where another one begins somebody was interrupted, and the register for return addresses had that, as behind
    // `asyncPreempt` on arm64. So do Go's own traces (`symPC` in runtime/traceback.go).
    let is_entry = function.as_ref().is_some_and(|function| function.entry == address);
    let frames = go.frames(address, if is_entry { Call::Interrupted } else { call });
    if frames.is_empty() {
        return None;
    }
    let is_named = frames.iter().any(|frame| !frame.function.is_empty());
    // The depth is that of the instruction which runs next, here as in Go's own traces.
    let has = |flag| function.as_ref().is_some_and(|function| function.flags & flag != 0);
    Some(Found {
        lines: if is_named { frames.iter().map(line).collect() } else { Vec::new() },
        kind: Some(Kind::Go),
        depth: go.stack_depth(address),
        writes_sp: has(go::Function::WRITES_SP),
        entry: function.as_ref().map(|function| function.entry),
        is_top: has(go::Function::TOP_FRAME),
        is_put_off: false,
    })
}

fn line(frame: &go::Frame) -> (Line, Role) {
    let function = Function {
        name: if frame.function.is_empty() { UNNAMED.into() } else { Arc::clone(&frame.function) },
        system_name: Arc::default(),
        file: Arc::clone(&frame.file),
        start_line: frame.start_line,
    };
    (Line { function: Arc::new(function), line: frame.line }, frame.role)
}

/// What names a build: what its linkers noted, else a hash of the file.
fn build_ids(elf: Option<&elf::File>, hash: Option<String>) -> Arc<[(BuildId, Box<str>)]> {
    let mut ids: Vec<(BuildId, Box<str>)> = Vec::new();
    if let Some(id) = elf.and_then(elf::File::build_id).filter(|id| !id.is_empty() && id.len() <= 64) {
        ids.push((BuildId::Gnu, hex(&id).into()));
    }
    if let Some(id) = elf.and_then(elf::File::go_build_id).filter(|id| !id.is_empty() && id.len() <= 256) {
        ids.push((BuildId::Go, id.into()));
    }
    if ids.is_empty() {
        ids.extend(hash.map(|hash| (BuildId::Hash, hash.into())));
    }
    ids.into()
}

/// Of the first and the last 4,096 bytes, which may be the same ones, and the length, big-endian: the first half of their SHA-256.
///
/// Source: OpenTelemetry specification, profiles/mappings.md, `process.executable.build_id.htlhash`.
fn hash(file: &File) -> Option<String> {
    const END: u64 = 4096;
    let len = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    let part = END.min(len);
    let mut context = Sha256::new();
    for start in [0, len - part] {
        let mut bytes = vec![0; usize::try_from(part).ok()?];
        file.read_exact_at(&mut bytes, start).ok()?;
        context.update(&bytes);
    }
    context.update(len.to_be_bytes());
    context.finalize().get(..16).map(hex)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
