//! From addresses of a process to functions: Go's tables, ELF symbols, the kernel's.
//!
//! In: a [`Sample`], the process that it is of. Out: a [`Stack`] of locations, each with its functions, inlined ones too, and the mapping that
//! it lies in; the callers that the kernel side's walk passes over are put in ([`mend`]). What has no name is named by file and
//! address. Runs on the thread that drains. Files and memory of targets may hold anything: an answer or a count of what is missing, in bounded
//! memory, never a guess. And they may let a reader wait for ever: a thread beside this one reads them ([`reader`]).

mod allowance;
mod binary;
mod book;
mod errand;
mod frame;
pub mod kernel;
pub mod mend;
mod process;
mod reader;
mod space;
mod split;
mod spot;
mod stacks;
mod vdso;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use profiler_proto::hash::Map;

use crate::bpf::Programs;
use crate::sample::Sample;
use crate::target;

use process::Process;
use reader::Reader;

pub use frame::{BuildId, Function, Granularity, Kind, Line, Location, Module, Place, Stack};
pub use kernel::Kernel;

/// Most programs of processes of which names are kept.
const MOST: usize = 1024;
/// Most bytes of names and locations that are kept.
const MAX_BYTES: usize = 16 << 20;
/// So many are left where there were more.
const LEFT_BYTES: usize = MAX_BYTES / 4 * 3;
/// Most processes that are looked at in a second before they have samples: a machine that makes a thousand a second has no time for more.
const MAX_PREPARED: u32 = 50;
/// Most functions of the kernel that are kept as locations.
const MAX_KERNEL: usize = 1 << 15;

/// Names stacks.
#[derive(Debug, Default)]
pub struct Namer {
    reader: Reader,
    /// Of each process the programs that it runs one after the other: samples of one that is over may still come.
    processes: BTreeMap<Key, Process>,
    kernel: Kernel,
    /// By where the function begins.
    kernel_locations: Map<u64, Arc<Location>>,
    bytes: usize,
    /// The number that the last stack got.
    numbers: u64,
    /// Memory for the key of a stack.
    words: Vec<u64>,
    /// Counts samples, to tell which process had none for longest.
    clock: u64,
    /// Since when how many processes were looked at in advance.
    prepared: Option<(Instant, u32)>,
    stats: Stats,
}

/// A process, and the number of a program that it runs or ran; 0 where programs cannot be told apart.
type Key = (target::Process, u64);

/// What became of stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Stacks in all.
    pub stacks: u64,
    /// Those of which every frame from the leaf to the root is there.
    pub whole: u64,
    /// Those whose top lacked a caller that was put in.
    pub mended: u64,
    /// Those of Go of whose top it cannot be told whether a caller is missing.
    pub unmended: u64,
    /// Those of processes whose mappings cannot be read: gone already, or not ours to look at.
    pub closed: u64,
    /// Of these, those of programs that were replaced by another one before anybody looked: their addresses are told, and no names.
    pub replaced: u64,
    /// Frames in all.
    pub frames: u64,
    /// Frames without a name.
    pub unnamed: u64,
    /// How often a file or a process gave no answer in time, or was not asked because of that.
    pub unanswered: u64,
    /// How often the mappings of a process were forgotten, as those of all took too much memory.
    pub unmapped: u64,
    /// Mappings of the processes that are known now which are left out, or kept without their name, as there are too many of them.
    pub left_out: u64,
}

impl Namer {
    /// A namer that knows these functions of the kernel.
    #[must_use]
    pub fn new(kernel: Kernel) -> Self {
        Self { kernel, ..Self::default() }
    }

    /// The same, which is told which program each process runs, so that samples have names of their own program and of no other.
    #[must_use]
    pub fn knowing(self, programs: Option<Programs>) -> Self {
        Self { reader: Reader::knowing(programs), ..self }
    }

    /// The number of the program that a process runs, as samples have it; 0 where nobody can tell, `None` while it is becoming another one.
    pub fn running(&mut self, process: target::Process) -> Option<u64> {
        self.reader.running(process)
    }

    /// The stack of a sample of `process`.
    pub fn name(&mut self, process: target::Process, sample: &Sample, now: Instant) -> Stack {
        self.reader.keep();
        let key = (process, self.reader.number(sample));
        let before = self.look(key, now);
        if !sample.kernel.is_empty() && self.kernel.refresh(now) {
            self.kernel_locations.clear();
        }
        let kernel = self.kernel_frames(sample);
        let Some(known) = self.processes.get_mut(&key) else {
            return Stack { frames: kernel.into(), ..Stack::default() };
        };
        let (reader, numbers, words) = (&mut self.reader, &mut self.numbers, &mut self.words);
        let walked = walk::Walk { process: known, reader, numbers, words, now }.walked(sample);
        let outcome = walked.outcome;
        let stack = walked.below(kernel);
        known.stats.add(&outcome, &stack);
        self.stats.add(&outcome, &stack);
        self.bytes = self.bytes.saturating_add(known.bytes()).saturating_sub(before);
        stack
    }

    /// Looks up what samples of a process need that are to be named next, all of it in one go: each by itself costs a wait.
    pub fn learn(&mut self, process: target::Process, samples: &[&Sample], now: Instant) {
        self.reader.keep();
        let numbers: Vec<u64> = samples.iter().map(|sample| self.reader.number(sample)).collect();
        for number in numbers.iter().copied().collect::<BTreeSet<u64>>() {
            let before = self.look((process, number), now);
            let Some(known) = self.processes.get_mut(&(process, number)) else { continue };
            let own = samples.iter().zip(&numbers).filter(|(_, of)| **of == number);
            let addresses = own.flat_map(|(sample, _)| walk::addresses_of(sample));
            known.learn(addresses, &mut self.reader, now);
            self.bytes = self.bytes.saturating_add(known.bytes()).saturating_sub(before);
        }
    }

    /// Looks at a process before its first sample, which one that ends at once may not outlive; some of them, where there are very many.
    pub fn prepare(&mut self, process: target::Process, now: Instant) {
        let second = self.prepared.filter(|(since, _)| now.saturating_duration_since(*since).as_secs() == 0);
        let (since, count) = second.unwrap_or((now, 0));
        if count >= MAX_PREPARED {
            return;
        }
        let Some(number) = self.reader.running(process) else { return };
        let key = (process, number);
        if self.processes.contains_key(&key) {
            return;
        }
        self.prepared = Some((since, count + 1));
        let before = self.look(key, now);
        if let Some(known) = self.processes.get_mut(&key) {
            known.open_program(&mut self.reader, now);
            self.bytes = self.bytes.saturating_add(known.bytes()).saturating_sub(before);
        }
    }

    /// Forgets a process: it ended, or runs another program now.
    pub fn forget(&mut self, process: target::Process) {
        let of_it: Vec<Key> = self.programs_of(process).map(|(key, _)| *key).collect();
        of_it.iter().for_each(|key| self.remove(key));
    }

    /// Forgets all processes, and what is kept of their binaries; what is needed of them is looked up again.
    pub fn forget_all(&mut self) {
        (self.processes, self.bytes) = (BTreeMap::new(), 0);
        self.reader.book().forget();
    }

    /// What became of stacks so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let left_out = self.processes.values().map(Process::left_out).sum();
        Stats { unanswered: self.reader.unanswered(), left_out, ..self.stats }
    }

    /// What became of the stacks of each process of which something is known; [`MOST`] at most.
    #[must_use]
    pub fn stats_by_process(&self) -> BTreeMap<target::Process, Stats> {
        let mut of_each: BTreeMap<target::Process, Stats> = BTreeMap::new();
        for ((process, _), known) in &self.processes {
            let stats = of_each.entry(*process).or_default();
            *stats = stats.and(known.stats);
        }
        of_each
    }

    /// Whether the kernel's functions have names.
    #[must_use]
    pub fn kernel(&self) -> kernel::State {
        self.kernel.state()
    }

    /// Bytes of names and locations, the kernel's table included, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes + self.kernel.bytes()
    }

    /// Bytes of those that [`Self::forget_all`] lets go: of processes and their binaries.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes + self.reader.book().kept()
    }

    /// How many binaries are open.
    #[must_use]
    pub fn open_binaries(&self) -> usize {
        self.reader.book().len()
    }

    /// How many files and processes are waited for still.
    #[must_use]
    pub fn away(&self) -> usize {
        self.reader.away() + self.reader.book().closing()
    }

    fn programs_of(&self, process: target::Process) -> impl Iterator<Item = (&Key, &Process)> {
        self.processes.range((process, 0)..=(process, u64::MAX))
    }

    fn remove(&mut self, key: &Key) {
        if let Some(known) = self.processes.remove(key) {
            self.bytes = self.bytes.saturating_sub(known.bytes());
        }
    }

    /// Has the mappings of a program read if it is time to; the bytes that were known of it before, for the sum of all to be kept.
    fn look(&mut self, key: Key, now: Instant) -> usize {
        self.make_room();
        self.clock += 1;
        let known = self.processes.entry(key).or_insert_with(|| Process::new(key.0, key.1));
        known.used = self.clock;
        let before = known.bytes();
        known.refresh(&mut self.reader, now);
        before
    }

    /// Keeps what is kept within its bounds.
    fn make_room(&mut self) {
        // Who has most loses most, so that one with new addresses without end takes nothing from the others: stacks, which are only found sooner; names; and mappings, of which one
        // process can have a hundred thousand, until they are read the next time.
        if self.bytes > MAX_BYTES {
            while self.bytes > LEFT_BYTES
                && let Some(largest) = self.processes.values_mut().max_by_key(|known| known.bytes())
            {
                let before = largest.bytes();
                largest.forget_stacks();
                if largest.bytes() > before / 2 {
                    largest.clear();
                }
                if largest.bytes() > before / 2 {
                    largest.unmap();
                    self.stats.unmapped += 1;
                }
                let freed = before.saturating_sub(largest.bytes());
                self.bytes = self.bytes.saturating_sub(freed);
                if freed == 0 {
                    break;
                }
            }
        }
        if self.processes.len() >= MOST
            && let Some(oldest) = self.processes.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| *key)
        {
            self.remove(&oldest);
        }
    }

    /// The kernel's frames. Their addresses are not told: they would tell whoever reads a profile where the kernel lies.
    fn kernel_frames(&mut self, sample: &Sample) -> Vec<Arc<Location>> {
        let mut frames = Vec::with_capacity(sample.kernel.len());
        for (number, address) in sample.kernel.iter().enumerate() {
            let at = address.saturating_sub(u64::from(number > 0));
            let function = self.kernel.function(at);
            if self.kernel_locations.len() >= MAX_KERNEL {
                self.kernel_locations.clear();
            }
            let start = function.map_or(0, |function| function.address);
            let location = self.kernel_locations.entry(start).or_insert_with(|| {
                let name = function.map_or_else(|| "[kernel]".to_owned(), |function| function.to_string());
                let lines = frame::lines_of(&name);
                Arc::new(Location { address: 0, module: None, lines, kind: Kind::Kernel })
            });
            frames.push(Arc::clone(location));
        }
        frames
    }
}

impl Stats {
    fn add(&mut self, outcome: &stacks::Outcome, stack: &Stack) {
        self.stacks += 1;
        self.whole += u64::from(outcome.is_whole);
        self.mended += u64::from(outcome.top == stacks::TopState::Mended);
        self.unmended += u64::from(outcome.top == stacks::TopState::Unmended);
        self.closed += u64::from(outcome.is_closed);
        self.replaced += u64::from(outcome.is_replaced);
        self.frames += stack.frames.len() as u64;
        self.unnamed += outcome.unnamed;
    }

    /// Both together, of one process.
    fn and(self, other: Self) -> Self {
        Self {
            stacks: self.stacks + other.stacks,
            whole: self.whole + other.whole,
            mended: self.mended + other.mended,
            unmended: self.unmended + other.unmended,
            closed: self.closed + other.closed,
            replaced: self.replaced + other.replaced,
            frames: self.frames + other.frames,
            unnamed: self.unnamed + other.unnamed,
            ..self
        }
    }
}
