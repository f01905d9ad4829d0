//! A goroutine as it stands in memory: what is read of its `g`, and whether that is what it was.
//!
//! In: the bytes of a `g`. Out: [`State`]. Pure.
//!
//! Sources: runtime/runtime2.go (`g`), runtime/proc.go (`casgstatus`, `newproc1`).

use crate::go::layouts::{G, status};

use super::memory::word_at;
use super::stack::Start;

/// What is needed of a `g`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub(super) lo: u64,
    pub(super) hi: u64,
    pub(super) start: Start,
    pub(super) status: u32,
    pub(super) id: u64,
    pub(super) wait_since: u64,
    pub(super) wait_reason: u8,
    /// How often it stopped to run, in 8 bits. Some ways into system calls do not count.
    pub(super) stops: u8,
    pub(super) is_locked: bool,
    pub(super) parent: u64,
    pub(super) go_pc: u64,
    pub(super) start_pc: u64,
    pub(super) labels: u64,
}

impl State {
    /// None where it cannot be a `g`: the bounds of its stack, its state.
    pub(super) fn of(g: &G, bytes: &[u8]) -> Option<Self> {
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
            stops: word(g.stops) as u8,
            is_locked: word(g.locked_m) != 0,
            parent: word(g.parent),
            go_pc: word(g.go_pc),
            start_pc: word(g.start_pc),
            labels: word(g.labels),
        };
        let is_possible = lo <= hi && hi.is_multiple_of(8) && status <= status::DEAD_EXTRA;
        is_possible.then_some(state)
    }

    pub(super) fn is_alive(&self) -> bool {
        ![status::IDLE, status::DEAD, status::DEAD_EXTRA].contains(&self.status)
    }

    /// Alive before it has its number: `newproc1` sets the status first in Go 1.21.
    pub(super) fn is_nascent(&self) -> bool {
        self.is_alive() && self.id == 0
    }

    /// Whether it was parked, and the runtime notes what for.
    pub(super) fn is_parked(&self) -> bool {
        [status::WAITING, status::LEAKED].contains(&self.status)
    }

    /// Whether it waits, and the runtime may note since when.
    pub(super) fn waits(&self) -> bool {
        self.is_parked() || self.status == status::SYSCALL
    }

    /// Whether it is the same goroutine, whatever it does: a `g` is used again for another one.
    pub(super) fn is_one(&self, now: &Self) -> bool {
        let one = |state: &Self| (state.id, state.parent, state.go_pc, state.start_pc);
        one(self) == one(now)
    }

    /// Whether a stack that was copied between the two can be of this state: where it goes on is the same, and it did not run meanwhile, as far as
    /// the runtime counts that.
    pub(super) fn is_same(&self, now: &Self) -> bool {
        let place = |state: &Self| (state.id, state.status, state.start, state.lo, state.hi);
        let run = |state: &Self| (state.stops, state.wait_since);
        place(self) == place(now) && run(self) == run(now) && self.status != status::COPYING
    }
}
