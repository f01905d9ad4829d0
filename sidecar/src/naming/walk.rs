//! The user part of a stack: mended at its top, cut where it leads nowhere, with its root.
//!
//! In: the addresses that the kernel side walked, registers, what is known of each address. Out: locations, and what is less than perfect.
//! What is not proven is not shown: a return address outside of code ends the stack, and that is said.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use profiler_proto::loss::Flaw;

use super::frame::{Location, Stack};
use super::mend::{Interrupted, Machine, Top};
use super::process::Process;
use super::reader::Reader;
use super::spot::{Part, Spot};
use crate::go::{Call, Role};
use crate::sample::{End, Sample};

/// Stands where frames between the leaf part and the root of a stack are missing.
static GAP: LazyLock<Arc<Location>> = LazyLock::new(|| Location::remark("[frames left out]"));
/// Stands at the root of a stack whose walk ended before its root.
static STOPPED: LazyLock<Arc<Location>> = LazyLock::new(|| Location::remark("[stack incomplete]"));
/// Stands between a signal's handler and what it interrupted.
static SIGNAL: LazyLock<Arc<Location>> = LazyLock::new(|| Location::remark("[signal handler]"));

/// A walk through a sample's addresses.
pub(super) struct Walk<'a> {
    pub(super) process: &'a mut Process,
    pub(super) reader: &'a mut Reader,
    pub(super) now: Instant,
}

/// What became of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Whether it reaches its root, and lacks nothing on the way as far as can be told.
    pub(super) is_whole: bool,
    pub(super) top: TopState,
    /// Whether the process's mappings cannot be read.
    pub(super) is_closed: bool,
    /// Whether that is because it runs another program, and nothing was known of this one.
    pub(super) is_replaced: bool,
    /// Frames without a name.
    pub(super) unnamed: u64,
}

/// What became of the top of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopState {
    /// Nothing was missing, or it is not Go's.
    Whole,
    /// Callers were put in.
    Mended,
    /// It cannot be told whether one is missing.
    Unmended,
}

/// How a walk ended, in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Root,
    Cut,
    Lost,
}

impl Walk<'_> {
    /// Adds the user part of `sample` to `stack`.
    pub(super) fn user_frames(mut self, sample: &Sample, stack: &mut Stack) -> Outcome {
        self.process.learn(addresses_of(sample), self.reader, self.now);
        let (addresses, top, is_astray) = self.mended(sample);
        let (spots, mut last) = self.spots(&addresses, sample.end);
        if is_astray && last == Last::Root {
            last = Last::Lost;
        }
        show(&spots, stack);
        self.close(sample, &spots, last, stack);
        let unnamed = spots.iter().filter(|spot| !spot.is_named).count() as u64;
        Outcome {
            is_whole: last == Last::Root && top != TopState::Unmended,
            top,
            is_closed: self.process.is_closed(),
            is_replaced: self.process.is_replaced(),
            unnamed,
        }
    }

    fn spot(&mut self, address: u64, call: Call) -> Spot {
        self.process.spot(address, call, self.reader, self.now)
    }

    /// The addresses with the callers that were missing at the top, and whether what the kernel side found below them is nothing.
    fn mended(&mut self, sample: &Sample) -> (Vec<u64>, TopState, bool) {
        let leaf = sample.registers.ip;
        let Some((_, behind)) = sample.user.split_first().filter(|(first, _)| **first == leaf) else {
            return (sample.user.clone(), TopState::Whole, false);
        };
        let first = self.spot(leaf, Call::Interrupted);
        if first.entry.is_none() {
            return (sample.user.clone(), TopState::Whole, false);
        }
        let interrupted = Interrupted { registers: sample.registers, top: &sample.top, machine: Machine::HERE };
        // What the table says of a function that sets the stack pointer counts only where the frame pointer bears it out.
        let mut is_doubtful = first.writes_sp;
        let top = interrupted.callers(|pc| {
            let call = if pc == leaf { Call::Interrupted } else { Call::Return };
            let spot = self.spot(pc, call);
            is_doubtful |= spot.writes_sp;
            spot.depth
        });
        let with = |callers: &[u64], behind: &[u64]| [&[leaf], callers, behind].concat();
        match top {
            Top::Whole => (sample.user.clone(), TopState::Whole, false),
            Top::Missing(callers) => (with(&callers, behind), TopState::Mended, false),
            Top::Stale => match behind {
                [_, called, rest @ ..] => (with(&[*called], rest), TopState::Mended, false),
                _ => (vec![leaf], TopState::Unmended, true),
            },
            // Without a walk of its own there is nothing that they could stand in the way of.
            Top::Astray(callers) if behind.is_empty() && !is_doubtful => (with(&callers, &[]), TopState::Mended, true),
            Top::Astray(_) | Top::Unknown => {
                // What nothing called lacks no caller.
                let state = if first.part == Part::GoRoot { TopState::Whole } else { TopState::Unmended };
                (sample.user.clone(), state, false)
            }
        }
    }

    /// What is known of each address, up to the root or to where the walk went wrong.
    fn spots(&mut self, addresses: &[u64], end: End) -> (Vec<Spot>, Last) {
        let mut spots: Vec<Spot> = Vec::with_capacity(addresses.len());
        let mut call = Call::Interrupted;
        for (number, address) in addresses.iter().enumerate() {
            let spot = self.spot(*address, call);
            // Nothing can be said of the memory of a process that is gone.
            if number > 0 && !spot.executable && !self.process.is_closed() {
                return (spots, Last::Lost);
            }
            let is_root = matches!(spot.part, Part::GoRoot | Part::NativeRoot);
            let after_main = spots.last().is_some_and(|callee| callee.part == Part::Main) && spot.part == Part::Native;
            // A panic at a signal: the instruction faulted, it did not call. A handler of signals returns to where no call is.
            let has_call = spot.role != Role::SignalPanic && spot.part != Part::GoSignal;
            call = if has_call { Call::Return } else { Call::Interrupted };
            spots.push(spot);
            if is_root || after_main {
                return (spots, Last::Root);
            }
        }
        let is_native = spots.last().is_some_and(|spot| matches!(spot.part, Part::Native | Part::Main));
        let last = match end {
            // Code without frame pointers may have a zero in the register.
            End::Root if is_native && addresses.len() == 1 => Last::Lost,
            End::Root => Last::Root,
            End::Cut => Last::Cut,
            End::Lost => Last::Lost,
        };
        (spots, last)
    }

    /// Says at the root what is missing, with the goroutine's function where that is known.
    fn close(&mut self, sample: &Sample, spots: &[Spot], last: Last, stack: &mut Stack) {
        if last == Last::Root || sample.user.is_empty() {
            return;
        }
        let flaw = if last == Last::Cut { Flaw::Truncated } else { Flaw::UnwindStopped };
        let start = sample.goroutine.map(|goroutine| goroutine.start_pc).filter(|start| *start != 0);
        let root = start.map(|start| self.spot(start, Call::Interrupted)).filter(|root| root.entry.is_some());
        let is_there = |root: &Spot| spots.last().is_some_and(|spot| spot.entry == root.entry);
        match root {
            // The walk ended behind the goroutine's own function: it is whole.
            Some(root) if is_there(&root) => {}
            Some(root) => {
                stack.flaws.add(flaw, 1);
                stack.frames.push(Arc::clone(&GAP));
                stack.frames.extend(root.shown);
            }
            None => {
                stack.flaws.add(flaw, 1);
                stack.frames.push(Arc::clone(&STOPPED));
            }
        }
    }
}

/// The addresses of a sample that will most likely be asked for, as they will.
pub(super) fn addresses_of(sample: &Sample) -> impl Iterator<Item = (u64, Call)> {
    let call = |number: usize| if number == 0 { Call::Interrupted } else { Call::Return };
    sample.user.iter().enumerate().map(move |(number, address)| (*address, call(number)))
}

/// Adds the locations that Go's own traces would show.
fn show(spots: &[Spot], stack: &mut Stack) {
    let mut callee = Role::Normal;
    for (number, spot) in spots.iter().enumerate() {
        stack.frames.extend(spot.behind(callee).map(Arc::clone));
        callee = spot.role;
        if spot.part == Part::GoSignal && number + 1 < spots.len() {
            stack.frames.push(Arc::clone(&SIGNAL));
        }
    }
}
