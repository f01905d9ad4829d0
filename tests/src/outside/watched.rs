//! What a thread works for, so that whoever looks at its record can tell whether it is right.
//!
//! In: a state, before the thread puts it in force and after. Out: the record that belongs to it. A thread that is stopped
//! anywhere has the record of the last state, or of the next one.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use super::published::Memory;
use super::record::Seen;
use crate::Result;

/// What is in force on a thread: tags of an outer and of an inner scope and a span, each by a number; 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// The outer scope.
    pub outer: u16,
    /// The inner one, whose tags win.
    pub inner: u16,
    /// The span; from [`NAMED`](Self::NAMED) on, one that brings a tag, and from [`ROOT`](Self::ROOT) on, one that is a local root.
    pub span: u32,
}

/// Where a thread says what it does. Two words, which a reader outside finds by their address.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Watch {
    last: AtomicU64,
    next: AtomicU64,
}

impl Watch {
    /// Puts `state` in force by `change`. Only the thread itself calls this.
    #[inline]
    pub fn enter<R>(&self, state: State, change: impl FnOnce() -> R) -> R {
        self.announce(state);
        let done = change();
        self.arrive(state);
        done
    }

    /// From now on `state` may be in force.
    #[inline]
    pub fn announce(&self, state: State) {
        self.next.store(state.bits(), Ordering::Relaxed);
        // Readers look while the thread stands still: the order of the program is all that they need.
        compiler_fence(Ordering::SeqCst);
    }

    /// From now on what was announced is in force.
    #[inline]
    pub fn arrive(&self, state: State) {
        compiler_fence(Ordering::SeqCst);
        self.last.store(state.bits(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// The last and the next state of the thread whose watch is at `address`.
    ///
    /// # Errors
    /// When there is nothing.
    pub fn read(memory: &Memory, address: u64) -> Result<[State; 2]> {
        Ok([State::of_bits(memory.word(address)?), State::of_bits(memory.word(address + 8)?)])
    }
}

impl State {
    /// The first number of a span that brings a tag.
    pub const NAMED: u32 = 1000;

    /// The first number of a span that is a local root and brings its name.
    pub const ROOT: u32 = 2000;

    /// The number of outer scopes within more than a thread keeps: what tags there are is not known there.
    pub const BEYOND: u16 = u16::MAX;

    /// The tags of the outer scope with this number. The second one is written by the inner scope, too.
    #[must_use]
    pub fn outer_tags(number: u16) -> [(&'static str, String); 2] {
        [("outer", number.to_string()), ("check", filler(u64::from(number)))]
    }

    /// The tags of the inner scope with this number.
    #[must_use]
    pub fn inner_tags(number: u16) -> [(&'static str, String); 2] {
        [("check", filler(u64::from(number) << 20)), ("inner", number.to_string())]
    }

    /// The ids of the span with this number.
    #[must_use]
    pub fn ids(number: u32) -> ([u8; 16], [u8; 8]) {
        let [high, low, own] = [1, 2, 3].map(|salt| scrambled(u64::from(number) << 2 | salt));
        ((u128::from(high) << 64 | u128::from(low)).to_be_bytes(), own.to_be_bytes())
    }

    /// The flags of the trace of the span with this number: some have an id that is random, by the flag for it, and only those of OpenTelemetry can say so.
    ///
    /// Source: W3C Trace Context, level 2, "trace-flags".
    #[must_use]
    pub fn flags(number: u32) -> u8 {
        const SAMPLED: u8 = 1;
        const RANDOM: u8 = 2;
        match number {
            0 => 0,
            Self::NAMED.. => SAMPLED,
            _ => SAMPLED | if number.is_multiple_of(2) { RANDOM } else { 0 },
        }
    }

    /// The record that belongs to it.
    #[must_use]
    pub fn record(self) -> Seen {
        let tags = self.tags().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Seen { span: (self.span != 0).then(|| Self::ids(self.span)), flags: Self::flags(self.span), tags }
    }

    fn tags(self) -> Vec<(&'static str, String)> {
        if self.outer == Self::BEYOND {
            return vec![("profiler.tags", "overflow".to_owned())];
        }
        let mut tags = Vec::new();
        if self.outer != 0 {
            tags.extend(Self::outer_tags(self.outer));
        }
        if self.inner != 0 {
            tags.extend(Self::inner_tags(self.inner));
        }
        match self.span {
            Self::ROOT.. => tags.push(("span_name", "root".to_owned())),
            Self::NAMED.. => tags.push(("span", "named".to_owned())),
            _ => {}
        }
        tags
    }

    fn bits(self) -> u64 {
        u64::from(self.outer) | u64::from(self.inner) << 16 | u64::from(self.span) << 32
    }

    /// The state in one word of a watch.
    #[must_use]
    pub fn of_bits(bits: u64) -> Self {
        Self { outer: bits as u16, inner: (bits >> 16) as u16, span: (bits >> 32) as u32 }
    }
}

/// A text that belongs to a number, of up to 160 characters.
fn filler(number: u64) -> String {
    format!("{:016x}", scrambled(number)).repeat(1 + number as usize % 10)
}

/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", the mix of SplitMix64.
fn scrambled(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) | 1
}
