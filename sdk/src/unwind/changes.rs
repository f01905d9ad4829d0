//! What can be said of an address where libraries come and go, one in the place of another.
//!
//! In: states of the loaded modules. Out: what was loaded between two of them, or in all of several, as [`Modules`] in which
//! an address is found only if it can be of no other module. Pure; used by the threads of ours, never by the handler.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::modules::{Module, Modules, linker};

/// Most modules that are remembered with others that came after they had gone.
const MAX_GONE: usize = 16;
/// Most names of modules that came or went; beyond, all may have gone.
const MAX_MOVABLE: usize = 1024;

/// The modules that were seen to come or to go, as far as the process was looked at.
#[derive(Debug, Default)]
pub(crate) struct Movable(HashSet<u64>);

impl Movable {
    /// Notes what has come and gone between two states.
    pub(crate) fn note(&mut self, before: &Modules, now: &Modules) {
        let room = MAX_MOVABLE.saturating_sub(self.0.len());
        let (went, came) = (before.without(now), now.without(before));
        self.0.extend(went.iter().chain(&came).map(|module| hash(&module.name)).take(room));
    }

    fn holds(&self, module: &Module) -> bool {
        self.0.len() >= MAX_MOVABLE || self.0.contains(&hash(&module.name))
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl Modules {
    /// What was loaded at a time that is not before `old` was read, nor behind `new`. Code of which that is not certain
    /// is left out: where one module took the place of another, and where modules came and went that neither has seen.
    pub(crate) fn between(old: &Self, new: &Self, movable: &Movable) -> Self {
        let (mut went, mut came) = (old.without(new), new.without(old));
        let unseen = unseen(old, new, went.len(), came.len());
        let before = came.len() + went.len();
        if unseen > 0 {
            came.clear();
            went.clear();
        } else {
            let displaced = went.clone();
            went.retain(|module| !overlaps(module, &came));
            came.retain(|module| !overlaps(module, &displaced));
        }
        let stayed = new.stayed(old, unseen, movable);
        let in_doubt = unseen > 0 || came.len() + went.len() < before;
        // The counters of the older one: a library without build id that came by then is known by what was gone before.
        Self::of([stayed, went, came].concat(), old.changes, in_doubt)
    }

    /// What was loaded in either of two states, if every address means the same in both; `None` if one may mean code that the
    /// other one has not.
    pub(crate) fn joined(known: &Arc<Self>, other: &Arc<Self>) -> Option<Arc<Self>> {
        let (gone, fresh) = (known.without(other), other.without(known));
        if known.in_doubt || other.in_doubt {
            let is_equal = known.in_doubt == other.in_doubt && gone.is_empty() && fresh.is_empty();
            return is_equal.then(|| Arc::clone(known));
        }
        if gone.is_empty() || fresh.is_empty() {
            return Some(Arc::clone(if fresh.is_empty() { known } else { other }));
        }
        let fits = gone.len() <= MAX_GONE && !gone.iter().any(|module| overlaps(module, &fresh));
        fits.then(|| Arc::new(Self::of([known.modules.clone(), fresh].concat(), known.changes, false)))
    }

    /// What was loaded in both of two states; all else is in doubt.
    pub(crate) fn common(known: &Self, other: &Self) -> Self {
        let both = known.modules.iter().filter(|module| other.has(module)).cloned().collect();
        Self::of(both, known.changes, true)
    }

    /// The modules that the other one has not.
    fn without(&self, other: &Self) -> Vec<Arc<Module>> {
        self.modules.iter().filter(|module| !other.has(module)).cloned().collect()
    }

    fn has(&self, module: &Arc<Module>) -> bool {
        self.modules.iter().any(|one| Arc::ptr_eq(one, module)) || self.same(module).is_some()
    }

    /// The modules of both, but those in doubt: one that is known to move may have gone, have let another one in, and
    /// have come back. That takes one unseen load for the other one, and one for each of both from there on: what is
    /// loaded again stands behind all others.
    fn stayed(&self, old: &Self, unseen: u64, movable: &Movable) -> Vec<Arc<Module>> {
        let linker = linker();
        // What came with the program stands before the dynamic linker, most of it, and never goes.
        let first = self.modules.iter().position(|module| linker != 0 && module.range.start == linker);
        let both: Vec<_> = self.modules.iter().enumerate().filter(|(_, module)| old.has(module)).collect();
        let behind = |place: usize| (both.len() - place) as u64;
        let is_certain = |place: usize, index: usize, module: &Module| {
            let never_goes = module.never_goes() || first.is_some_and(|first| index <= first);
            never_goes || unseen <= behind(place) || !movable.holds(module)
        };
        let certain = both.iter().enumerate().filter(|(place, (index, module))| is_certain(*place, *index, module));
        certain.map(|(_, (_, module))| Arc::clone(module)).collect()
    }
}

/// How many modules at most were loaded or unloaded without being in either state, by the loader's counters.
fn unseen(old: &Modules, new: &Modules, went: usize, came: usize) -> u64 {
    let (added, removed) = (new.changes.0.wrapping_sub(old.changes.0), new.changes.1.wrapping_sub(old.changes.1));
    // Where none went, none is in the place of another. (musl unloads nothing, and counts loads in another way.)
    if removed == 0 { 0 } else { added.saturating_sub(came as u64).max(removed.saturating_sub(went as u64)) }
}

/// Whether code of `module` is where one of the others has code.
fn overlaps(module: &Module, others: &[Arc<Module>]) -> bool {
    let code = others.iter().flat_map(|other| &other.segments);
    code.into_iter().any(|b| module.segments.iter().any(|a| a.start < b.end && b.start < a.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: u64 = 0x10_0000;
    const ELSEWHERE: u64 = 0x20_0000;

    /// A state after so many loads and unloads, of libraries by build id and place.
    fn state(changes: (u64, u64), libraries: &[(&str, u64)]) -> Arc<Modules> {
        let modules = libraries.iter().map(|(build_id, start)| Arc::new(Module::at(*start, build_id)));
        Arc::new(Modules::of(modules.collect(), changes, false))
    }

    /// The libraries at both places, by build id.
    fn found(modules: &Modules) -> [Option<&str>; 2] {
        [PLACE, ELSEWHERE].map(|start| modules.find(start + 0x1800).and_then(|module| module.build_id.as_deref()))
    }

    /// What is found in between, where libraries were seen to go before.
    fn between(old: &Modules, new: &Modules) -> ([Option<String>; 2], bool) {
        let mut movable = Movable::default();
        movable.note(&state((1, 0), &[("aa", PLACE)]), &Modules::default());
        let between = Modules::between(old, new, &movable);
        (found(&between).map(|found| found.map(str::to_owned)), between.in_doubt)
    }

    fn some(id: &str) -> Option<String> {
        Some(id.to_owned())
    }

    /// Check that what only came or only went is known in between, and that of two libraries in one place neither is.
    #[test]
    fn between_two_states_nothing_is_known_of_a_displaced_place() {
        let (none, first) = (state((1, 0), &[]), state((2, 0), &[("aa", PLACE)]));
        let both = state((3, 0), &[("aa", PLACE), ("cc", ELSEWHERE)]);
        assert_eq!(between(&none, &first), ([some("aa"), None], false));
        assert_eq!(between(&first, &both), ([some("aa"), some("cc")], false));
        assert_eq!(between(&both, &state((3, 1), &[("aa", PLACE)])), ([some("aa"), some("cc")], false));
        let other = state((4, 1), &[("cc", ELSEWHERE), ("bb", PLACE)]);
        assert_eq!(between(&both, &other), ([None, some("cc")], true));
        // Only the code counts: two libraries may overlap in what is none.
        let beside = state((3, 1), &[("bb", PLACE + 0x1000)]);
        assert_eq!(between(&first, &beside), ([some("aa"), None], false));
    }

    /// Check that modules that came and went unseen make doubtful what they may have been in the place of, and nothing else.
    #[test]
    fn what_came_and_went_unseen_leaves_doubt() {
        let only = |changes| state(changes, &[("aa", PLACE)]);
        assert_eq!(between(&state((1, 0), &[]), &only((3, 1))), ([None, None], true));
        assert_eq!(between(&only((2, 0)), &state((3, 2), &[])), ([None, None], true));
        // One that was unseen cannot have been where "aa" is: for that, "aa" had to be loaded again, too.
        assert_eq!(between(&only((2, 0)), &only((3, 1))), ([some("aa"), None], true));
        assert_eq!(between(&only((2, 0)), &only((4, 2))), ([None, None], true));
        // "aa" stands before "cc": three had to be loaded for another one to have been in its place.
        let two = |changes| state(changes, &[("aa", PLACE), ("cc", ELSEWHERE)]);
        assert_eq!(between(&two((2, 0)), &two((4, 2))), ([some("aa"), None], true));
        assert_eq!(between(&two((2, 0)), &two((5, 3))), ([None, None], true));
        // One that is not known to move is not taken to have gone and come back.
        let mut movable = Movable::default();
        let between = Modules::between(&two((2, 0)), &two((9, 7)), &movable);
        assert_eq!((found(&between), between.in_doubt), ([Some("aa"), Some("cc")], true));
        movable.note(&state((1, 0), &[]), &two((2, 0)));
        assert_eq!(found(&Modules::between(&two((2, 0)), &two((9, 7)), &movable)), [None, None]);
    }

    /// Check that names of modules that came or went are bounded, and that beyond the bound any module may have.
    #[test]
    fn names_of_modules_that_came_or_went_are_bounded() {
        let mut movable = Movable::default();
        let named = |n: usize| Module { name: n.to_string(), ..Module::at(PLACE, "aa") };
        for n in 0..MAX_MOVABLE {
            assert!(!movable.holds(&named(n)) && movable.0.len() == n);
            movable.note(&Modules::only(named(n)), &Modules::default());
            assert!(movable.holds(&named(n)));
        }
        movable.note(&Modules::only(named(MAX_MOVABLE)), &Modules::default());
        assert!(movable.holds(&named(MAX_MOVABLE + 1)) && movable.0.len() == MAX_MOVABLE);
    }

    /// Check that what this program stands on is never in doubt.
    #[test]
    fn what_came_with_the_program_never_goes() {
        let old = Modules::read(&Modules::default());
        let mut new = Modules::read(&old);
        new.changes = (old.changes.0 + 1000, old.changes.1 + 1000);
        let mut movable = Movable::default();
        movable.note(&old, &Modules::default());
        let between = Modules::between(&old, &new, &movable);
        assert!(between.in_doubt);
        let known = [what_came_with_the_program_never_goes as *const () as u64, libc::getpid as *const () as u64];
        assert!(known.iter().all(|address| between.find(*address).is_some()));
        assert!(between.iter().any(|module| module.name == "[vdso]"));
    }

    /// Check that states are joined where no address means two things, and that a doubtful one is joined with its like only.
    #[test]
    fn states_that_contradict_each_other_are_not_joined() {
        let (first, second) = (state((1, 0), &[("aa", PLACE)]), state((2, 1), &[("bb", PLACE)]));
        let elsewhere = state((2, 1), &[("cc", ELSEWHERE)]);
        assert!(Modules::joined(&first, &second).is_none() && Modules::joined(&second, &first).is_none());
        let both = Modules::joined(&first, &elsewhere).unwrap();
        assert_eq!(found(&both), [Some("aa"), Some("cc")]);
        assert!(Modules::joined(&both, &second).is_none());
        let again = state((9, 5), &[("aa", PLACE)]);
        assert!(Arc::ptr_eq(&Modules::joined(&both, &again).unwrap(), &both));
        assert!(Arc::ptr_eq(&Modules::joined(&again, &both).unwrap(), &both));
        let doubtful = |old: &Modules, new: &Modules| Arc::new(Modules::between(old, new, &Movable::default()));
        let (there, back) = (doubtful(&first, &second), doubtful(&second, &state((3, 2), &[("aa", PLACE)])));
        assert!(Modules::joined(&there, &back).is_some_and(|joined| joined.in_doubt && found(&joined) == [None, None]));
        assert!(Modules::joined(&first, &there).is_none() && Modules::joined(&there, &elsewhere).is_none());
    }

    /// Check that states hold no more than so many modules that are gone.
    #[test]
    fn few_modules_that_are_gone_are_remembered() {
        let at = |n: u64| state((n, n), &[("aa", PLACE + n * 0x10_0000)]);
        let join = |known: Option<Arc<Modules>>, n| Modules::joined(&known?, &at(n));
        assert_eq!((1..=MAX_GONE as u64).fold(Some(at(0)), join).unwrap().iter().count(), MAX_GONE + 1);
        assert!((1..=MAX_GONE as u64 + 1).fold(Some(at(0)), join).is_none());
    }

    /// Check that what is common to states is what each of them has.
    #[test]
    fn what_is_common_is_in_each() {
        let (first, second) = (state((1, 0), &[("aa", PLACE), ("cc", ELSEWHERE)]), state((2, 1), &[("cc", ELSEWHERE)]));
        let common = Modules::common(&first, &second);
        assert_eq!((found(&common), common.in_doubt), ([None, Some("cc")], true));
        assert_eq!(found(&Modules::common(&common, &first)), [None, Some("cc")]);
    }
}
