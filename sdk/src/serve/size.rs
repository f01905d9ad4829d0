//! How much memory a profile set takes: an estimate from its tables, not a walk of the allocator.
//!
//! In: a set. Out: bytes, for the bound of the store. It counts what the tables hold and what they point to; slack of
//! growing vectors is not known here and left out.

use std::mem::size_of;

use profiler_proto::model::{Attribute, AttributeSet, Function, Id, Link, Location, Mapping, Stack, Table, Value};
use profiler_proto::{Profile, ProfileSet, Sample};

/// The bytes that `set` takes, about.
pub(super) fn of(set: &ProfileSet) -> usize {
    let dictionary = &set.dictionary;
    let resource =
        set.resource.attributes().iter().map(|(key, value)| key.len() + size_of::<(String, Value)>() + heap(value));
    let profiles = set.profiles.iter().map(|p| size_of::<Profile>() + p.samples.len() * size_of::<Sample>());
    size_of::<ProfileSet>()
        + resource.sum::<usize>()
        + profiles.sum::<usize>()
        + table(&dictionary.strings, |text| text.len())
        + table(&dictionary.mappings, |_: &Mapping| 0)
        + table(&dictionary.functions, |_: &Function| 0)
        + table(&dictionary.locations, |location: &Location| size_of_val(&*location.lines))
        + table(&dictionary.stacks, |stack: &Stack| size_of_val(&*stack.locations))
        + table(&dictionary.attributes, |attribute: &Attribute| heap(&attribute.value))
        + table(&dictionary.attribute_sets, |set: &AttributeSet| size_of_val(set.ids()))
        + table(&dictionary.links, |_: &Link| 0)
}

/// A table: per element its value, its hash, a slot of the index (of which at most 7/8 are used), and what it points to.
fn table<T, I>(table: &Table<T, I>, pointed_to: impl Fn(&T) -> usize) -> usize
where
    T: std::hash::Hash + Eq + Default,
    I: Id,
{
    const INDEXED: usize = size_of::<u64>() + size_of::<(usize, u16)>();
    table.len() * (size_of::<T>() + INDEXED) + table.iter().map(pointed_to).sum::<usize>()
}

/// What a value points to; what a list or map holds is counted as wide as its elements, not deeper.
fn heap(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(values) => size_of_val(&**values),
        Value::Map(entries) => size_of_val(&**entries),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::Stacks;

    /// Check that what a set holds is counted: text, stacks and samples.
    #[test]
    fn what_a_set_holds_is_counted() {
        let empty = of(&Stacks::new().set());
        let long = "x".repeat(10_000);
        assert!(of(&Stacks::new().sample(&long, 1).set()) >= empty + 10_000);
        let deep = vec!["f"; 1000].join(";");
        assert!(of(&Stacks::new().sample(&deep, 1).set()) >= empty + 4000);
        let many = (0..1000).fold(Stacks::new(), |stacks, _| stacks.sample("a", 1)).set();
        assert!(of(&many) >= empty + 1000 * size_of::<Sample>());
    }
}
