//! How much memory a set takes.

use super::{Dictionary, ProfileSet};

/// What an element of a table takes beside what is counted.
const BESIDE: usize = 64;

impl ProfileSet {
    /// Bytes of memory, about: of what there is much of in a set.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let Dictionary { strings, functions, locations, stacks, attributes, attribute_sets, .. } = &self.dictionary;
        let samples = self.profiles.iter().map(|profile| size_of_val(&profile.samples[..])).sum::<usize>();
        let stacks = stacks.iter().map(|stack| BESIDE + size_of_val(&*stack.locations)).sum::<usize>();
        let locations = locations.iter().map(|location| BESIDE + size_of_val(&*location.lines)).sum::<usize>();
        let strings = strings.iter().map(|text| BESIDE + text.len()).sum::<usize>();
        samples + stacks + locations + strings + BESIDE * (functions.len() + attributes.len() + attribute_sets.len())
    }
}
