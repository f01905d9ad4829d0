//! Rules of addresses seen before, in the form that a walk can apply at once.
//!
//! In: rows of call frame information. Out: a [`Step`] by address, out of a table of fixed size that one handler at a time
//! owns. Most rows come down to a few numbers ([`Frame`]); the others (expressions, signal frames) are worked out each time.
//! The table belongs to one state of the loaded modules, and is emptied when another one comes.

use super::arch::{PRESERVED, RETURN_ADDRESS, STACK_POINTER};
use super::cfi::{Cfa, Row, Rule};

/// Places in the table: a power of two.
const PLACES: usize = 1024;
/// Places of an address.
const WAYS: usize = 2;

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
    /// The return address is in its register.
    pub(crate) in_register: bool,
    /// Else where it is, in words from the canonical frame address.
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
        let in_register = return_address == 0;
        Some(Self { register, in_register, return_address, offset: i32::try_from(offset).ok()?, bits, saved })
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

/// A step by its address. No code is at address 0, and what an empty place says is right there.
#[derive(Debug, Clone, Copy)]
struct Place(u64, Step);

/// The places that an address may have, those of later addresses first. Two, for two addresses of a stack that take each other's only place
/// would be worked out at each walk, and with some dozens of addresses there are such two in many processes.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(target_arch = "x86_64", repr(align(64)))]
struct Set([Place; WAYS]);

const EMPTY: Set = Set([Place(0, Step::NoTables); WAYS]);

/// A cache line.
#[cfg(target_arch = "x86_64")]
const _: () = assert!(size_of::<Set>() == 64);

/// The table.
#[derive(Debug)]
pub(crate) struct Cache {
    /// By address.
    sets: Box<[Set]>,
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
        Self { sets: vec![EMPTY; places / WAYS].into(), generation: 0 }
    }

    /// Forgets everything that belongs to another state of the loaded modules.
    pub(crate) fn begin(&mut self, generation: u64) {
        if self.generation != generation {
            self.sets.fill(EMPTY);
            self.generation = generation;
        }
    }

    /// The step from `address`, as it is known or as `make` makes it.
    pub(crate) fn step(&mut self, address: u64, make: impl FnOnce() -> Step) -> &Step {
        let set = self.set(address);
        let Set(places) = &mut self.sets[set];
        let way = places.iter().position(|place| place.0 == address).unwrap_or_else(|| {
            places.rotate_right(1);
            places[0] = Place(address, make());
            0
        });
        &places[way].1
    }

    fn set(&self, address: u64) -> usize {
        // Return addresses have no pattern in their low bits; the multiplication (Knuth, "The Art of Computer Programming"
        // 6.4) brings the others in.
        let mixed = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.trailing_zeros());
        mixed as usize % self.sets.len()
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

    /// Check that two addresses that have the same places keep their rules, and that a third one takes the older one's.
    #[test]
    fn two_addresses_share_a_set() {
        let mut cache = Cache::new();
        let set = cache.set(1);
        let same: Vec<u64> = (1..).filter(|address| cache.set(*address) == set).take(3).collect();
        cache.step(same[0], || Step::Root);
        cache.step(same[1], || Step::Evaluate);
        for _ in 0..3 {
            assert_eq!(cache.step(same[0], || Step::NoTables), &Step::Root);
            assert_eq!(cache.step(same[1], || Step::NoTables), &Step::Evaluate);
        }
        cache.step(same[2], || Step::Root);
        assert_eq!(cache.step(same[1], || Step::NoTables), &Step::Evaluate);
        assert_eq!(cache.step(same[0], || Step::NoTables), &Step::NoTables);
    }
}
