//! All goroutines of a running program: what each does, since when, and the stacks of those that do not run.
//!
//! In: `runtime.allgs`. Out: [`Goroutines`]. The list only grows and its elements are never freed (runtime/proc.go, `allgs`), so it can be read
//! while the program runs. A stack is copied, its goroutine is looked at, the stack is copied again: it is believed if the goroutine was the same, in
//! the same state at the same place, and had not run since it was chosen, and both copies lead the same way. One that parks again and again at one
//! place is so told from one that stays. Else it is tried again, then counted. Not one moment for all of them: each is consistent in itself.
//! Bounded: so many goroutines that live, in batches of [`BATCH`]; places of the list, which dead ones keep, by [`PLACES`]; their stacks by
//! [`BYTES`](super::stacks::BYTES); what it costs to find them, to have their stacks, and their labels, each by [`Work`] of its own.

use std::fmt;
use std::sync::Arc;

use crate::go::layouts::{G, Layout, status};
use crate::target::{Fault, Piece};

use super::labels::{Labels, Reader, Seen, Untold};
use super::memory::{Memory, word_at, words};
use super::stack::{Bytes, CHUNK, End, Pc, walk};
use super::stacks::{self, Stacks};
use super::state::State;
use super::variables::{Code, Variables};
use super::work::{Metered, Work};

/// Goroutines that are read at once.
const BATCH: usize = 64;
/// How often a goroutine is tried that changed meanwhile.
const TRIES: u32 = 3;
/// How often the list itself is tried, which is written word by word.
const LIST_TRIES: u32 = 10;
/// Most places of the list that are looked at: a program that had more goroutines at once had gigabytes of stacks.
const PLACES: u64 = 1 << 22;

/// The goroutines of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Goroutines {
    /// Those that are alive, the runtime's own included.
    pub list: Vec<Goroutine>,
    /// Left out, as more live than were asked for. Beyond [`PLACES`], and where the work for the list is done, it is not known which live: all there
    /// count.
    pub beyond: u64,
    /// Whose stack could not be had, as they ran on each time it was copied. They are in the list, without one, but for those that had no number yet.
    pub changed: u64,
    /// Of these, those that had none.
    pub nascent: u64,
    /// Whose stack is left out, as those before have all the bytes that a capture may have. They are in the list, without one.
    pub over_bytes: u64,
    /// Whose stack is left out, as the capture had done as much as one may. They are in the list, without one.
    pub over_work: u64,
    /// Whose labels are left out for one of these reasons.
    pub labels_cut: u64,
    /// Whose labels are there as far as a set is read: 64 of them, 1,024 bytes of each text ([`Labels::is_cut`]).
    pub labels_short: u64,
    /// Whose labels are left out, as they were others each time that they were read, or are no labels.
    pub labels_changed: u64,
    /// Elements of the list that are no goroutines: memory that is not there, bounds that cannot be.
    pub broken: u64,
}

/// A goroutine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goroutine {
    /// `goid`.
    pub id: u64,
    /// What it does: one of [`status`].
    pub status: u32,
    /// What it waits for, in Go's words.
    pub wait_reason: Option<&'static str>,
    /// Nanoseconds of `CLOCK_MONOTONIC` since which it waits, as far as the garbage collector noticed.
    pub waiting_since: Option<u64>,
    /// Whether it runs on one thread alone (`runtime.LockOSThread`).
    pub is_locked: bool,
    /// The goroutine that started it; 0 is none.
    pub parent: u64,
    /// Behind the `go` statement that started it; 0 is none.
    pub go_pc: u64,
    /// Its function.
    pub start_pc: u64,
    /// Its labels.
    pub labels: Labels,
    /// Its stack, leaf first; empty while it runs. Equal ones are one.
    pub stack: Arc<[Pc]>,
    /// How the walk of its stack ended.
    pub end: End,
}

impl Goroutine {
    /// In Go's words, as in the header of a stack that a panic prints. That one is leaked, a collection found that was made for the profile `goroutineleak` (Go 1.26 and newer).
    #[must_use]
    pub fn state(&self) -> Doing {
        let reason = self.wait_reason.filter(|reason| !reason.is_empty());
        let words = match self.status {
            status::WAITING => reason.unwrap_or("waiting"),
            status::LEAKED => reason.unwrap_or("leaked"),
            status::IDLE => "idle",
            status::RUNNABLE => "runnable",
            status::RUNNING => "running",
            status::SYSCALL => "syscall",
            status::COPYING => "copystack",
            status::PREEMPTED => "preempted",
            _ => "???",
        };
        Doing { words, is_leaked: self.status == status::LEAKED }
    }
}

/// What a goroutine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Doing {
    /// In Go's words.
    pub words: &'static str,
    /// Whether it will never do anything else.
    pub is_leaked: bool,
}

impl fmt::Display for Doing {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}{}", self.words, if self.is_leaked { " (leaked)" } else { "" })
    }
}

/// Reads all goroutines that live, `most` of them at most; none where the list was not found.
///
/// # Errors
/// When the process is gone, or does not let us.
pub fn goroutines<M: Memory>(
    memory: &M,
    code: &impl Code,
    variables: &Variables,
    layout: &Layout,
    most: usize,
) -> Result<Option<Goroutines>, Fault> {
    let Some(variable) = variables.goroutines else { return Ok(None) };
    let Some((mut first, count)) = list(memory, variable)? else { return Ok(None) };
    let places = count.min(PLACES);
    let all = Goroutines { beyond: count - places, ..Goroutines::default() };
    let count = places.min(most as u64);
    let (for_list, for_stacks, for_labels) = (Work::for_list(count), Work::for_stacks(count), Work::for_labels(count));
    let (stacked, code) = (&Metered::new(memory, &for_stacks), &Metered::new(code, &for_stacks));
    let (labelled, memory) = (&Metered::new(memory, &for_labels), &Metered::new(memory, &for_list));
    let (labels, stacks) = (Reader::new(labelled, layout.labels), Stacks::new(stacks::BYTES));
    let mut capture = Capture { memory, stacked, code, layout, most, labels, stacks, all };
    let mut at = 0;
    while at < places {
        // Where nothing is a goroutine there is no list.
        if capture.all.broken > most.max(BATCH) as u64 || memory.is_spent() {
            capture.all.beyond += places - at;
            break;
        }
        let length = (places - at).min(BATCH as u64) as usize;
        match addresses(memory, variable, &mut first, at, length)? {
            Some(addresses) => capture.look(&addresses)?,
            None => capture.lose(length as u64),
        }
        at += length as u64;
    }
    // What grew has room for up to twice as many, and is kept while all of them are told.
    capture.all.list.shrink_to_fit();
    Ok(Some(capture.all))
}

/// Pointer and length of `allgs`: read until they stay the same, fit each other, and can be.
fn list(memory: &impl Memory, at: u64) -> Result<Option<(u64, u64)>, Fault> {
    let mut before = None;
    for _ in 0..LIST_TRIES {
        let mut bytes = [0; 24];
        if !memory.fill(at, &mut bytes)? {
            return Ok(None);
        }
        let (first, length, capacity) = (word_at(&bytes, 0), word_at(&bytes, 8), word_at(&bytes, 16));
        // No more than have room in all the memory that a process can have.
        let is_possible = length <= capacity && capacity < 1 << 44 && first.is_multiple_of(8);
        let now = Some((first, length)).filter(|_| is_possible);
        if now.is_some() && now == before {
            return Ok(now);
        }
        before = now;
    }
    Ok(None)
}

/// `length` elements of the list from the one at `at` on. What the list outgrew is given back to the heap and becomes something else, so where it lies is
/// looked up again behind them; the elements stay in their order.
fn addresses(
    memory: &impl Memory,
    variable: u64,
    first: &mut u64,
    at: u64,
    length: usize,
) -> Result<Option<Vec<u64>>, Fault> {
    let mut bytes = vec![0; 8 * length];
    for _ in 0..LIST_TRIES {
        let is_whole = memory.fill(first.wrapping_add(8 * at), &mut bytes)?;
        if memory.word(variable)? == Some(*first) {
            return Ok(is_whole.then(|| words(&bytes)));
        }
        let Some((moved, _)) = list(memory, variable)? else { return Ok(None) };
        *first = moved;
    }
    Ok(None)
}

struct Capture<'m, M, C> {
    /// For the list and what stands in each `g`.
    memory: &'m Metered<'m, M>,
    /// For stacks.
    stacked: &'m Metered<'m, M>,
    code: &'m Metered<'m, C>,
    layout: &'m Layout,
    most: usize,
    labels: Reader<'m, M>,
    stacks: Stacks<Pc>,
    all: Goroutines,
}

impl<M: Memory, C: Code> Capture<'_, M, C> {
    /// Takes those that live, as far as there is room for them; the others are counted.
    fn look(&mut self, addresses: &[u64]) -> Result<(), Fault> {
        let room = self.most.saturating_sub(self.all.list.len());
        if addresses.len() <= room {
            return self.batch(addresses);
        }
        let mut living = Vec::new();
        for Seen { address, state, .. } in look(self.memory, &self.layout.g, addresses)? {
            match state {
                Some(now) if now.is_alive() => living.push(address),
                Some(_) => {}
                None => self.lose(1),
            }
        }
        let over = living.split_off(room.min(living.len()));
        self.all.beyond += over.len() as u64;
        if living.is_empty() { Ok(()) } else { self.batch(&living) }
    }

    /// Counts what is no goroutine; or was not looked at, once all work is done.
    fn lose(&mut self, count: u64) {
        match self.memory.is_spent() {
            true => self.all.beyond += count,
            false => self.all.broken += count,
        }
    }

    fn batch(&mut self, addresses: &[u64]) -> Result<(), Fault> {
        let mut left = addresses.to_vec();
        for _ in 0..TRIES {
            left = self.round(&left)?;
        }
        // What changed each time: its state at the end, without a stack.
        for seen in self.seen(&left)? {
            // One that ended meanwhile is no loss.
            self.all.changed += u64::from(seen.state.is_some_and(|now| now.is_alive()));
            match seen.state {
                Some(now) if now.is_alive() && !now.is_nascent() => self.take(&now, seen.labels, &[], End::Lost),
                Some(now) => self.all.nascent += u64::from(now.is_alive()),
                None => self.lose(1),
            }
        }
        Ok(())
    }

    /// Takes those that stay as they are while their stacks are copied; the others come back.
    fn round(&mut self, addresses: &[u64]) -> Result<Vec<u64>, Fault> {
        let (mut waiting, mut labels, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for seen in self.seen(addresses)? {
            match seen.state {
                // The bounds of a stack are written one after the other.
                None => changed.push(seen.address),
                Some(now) if !now.is_alive() => {}
                Some(now) if now.is_nascent() => changed.push(seen.address),
                Some(now) if now.status == status::RUNNING => self.take(&now, seen.labels, &[], End::Root),
                Some(now) => {
                    waiting.push((seen.address, now));
                    labels.push(seen.labels);
                }
            }
        }
        let (first, again) = (self.copies(&waiting)?, waiting.iter().map(|(address, _)| *address).collect::<Vec<_>>());
        let walks = waiting.iter().zip(&first).map(|((_, state), copy)| self.walked(state, copy));
        let walks = walks.collect::<Result<Vec<_>, Fault>>()?;
        let after = look(self.memory, &self.layout.g, &again)?;
        let second = self.copies(&waiting)?;
        for ((at, (address, was)), labels) in waiting.iter().enumerate().zip(labels) {
            let stayed = after.get(at).and_then(|now| now.state).is_some_and(|now| was.is_same(&now));
            let (Some(walk), Some(first), Some(second)) = (walks.get(at), first.get(at), second.get(at)) else {
                continue;
            };
            // What is longer than a copy was read piece by piece, and is so again.
            let is_whole = was.hi.saturating_sub(was.start.sp) <= CHUNK as u64;
            let is_same = stayed && (is_whole && first == second || self.walked(was, second)? == *walk);
            if self.stacked.is_spent() {
                self.all.over_work += 1;
                self.take(was, labels, &[], End::Lost);
            } else if is_same {
                self.take(was, labels, &walk.0, walk.1);
            } else {
                changed.push(*address);
            }
        }
        Ok(changed)
    }

    /// What stands in each `g`, with its labels.
    fn seen(&mut self, addresses: &[u64]) -> Result<Vec<Seen>, Fault> {
        let (memory, g) = (self.memory, &self.layout.g);
        self.labels.seen(addresses, |addresses| look(memory, g, addresses))
    }

    /// The stacks of these, each from where it goes on, [`CHUNK`] of it at most; as far as it is there.
    fn copies(&self, waiting: &[(u64, State)]) -> Result<Vec<Vec<u8>>, Fault> {
        let most = if self.stacked.is_spent() { 0 } else { CHUNK as u64 };
        let length = |state: &State| state.hi.saturating_sub(state.start.sp).min(most) as usize;
        let mut buffers: Vec<Vec<u8>> = waiting.iter().map(|(_, state)| vec![0; length(state)]).collect();
        let mut pieces: Vec<_> = waiting
            .iter()
            .zip(&mut buffers)
            .map(|((_, state), buffer)| Piece::new(state.start.sp, &mut buffer[..]))
            .collect();
        self.stacked.read_many(&mut pieces)?;
        let read: Vec<usize> = pieces.iter().map(|piece| piece.read).collect();
        buffers.iter_mut().zip(read).for_each(|(buffer, read)| buffer.truncate(read));
        Ok(buffers)
    }

    fn walked(&self, state: &State, copy: &[u8]) -> Result<(Vec<Pc>, End), Fault> {
        let mut bytes = Bytes::new(self.stacked, state.lo..state.hi, state.start.sp, copy);
        walk(self.code, state.start, &mut bytes)
    }

    fn take(&mut self, state: &State, labels: Result<Labels, Untold>, stack: &[Pc], end: End) {
        self.all.labels_cut += u64::from(labels == Err(Untold::Cut));
        self.all.labels_short += u64::from(labels.as_ref().is_ok_and(Labels::is_cut));
        self.all.labels_changed += u64::from(labels == Err(Untold::Unsteady));
        let kept = self.stacks.keep(stack);
        self.all.over_bytes += u64::from(kept.is_none());
        let (stack, end) = kept.map_or((Arc::default(), End::Lost), |stack| (stack, end));
        let reasons = self.layout.wait_reasons;
        self.all.list.push(Goroutine {
            id: state.id,
            status: state.status,
            wait_reason: reasons.get(usize::from(state.wait_reason)).copied().filter(|_| state.is_parked()),
            waiting_since: Some(state.wait_since).filter(|since| *since != 0 && state.waits()),
            is_locked: state.is_locked,
            parent: state.parent,
            go_pc: state.go_pc,
            start_pc: state.start_pc,
            labels: labels.unwrap_or_default(),
            stack,
            end,
        });
    }
}

/// What stands in each `g`, without labels; none where it is none.
fn look(memory: &impl Memory, g: &G, addresses: &[u64]) -> Result<Vec<Seen>, Fault> {
    let length = g.length();
    let mut buffers = vec![0; length * addresses.len()];
    let chunks = buffers.chunks_exact_mut(length);
    let mut pieces: Vec<_> = addresses.iter().zip(chunks).map(|(at, buffer)| Piece::new(*at, buffer)).collect();
    memory.read_many(&mut pieces)?;
    let state = |piece: &Piece<'_>| State::of(g, piece.buffer).filter(|_| piece.is_whole());
    Ok(pieces.iter().map(|piece| Seen::new(piece.address, state(piece))).collect())
}
