//! Which modules the addresses of a sample are in, for certain.
//!
//! In: every state of the loaded modules that handlers work with, and the number of it that each left in its sample. Out: once
//! an epoch is closed, the modules of its samples, and what of their stacks is certain. A state that still holds then was
//! true all along; of the others, samples are from some time between it and now. Used by the `profiler` thread.

use std::sync::Arc;

use super::record::Head;
use crate::unwind::changes::Movable;
use crate::unwind::frames::StackEnd;
use crate::unwind::modules::Modules;
use crate::unwind::walk::Snapshot;

/// States of which samples may still come. Invariant: the last one is in force.
#[derive(Debug, Default)]
pub(super) struct States {
    states: Vec<State>,
    /// Epochs closed so far.
    closed: u64,
    movable: Movable,
}

#[derive(Debug)]
struct State {
    number: u8,
    modules: Arc<Modules>,
    /// What is certain of samples with this number, in the epoch that is read.
    certain: Arc<Modules>,
    /// When it is replaced, no sample has this number any more once so many epochs are closed.
    ends: Option<u64>,
}

impl States {
    /// Handlers work with this one from now on.
    pub(super) fn put_in_force(&mut self, snapshot: &Snapshot) {
        if let Some(before) = self.states.last() {
            self.movable.note(&before.modules, &snapshot.modules);
        }
        let ends = self.closed + 2;
        self.states.iter_mut().for_each(|state| state.ends = state.ends.or(Some(ends)));
        let modules = || Arc::clone(&snapshot.modules);
        let state = State { number: snapshot.number(), modules: modules(), certain: modules(), ends: None };
        self.states.push(state);
    }

    /// An epoch is over, and the state in force was looked at since: it holds.
    pub(super) fn settle(&mut self) {
        let Some((now, before)) = self.states.split_last_mut() else { return };
        for state in before {
            state.certain = Arc::new(Modules::between(&state.modules, &now.modules, &self.movable));
        }
    }

    /// The modules that a sample's addresses are in, for certain.
    pub(super) fn of(&self, number: u8) -> Option<&Arc<Modules>> {
        // Should two have the same number, the older one says less, and is not wrong.
        self.states.iter().find(|state| state.number == number).or(self.states.first()).map(|state| &state.certain)
    }

    /// The samples of an epoch were read.
    pub(super) fn end_epoch(&mut self) {
        self.closed += 1;
        self.states.retain(|state| state.ends.is_none_or(|ends| self.closed < ends));
    }
}

/// What of a stack is certain: behind an address of which it is not, the walk may have gone astray.
pub(super) fn certain<'a>(head: &mut Head, addresses: &'a [u64], modules: &Modules) -> &'a [u64] {
    if !modules.in_doubt {
        return addresses;
    }
    // What was left out is not known to be certain either.
    let whole = if head.elided > 0 { usize::from(head.leaf_frames) } else { addresses.len() };
    let (leaf, _) = addresses.split_at(whole.min(addresses.len()));
    let doubtful = leaf.iter().position(|address| modules.find(*address).is_none());
    if doubtful.is_none() && head.elided == 0 {
        return addresses;
    }
    let (certain, _) = leaf.split_at(doubtful.map_or(leaf.len(), |doubtful| doubtful + 1));
    head.end = StackEnd::InDoubt;
    head.elided = 0;
    head.leaf_frames = head.leaf_frames.min(certain.len() as u16);
    certain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::modules::Module;

    const PLACE: u64 = 0x10_0000;
    const CODE: u64 = PLACE + 0x1800;

    fn snapshot(build_id: &str, changes: (u64, u64)) -> Snapshot {
        let mut modules = Modules::only(Module::at(PLACE, build_id));
        modules.changes = changes;
        Snapshot::of(modules)
    }

    fn name(states: &States, number: u8) -> Option<&str> {
        states.of(number)?.find(CODE)?.build_id.as_deref()
    }

    /// Check that a state that holds is believed, that of one that was replaced only what both say is, and that it is
    /// forgotten once no sample of it can come.
    #[test]
    fn a_replaced_state_is_in_doubt_until_its_samples_are_in() {
        let (first, second) = (snapshot("aa", (1, 0)), snapshot("bb", (2, 1)));
        let mut states = States::default();
        states.put_in_force(&first);
        states.settle();
        assert_eq!(name(&states, first.number()), Some("aa"));
        states.end_epoch();
        states.put_in_force(&second);
        for _ in 0..2 {
            states.settle();
            assert_eq!([&first, &second].map(|state| name(&states, state.number())), [None, Some("bb")]);
            assert_eq!(states.states.len(), 2);
            states.end_epoch();
        }
        assert_eq!(states.states.len(), 1);
        assert_eq!(name(&states, second.number()), Some("bb"));
    }

    /// Check that a stack in doubt ends at the first address of which nothing is certain, or where frames were left out, and
    /// that one without doubt stays whole.
    #[test]
    fn a_stack_ends_where_its_certainty_does() {
        let known = || Modules::only(Module::at(PLACE, "aa"));
        let (doubtful, known) = (Modules::common(&known(), &known()), known());
        let cut = |modules: &Modules, elided, addresses: &[u64]| {
            let mut head = Head { elided, leaf_frames: 3, ..Head::default() };
            let length = certain(&mut head, addresses, modules).len();
            (length, head.end, head.elided, head.leaf_frames)
        };
        let addresses = [CODE, CODE + 1, CODE + 2, CODE + 3];
        assert_eq!(cut(&known, 5, &[1, 2, 3, 4]), (4, StackEnd::Root, 5, 3));
        assert_eq!(cut(&doubtful, 0, &addresses), (4, StackEnd::Root, 0, 3));
        assert_eq!(cut(&doubtful, 5, &addresses), (3, StackEnd::InDoubt, 0, 3));
        assert_eq!(cut(&doubtful, 5, &[CODE, 1, CODE, CODE]), (2, StackEnd::InDoubt, 0, 2));
        assert_eq!(cut(&doubtful, 0, &[CODE, CODE, CODE, 1]), (4, StackEnd::InDoubt, 0, 3));
        assert_eq!(cut(&doubtful, 0, &[1, CODE]), (1, StackEnd::InDoubt, 0, 1));
    }
}
