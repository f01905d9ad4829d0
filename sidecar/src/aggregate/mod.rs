//! Equal samples of a window as one.
//!
//! In: samples with their named stacks, on the thread that drains. Out: a [`Window`] for each process that was sampled, in which every
//! distinct stack stands once for each thread, set of tags, span and period, and processor where that was asked for, with how often it was seen. Bounded in bytes, all processes
//! together and each alone: where there is little room left, samples lose first their spans, then their tags; what does not fit
//! then is refused and noted as lost.

mod context;
mod table;
#[cfg(test)]
mod tests;
mod window;

use std::collections::BTreeMap;

use profiler_proto::loss::{Cause, Loss};

use crate::clock::Moment;
use crate::naming::Stack;
use crate::sample::Sample;
use crate::target::Process;

pub use context::Context;
pub use window::{Entry, Window};

/// Most bytes of all windows.
const MAX_BYTES: usize = 24 << 20;
/// Most bytes of one process's window, so that none takes the room of all others.
const MAX_OF_ONE: usize = 8 << 20;

/// The windows that are open, one for each process that was sampled, all of the same time.
#[derive(Debug)]
pub struct Aggregate {
    began: Moment,
    windows: BTreeMap<Process, Window>,
    bytes: usize,
    by_processor: bool,
    without_window: Loss,
}

/// The windows hold as much as they may: the sample is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Aggregate {
    /// Empty windows that begin now.
    #[must_use]
    pub fn begin(now: Moment) -> Self {
        Self { began: now, windows: BTreeMap::new(), bytes: 0, by_processor: false, without_window: Loss::default() }
    }

    /// Tells samples apart by the processor that they were taken on, in these windows and all that follow, or does not.
    #[must_use]
    pub fn by_processor(self, by_processor: bool) -> Self {
        Self { by_processor, ..self }
    }

    /// Adds one sample. One for which there is no room is noted as lost in its process's window, or, if there is no room for that either, in [`Self::without_window`].
    ///
    /// # Errors
    /// When there is no room.
    pub fn add(&mut self, process: Process, sample: &Sample, stack: &Stack) -> Result<(), Full> {
        self.add_beside(0, process, sample, stack)
    }

    /// The same, where others have `taken` so many bytes of the room.
    ///
    /// # Errors
    /// When there is no room.
    pub fn add_beside(&mut self, taken: usize, process: Process, sample: &Sample, stack: &Stack) -> Result<(), Full> {
        let most = MAX_BYTES.saturating_sub(taken);
        let is_new = !self.windows.contains_key(&process);
        if is_new && most.saturating_sub(self.bytes) < window::EMPTY {
            self.without_window.add(Cause::AggregateFull, 1);
            return Err(Full);
        }
        self.bytes += if is_new { window::EMPTY } else { 0 };
        let room = most.saturating_sub(self.bytes);
        let window = self.windows.entry(process).or_insert_with(|| Window::begin(process));
        let most = MAX_OF_ONE.min(window.bytes().saturating_add(room));
        let before = window.bytes();
        let processor = self.by_processor.then_some(sample.cpu);
        let added = window.add(sample, stack, processor, most);
        self.bytes = self.bytes.saturating_add(window.bytes() - before);
        added
    }

    /// Notes stacks of a process that were lost before they came here.
    #[cfg(test)]
    pub(crate) fn lose(&mut self, process: Process, cause: Cause, stacks: u64) {
        let mut lost = Loss::default();
        lost.add(cause, stacks);
        let begin = || {
            self.bytes += window::EMPTY;
            Window::begin(process)
        };
        self.windows.entry(process).or_insert_with(begin).lose(&lost);
    }

    /// What was lost of processes that have no window, since the last time.
    pub fn without_window(&mut self) -> Loss {
        std::mem::take(&mut self.without_window)
    }

    /// Bytes of all windows, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many stacks there are so far.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.windows.values().map(Window::stacks).sum()
    }

    /// Ends the windows; the next ones begin at once. By process; a window of which nothing is left but what was lost goes on, for there is no
    /// profile that could say so.
    pub fn end(&mut self, now: Moment) -> Vec<Window> {
        let next = Self { without_window: self.without_window, ..Self::begin(now).by_processor(self.by_processor) };
        let ended = std::mem::replace(self, next);
        let duration = now.since(ended.began);
        let (told, untold): (Vec<Window>, Vec<Window>) =
            ended.windows.into_values().partition(|window| window.stacks() > 0);
        self.windows = untold.into_iter().map(|window| (window.process(), window)).collect();
        self.bytes = self.windows.values().map(Window::bytes).sum();
        told.into_iter().map(|window| window.ended(ended.began.wall, duration)).collect()
    }

    /// Forgets a process that ended and has nothing but losses to tell; those, for whoever sums them up.
    pub fn forget(&mut self, process: Process) -> Loss {
        match self.windows.get(&process).filter(|window| window.stacks() == 0) {
            Some(window) => {
                self.bytes = self.bytes.saturating_sub(window.bytes());
                self.windows.remove(&process).map_or_else(Loss::default, |window| window.lost())
            }
            None => Loss::default(),
        }
    }
}
