//! Rules of addresses seen before, in the form that a walk can apply at once.
//!
//! In: rows of call frame information. Out: a [`Step`] by address, out of a table of fixed size that one handler at a time
//! owns. Most rows come down to a few numbers ([`Frame`]); the others (expressions, signal frames) are worked out each time.
//! The table belongs to one state of the loaded modules, and is emptied when another one comes.

use super::arch::{PRESERVED, RETURN_ADDRESS, STACK_POINTER};
use super::cfi::{Cfa, Row, Rule};

/// Places in the table: a power of two.
const PLACES: usize = 1024;

/// How a walk gets from an address to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// By these numbers.
    Frame(Frame),
    /// There is none: the first function of the process or of a thread.
    Root,
    /// By running the tables again.
    Evaluate,
    /// The tables say nothing: by frame pointer, or by what the code looks like.
    NoTables,
}

/// A row that needs nothing but one register and offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The canonical frame address is this register …
    pub(crate) register: u8,
    /// Where the return address is, in words from the canonical frame address; 0: in its register.
    pub(crate) return_address: i16,
    /// … and this.
    pub(crate) offset: i32,
    /// Which registers are saved, as bits by DWARF number.
    pub(crate) bits: u32,
    /// Where the registers in [`PRESERVED`] are, in words from the canonical frame address; 0: unchanged.
    pub(crate) saved: [i16; PRESERVED.len()],
}

impl Step {
    /// The step that a row asks for.
    pub(crate) fn of_row(row: &Row) -> Self {
        match row.rules[usize::from(RETURN_ADDRESS)] {
            Rule::Undefined => Self::Root,
            _ => Frame::of_row(row).map_or(Self::Evaluate, Self::Frame),
        }
    }
}

impl Frame {
    fn of_row(row: &Row) -> Option<Self> {
        let Cfa::Register { register, offset } = row.cfa else { return None };
        if row.is_signal_frame || row.rules[usize::from(STACK_POINTER)] != Rule::Unspecified {
            return None;
        }
        let return_address = words(row.rules[usize::from(RETURN_ADDRESS)])?;
        let (mut saved, mut bits) = ([0; PRESERVED.len()], 0);
        for (place, number) in saved.iter_mut().zip(PRESERVED) {
            *place = words(row.rules[usize::from(number)])?;
            bits |= u32::from(*place != 0) << number;
        }
        Some(Self { register, return_address, offset: i32::try_from(offset).ok()?, bits, saved })
    }
}

/// A rule as an offset in words, if that is all it is.
fn words(rule: Rule) -> Option<i16> {
    match rule {
        Rule::Unspecified | Rule::Same => Some(0),
        Rule::At(offset) if offset != 0 && offset % 8 == 0 => i16::try_from(offset / 8).ok(),
        _ => None,
    }
}

const EMPTY: (u64, Step) = (0, Step::NoTables);

/// The table.
#[derive(Debug)]
pub(crate) struct Cache {
    /// By address. No code is at address 0, and what an empty place says is right there.
    places: Box<[(u64, Step)]>,
    /// The state of the loaded modules that the rules belong to.
    generation: u64,
}

impl Cache {
    /// A table of the usual size.
    pub(crate) fn new() -> Self {
        Self::of(PLACES)
    }

    /// A table for who is seldom asked.
    pub(crate) fn small() -> Self {
        Self::of(PLACES / 16)
    }

    fn of(places: usize) -> Self {
        Self { places: vec![EMPTY; places].into(), generation: 0 }
    }

    /// Forgets everything that belongs to another state of the loaded modules.
    pub(crate) fn begin(&mut self, generation: u64) {
        if self.generation != generation {
            self.places.fill(EMPTY);
            self.generation = generation;
        }
    }

    /// The step from `address`, as it is known or as `make` makes it.
    pub(crate) fn step(&mut self, address: u64, make: impl FnOnce() -> Step) -> &Step {
        // Return addresses have no pattern in their low bits; the multiplication (Knuth, "The Art of Computer Programming"
        // 6.4) brings the others in.
        let place = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.trailing_zeros());
        let place = &mut self.places[place as usize % self.places.len()];
        if place.0 != address {
            *place = (address, make());
        }
        &place.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a rule is made once, and made anew when the modules have changed, however often that is.
    #[test]
    fn rules_belong_to_one_state_of_the_modules() {
        let mut cache = Cache::new();
        for generation in 1..=70_000 {
            cache.begin(generation);
            assert_eq!(cache.step(0x1234, || Step::Root), &Step::Root);
            cache.begin(generation);
            assert_eq!(cache.step(0x1234, || Step::NoTables), &Step::Root);
            cache.begin(u64::MAX);
            assert_eq!(cache.step(0x1234, || Step::Evaluate), &Step::Evaluate);
        }
    }
}
