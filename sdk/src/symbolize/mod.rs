//! From addresses to names: functions, inlined ones too, with file and line where the build has them.
//!
//! In: addresses and the modules they are in. Out: [`Symbol`]s, kept by address. Runs on the `profiler-io` thread, far
//! from any signal; reads executables and their debug information with `blazesym`, whose memory is given back once a
//! window brings nothing new.

mod names;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use blazesym::Pid;
use blazesym::symbolize::source::{Elf, Process, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer as Blazesym};

use self::names::{demangled, is_rust, qualified};
use crate::stats::SymbolStats;
use crate::unwind::modules::{Module, Modules};

/// Addresses kept; beyond it all are forgotten and found anew.
const MAX_KEPT: usize = 1 << 17;

/// What is known of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// The functions there, innermost inlined first, the physical one last; never empty.
    pub(crate) frames: Box<[Frame]>,
    pub(crate) language: Language,
}

/// A function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Demangled.
    pub(crate) name: String,
    /// As the linker knows it, if that differs.
    pub(crate) system_name: String,
    /// Empty where the build has no line tables.
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// What a function was written in, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Native,
}

/// Finds names and keeps them.
#[derive(Debug, Default)]
pub(crate) struct Symbolizer {
    inner: Option<Blazesym>,
    known: HashMap<u64, Arc<Symbol>>,
    /// The modules for which `known` holds.
    modules: Option<Arc<Modules>>,
    pub(crate) stats: SymbolStats,
}

impl Symbolizer {
    /// Finds the names of `addresses` (sorted), which are in one of these states of the loaded modules, the newest last.
    pub(crate) fn learn(&mut self, addresses: &[u64], states: &[Arc<Modules>]) {
        let Some(newest) = states.last() else { return };
        if !self.modules.as_ref().is_some_and(|known| Arc::ptr_eq(known, newest)) || self.known.len() > MAX_KEPT {
            self.known.clear();
            self.modules = Some(Arc::clone(newest));
        }
        self.stats.lines.get_or_insert_with(executable_has_lines);
        let fresh: Vec<u64> = addresses.iter().copied().filter(|address| !self.known.contains_key(address)).collect();
        if fresh.is_empty() {
            // What was parsed to find names is large; the names are kept.
            self.inner = None;
            return;
        }
        let module_of = |address: u64| states.iter().rev().find_map(|modules| modules.find(address));
        let mut rest = fresh.as_slice();
        while let Some(first) = rest.first() {
            let module = module_of(*first);
            let same = |address: &u64| module_of(*address).map(|m| m.range.start) == module.map(|m| m.range.start);
            let run = rest.iter().take_while(|address| same(address)).count();
            let (addresses, others) = rest.split_at(run);
            self.learn_in(module, addresses);
            rest = others;
        }
    }

    /// What is known of `address`.
    pub(crate) fn symbol(&self, address: u64) -> Option<&Symbol> {
        self.known.get(&address).map(AsRef::as_ref)
    }

    fn learn_in(&mut self, module: Option<&Module>, addresses: &[u64]) {
        let inner = self.inner.get_or_insert_with(blazesym);
        let debug = module.map(|module| look_up(inner, module, addresses, true)).unwrap_or_default();
        let linked = module.map(|module| look_up(inner, module, addresses, false)).unwrap_or_default();
        for (index, address) in addresses.iter().enumerate() {
            let linked = linked.get(index).and_then(Symbolized::as_sym);
            let symbol = match debug.get(index).and_then(Symbolized::as_sym).or(linked) {
                Some(sym) => {
                    self.stats.resolved += 1;
                    // Line tables tell the last part of a name only; the symbol table tells all of it.
                    named(sym, linked.map_or(&sym.name, |linked| &linked.name))
                }
                None => {
                    self.stats.unresolved += 1;
                    unresolved(module, *address)
                }
            };
            self.known.insert(*address, Arc::new(symbol));
        }
    }
}

fn blazesym() -> Blazesym {
    // Names are demangled here: the mangled form tells the language.
    Blazesym::builder().enable_demangling(false).build()
}

/// Looks addresses of one module up, in its debug information (`debug`) or in its symbol table only.
fn look_up<'a>(inner: &'a Blazesym, module: &Module, addresses: &[u64], debug: bool) -> Vec<Symbolized<'a>> {
    let found = match &module.path {
        Some(path) => {
            let offsets: Vec<u64> = addresses.iter().map(|address| address - module.bias).collect();
            let mut file = Elf::new(path);
            file.debug_syms = debug;
            inner.symbolize(&Source::from(file), Input::VirtOffset(&offsets))
        }
        // The vDSO has no file; blazesym reads it from memory.
        None => inner.symbolize(&Source::from(Process::new(Pid::Slf)), Input::AbsAddr(addresses)),
    };
    found.unwrap_or_else(|error| {
        tracing::debug!(module = module.name, %error, "no symbols");
        Vec::new()
    })
}

/// blazesym gives the physical function first and the innermost inlined one last, each with the line reached in it.
fn named(sym: &Sym<'_>, linked_name: &str) -> Symbol {
    let language = if is_rust(linked_name) { Language::Rust } else { Language::Native };
    let physical = frame(linked_name, sym.code_info.as_deref());
    let inlined = sym.inlined.iter().rev().map(|function| {
        let frame = frame(&function.name, function.code_info.as_ref());
        match language {
            Language::Rust => Frame { name: qualified(&frame.name, &frame.file), ..frame },
            Language::Native => frame,
        }
    });
    Symbol { frames: inlined.chain([physical]).collect(), language }
}

fn frame(name: &str, code: Option<&CodeInfo<'_>>) -> Frame {
    let demangled = demangled(name);
    Frame {
        system_name: if demangled == name { String::new() } else { name.to_owned() },
        name: demangled,
        file: code.map(|code| code.to_path().to_string_lossy().into_owned()).unwrap_or_default(),
        line: code.and_then(|code| code.line).unwrap_or(0),
        column: code.and_then(|code| code.column).map_or(0, u32::from),
    }
}

/// A name that tells where to look: some backends drop frames without one.
fn unresolved(module: Option<&Module>, address: u64) -> Symbol {
    let name = match module {
        Some(module) => {
            let file = Path::new(&module.name).file_name().map_or(module.name.as_str().into(), |f| f.to_string_lossy());
            format!("{file}+{:#x}", address - module.bias)
        }
        None => format!("[unknown]+{address:#x}"),
    };
    let frame = Frame { name, system_name: String::new(), file: String::new(), line: 0, column: 0 };
    Symbol { frames: Box::new([frame]), language: Language::Native }
}

/// Whether the executable itself has line tables.
fn executable_has_lines() -> bool {
    use object::{Object, ObjectSection, ReadCache};

    let Ok(file) = File::open("/proc/self/exe") else { return false };
    let cache = ReadCache::new(file);
    let Ok(image) = object::File::parse(&cache) else { return false };
    image.sections().any(|section| {
        section.name().is_ok_and(|name| name == ".debug_line" || name == ".zdebug_line") && section.size() > 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol_of(address: u64) -> Symbol {
        let mut symbolizer = Symbolizer::default();
        symbolizer.learn(&[address], &[Arc::new(Modules::read(&Modules::default()))]);
        symbolizer.symbol(address).unwrap().clone()
    }

    /// Check that a function of this test has its name, file and language.
    #[test]
    fn own_functions_have_names_and_lines() {
        let symbol = symbol_of(own_functions_have_names_and_lines as *const () as u64 + 4);
        let frame = symbol.frames.last().unwrap();
        assert_eq!(frame.name, "profiler::symbolize::tests::own_functions_have_names_and_lines");
        assert!(frame.file.ends_with("symbolize/mod.rs") && frame.line > 0, "{frame:?}");
        assert_eq!(symbol.language, Language::Rust);
    }

    /// Check that functions of the C library and of the vDSO are named.
    #[test]
    fn libraries_and_the_vdso_have_names() {
        assert!(symbol_of(libc::getpid as *const () as u64).frames[0].name.contains("getpid"));
        let modules = Modules::read(&Modules::default());
        let vdso = modules.iter().find(|module| module.name == "[vdso]").unwrap();
        let mut symbolizer = Symbolizer::default();
        let addresses: Vec<u64> = vdso.code.clone().step_by(16).collect();
        symbolizer.learn(&addresses, &[Arc::new(Modules::read(&Modules::default()))]);
        let names = addresses.iter().filter_map(|address| symbolizer.symbol(*address));
        assert!(names.clone().any(|symbol| symbol.frames[0].name.contains("clock_gettime")));
    }

    /// Check that an address without a symbol is named by its file, one without a file by itself.
    #[test]
    fn unresolved_addresses_are_named() {
        let modules = Modules::read(&Modules::default());
        let libc = modules.find(libc::getpid as *const () as u64).unwrap();
        let name = unresolved(Some(libc), libc.bias + 0x28b0).frames[0].name.clone();
        assert!(name.starts_with("libc") && name.ends_with("+0x28b0"), "{name}");
        assert_eq!(symbol_of(8).frames[0].name, "[unknown]+0x8");
    }
}
