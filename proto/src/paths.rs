//! The order of paths from the root, as that of words in a dictionary. Not public interface: the crates of this workspace that order stacks share it.
//!
//! In: how many paths, and what each has at each depth. Out: the place of each. Of a part that many paths have in common, each element is looked at some times, not once for
//! each comparison of two paths: stacks of a deep recursion have hundreds of frames in common.

/// The place of each of so many paths, from 0; those that are equal have the same. `at` tells what a path has at a depth; `None`: it has ended, and comes before those that
/// go on.
#[must_use]
pub fn places<K: Ord>(count: usize, at: impl Fn(usize, usize) -> Option<K>) -> Vec<u32> {
    let mut order: Vec<usize> = (0..count).collect();
    // Whether another path begins there: it is not the one before.
    let mut is_other = vec![false; count];
    // Runs of paths that are the same up to a depth.
    let mut open = vec![(0..count, 0)];
    while let Some((run, depth)) = open.pop() {
        let Some(paths) = order.get_mut(run.clone()) else { continue };
        paths.sort_by_key(|path| at(*path, depth));
        let mut start = run.start;
        for same in paths.chunk_by(|one, other| at(*one, depth) == at(*other, depth)) {
            let rest = start..start + same.len();
            start = rest.end;
            if let Some(begins) = is_other.get_mut(rest.start) {
                *begins |= rest.start > run.start;
            }
            if same.first().is_some_and(|path| rest.len() > 1 && at(*path, depth).is_some()) {
                open.push((rest, depth + 1));
            }
        }
    }
    let mut places = vec![0; count];
    let mut place = 0;
    for (path, is_other) in order.into_iter().zip(is_other) {
        place += u32::from(is_other);
        places[path] = place;
    }
    places
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Check that paths have the places that they have where each is compared with each, and equal ones the same.
        #[test]
        fn places_are_those_of_comparing(paths in prop::collection::vec(prop::collection::vec(0..3_u8, 0..6), 0..40)) {
            let mut distinct = paths.clone();
            distinct.sort();
            distinct.dedup();
            let wanted: Vec<u32> =
                paths.iter().map(|path| distinct.iter().position(|other| other == path).unwrap() as u32).collect();
            prop_assert_eq!(places(paths.len(), |path, depth| paths[path].get(depth).copied()), wanted);
        }
    }

    /// Check that what many long paths have in common is not gone through for each comparison: each element is asked for a few times.
    #[test]
    fn what_is_common_is_looked_at_a_few_times() {
        const PATHS: usize = 1000;
        const DEPTH: usize = 500;
        let asked = std::cell::Cell::new(0);
        let at = |path: usize, depth: usize| {
            asked.set(asked.get() + 1);
            match depth {
                0..DEPTH => Some(7),
                DEPTH => Some((path * 7919) % PATHS),
                _ => None,
            }
        };
        let places = places(PATHS, at);
        assert!((0..PATHS).all(|path| places[path] as usize == (path * 7919) % PATHS));
        assert!(asked.get() < 5 * PATHS * DEPTH, "{}", asked.get());
    }
}
