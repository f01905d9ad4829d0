//! A body on its way to one destination, and the fate that it shares with the same profiles on their way to others.
//!
//! In: what profiles are counted as, and the verdict of each destination on them. Out: one entry in the ledger: exported at the first
//! destination that acknowledged, lost when the last one has given up. Verdicts come from any thread. A fate holds no body, so that a
//! destination that is slow keeps nothing alive but what it is to be sent itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profiler_proto::loss::Cause;

use super::body::Body;
use super::spool::Receipt;
use crate::stats::{Contents, Ledger};

/// What waits for one destination.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    pub(super) fate: Arc<Fate>,
    /// In the form of the destination.
    pub(super) body: Body,
    /// What was given to the spool, if there is one.
    pub(super) spooled: Option<Spooled>,
}

/// A body that was given to the spool.
#[derive(Debug, Clone)]
pub(super) struct Spooled {
    /// Its number among what this process made: on disk it is known by it.
    pub(super) serial: u64,
    pub(super) receipt: Arc<Receipt>,
}

impl Parcel {
    /// Whether it can be forgotten, for the spool has it.
    pub(super) fn is_kept(&self) -> bool {
        self.spooled.as_ref().is_some_and(|spooled| spooled.receipt.is_kept())
    }
}

/// What becomes of profiles that several destinations are sent.
#[derive(Debug)]
pub(super) struct Fate {
    contents: Contents,
    verdicts: Mutex<Verdicts>,
    ledger: Arc<Ledger>,
}

#[derive(Debug)]
struct Verdicts {
    /// Destinations that have not given theirs.
    awaited: usize,
    /// Whether one has acknowledged.
    exported: bool,
}

impl Fate {
    /// The fate of `contents`, which are pending in `ledger`, at so many destinations. Each of them gives one verdict.
    pub(super) fn new(contents: Contents, destinations: usize, ledger: Arc<Ledger>) -> Self {
        Self { contents, verdicts: Mutex::new(Verdicts { awaited: destinations, exported: false }), ledger }
    }

    /// What the profiles are counted as.
    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// A destination acknowledged them.
    pub(super) fn accepted(&self) {
        let mut verdicts = self.verdicts();
        verdicts.awaited = verdicts.awaited.saturating_sub(1);
        if !verdicts.exported {
            verdicts.exported = true;
            self.ledger.exported(&self.contents);
        }
    }

    /// A destination will never get them.
    pub(super) fn given_up(&self, cause: Cause) {
        let mut verdicts = self.verdicts();
        verdicts.awaited = verdicts.awaited.saturating_sub(1);
        if verdicts.awaited == 0 && !verdicts.exported {
            self.ledger.given_up(&self.contents, cause);
        }
    }

    fn verdicts(&self) -> MutexGuard<'_, Verdicts> {
        // Plain numbers, changed in steps that cannot panic: what a poisoned lock guards is whole.
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use profiler_proto::loss::{Degraded, Loss, STACKS};
    use profiler_proto::model::{Kind, Profile, ProfileSet, Sample};

    use super::super::protocol::Compression;
    use super::*;

    /// An on-CPU profile of so many stacks, and one of the heap.
    fn contents(stacks: u64) -> Contents {
        let mut set = ProfileSet::default();
        let stacks = set.dictionary.attribute(STACKS, i64::try_from(stacks).unwrap());
        let [attributes, none] = [set.dictionary.attribute_set([stacks]), Default::default()];
        let kinds = [Kind::cpu(&mut set.dictionary, 1), Kind::heap(&mut set.dictionary, 1)[0]];
        set.profiles = kinds
            .into_iter()
            .zip([attributes, none])
            .map(|(kind, attributes)| Profile {
                kind,
                attributes,
                samples: vec![Sample::default()],
                ..Profile::default()
            })
            .collect();
        Contents::of(&set)
    }

    /// A parcel of `stacks` stacks and about `bytes` bytes for so many destinations, pending in `ledger` from now on.
    pub(in crate::export) fn parcel(stacks: u64, bytes: usize, destinations: usize, ledger: &Arc<Ledger>) -> Parcel {
        let contents = contents(stacks);
        ledger.enter(stacks, stacks, stacks, &Loss::default(), &Degraded::default());
        ledger.offered(&contents);
        let fate = Arc::new(Fate::new(contents, destinations, Arc::clone(ledger)));
        Parcel { fate, body: Body::new(&"x".repeat(bytes), 1, Compression::None).unwrap(), spooled: None }
    }

    /// Check that contents count as exported once, at the first acknowledgement, whatever the others say.
    #[test]
    fn the_first_acknowledgement_counts() {
        let ledger = Arc::default();
        let fate = parcel(10, 8, 3, &ledger).fate;
        fate.given_up(Cause::Rejected);
        assert_eq!((ledger.account().pending, ledger.kinds()[1].pending), (10, 1));
        fate.accepted();
        fate.accepted();
        let (account, heap) = (ledger.account(), ledger.kinds()[1]);
        assert_eq!((account.exported, account.pending, account.lost.total()), (10, 0, 0));
        assert_eq!((heap.exported, heap.pending, heap.lost.total()), (1, 0, 0));
    }

    /// Check that contents are lost with the cause of the last destination to give up.
    #[test]
    fn the_last_to_give_up_names_the_cause() {
        let ledger = Arc::default();
        let fate = parcel(10, 8, 2, &ledger).fate;
        fate.given_up(Cause::Rejected);
        fate.given_up(Cause::Unreachable);
        let (account, heap) = (ledger.account(), ledger.kinds()[1]);
        assert_eq!((account.exported, account.pending), (0, 0));
        assert_eq!((account.lost.count(Cause::Unreachable), account.lost.total()), (10, 10));
        assert_eq!((heap.lost.count(Cause::Unreachable), heap.lost.total(), heap.pending), (1, 1, 0));
    }

    /// Check that what is on its way when nothing arrives any more is lost then, and what comes later too, whatever is said of it afterwards.
    #[test]
    fn what_is_abandoned_is_lost() {
        let ledger = Arc::default();
        let before = parcel(10, 8, 1, &ledger).fate;
        ledger.abandon(Cause::Closed);
        let after = parcel(10, 8, 1, &ledger).fate;
        before.accepted();
        after.given_up(Cause::Rejected);
        let (account, heap) = (ledger.account(), ledger.kinds()[1]);
        assert_eq!((account.pending, account.lost.count(Cause::Closed), account.taken), (0, 20, 20));
        assert_eq!((heap.pending, heap.lost.count(Cause::Closed), heap.offered), (0, 2, 2));
    }
}
