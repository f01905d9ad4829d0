//! The true stack, kept by watching: a call adds a return address, and one below the stack pointer is gone.
//!
//! In: the program counter and the stack pointer after each instruction, the bytes of the instruction before. Out: the return
//! addresses of the stack, root first. It knows nothing of unwind tables. Runs in the trap handler: no allocation.

use std::ops::Range;

/// Deepest stack.
const DEPTH: usize = 8192;

/// A return address.
#[derive(Debug, Clone, Copy)]
struct Return {
    /// Where on the stack it stands.
    place: u64,
    /// As a walk reports it.
    address: u64,
}

/// The true stack of a thread.
#[derive(Debug)]
pub(super) struct Shadow {
    returns: Vec<Return>,
    /// Address of the next instruction, and the stack pointer before it; `None` before the call with which steps begin.
    last: Option<(u64, u64)>,
    /// Stacks other than the thread's own.
    others: Vec<Range<u64>>,
}

impl Shadow {
    /// A stack that begins with these return addresses, root first; `others` are the stacks that code may change to.
    pub(super) fn new(root: &[u64], others: Vec<Range<u64>>) -> Self {
        let mut returns = Vec::with_capacity(DEPTH);
        returns.extend(root.iter().map(|address| Return { place: u64::MAX, address: *address - 1 }));
        Self { returns, last: None, others }
    }

    /// The addresses, root first.
    pub(super) fn addresses(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.returns.iter().map(|one| one.address)
    }

    /// An instruction has been done.
    pub(super) fn step(&mut self, pc: u64, sp: u64) {
        let called = self.last.is_none_or(|(pc, last_sp)| is_call(pc) && sp == last_sp.wrapping_sub(8));
        if called {
            self.call(sp);
        }
        self.drop_dead(sp);
        self.last = Some((pc, sp));
    }

    /// A call was made that left its return address at `place`.
    pub(super) fn call(&mut self, place: u64) {
        // SAFETY: the stack pointer's own word, of a thread that stands still.
        let address = unsafe { *(place as *const u64) };
        self.push(Return { place, address: address - 1 });
    }

    /// A signal interrupted the code at `pc`; the kernel put the registers at `context`, the handler's return address below.
    pub(super) fn signal(&mut self, pc: u64, context: u64) {
        self.push(Return { place: context, address: pc });
        self.call(context - 8);
        self.last = None;
    }

    fn push(&mut self, one: Return) {
        assert!(self.returns.len() < DEPTH);
        self.returns.push(one);
    }

    /// Forgets return addresses below the stack pointer, and stacks that were left for one below.
    fn drop_dead(&mut self, sp: u64) {
        let now = self.stack_of(sp);
        let is_there = |one: &Return| self.stack_of(one.place) == now;
        if let Some(top) = self.returns.iter().rposition(is_there) {
            // Changing to another stack leaves this one as it is; coming back ends the other one.
            self.returns.truncate(top + 1);
        }
        while self.returns.last().is_some_and(|one| self.stack_of(one.place) == now && one.place < sp) {
            self.returns.pop();
        }
    }

    fn stack_of(&self, address: u64) -> Option<usize> {
        self.others.iter().position(|stack| stack.contains(&address))
    }
}

/// Whether the instruction at `pc` is a near call: E8, or FF /2, behind any prefixes.
fn is_call(pc: u64) -> bool {
    // SAFETY: the instruction was just executed, and no code ends a page with a prefix.
    let byte = |at: u64| unsafe { *((pc + at) as *const u8) };
    let mut at = 0;
    while matches!(byte(at), 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3) {
        at += 1;
    }
    match byte(at) {
        0xe8 => true,
        0xff => byte(at + 1) >> 3 & 7 == 2,
        _ => false,
    }
}
