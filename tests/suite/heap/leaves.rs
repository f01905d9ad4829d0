//! Which functions stand at the leaves of the heap's stacks: those of the program and of the libraries that it uses, none of the allocator's.
//!
//! In: the scenario `leaves`, unoptimized around a standard library that is not; profiles of the shop's release build with line tables. Out: names.

use profiler_proto::ProfileSet;
use profiler_proto::model::{Location, Sample};
use serde_json::{Value, json};

use super::heap;
use crate::scenario::result;

/// Whether a function is of the way from the code that allocates to the hook.
fn is_of_allocator(name: &str) -> bool {
    const BEGINNINGS: [&str; 6] =
        ["alloc::alloc::", "core::alloc::", "alloc::boxed::box_new", "tikv_jemallocator::", "__rust", "_rjem_"];
    const PARTS: [&str; 5] = ["prof_", "je_", "malloc", "::here", "on_sample"];
    let of_whom = name.trim_start_matches('<');
    BEGINNINGS.iter().any(|beginning| of_whom.starts_with(beginning)) || PARTS.iter().any(|part| name.contains(part))
}

/// Checks a list of functions at leaves: there are some, and none is the allocator's.
#[track_caller]
pub(crate) fn assert_user_code(leaves: &Value) {
    let names = leaves.as_array().unwrap().iter().map(|leaf| leaf.as_str().unwrap());
    let wrong: Vec<&str> = names.filter(|name| is_of_allocator(name)).collect();
    assert!(!leaves.as_array().unwrap().is_empty() && wrong.is_empty(), "{wrong:?} of {leaves}");
}

/// Checks the leaves of a program with line tables, in which functions of the allocator are inlined: that they were, and are not shown.
#[track_caller]
pub(crate) fn assert_user_code_with_lines<'a>(sets: impl Iterator<Item = &'a ProfileSet>) {
    let (mut names, mut inlined) = (Vec::new(), 0);
    for set in sets {
        let dictionary = &set.dictionary;
        let of_heap = |kind: &str| kind.starts_with("alloc_") || kind.starts_with("inuse_");
        let of_heap = set.profiles.iter().filter(|one| of_heap(dictionary.strings.text(one.kind.sample_type.kind)));
        let leaf = |sample: &Sample| -> Option<&Location> {
            dictionary.locations.get(*dictionary.stacks.get(sample.stack)?.locations.first()?)
        };
        for location in of_heap.flat_map(|profile| &profile.samples).filter_map(leaf) {
            let first = dictionary.functions.get(location.lines[0].function).unwrap();
            names.push(dictionary.strings.text(first.name));
            inlined += usize::from(location.lines.len() > 1);
        }
    }
    assert!(names.len() > 100 && inlined > 50, "{inlined} of {}: {names:?}", names.len());
    assert_user_code(&json!(names));
}

/// Check that whichever way memory is asked for, through Rust's interface, by the standard library, or by C, the function at the leaf is the one that did, or one that
/// it calls and that is no allocator's.
#[test]
fn leaves_are_those_who_ask_for_memory() {
    let outcome = result(&mut heap("leaves", &[]));
    let ways = outcome["ways"].as_object().unwrap();
    assert!(ways.len() >= 12, "{outcome}");
    for (way, leaves) in ways {
        assert_user_code(leaves);
        let is_own = |leaf: &Value| leaf.as_str().unwrap().ends_with(&format!("::{way}"));
        assert!(!way.starts_with("c_") || leaves.as_array().unwrap().iter().all(is_own), "{way}: {leaves}");
    }
}
