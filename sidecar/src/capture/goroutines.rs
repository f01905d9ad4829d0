//! All goroutines of a running program: what each does, since when, and the stacks of those that do not run.
//!
//! In: `runtime.allgs`. Out: [`Goroutines`]. The list only grows and its elements are never freed (runtime/proc.go, `allgs`), so it can be read
//! while the program runs. A stack is believed if its goroutine was the same, in the same state at the same place, before and after
//! its bytes were copied; else it is tried again, then counted. Not one moment for all of them: each is consistent in itself.
//! Bounded: so many goroutines, in batches of [`BATCH`].

use crate::go::layouts::{G, Layout, status};
use crate::target::{Fault, Piece};

use super::labels::{Labels, Reader};
use super::memory::{Memory, word_at, words};
use super::stack::{Bytes, CHUNK, End, Pc, Start, walk};
use super::variables::{Code, Variables};

/// Goroutines that are read at once.
const BATCH: usize = 64;
/// How often a goroutine is tried that changed meanwhile.
const TRIES: u32 = 3;
/// How often the list itself is tried, which is written word by word.
const LIST_TRIES: u32 = 10;

/// The goroutines of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Goroutines {
    /// Those that are alive, the runtime's own included.
    pub list: Vec<Goroutine>,
    /// Left out, as there were more than asked for; dead ones may be among them.
    pub beyond: u64,
    /// Whose stack could not be had, as they ran on each time it was copied. They are in the list, without one, but for those that had no number yet.
    pub changed: u64,
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
    /// The goroutine that started it; 0 is none.
    pub parent: u64,
    /// Behind the `go` statement that started it; 0 is none.
    pub go_pc: u64,
    /// Its function.
    pub start_pc: u64,
    /// Its labels.
    pub labels: Labels,
    /// Its stack, leaf first; empty while it runs.
    pub stack: Vec<Pc>,
    /// How the walk of its stack ended.
    pub end: End,
}

impl Goroutine {
    /// In Go's words, as in the header of a stack that a panic prints.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self.status {
            status::WAITING => self.wait_reason.filter(|reason| !reason.is_empty()).unwrap_or("waiting"),
            status::LEAKED => "leaked",
            status::IDLE => "idle",
            status::RUNNABLE => "runnable",
            status::RUNNING => "running",
            status::SYSCALL => "syscall",
            status::COPYING => "copystack",
            status::PREEMPTED => "preempted",
            _ => "???",
        }
    }
}

/// Reads all goroutines, `most` of them at most; none where the list was not found.
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
    let Some((first, count)) = variables.goroutines.map(|at| list(memory, at)).transpose()?.flatten() else {
        return Ok(None);
    };
    let mut capture =
        Capture { memory, code, layout, labels: Reader::new(memory, layout.labels), all: Goroutines::default() };
    let taken = count.min(most as u64);
    capture.all.beyond = count - taken;
    let mut at = 0;
    while at < taken {
        let length = (taken - at).min(BATCH as u64) as usize;
        let mut addresses = vec![0; 8 * length];
        if memory.fill(first.wrapping_add(8 * at), &mut addresses)? {
            capture.batch(&words(&addresses))?;
        } else {
            capture.all.broken += length as u64;
        }
        at += length as u64;
    }
    Ok(Some(capture.all))
}

/// Pointer and length of `allgs`: read until they stay the same and fit each other.
fn list(memory: &impl Memory, at: u64) -> Result<Option<(u64, u64)>, Fault> {
    let mut before = None;
    for _ in 0..LIST_TRIES {
        let mut bytes = [0; 24];
        if !memory.fill(at, &mut bytes)? {
            return Ok(None);
        }
        let (first, length, capacity) = (word_at(&bytes, 0), word_at(&bytes, 8), word_at(&bytes, 16));
        let now = Some((first, length)).filter(|_| length <= capacity && first.is_multiple_of(8));
        if now.is_some() && now == before {
            return Ok(now);
        }
        before = now;
    }
    Ok(None)
}

struct Capture<'m, M, C> {
    memory: &'m M,
    code: &'m C,
    layout: &'m Layout,
    labels: Reader<'m, M>,
    all: Goroutines,
}

impl<M: Memory, C: Code> Capture<'_, M, C> {
    fn batch(&mut self, addresses: &[u64]) -> Result<(), Fault> {
        let mut left = addresses.to_vec();
        for _ in 0..TRIES {
            left = self.round(&left)?;
        }
        // What changed each time: its state at the end, without a stack.
        self.all.changed += left.len() as u64;
        for (_, now) in self.read(&left)? {
            match now {
                Some(now) if now.is_alive() && !now.is_nascent() => self.take(&now, Vec::new(), End::Lost)?,
                Some(_) => {}
                None => self.all.broken += 1,
            }
        }
        Ok(())
    }

    /// Takes those that stay as they are while their stacks are copied; the others come back.
    fn round(&mut self, addresses: &[u64]) -> Result<Vec<u64>, Fault> {
        let before = self.read(addresses)?;
        let (mut waiting, mut changed) = (Vec::new(), Vec::new());
        for (address, now) in before {
            match now {
                None => self.all.broken += 1,
                Some(now) if !now.is_alive() => {}
                Some(now) if now.is_nascent() => changed.push(address),
                Some(now) if now.status == status::RUNNING => self.take(&now, Vec::new(), End::Root)?,
                Some(now) => waiting.push((address, now)),
            }
        }
        let stacks = self.stacks(&waiting)?;
        let again: Vec<u64> = waiting.iter().map(|(address, _)| *address).collect();
        let after = self.read(&again)?;
        for (((address, was), stack), (_, now)) in waiting.into_iter().zip(stacks).zip(after) {
            match now.filter(|now| was.is_same(now) && was.status != status::COPYING) {
                Some(_) => self.take(&was, stack.0, stack.1)?,
                None => changed.push(address),
            }
        }
        Ok(changed)
    }

    /// What stands in each `g`; none where it is none.
    fn read(&self, addresses: &[u64]) -> Result<Vec<(u64, Option<State>)>, Fault> {
        let length = self.layout.g.length();
        let mut buffers = vec![0; length * addresses.len()];
        let chunks = buffers.chunks_exact_mut(length);
        let mut pieces: Vec<_> = addresses.iter().zip(chunks).map(|(at, buffer)| Piece::new(*at, buffer)).collect();
        self.memory.read_many(&mut pieces)?;
        let state = |piece: &Piece<'_>| State::of(&self.layout.g, piece.buffer).filter(|_| piece.is_whole());
        Ok(pieces.iter().map(|piece| (piece.address, state(piece))).collect())
    }

    fn stacks(&self, waiting: &[(u64, State)]) -> Result<Vec<(Vec<Pc>, End)>, Fault> {
        let length = |state: &State| state.hi.saturating_sub(state.start.sp).min(CHUNK as u64) as usize;
        let mut buffers: Vec<Vec<u8>> = waiting.iter().map(|(_, state)| vec![0; length(state)]).collect();
        let mut pieces: Vec<_> = waiting
            .iter()
            .zip(&mut buffers)
            .map(|((_, state), buffer)| Piece::new(state.start.sp, &mut buffer[..]))
            .collect();
        self.memory.read_many(&mut pieces)?;
        let read: Vec<usize> = pieces.iter().map(|piece| piece.read).collect();
        let mut stacks = Vec::with_capacity(waiting.len());
        for (((_, state), mut buffer), read) in waiting.iter().zip(buffers).zip(read) {
            buffer.truncate(read);
            let mut bytes = Bytes::new(self.memory, state.lo..state.hi, state.start.sp, buffer);
            stacks.push(walk(self.code, state.start, &mut bytes)?);
        }
        Ok(stacks)
    }

    fn take(&mut self, state: &State, stack: Vec<Pc>, end: End) -> Result<(), Fault> {
        let reasons = self.layout.wait_reasons;
        self.all.list.push(Goroutine {
            id: state.id,
            status: state.status,
            wait_reason: reasons.get(usize::from(state.wait_reason)).copied().filter(|_| state.waits()),
            waiting_since: Some(state.wait_since).filter(|since| *since != 0 && state.waits()),
            parent: state.parent,
            go_pc: state.go_pc,
            start_pc: state.start_pc,
            labels: self.labels.read(state.labels)?,
            stack,
            end,
        });
        Ok(())
    }
}

/// What is needed of a `g`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    lo: u64,
    hi: u64,
    start: Start,
    status: u32,
    id: u64,
    wait_since: u64,
    wait_reason: u8,
    parent: u64,
    go_pc: u64,
    start_pc: u64,
    labels: u64,
}

impl State {
    /// None where it cannot be a `g`: the bounds of its stack, its state.
    fn of(g: &G, bytes: &[u8]) -> Option<Self> {
        let word = |offset| word_at(bytes, offset);
        let (lo, hi) = (word(G::STACK_LO), word(G::STACK_HI));
        let status = (word(g.status) as u32) & !status::SCAN;
        let start = match word(g.syscall) {
            0 => Start { pc: word(g.sched + 8), sp: word(g.sched), lr: word(g.lr), is_call: false },
            sp => Start { pc: word(g.syscall + 8), sp, lr: 0, is_call: true },
        };
        let state = Self {
            lo,
            hi,
            start,
            status,
            id: word(g.id),
            wait_since: word(g.wait_since),
            wait_reason: word(g.wait_reason) as u8,
            parent: word(g.parent),
            go_pc: word(g.go_pc),
            start_pc: word(g.start_pc),
            labels: word(g.labels),
        };
        let is_possible = lo <= hi && hi.is_multiple_of(8) && status <= status::DEAD_EXTRA;
        is_possible.then_some(state)
    }

    fn is_alive(&self) -> bool {
        ![status::IDLE, status::DEAD, status::DEAD_EXTRA].contains(&self.status)
    }

    /// Alive before it has its number: `newproc1` sets the status first in Go 1.21.
    fn is_nascent(&self) -> bool {
        self.is_alive() && self.id == 0
    }

    fn waits(&self) -> bool {
        [status::WAITING, status::LEAKED, status::SYSCALL].contains(&self.status)
    }

    /// Whether a stack that was copied between the two is of this state.
    fn is_same(&self, now: &Self) -> bool {
        (self.id, self.status, self.start, self.lo, self.hi) == (now.id, now.status, now.start, now.lo, now.hi)
    }
}
