//! A Go program as it is loaded in one process, with its plugins: its functions at the process's addresses.
//!
//! In: the program of a file and what the loader added. Out: what a walk of stacks and the search for variables ask ([`Code`]). What was asked about an
//! address is kept, up to [`KNOWN`] of them, for stacks have few; names also within bytes ([`Names`]). On the thread that captures.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use profiler_proto::hash::Map;

use crate::elf::Machine;
use crate::go::{Call, Frames, Program, debug_info};

use super::modules::Module;
use super::names::{Named, Names};
use super::variables::{Code, FUNCTIONS, Function, SYMBOLS};

/// Most addresses that are kept.
const KNOWN: usize = 1 << 16;

/// What it costs to look one up, and each pair of numbers in a table of its function, as the work of reading so many bytes.
const LOOK_UP: u64 = 32 << 10;
const PAIR: u64 = 8;

/// What is known of an address: its function, and how deep the stack is there.
type Known = Option<(Function, Option<u64>)>;

/// A program in a process.
#[derive(Debug)]
pub struct Loaded {
    program: Arc<Program>,
    bias: u64,
    data: Range<u64>,
    extents: HashMap<&'static str, Range<u64>>,
    symbols: HashMap<&'static str, u64>,
    /// What it loaded beside its own code.
    modules: RefCell<Vec<Module>>,
    known: RefCell<Map<u64, Known>>,
    named: RefCell<Names>,
    looked_up: Cell<u64>,
}

impl Loaded {
    /// `program` where each of the file's addresses is `bias` higher.
    #[must_use]
    pub fn new(program: Arc<Program>, bias: u64) -> Self {
        let entries = program.find_all(FUNCTIONS).into_iter().map(|entry| program.function(entry?));
        let extents = FUNCTIONS.iter().zip(entries).filter_map(|(name, found)| {
            found.map(|found| (*name, found.entry.wrapping_add(bias)..found.end.wrapping_add(bias)))
        });
        let symbols = SYMBOLS.iter().zip(variables(&program));
        let symbols = symbols.filter_map(|(name, found)| Some((*name, found?.wrapping_add(bias)))).collect();
        let (extents, data) = (extents.collect(), data(&program));
        let data = data.start.wrapping_add(bias)..data.end.wrapping_add(bias);
        let (modules, known, named, looked_up) = Default::default();
        Self { program, bias, data, extents, symbols, modules, known, named, looked_up }
    }

    /// Whether it can load code while it runs.
    pub(super) fn may_grow(&self) -> bool {
        self.extents.contains_key("plugin.open")
    }

    /// It has these, too.
    pub(super) fn add(&self, modules: Vec<Module>) {
        if !modules.is_empty() {
            self.modules.borrow_mut().extend(modules);
            // Addresses there were nobody's.
            self.forget();
        }
    }

    /// What `told` says of the plugin that has an address; none, where it is of none.
    pub(super) fn of_module<T>(&self, pc: u64, told: impl FnOnce(&Module) -> T) -> Option<T> {
        self.modules.borrow().iter().find(|module| module.text().contains(&pc)).map(told)
    }

    /// Whose code an address is in, and how much higher that lies than its file says.
    fn at(&self, pc: u64) -> (Arc<Program>, u64) {
        if self.program.text().contains(&pc.wrapping_sub(self.bias)) {
            return (Arc::clone(&self.program), self.bias);
        }
        // A call that does not return may be the last instruction.
        let module = self.of_module(pc, |module| (Arc::clone(&module.program), module.bias));
        let before = || self.of_module(pc.wrapping_sub(1), |module| (Arc::clone(&module.program), module.bias));
        module.or_else(before).unwrap_or_else(|| (Arc::clone(&self.program), self.bias))
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The functions that an address of the process stands for.
    #[must_use]
    pub fn frames(&self, pc: u64, call: Call) -> Frames {
        let (program, bias) = self.at(pc);
        let (frames, pairs) = program.frames_in(pc.wrapping_sub(bias), call);
        self.charge(pairs);
        frames
    }

    /// Counts what it cost to look something up among so many pairs; none: it was known.
    fn charge(&self, pairs: Option<u32>) {
        let cost = pairs.map_or(0, |pairs| LOOK_UP + PAIR * u64::from(pairs));
        self.looked_up.set(self.looked_up.get() + cost);
    }

    /// What a return address of the process stands for.
    #[must_use]
    pub fn named(&self, pc: u64) -> Named {
        let mut named = self.named.borrow_mut();
        if let Some(known) = named.known(pc) {
            return known.clone();
        }
        let frames = self.frames(pc, Call::Return);
        let (program, bias) = self.at(pc);
        let (implied, pairs) = program.implied_in(pc.wrapping_sub(bias), frames.len());
        self.charge(pairs);
        let implied = implied.into_iter().map(|pc| pc.wrapping_add(bias)).collect();
        let found = Named { frames, implied };
        named.keep(pc, found.clone());
        found
    }

    /// Bytes that is kept of addresses, for the next time.
    pub(super) fn kept(&self) -> usize {
        let own = self.known.borrow().capacity() * size_of::<(u64, Known)>() + self.named.borrow().bytes();
        // What several have is of each a part.
        let shared = |program: &Arc<Program>| program.kept() / Arc::strong_count(program).max(1);
        own + shared(&self.program) + self.modules.borrow().iter().map(|module| shared(&module.program)).sum::<usize>()
    }

    /// Keeps nothing of them: all are looked up again.
    pub(super) fn forget(&self) {
        self.known.take();
        self.named.take();
        let modules = self.modules.borrow();
        let programs = modules.iter().map(|module| &module.program).chain([&self.program]);
        // What others have, too, they have room for.
        programs.filter(|program| Arc::strong_count(program) == 1).for_each(|program| program.forget());
    }

    fn look_up(&self, pc: u64) -> Known {
        let (program, bias) = self.at(pc);
        let at = pc.wrapping_sub(bias);
        self.looked_up.set(self.looked_up.get() + LOOK_UP);
        let found = program.function(at)?;
        let (depth, pairs) = program.stack_depth_in(at);
        self.looked_up.set(self.looked_up.get() + PAIR * u64::from(pairs));
        let depth = depth.and_then(|depth| u64::try_from(depth).ok());
        let function = Function {
            entry: found.entry.wrapping_add(bias),
            is_top: found.flags & crate::go::Function::TOP_FRAME != 0,
            writes_sp: found.flags & crate::go::Function::WRITES_SP != 0
                && found.func_id != crate::go::Function::CGOCALLBACK,
            is_injected: found.role.is_injected(&found.name),
        };
        Some((function, depth))
    }

    fn known(&self, pc: u64) -> Known {
        let mut known = self.known.borrow_mut();
        if let Some(known) = known.get(&pc) {
            return *known;
        }
        if known.len() >= KNOWN {
            known.clear();
        }
        let found = self.look_up(pc);
        known.insert(pc, found);
        found
    }
}

/// Where variables are by the program's symbols; by its debug information, where these name none.
fn variables(program: &Program) -> Vec<Option<u64>> {
    let named = program.elf().variables(SYMBOLS);
    if named.iter().any(Option::is_some) { named } else { debug_info::variables(program.elf(), SYMBOLS) }
}

/// From the first to the last address that may be written.
fn data(program: &Program) -> Range<u64> {
    let writable = program.elf().loaded().filter(|segment| segment.writable);
    let bounds = writable.map(|segment| (segment.address, segment.address.saturating_add(segment.memory_size)));
    bounds.reduce(|all, next| (all.0.min(next.0), all.1.max(next.1))).map_or(0..0, |(start, end)| start..end)
}

impl Code for Loaded {
    fn machine(&self) -> Machine {
        self.program.elf().machine()
    }

    fn extent(&self, name: &str) -> Option<Range<u64>> {
        self.extents.get(name).cloned()
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    fn data(&self) -> Range<u64> {
        self.data.clone()
    }

    fn function(&self, pc: u64) -> Option<Function> {
        self.known(pc).map(|(function, _)| function)
    }

    fn depth(&self, pc: u64) -> Option<u64> {
        self.known(pc)?.1
    }

    fn looked_up(&self) -> u64 {
        self.looked_up.get()
    }
}
