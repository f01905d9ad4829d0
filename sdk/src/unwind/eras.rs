//! Which samples of a time may be told by one state of the loaded modules, and which not.
//!
//! In: the states that samples were taken in. Out: for each the number of its era, and for each era the modules that its
//! addresses are in. A time has one era, mostly: another one begins where a library is in the place of another. Pure.

use std::sync::Arc;

use profiler_proto::hash::Set;

use super::modules::Modules;

/// Most eras. What fits into none of them shares the last one, in which only what all of its states have is known: addresses
/// in other libraries are shown by number.
pub(crate) const MAX_ERAS: usize = 8;
/// States of which the era is remembered, the newest.
const MAX_RECENT: usize = 4;

/// The eras of one time.
#[derive(Debug, Default)]
pub(crate) struct Eras {
    eras: Vec<Arc<Modules>>,
    /// The last era is shared by what fits into none.
    is_shared: bool,
    recent: Vec<(Arc<Modules>, usize)>,
}

impl Eras {
    /// The era of addresses that are in these modules.
    pub(crate) fn of(&mut self, modules: &Arc<Modules>) -> usize {
        if let Some((_, era)) = self.recent.iter().find(|(known, _)| Arc::ptr_eq(known, modules)) {
            return *era;
        }
        let era = self.place(modules);
        if self.recent.len() >= MAX_RECENT {
            self.recent.remove(0);
        }
        self.recent.push((Arc::clone(modules), era));
        era
    }

    fn place(&mut self, modules: &Arc<Modules>) -> usize {
        let own = self.eras.len() - usize::from(self.is_shared);
        let joined = |era: &Arc<Modules>| Modules::joined(era, modules);
        let fitting = self.eras.iter().take(own).enumerate().rev().find_map(|(at, era)| Some((at, joined(era)?)));
        if let Some((at, joined)) = fitting {
            self.eras[at] = joined;
            return at;
        }
        if self.eras.len() < MAX_ERAS {
            self.eras.push(Arc::clone(modules));
        } else if let Some(last) = self.eras.last_mut() {
            *last = Arc::new(Modules::common(last, modules));
            self.is_shared = true;
        }
        self.eras.len() - 1
    }

    /// The modules of each era.
    pub(crate) fn into_modules(self) -> Vec<Arc<Modules>> {
        self.eras
    }
}

/// Every distinct address of each era, sorted, with what it is in; `stacks` are addresses with the number of their era.
pub(crate) fn places<'a, 'b>(
    eras: &'a [Arc<Modules>],
    stacks: impl Iterator<Item = (usize, &'b [u64])>,
) -> Vec<(Vec<u64>, &'a Modules)> {
    // Most are in many stacks: only what is distinct is worth sorting.
    let mut distinct: Vec<Set<u64>> = eras.iter().map(|_| Set::default()).collect();
    for (era, addresses) in stacks {
        if let Some(all) = distinct.get_mut(era) {
            all.extend(addresses);
        }
    }
    let sorted = distinct.into_iter().map(|all| {
        let mut addresses: Vec<u64> = all.into_iter().collect();
        addresses.sort_unstable();
        addresses
    });
    sorted.zip(eras.iter().map(Arc::as_ref)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::modules::Module;

    const PLACE: u64 = 0x10_0000;

    fn library(build_id: &str, start: u64) -> Arc<Modules> {
        Arc::new(Modules::only(Module::at(start, build_id)))
    }

    /// Check that libraries in one place are of different eras, the same one of the same, and others beside them of any.
    #[test]
    fn a_library_in_the_place_of_another_begins_an_era() {
        let mut eras = Eras::default();
        let first = library("aa", PLACE);
        let numbers = [&first, &library("bb", PLACE), &library("aa", PLACE), &library("cc", 2 * PLACE), &first]
            .map(|state| eras.of(state));
        assert_eq!(numbers, [0, 1, 0, 1, 0]);
        let modules = eras.into_modules();
        let name = |era: usize| modules[era].find(PLACE + 0x1800).unwrap().build_id.clone().unwrap();
        assert_eq!([name(0), name(1)], ["aa", "bb"]);
    }

    /// Check that eras are bounded, and that beyond them only what is certain is known: of a library in the place of another
    /// nothing, of one that is there all the time everything.
    #[test]
    fn eras_are_bounded() {
        let mut eras = Eras::default();
        let with = |n: usize| {
            let (stays, swapped) = (library("stays", 2 * PLACE), library(&format!("{n}"), PLACE));
            Modules::joined(&stays, &swapped).unwrap()
        };
        let numbers: Vec<usize> = (0..3 * MAX_ERAS).map(|n| eras.of(&with(n))).collect();
        assert_eq!(numbers[..MAX_ERAS], (0..MAX_ERAS).collect::<Vec<_>>());
        assert!(numbers[MAX_ERAS..].iter().all(|era| *era == MAX_ERAS - 1));
        assert_eq!(eras.of(&with(1)), 1, "an era that is known is still found");
        assert_eq!(eras.recent.len(), MAX_RECENT);
        let modules = eras.into_modules();
        let known = |era: usize| [PLACE, 2 * PLACE].map(|start| modules[era].find(start + 0x1800).is_some());
        assert_eq!((modules.len(), known(0), known(MAX_ERAS - 1)), (MAX_ERAS, [true, true], [false, true]));
    }
}
