//! The walk of a parked goroutine's stack, as the runtime's own unwinder goes: by the depth of each frame, from the table of the program.
//!
//! In: where the goroutine will go on (pc, sp), its stack's bounds, its bytes. Out: addresses leaf first, and how the walk ended. Every address is
//! in a function of the program; at the first that is not, the walk ends as lost. Bounded by [`DEPTH`] and by the stack. Pure but for more bytes of
//! a stack that is longer than what was read ahead.
//!
//! Source: runtime/traceback.go (`unwinder.initAt`, `resolveInternal`, `next`).

use std::borrow::Cow;
use std::ops::Range;

use crate::elf::Machine;
use crate::target::Fault;

use super::memory::Memory;
use super::variables::{Code, Function};

/// Most frames that are walked.
const DEPTH: usize = 1024;
/// Bytes of a stack that are read at once.
pub(super) const CHUNK: usize = 8 << 10;

/// An address of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pc {
    /// Where the frame goes on.
    pub address: u64,
    /// Whether that is behind a call, whose line is meant; else it is the line of the instruction itself.
    pub is_return: bool,
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum End {
    /// At the goroutine's outermost function.
    #[default]
    Root,
    /// At a function that switches stacks, or after [`DEPTH`] frames.
    Cut,
    /// At what is no code of the program, or no memory.
    Lost,
}

/// Where a walk begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) pc: u64,
    pub(super) sp: u64,
    /// The link register, where one was saved.
    pub(super) lr: u64,
    /// Whether it is where a system call was entered.
    pub(super) is_call: bool,
}

/// The bytes of a stack: a piece of it, others read when they are needed.
#[derive(Debug)]
pub(super) struct Bytes<'m, M: ?Sized> {
    memory: &'m M,
    /// `stack.lo` to `stack.hi`.
    bounds: Range<u64>,
    at: u64,
    piece: Cow<'m, [u8]>,
}

impl<'m, M: Memory + ?Sized> Bytes<'m, M> {
    pub(super) fn new(memory: &'m M, bounds: Range<u64>, at: u64, piece: &'m [u8]) -> Self {
        Self { memory, bounds, at, piece: Cow::Borrowed(piece) }
    }

    /// The word at `address`, if it is in the stack and can be read.
    fn word(&mut self, address: u64) -> Result<Option<u64>, Fault> {
        if !address.is_multiple_of(8) || address < self.bounds.start || address > self.bounds.end.saturating_sub(8) {
            return Ok(None);
        }
        if let Some(word) = self.known(address) {
            return Ok(Some(word));
        }
        let length = (self.bounds.end - address).min(CHUNK as u64) as usize;
        let mut piece = vec![0; length];
        if !self.memory.fill(address, &mut piece)? {
            piece.clear();
        }
        (self.at, self.piece) = (address, Cow::Owned(piece));
        Ok(self.known(address))
    }

    fn known(&self, address: u64) -> Option<u64> {
        let inside = usize::try_from(address.checked_sub(self.at)?).ok()?;
        self.piece.get(inside..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}

/// Walks from `start` to the root.
pub(super) fn walk<M: Memory + ?Sized>(
    code: &impl Code,
    start: Start,
    bytes: &mut Bytes<'_, M>,
) -> Result<(Vec<Pc>, End), Fault> {
    let has_link = code.machine() == Machine::Aarch64;
    let (mut stack, mut frame) = (Vec::new(), start);
    let mut is_injected = false;
    loop {
        let Some(function) = code.function(frame.pc) else { return Ok((stack, End::Lost)) };
        // A goroutine that has not begun yet stands at the entry of its function.
        let is_return = !is_injected && frame.pc > function.entry;
        stack.push(Pc { address: frame.pc, is_return });
        if function.is_top {
            return Ok((stack, End::Root));
        }
        if stack.len() >= DEPTH || (function.writes_sp && !(frame.is_call && stack.len() == 1)) {
            return Ok((stack, End::Cut));
        }
        let Some(next) = caller(code, &function, frame, has_link, bytes)? else { return Ok((stack, End::Lost)) };
        if next.pc == 0 {
            return Ok((stack, End::Root));
        }
        (is_injected, frame) = (function.is_injected, next);
    }
}

/// The frame that `function` was called from. Stacks grow downwards, so its stack pointer is higher: the walk ends.
fn caller<M: Memory + ?Sized>(
    code: &impl Code,
    function: &Function,
    frame: Start,
    has_link: bool,
    bytes: &mut Bytes<'_, M>,
) -> Result<Option<Start>, Fault> {
    let Some(depth) = code.depth(frame.pc) else { return Ok(None) };
    let Some(top) = frame.sp.checked_add(depth) else { return Ok(None) };
    let next = |pc, sp| Start { pc, sp, lr: 0, is_call: false };
    if !has_link {
        let Some(sp) = top.checked_add(8) else { return Ok(None) };
        return Ok(bytes.word(top)?.map(|pc| next(pc, sp)));
    }
    let saved = if depth > 0 || frame.lr == 0 { bytes.word(frame.sp)? } else { Some(frame.lr) };
    let Some(pc) = saved.filter(|_| depth > 0 || frame.lr != 0) else { return Ok(None) };
    if !function.is_injected {
        return Ok(Some(next(pc, top)));
    }
    // A signal's handler puts the link register below the frame that it interrupts, and aligns to 16 bytes.
    let lr = bytes.word(top)?;
    Ok(lr.zip(top.checked_add(16)).map(|(lr, sp)| Start { lr, ..next(pc, sp) }))
}
