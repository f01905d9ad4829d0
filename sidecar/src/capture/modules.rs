//! Go code that a program loads while it runs (`-buildmode=plugin`), beside its own: found by what the process has mapped.
//!
//! In: a process whose program can load plugins. Out: each [`Module`] once, with its tables, of which each file has its own once, and where it lies. Nothing that was opened is
//! looked at twice; bounded: [`LOOKED`] files, [`MODULES`] of Go's, [`REFUSED`] that cannot be opened. On the thread that captures.
//!
//! Source: runtime/plugin.go (`plugin_lastmoduleinit`); a plugin has a table of functions of its own, and its return addresses are in stacks like any other.

use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Weak};

use profiler_proto::hash::{Map, Set};

use crate::elf;
use crate::go::Program;
use crate::target::{Device, Fault, Mapping, Process};

use super::source::{Code, bias};

/// Most mappings whose files are looked at in all.
const LOOKED: usize = 1024;
/// Most plugins.
const MODULES: usize = 64;
/// Most that cannot be opened at one look: they may be the next time.
const REFUSED: usize = 64;

/// A plugin in a process.
#[derive(Debug)]
pub(super) struct Module {
    /// What its file has.
    pub(super) program: Arc<Program>,
    /// How much higher each of the file's addresses is.
    pub(super) bias: u64,
    /// Where its code lies.
    pub(super) code: Code,
}

impl Module {
    /// A program, if its code is what is mapped there.
    fn of(program: Arc<Program>, mapping: &Mapping) -> Option<Self> {
        let text = program.text().start;
        let at = program.elf().offset_of(text)?;
        let bias = bias(&(mapping.start..mapping.end), mapping.offset, at, text)?;
        let (Mapping { start, end, offset, .. }, path) = (mapping, mapping.path().0.to_owned());
        Some(Self { program, bias, code: Code { start: *start, end: *end, offset: *offset, path } })
    }

    /// Addresses of its functions in the process, as far as its code is mapped.
    pub(super) fn text(&self) -> Range<u64> {
        let (text, Code { start, end, .. }) = (self.program.text(), &self.code);
        let [first, last] = [text.start, text.end].map(|at| at.wrapping_add(self.bias).clamp(*start, *end));
        first..last
    }
}

/// What was looked at of a process.
#[derive(Debug, Default)]
pub(super) struct Modules {
    seen: Set<(u64, u64, u64)>,
    found: usize,
    /// By their files.
    programs: Map<(Device, u64), Weak<Program>>,
    /// Where the next look begins: behind the last of as many as were refused.
    from: u64,
}

impl Modules {
    /// Those that came since this was asked last, but for the program's own code, which is at `own`.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub(super) fn come(&mut self, process: Process, own: &Code) -> Result<Vec<Module>, Fault> {
        let mappings = process.mappings()?;
        let code = mappings.list().iter().filter(|mapping| mapping.executable && mapping.is_file());
        let others = code.filter(|mapping| mapping.path().0 != own.path);
        let (before, behind): (Vec<_>, Vec<_>) = others.partition(|mapping| mapping.start < self.from);
        let (mut new, mut refused) = (Vec::new(), 0);
        self.from = 0;
        for mapping in behind.into_iter().chain(before) {
            if self.seen.len() >= LOOKED || self.found >= MODULES {
                break;
            }
            if refused >= REFUSED {
                self.from = mapping.start;
                break;
            }
            let place = (mapping.start, mapping.end, mapping.offset);
            if self.seen.contains(&place) {
                continue;
            }
            let Ok(file) = process.files()?.mapped(mapping) else {
                refused += 1;
                continue;
            };
            self.seen.insert(place);
            let known = self.programs.get(&(mapping.device, mapping.inode)).and_then(Weak::upgrade);
            let Some(module) = known.or_else(|| open(file)).and_then(|program| Module::of(program, mapping)) else {
                continue;
            };
            self.found += 1;
            self.programs.insert((mapping.device, mapping.inode), Arc::downgrade(&module.program));
            new.push(module);
        }
        Ok(new)
    }
}

/// The Go code of a file; none of others.
fn open(file: File) -> Option<Arc<Program>> {
    let elf = Arc::new(elf::File::open(file).ok()?);
    Program::open(elf).ok()?.map(Arc::new)
}
