//! What a hook has in its hands while it works: a scratch, and the modules in force, which it reads without a lock.
//!
//! In: hooks, on any thread; other modules where some came or went, from whoever calls `start` and from the `profiler` thread. Out: to each hook a
//! scratch that is its own, and the modules. Those that were replaced are freed once every hook that may read them has ended, as the epochs of
//! the [`Pool`] tell: a hook waits for nobody who puts modules in force, and nobody waits for a hook.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::capture::Work;
use crate::cpu::pool::{self, Pool};
use crate::cpu::stack::Stack;
use crate::error::Error;
use crate::unwind::modules::Modules;
use crate::unwind::walk::Snapshot;

/// Scratches that are only taken where the others are held.
const SPARE: usize = 56;
/// Most modules out of force that wait for hooks to end. One that never ends, as in a thread that somebody stopped, would have them grow without bound.
const MOST_REPLACED: usize = 32;
/// How often a hook lets other threads run before it gives up to find a scratch.
const PATIENCE: usize = 200;

/// The scratches of all hooks, and the modules in force.
#[derive(Debug)]
pub(super) struct Scratches {
    pool: Pool<Work>,
    /// Invariant: `kept.in_force`, whenever nobody has the lock of `kept`.
    in_force: AtomicPtr<InForce>,
    /// Never locked by a hook.
    kept: Mutex<Kept>,
}

/// The modules that hooks work with.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) snapshot: Snapshot,
    /// Number of their era.
    pub(super) era: u64,
}

/// All that a hook may be reading.
#[derive(Debug)]
struct Kept {
    in_force: Arc<InForce>,
    /// Out of force; hooks that began in the epoch that is open may read them.
    replaced: Vec<Arc<InForce>>,
    /// Out of force when the epoch of this number, the last one, began to close: only hooks of that one may read them.
    closing: Option<(u8, Vec<Arc<InForce>>)>,
}

impl Scratches {
    /// Scratches for hooks on so many processors.
    ///
    /// # Errors
    /// When there is no memory for their stacks.
    pub(super) fn new(processors: usize, in_force: InForce) -> Result<Self, Error> {
        let by_hint = (2 * processors).clamp(8, 64);
        let stacks = Stack::map_for_hooks(by_hint + SPARE)?;
        let works = stacks.into_iter().enumerate().map(|(number, stack)| Work::new(stack, number < by_hint));
        let in_force = Arc::new(in_force);
        Ok(Self {
            pool: Pool::new(works, by_hint),
            in_force: AtomicPtr::new(Arc::as_ptr(&in_force).cast_mut()),
            kept: Mutex::new(Kept { in_force, replaced: Vec::new(), closing: None }),
        })
    }

    /// For a hook whose stack is here; waits a little where all scratches are held.
    pub(super) fn hold(&self, sp: u64) -> Option<Held<'_>> {
        let hint = (sp >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        for _ in 0..PATIENCE {
            if let Some(scratch) = self.pool.hold(hint) {
                // SeqCst: behind the hold and paired with the store in `replace`. Either this is what came into force, or the hold is seen by
                // who waits for the end of its epoch.
                let in_force = NonNull::new(self.in_force.load(Ordering::SeqCst))?;
                return Some(Held { scratch, in_force });
            }
            std::thread::yield_now();
        }
        None
    }

    /// The modules in force.
    pub(super) fn modules(&self) -> Arc<Modules> {
        Arc::clone(&self.kept().in_force.snapshot.modules)
    }

    /// Puts others in force.
    pub(super) fn replace(&self, in_force: InForce) {
        let in_force = Arc::new(in_force);
        let mut kept = self.kept();
        // SeqCst: pairs with the load in `hold`.
        self.in_force.store(Arc::as_ptr(&in_force).cast_mut(), Ordering::SeqCst);
        let before = std::mem::replace(&mut kept.in_force, in_force);
        kept.replaced.push(before);
    }

    /// Whether as many wait to be freed as may: those in force stay in force until hooks have ended, however stale.
    pub(super) fn is_full(&self) -> bool {
        self.kept().replaced.len() >= MOST_REPLACED
    }

    /// Frees what no hook can be reading any more of what was replaced. To be called now and then.
    pub(super) fn free_replaced(&self) {
        let mut kept = self.kept();
        if kept.closing.as_ref().is_some_and(|(epoch, _)| !self.pool.is_over(*epoch)) {
            return;
        }
        let replaced = std::mem::take(&mut kept.replaced);
        // No epoch but the open one has hooks: those of the one before are over.
        kept.closing = (!replaced.is_empty()).then(|| (self.pool.begin_close(), replaced));
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one hook has; another one's again when this is dropped.
#[derive(Debug)]
pub(super) struct Held<'a> {
    scratch: pool::Held<'a, Work>,
    /// Valid for as long as the scratch is held.
    in_force: NonNull<InForce>,
}

impl Held<'_> {
    /// The scratch, and the modules.
    pub(super) fn parts(&mut self) -> (&mut Work, &InForce) {
        // SAFETY: it points into an `Arc` of `kept`, which stays there for as long as a scratch is held that was held when it went out of force
        //         (see `free_replaced`); this one is, for as long as `self` is borrowed.
        (self.scratch.work(), unsafe { self.in_force.as_ref() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modules whose counters are the number of their era.
    fn in_force(era: u64) -> InForce {
        let mut modules = Modules::default();
        modules.changes = (era, era);
        InForce { snapshot: Snapshot::of(modules), era }
    }

    fn era(held: &mut Held<'_>) -> u64 {
        held.parts().1.era
    }

    /// Check that a hook has the modules that were in force when it began for as long as it runs, that the next one has the others, and that
    /// they are freed behind the last hook that may have read them, however long one takes that began later.
    #[test]
    fn modules_stay_for_the_hooks_that_read_them() {
        let scratches = Scratches::new(1, in_force(0)).unwrap();
        let weak = || Arc::downgrade(&scratches.kept().in_force);
        let free = || (0..3).for_each(|_| scratches.free_replaced());
        let first = weak();
        let mut old = scratches.hold(0).unwrap();
        scratches.replace(in_force(1));
        let second = weak();
        free();
        // Of the next epoch.
        let mut new = scratches.hold(0).unwrap();
        scratches.replace(in_force(2));
        free();
        assert_eq!((era(&mut old), era(&mut new), first.strong_count(), second.strong_count()), (0, 1, 1, 1));
        drop(old);
        free();
        assert_eq!((era(&mut new), first.strong_count(), second.strong_count()), (1, 0, 1));
        let mut last = scratches.hold(0).unwrap();
        drop(new);
        free();
        assert_eq!((era(&mut last), second.strong_count()), (2, 0));
    }

    /// Check that a hook that does not end has no number of modules kept for it, and that the next ones come into force once it has ended.
    #[test]
    fn a_hook_that_never_ends_holds_up_new_modules() {
        let scratches = Scratches::new(1, in_force(0)).unwrap();
        let mut held = scratches.hold(0).unwrap();
        let mut count = 0;
        while !scratches.is_full() && count < 1000 {
            count += 1;
            scratches.replace(in_force(count));
            scratches.free_replaced();
        }
        assert!(count < 100 && era(&mut held) == 0, "{count}");
        drop(held);
        (0..3).for_each(|_| scratches.free_replaced());
        assert!(!scratches.is_full());
        assert_eq!(era(&mut scratches.hold(0).unwrap()), count);
    }

    /// Check that hooks on many threads read whole modules while these are replaced and freed all the time.
    #[test]
    fn modules_are_whole_while_they_are_replaced() {
        const ERAS: u64 = 20_000;
        let scratches = Scratches::new(2, in_force(0)).unwrap();
        let read = |hint: u64| {
            let mut last = 0;
            while last < ERAS {
                let Some(mut held) = scratches.hold(hint << 16) else { continue };
                let (_, in_force) = held.parts();
                assert_eq!(in_force.snapshot.modules.changes, (in_force.era, in_force.era));
                assert!(in_force.era >= last);
                last = in_force.era;
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|hint| drop(scope.spawn(move || read(hint))));
            for era in 1..=ERAS {
                scratches.replace(in_force(era));
                scratches.free_replaced();
            }
        });
        (0..2).for_each(|_| scratches.free_replaced());
        let kept = scratches.kept();
        assert!(kept.replaced.is_empty() && kept.closing.is_none());
    }
}
