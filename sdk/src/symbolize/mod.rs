//! From addresses to names: functions, inlined ones too, with file and line where the build has them.
//!
//! In: addresses and the modules they are in. Out: [`Symbol`]s, kept by module and offset ([`cache`]). Runs on the
//! `profiler-io` thread, far from any signal, and in slices ([`pace`]): between them the thread serves. Executables and
//! debug information are found by [`locate`] and streamed ([`bytes`], [`elf`], [`symtab`], [`dwarf`]); they are closed
//! once windows bring nothing new. Nothing that a file holds can end the host, or take more than a bounded part of it.

mod bytes;
mod cache;
mod dwarf;
mod elf;
mod file_id;
mod inflate;
mod locate;
mod names;
mod pace;
mod symtab;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use profiler_proto::demangle::{Patience, demangled, is_rust};
use profiler_proto::hash::State;

use self::cache::Cache;
use self::dwarf::{Place, Position};
use self::locate::Files;
use self::names::qualified;
use self::pace::{Pace, Unreadable};
use self::symtab::Linked;
use crate::stats::SymbolStats;
use crate::unwind::modules::{Module, Modules};

pub(crate) use self::file_id::file_id;
pub(crate) use self::locate::Folders;

/// Longest name that is shown.
const MAX_NAME: usize = 8 << 10;
/// How long C++ names of a module may be slow.
const SLOW_NAMES: Duration = Duration::from_millis(500);
/// Modules whose files are open at once.
const MAX_OPEN: usize = 4;
/// Windows without anything new after which files are closed: opening them anew would cost more than they take.
const MAX_IDLE: u32 = 6;
/// Steps that writing an address's names counts for.
const NAMING: u32 = 64;
/// Notes on files without names.
const MAX_NOTES: usize = 16;
/// Parts of files that were given up; beyond it all are tried again.
const MAX_GIVEN_UP: usize = 256;

/// What is known of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// The functions there, innermost inlined first, the physical one last; never empty.
    pub(crate) frames: Box<[Frame]>,
    pub(crate) language: Language,
    /// Of the addresses in its module of which the same is known, the one that was met first, as an offset: it stands for all of them.
    pub(crate) first: u64,
}

/// A function at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    /// Demangled.
    pub(crate) name: Arc<str>,
    /// As the linker knows it, if that differs.
    pub(crate) system_name: Arc<str>,
    /// Empty where the build has no line tables.
    pub(crate) file: Arc<str>,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// What a function was written in, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    Rust,
    Native,
}

/// What of a module's files may be given up by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Symbols,
    DebugInformation,
    CppNames,
}

impl fmt::Display for Part {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Symbols => "symbols",
            Self::DebugInformation => "parts of debug information",
            Self::CppNames => "mangled names",
        })
    }
}

/// Finds names and keeps them.
#[derive(Default)]
pub(crate) struct Symbolizer {
    /// Where to look for debug information; `None`: names are not wanted.
    folders: Option<Folders>,
    known: Cache,
    /// The files of the modules that were last asked, the most recent last.
    open: Vec<(u64, Files)>,
    /// Windows in a row that brought nothing new.
    idle: u32,
    given_up: HashSet<(u64, Part)>,
    pace: Pace,
    pub(crate) stats: SymbolStats,
}

impl Symbolizer {
    /// A symbolizer that reads these folders, or one that names nothing.
    pub(crate) fn new(folders: Option<Folders>) -> Self {
        Self { folders, ..Self::default() }
    }

    /// A symbolizer that knows these addresses.
    #[cfg(test)]
    pub(crate) fn knowing(symbols: impl IntoIterator<Item = (u64, Symbol)>, modules: &Modules) -> Self {
        let mut symbolizer = Self::new(None);
        symbols.into_iter().for_each(|(address, symbol)| symbolizer.known.add(place(address, modules).1, &symbol));
        symbolizer
    }

    /// Forgets everything but the account, after a panic that may have left anything behind.
    pub(crate) fn reset(&mut self) {
        *self = Self { folders: self.folders.take(), stats: self.stats.clone(), ..Self::default() };
    }

    /// Finds the names of a window's addresses, each with all that are in the same modules.
    pub(crate) async fn learn(&mut self, places: &[(Vec<u64>, &Modules)]) {
        if self.folders.is_none() {
            return;
        }
        self.known.begin();
        self.look_for_lines(places).await;
        let mut fresh: BTreeMap<u64, (Option<&Module>, Vec<u64>)> = BTreeMap::new();
        let each = places.iter().flat_map(|(addresses, modules)| addresses.iter().map(|address| (*address, *modules)));
        for (address, modules) in each {
            let (module, key) = place(address, modules);
            if !self.known.keep(&key) {
                fresh.entry(key.0).or_insert_with(|| (module, Vec::new())).1.push(key.1);
            }
        }
        self.idle = if fresh.is_empty() { self.idle.saturating_add(1) } else { 0 };
        if self.idle >= MAX_IDLE {
            // What is open takes memory and descriptors; the names are kept.
            self.open.clear();
        }
        for (identity, (module, mut offsets)) in fresh {
            if self.known.is_full() {
                break;
            }
            offsets.sort_unstable();
            offsets.dedup();
            self.learn_in(identity, module, &offsets).await;
        }
    }

    /// What is known of `address` in these modules: its number where nothing is.
    pub(crate) fn symbol(&self, address: u64, modules: &Modules) -> Arc<Symbol> {
        let (module, key) = place(address, modules);
        self.known.find(&key).map_or_else(|| Arc::new(unresolved(module, key.1, &Position::default())), Arc::clone)
    }

    async fn learn_in(&mut self, identity: u64, module: Option<&Module>, offsets: &[u64]) {
        let (linked, places) = match self.look_up(identity, module, offsets).await {
            Ok(found) => found,
            // The process is short of something; a later window may bring the names.
            Err(error) => {
                return self.note(format!("names could not be looked up at some time, and are tried again: {error}"));
            }
        };
        let no_cpp = self.given_up.contains(&(identity, Part::CppNames));
        let mut patience = if no_cpp { Patience::none() } else { Patience::of(SLOW_NAMES) };
        for (index, offset) in offsets.iter().enumerate() {
            let linked = linked.get(index).and_then(Option::as_deref);
            let place = places.get(index).cloned().unwrap_or_default();
            let symbol = match named(*offset, &place, linked, &mut patience) {
                Some(symbol) => {
                    self.stats.resolved += 1;
                    symbol
                }
                None => {
                    self.stats.unresolved += 1;
                    unresolved(module, *offset, &place.position)
                }
            };
            self.known.add((identity, *offset), &symbol);
            if self.pace.step(NAMING).unwrap_or(true) {
                self.pace.rest().await;
            }
        }
        if patience.is_over() && !no_cpp {
            self.give_up(identity, module, Part::CppNames);
        }
    }

    /// What the symbol table and the debug information say.
    async fn look_up(
        &mut self,
        identity: u64,
        module: Option<&Module>,
        offsets: &[u64],
    ) -> std::io::Result<(Vec<Option<Arc<str>>>, Vec<Place>)> {
        let Some(module) = module else { return Ok(Default::default()) };
        let given_up = |part| self.given_up.contains(&(identity, part));
        let (no_symbols, no_debug) = (given_up(Part::Symbols), given_up(Part::DebugInformation));
        let mut files = self.files(identity, module).await?;
        if let Some(why) = &files.missing {
            self.note(format!("{}: {why}: its functions are shown as addresses", module.name));
        }
        let mut linked = Linked::default();
        if !no_symbols {
            match files.functions(offsets, &mut self.pace).await {
                Ok(found) => linked = found,
                Err(Unreadable::TooLong) => linked.in_circles = true,
                Err(error) => {
                    self.note(format!("{}: its symbol table cannot be read: {error}", module.name));
                }
            }
        }
        if linked.in_circles {
            self.give_up(identity, Some(module), Part::Symbols);
        }
        let mut places = vec![Place::default(); offsets.len()];
        let mut in_circles = false;
        let debug = if no_debug { None } else { files.debug(&mut self.pace).await };
        match debug {
            Some(Err(Unreadable::TooLong)) | None => {}
            Some(Ok(debug)) => in_circles = debug.look_up(offsets, &mut places, &mut self.pace).await.is_err(),
            Some(Err(error)) => {
                let note = format!("{}: its debug information cannot be read: {error}", module.name);
                self.note(note);
            }
        }
        if in_circles || files.lead_in_circles() {
            self.give_up(identity, Some(module), Part::DebugInformation);
        }
        self.open.push((identity, files));
        Ok((linked.names, places))
    }

    /// Has it said, once, why there are no names.
    fn note(&mut self, note: String) {
        if self.stats.notes.len() < MAX_NOTES && !self.stats.notes.contains(&note) {
            tracing::warn!("{note}");
            self.stats.notes.push(note);
        }
    }

    fn give_up(&mut self, identity: u64, module: Option<&Module>, part: Part) {
        if let Some(module) = module {
            self.note(format!("{}: its {part} lead round in circles, and are not used", module.name));
        }
        if self.given_up.len() >= MAX_GIVEN_UP {
            self.given_up.clear();
        }
        self.given_up.insert((identity, part));
    }

    /// The files of a module, taken out of those that are open.
    async fn files(&mut self, identity: u64, module: &Module) -> std::io::Result<Files> {
        if let Some(index) = self.open.iter().position(|(known, _)| *known == identity) {
            return Ok(self.open.remove(index).1);
        }
        if self.open.len() >= MAX_OPEN {
            self.open.remove(0);
        }
        self.pace.allow(u64::MAX);
        Files::open(module, self.folders.as_ref().unwrap_or(&Folders::default()), &mut self.pace).await
    }

    /// Finds out, once, whether the executable has line tables.
    async fn look_for_lines(&mut self, places: &[(Vec<u64>, &Modules)]) {
        if self.stats.lines.is_some() {
            return;
        }
        let mut all = places.iter().flat_map(|(_, modules)| modules.iter().map(move |module| (*modules, module)));
        let Some((modules, module)) = all.find(|(_, module)| module.is_executable()) else { return };
        let identity = identity(modules, module);
        if let Ok(files) = self.files(identity, module).await {
            self.stats.lines = Some(files.have_lines());
            self.open.push((identity, files));
        }
    }
}

/// The module that holds an address, and what the address is known by.
fn place(address: u64, modules: &Modules) -> (Option<&Module>, cache::Key) {
    match modules.find(address) {
        Some(module) => (Some(module), (identity(modules, module), address.wrapping_sub(module.bias))),
        None => (None, (0, address)),
    }
}

/// What tells a module from others: its build, wherever it is loaded. Without a build id, it is its place, until some
/// module is unloaded: another may then have taken it.
fn identity(modules: &Modules, module: &Module) -> u64 {
    static HASHED: LazyLock<State> = LazyLock::new(State::default);
    let mut hasher = HASHED.build_hasher();
    (&module.name, &module.build_id).hash(&mut hasher);
    if module.build_id.is_none() {
        let (_, removed) = modules.changes;
        (&module.range, if module.is_executable() { 0 } else { removed }).hash(&mut hasher);
    }
    hasher.finish()
}

/// The symbol at a place, the name of the physical function being the linker's where there is one: line tables tell the
/// last part of a name only.
fn named(offset: u64, place: &Place, linked: Option<&str>, patience: &mut Patience) -> Option<Symbol> {
    let physical = linked.or_else(|| place.functions.first().map(|function| &*function.name));
    let physical = physical.filter(|name| !name.is_empty())?;
    let language = if is_rust(physical) { Language::Rust } else { Language::Native };
    let mut frames = Vec::with_capacity(place.functions.len().max(1));
    let mut position = &place.position;
    for function in place.functions.iter().skip(1).rev() {
        // Without a name, it is taken for a part of the function around it.
        if !function.name.is_empty() {
            frames.push(inlined(&function.name, position, language, patience));
        }
        position = &function.site;
    }
    frames.push(frame(physical, position, patience));
    Some(Symbol { frames: frames.into(), language, first: offset })
}

fn inlined(name: &str, position: &Position, language: Language, patience: &mut Patience) -> Frame {
    let frame = frame(name, position, patience);
    match language {
        Language::Rust => Frame { name: qualified(&frame.name, &frame.file).into(), ..frame },
        Language::Native => frame,
    }
}

fn frame(name: &str, position: &Position, patience: &mut Patience) -> Frame {
    let begun = Instant::now();
    let demangled = demangled(name, MAX_NAME, patience, || begun.elapsed()).text;
    Frame {
        system_name: if demangled == name { Arc::default() } else { name.into() },
        name: demangled.into(),
        file: Arc::clone(&position.file),
        line: position.line,
        column: position.column,
    }
}

/// A name that tells where to look: some backends drop frames without one.
fn unresolved(module: Option<&Module>, offset: u64, position: &Position) -> Symbol {
    let name = match module {
        Some(module) => {
            let file = Path::new(&module.name).file_name().map_or(module.name.as_str().into(), |f| f.to_string_lossy());
            format!("{file}+{offset:#x}")
        }
        None => format!("[unknown]+{offset:#x}"),
    };
    let frame = Frame {
        name: name.into(),
        file: Arc::clone(&position.file),
        line: position.line,
        column: position.column,
        ..Frame::default()
    };
    Symbol { frames: Box::new([frame]), language: Language::Native, first: offset }
}

#[cfg(test)]
mod tests;
