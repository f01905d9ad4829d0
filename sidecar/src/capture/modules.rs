//! Go code that a program loads while it runs (`-buildmode=plugin`), beside its own: found by what the process has mapped.
//!
//! In: a process whose program can load plugins. Out: each [`Module`] once, with its tables and where it lies. Nothing is looked at twice; bounded: [`LOOKED`]
//! files, [`MODULES`] of Go's. On the thread that captures.
//!
//! Source: runtime/plugin.go (`plugin_lastmoduleinit`); a plugin has a table of functions of its own, and its return addresses are in stacks like any other.

use std::ops::Range;
use std::sync::Arc;

use profiler_proto::hash::Set;

use crate::elf;
use crate::go::Program;
use crate::target::{Fault, Files, Mapping, Process};

use super::source::{Code, bias};

/// Most mappings whose files are looked at in all.
const LOOKED: usize = 1024;
/// Most plugins.
const MODULES: usize = 64;

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
        let mut new = Vec::new();
        for mapping in others {
            if self.seen.len() >= LOOKED || self.found >= MODULES {
                break;
            }
            if self.seen.insert((mapping.start, mapping.end, mapping.offset)) {
                let module = module(&process.files()?, mapping);
                self.found += usize::from(module.is_some());
                new.extend(module);
            }
        }
        Ok(new)
    }
}

/// The Go code of a mapping; none of other files.
fn module(files: &Files, mapping: &Mapping) -> Option<Module> {
    let elf = Arc::new(elf::File::open(files.mapped(mapping).ok()?).ok()?);
    let program = Program::open(elf).ok()??;
    let text = program.text().start;
    let at = program.elf().offset_of(text)?;
    let bias = bias(&(mapping.start..mapping.end), mapping.offset, at, text)?;
    let (Mapping { start, end, offset, .. }, path) = (mapping, mapping.path().0.to_owned());
    Some(Module { program: Arc::new(program), bias, code: Code { start: *start, end: *end, offset: *offset, path } })
}
