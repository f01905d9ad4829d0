//! The user part of a stack: mended at its top, cut where it leads nowhere, with its root.
//!
//! In: the addresses that the kernel side walked, registers, what is known of each address. Out: locations, and what is less than perfect.
//! What is not proven is not shown: a return address outside of code ends the stack, and that is said.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use profiler_proto::loss::{Degraded, Flaw};
use profiler_sidecar_ebpf::FRAMES;

use super::frame::Location;
use super::mend::{Interrupted, Machine, Top};
use super::process::Process;
use super::reader::Reader;
use super::spot::{Part, Spot};
use super::stacks::{Outcome, TopState, Walked};
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
    /// The number that the last stack got.
    pub(super) numbers: &'a mut u64,
    /// The key by which a stack is known: memory that is used again for the next one.
    pub(super) words: &'a mut Vec<u64>,
    pub(super) now: Instant,
}

/// The addresses of a stack, with the callers that were missing.
struct Mended<'a> {
    /// The interrupted one and those that were put in behind it; empty where all is as the kernel side found it.
    put_in: Vec<u64>,
    /// Of those that the kernel side found, the ones behind these.
    found: &'a [u64],
    top: TopState,
    /// Whether what the kernel side found is nothing.
    is_astray: bool,
}

impl Mended<'_> {
    fn addresses(&self) -> impl Iterator<Item = u64> {
        self.put_in.iter().chain(self.found).copied()
    }

    fn len(&self) -> usize {
        self.put_in.len() + self.found.len()
    }
}

/// How a walk ended, in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Root,
    Cut,
    Lost,
}

/// The stack that a goroutine left.
struct Left {
    behind: Vec<Spot>,
    last: Last,
    way: Way,
}

/// Why it left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// For C, which keeps no frame pointers.
    IntoC,
    /// As there was no room on it.
    ForRoom,
    /// For C, which called Go on it again.
    IntoCAndBack,
}

impl Way {
    /// That of a stack whose walk came by these.
    fn of(spots: &[Spot], is_outer: bool) -> Option<Self> {
        if is_outer {
            return Some(Self::IntoCAndBack);
        }
        if spots.last()?.part == Part::GoGrowth {
            return (!is_yielding(spots)).then_some(Self::ForRoom);
        }
        // Go and C both call the kernel's library.
        let code = spots.iter().find(|spot| spot.part != Part::Vdso)?;
        if code.entry.is_none() {
            return Some(Self::IntoC);
        }
        // On its way there or back.
        spots.iter().any(|spot| spot.part == Part::GoFromC).then_some(Self::IntoCAndBack)
    }
}

impl Walk<'_> {
    /// The user part of the stack of `sample`.
    pub(super) fn walked(mut self, sample: &Sample) -> Walked {
        // At once, for each look by itself costs a wait.
        if !sample.user.first().is_some_and(|leaf| self.process.knows(*leaf, Call::Interrupted)) {
            self.process.learn(addresses_of(sample), self.reader, self.now);
        }
        let mended = self.mended(sample);
        words_of(&mended, sample, self.words);
        if let Some(known) = self.process.stack(self.words) {
            return known.clone();
        }
        self.process.learn(addresses_of(sample), self.reader, self.now);
        let walked = self.named(sample, &mended);
        self.process.keep_stack(self.words, &walked);
        walked
    }

    /// The same of one that was not seen before.
    fn named(&mut self, sample: &Sample, mended: &Mended<'_>) -> Walked {
        let (mut spots, mut last) = self.spots(mended.addresses(), sample);
        if mended.is_astray && last == Last::Root {
            last = Last::Lost;
        }
        let (mut frames, mut flaws) = (Vec::with_capacity(spots.len() + 2), Degraded::default());
        let left = self.left(sample, &spots);
        match &left {
            Some(Left { behind, last, way: way @ (Way::IntoC | Way::IntoCAndBack) }) => {
                if *way == Way::IntoC {
                    // The walk has not come by there: what of Go it found behind C is by frame pointers that C does not keep.
                    let of_c = spots.iter().position(|spot| spot.entry.is_some()).unwrap_or(spots.len());
                    spots.truncate(of_c);
                }
                show(&spots, &mut frames);
                frames.push(Arc::clone(&GAP));
                flaws.add(Flaw::UnwindStopped, 1);
                show(behind, &mut frames);
                self.close(sample, behind, *last, (&mut frames, &mut Degraded::default()));
            }
            Some(Left { behind, last, way: Way::ForRoom }) => {
                show(&spots, &mut frames);
                show(behind, &mut frames);
                self.close(sample, behind, *last, (&mut frames, &mut flaws));
            }
            None => {
                show(&spots, &mut frames);
                self.close(sample, &spots, last, (&mut frames, &mut flaws));
            }
        }
        let behind = left.as_ref().map_or(&[][..], |left| &left.behind);
        let skips = [&spots[..], behind].iter().any(|part| part.windows(2).any(|pair| skips_c(&pair[0], &pair[1])));
        if skips && flaws == Degraded::default() {
            flaws.add(Flaw::UnwindStopped, 1);
        }
        let is_joined = left.as_ref().is_some_and(|left| left.last == Last::Root);
        let has_root = match &left {
            Some(left) => is_joined && left.way == Way::ForRoom,
            None => last == Last::Root,
        };
        let is_proven = spots.iter().skip(1).all(|spot| spot.executable);
        let outcome = Outcome {
            is_whole: has_root && is_proven && mended.top != TopState::Unmended && !is_interrupted(&spots) && !skips,
            top: mended.top,
            is_closed: self.process.is_closed(),
            is_replaced: self.process.is_replaced(),
            unnamed: spots.iter().chain(behind).filter(|spot| !spot.is_named).count() as u64,
        };
        let is_certain = if is_joined {
            outcome.unnamed == 0 && !outcome.is_closed
        } else {
            self.is_certain(sample, mended, (&spots, last), &outcome)
        };
        let number = is_certain.then(|| {
            *self.numbers += 1;
            *self.numbers
        });
        Walked { frames: frames.into(), flaws, outcome, number }
    }

    /// Whether the same addresses mean the same as long as what is known of them stays: what has no name may get one, where the walk went
    /// wrong there may be code later, and the goroutine's function may be known then.
    fn is_certain(
        &self,
        sample: &Sample,
        mended: &Mended<'_>,
        (spots, last): (&[Spot], Last),
        outcome: &Outcome,
    ) -> bool {
        let start = start_of(sample);
        let is_start_known = start == 0 || self.process.knows(start, Call::Interrupted);
        let is_closed_off = last == Last::Root || (spots.len() == mended.len() && is_start_known);
        outcome.unnamed == 0 && !outcome.is_closed && is_closed_off
    }

    fn spot(&mut self, address: u64, call: Call) -> Spot {
        self.process.spot(address, call, self.reader, self.now)
    }

    /// The addresses with the callers that were missing at the top.
    fn mended<'s>(&mut self, sample: &'s Sample) -> Mended<'s> {
        let leaf = sample.registers.ip;
        let as_it_is = |top| Mended { put_in: Vec::new(), found: &sample.user, top, is_astray: false };
        let Some((_, behind)) = sample.user.split_first().filter(|(first, _)| **first == leaf) else {
            return as_it_is(TopState::Whole);
        };
        let first = self.spot(leaf, Call::Interrupted);
        let interrupted = Interrupted { registers: sample.registers, top: &sample.top, machine: Machine::HERE };
        if first.entry.is_none() {
            let depth = first.depth.filter(|_| first.part == Part::Vdso);
            let Some(depth) = depth else { return as_it_is(TopState::Whole) };
            let caller = interrupted.caller(depth).filter(|caller| self.spot(*caller, Call::Return).is_named);
            let Some(caller) = caller else { return as_it_is(TopState::Unmended) };
            return Mended { put_in: vec![leaf, caller], found: behind, top: TopState::Mended, is_astray: false };
        }
        // What the table says of a function that sets the stack pointer counts only where the frame pointer bears it out.
        let mut is_doubtful = first.writes_sp;
        let top = interrupted.callers(|pc| {
            let call = if pc == leaf { Call::Interrupted } else { Call::Return };
            let spot = self.spot(pc, call);
            is_doubtful |= spot.writes_sp;
            spot.depth.filter(|_| spot.entry.is_some())
        });
        let with = |callers: &[u64], found: &'s [u64], is_astray| {
            let put_in = [&[leaf], callers].concat();
            Mended { put_in, found, top: TopState::Mended, is_astray }
        };
        match top {
            Top::Whole => as_it_is(TopState::Whole),
            Top::Missing(callers) => with(&callers, behind, false),
            Top::Stale => match behind {
                [_, called, rest @ ..] => with(&[*called], rest, false),
                _ => Mended { put_in: vec![leaf], found: &[], top: TopState::Unmended, is_astray: true },
            },
            // Without a walk of its own there is nothing that they could stand in the way of.
            Top::Astray(callers) if behind.is_empty() && !is_doubtful => with(&callers, &[], true),
            // What nothing called lacks no caller.
            Top::Astray(_) | Top::Unknown if first.part == Part::GoRoot => as_it_is(TopState::Whole),
            Top::Astray(_) | Top::Unknown => as_it_is(TopState::Unmended),
        }
    }

    /// What is known of each address, up to the root or to where the walk went wrong.
    fn spots(&mut self, addresses: impl Iterator<Item = u64>, sample: &Sample) -> (Vec<Spot>, Last) {
        let mut spots: Vec<Spot> = Vec::with_capacity(addresses.size_hint().0);
        let mut call = Call::Interrupted;
        let mut is_doubled = false;
        for (number, address) in addresses.enumerate() {
            let mut spot = self.spot(address, call);
            // Where the handler of signals has no frame yet, nothing that it returns to stands behind it, but who called what was interrupted.
            let is_handler = spots.last().is_some_and(|callee| callee.part == Part::GoSignal);
            if is_handler && spot.part == Part::Go && spot.shown.is_some() {
                spot = self.spot(address, Call::Return);
            }
            if std::mem::replace(&mut is_doubled, has_two_frames(&spot)) {
                continue;
            }
            if number > 0 && !self.may_be_code(address, &spot) {
                return (spots, Last::Lost);
            }
            let is_root = match spot.part {
                Part::GoRoot | Part::NativeRoot => true,
                Part::GoGrowth => is_yielding(&spots),
                _ => false,
            };
            // Where it is the leaf, it may be on its way there.
            let is_left = number > 0 && spot.part == Part::GoGrowth && !is_root;
            let after_main = spots.last().is_some_and(|callee| callee.part == Part::Main) && spot.part == Part::Native;
            // Neither a handler of signals nor what that has put on the stack returns to a call.
            let is_of_signal = matches!(spot.part, Part::GoSignal | Part::GoInjected);
            call = if is_of_signal { Call::Interrupted } else { Call::Return };
            spots.push(spot);
            if is_root || after_main {
                return (spots, Last::Root);
            }
            if is_left {
                return (spots, Last::Lost);
            }
        }
        let is_native = spots.last().is_some_and(|spot| matches!(spot.part, Part::Native | Part::Main | Part::Vdso));
        let last = match sample.end {
            // Code without frame pointers may have a zero in the register.
            End::Root if is_native && sample.user.len() <= 1 => Last::Lost,
            // A zero in C's register, which keeps none.
            End::Root if spots.iter().any(|spot| spot.part == Part::GoFromC) => Last::Lost,
            End::Root => Last::Root,
            End::Cut => Last::Cut,
            End::Lost => Last::Lost,
        };
        (spots, last)
    }

    /// Whether a return address may be one. Of a process that is gone no mapping can be read any more: one of its last addresses may lie in a library that was loaded behind the
    /// last reading, and is no code only where something else is known to be.
    fn may_be_code(&self, address: u64, spot: &Spot) -> bool {
        spot.executable || (self.process.is_closed() && !self.process.is_mapped(address))
    }

    /// The stack that the goroutine left, where the walk went astray in C, or came to where there was no room on it.
    fn left(&mut self, sample: &Sample, spots: &[Spot]) -> Option<Left> {
        let way = Way::of(spots, sample.is_outer)?;
        let (_, called) = sample.saved.split_first()?;
        // It left it for C in a function of the runtime's, which stands for the call.
        let addresses = if way == Way::ForRoom { &sample.saved[..] } else { called };
        let mut left: Vec<Spot> = Vec::with_capacity(addresses.len());
        let mut is_doubled = false;
        for (number, address) in addresses.iter().enumerate() {
            let spot = self.spot(*address, Call::Return);
            if number == 0 && spot.entry.is_none() {
                // It left it in a way that notes no call.
                continue;
            }
            if left.is_empty() && way == Way::IntoCAndBack && spot.part != Part::GoToC {
                return None;
            }
            if std::mem::replace(&mut is_doubled, has_two_frames(&spot)) {
                continue;
            }
            if !self.may_be_code(*address, &spot) {
                break;
            }
            let is_root = spot.part == Part::GoRoot;
            left.push(spot);
            if is_root {
                return Some(Left { behind: left, last: Last::Root, way });
            }
        }
        if left.is_empty() && way == Way::IntoCAndBack {
            // A thread of C's has called it.
            return None;
        }
        let last = if sample.saved.len() > FRAMES { Last::Cut } else { Last::Lost };
        Some(Left { behind: left, last, way })
    }

    /// Says at the root what is missing, with the goroutine's function where that is known.
    fn close(
        &mut self,
        sample: &Sample,
        spots: &[Spot],
        last: Last,
        (frames, flaws): (&mut Vec<Arc<Location>>, &mut Degraded),
    ) {
        if last == Last::Root || sample.user.is_empty() {
            return;
        }
        let flaw = if last == Last::Cut { Flaw::Truncated } else { Flaw::UnwindStopped };
        let start = start_of(sample);
        let root = (start != 0).then(|| self.spot(start, Call::Interrupted)).filter(|root| root.entry.is_some());
        let is_there = |root: &Spot| spots.last().is_some_and(|spot| spot.entry == root.entry);
        match root {
            // The walk ended behind the goroutine's own function: it is whole.
            Some(root) if is_there(&root) => {}
            Some(root) => {
                flaws.add(flaw, 1);
                frames.push(Arc::clone(&GAP));
                frames.extend(root.shown);
            }
            None => {
                flaws.add(flaw, 1);
                frames.push(Arc::clone(&STOPPED));
            }
        }
    }
}

/// The addresses of a sample that will most likely be asked for, as they will.
pub(super) fn addresses_of(sample: &Sample) -> impl Iterator<Item = (u64, Call)> {
    let call = |number: usize| if number == 0 { Call::Interrupted } else { Call::Return };
    let saved = sample.saved.iter().map(|address| (*address, Call::Return));
    sample.user.iter().enumerate().map(move |(number, address)| (*address, call(number))).chain(saved)
}

/// The goroutine's function; 0: not known.
fn start_of(sample: &Sample) -> u64 {
    sample.goroutine.map_or(0, |goroutine| goroutine.start_pc)
}

/// All that what is shown of a stack depends on, as long as what is known of its addresses stays.
fn words_of(mended: &Mended<'_>, sample: &Sample, words: &mut Vec<u64>) {
    let state = u64::from(sample.is_outer) << 16
        | (sample.end as u64) << 8
        | (mended.top as u64) << 1
        | u64::from(mended.is_astray);
    words.clear();
    words.extend([state, start_of(sample), sample.saved.len() as u64]);
    words.extend_from_slice(&mended.put_in);
    words.extend_from_slice(mended.found);
    words.extend_from_slice(&sample.saved);
}

/// Whether a handler of signals has something below it: of that, what was interrupted is missing, and its caller where it has no frame, for the handler's frame
/// pointer is the one that was in force.
fn is_interrupted(spots: &[Spot]) -> bool {
    spots.split_last().is_some_and(|(_, callees)| callees.iter().any(|spot| spot.part == Part::GoSignal))
}

/// Whether functions of C may be missing between these: the frame pointer in C was still that of Go, whose function that calls C is missing, too.
fn skips_c(callee: &Spot, caller: &Spot) -> bool {
    callee.entry.is_none() && caller.part == Part::GoToC
}

/// Whether what stands behind a place is no return address: since 1.22 `crosscall2` has two frames on x86_64, one in the other, and where the first one's should be is what C had
/// in the register of the frame pointer. Source: runtime/cgo/abi_amd64.h, `PUSH_REGS_HOST_TO_ABI0`; a function that calls has a frame by itself (cmd/internal/obj/x86/obj6.go).
fn has_two_frames(spot: &Spot) -> bool {
    /// Its own frame pointer, six registers, three arguments. Before, the first was not there.
    const DEPTH: i32 = 8 + 6 * 8 + 3 * 8;
    spot.part == Part::GoFromC && spot.depth == Some(DEPTH)
}

/// Whether a goroutine gave way here: what is known of the one that has its place says nothing of this stack.
fn is_yielding(spots: &[Spot]) -> bool {
    spots.iter().any(|spot| spot.part == Part::GoYield)
}

/// Adds the locations that Go's own traces would show, and marks where some are missing between them.
fn show(spots: &[Spot], frames: &mut Vec<Arc<Location>>) {
    let mut callee = Role::Normal;
    for (number, spot) in spots.iter().enumerate() {
        if number > 0 && skips_c(&spots[number - 1], spot) {
            frames.push(Arc::clone(&GAP));
        }
        frames.extend(spot.behind(callee).map(Arc::clone));
        callee = spot.role;
        if spot.part == Part::GoSignal && number + 1 < spots.len() {
            frames.push(Arc::clone(&SIGNAL));
        }
    }
}
