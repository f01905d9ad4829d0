//! What did not arrive, by cause, and the account that every stack is entered in.
//!
//! In: counts from where things happen (signal handler, ring, queue, peer). Out: attributes on every exported profile,
//! `stats()`, `/stats`. Plain numbers; whoever shares them between threads brings the lock.

use crate::model::{AttributeId, Dictionary, Value};

/// Names one enum of counters and the struct that holds one count of each.
macro_rules! counters {
    ($(#[$enum_doc:meta])* $kind:ident, $(#[$struct_doc:meta])* $counts:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$enum_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $kind { $($(#[$doc])* $variant,)* }

        impl $kind {
            /// All of them, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in `/stats` and, after a prefix, of the attribute.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        $(#[$struct_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default)]
        pub struct $counts { counts: [u64; $kind::ALL.len()] }

        impl std::fmt::Debug for $counts {
            /// The counts that are not zero, by name.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_map().entries(self.iter().filter(|(_, n)| *n > 0).map(|(cause, n)| (cause.name(), n))).finish()
            }
        }

        impl $counts {
            /// Counts `n` more of `cause`.
            pub fn add(&mut self, cause: $kind, n: u64) {
                let count = &mut self.counts[cause as usize];
                *count = count.saturating_add(n);
            }

            /// Counts all of `other` too.
            pub fn merge(&mut self, other: &Self) {
                for &cause in $kind::ALL {
                    self.add(cause, other.count(cause));
                }
            }

            /// The count of `cause`.
            #[must_use]
            pub fn count(&self, cause: $kind) -> u64 {
                self.counts[cause as usize]
            }

            /// The sum over all causes.
            #[must_use]
            pub fn total(&self) -> u64 {
                self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
            }

            /// Every cause with its count, those at zero included.
            pub fn iter(&self) -> impl Iterator<Item = ($kind, u64)> + '_ {
                $kind::ALL.iter().map(|&cause| (cause, self.count(cause)))
            }
        }
    };
}

counters! {
    /// Why stacks will never arrive.
    Cause,
    /// Stacks that will never arrive, by cause.
    Loss {
        /// No room in the ring between signal handler and reader.
        RingFull = "ring_full",
        /// All of the handler's scratch areas were in use.
        NoScratch = "no_scratch",
        /// The thread had SIGPROF blocked, or was in one system call, for so long that the stack found at last says nothing about that time.
        Blocked = "blocked",
        /// The process had ended before anybody could look what it was.
        Gone = "gone",
        /// Too many distinct stacks in one interval.
        AggregateFull = "aggregate_full",
        /// Symbolizing failed, or the thread that does it ended: a bug of ours.
        Failed = "failed",
        /// There is no destination and no store.
        NoDestination = "no_destination",
        /// A destination's queue was full: the oldest went.
        QueueFull = "queue_full",
        /// The folder of the spool was full: the oldest in it went.
        SpoolFull = "spool_full",
        /// What the spool has of it on disk is not what was written, or was taken away.
        SpoolDamaged = "spool_damaged",
        /// One profile alone is larger than a request may be.
        TooLarge = "too_large",
        /// The peer refused it for good: a status that must not be retried, or a partial success.
        Rejected = "rejected",
        /// The peer did not take it in all the tries that there are.
        Unreachable = "unreachable",
        /// It was sent, and no answer came in all the tries that there are: it may have arrived.
        Unanswered = "unanswered",
        /// It waited for longer than what waits is kept.
        TooOld = "too_old",
        /// Shutdown's time was over.
        Shutdown = "shutdown",
        /// The program closed the profiler's connections, with all descriptors that it does not know.
        Closed = "closed",
    }
}

counters! {
    /// In what way stacks that did arrive are less than perfect.
    Flaw,
    /// Stacks that arrived less than perfect, by flaw; outside the equation of [`Account`].
    Degraded {
        /// Frames between leaf and root were left out, for the stack is deeper than a record.
        Truncated = "truncated",
        /// The walk ended before the root; where it is known why, one of the next three says it, too.
        UnwindStopped = "unwind_stopped",
        /// Of these: neither tables nor a frame pointer tell the caller.
        UnwindUnknown = "unwind_stopped_unknown",
        /// Of these: where the caller is said to be, nothing can be read.
        UnwindUnreadable = "unwind_stopped_unreadable",
        /// Of these: one library took another's place meanwhile, and the address may be in either.
        UnwindInDoubt = "unwind_stopped_in_doubt",
        /// Tags or the span are not told, all or some: they were over a bound, or nobody could tell them any more.
        NoContext = "no_context",
        /// The weight is corrected by the thread's CPU clock.
        Scaled = "scaled",
    }
}

impl Loss {
    /// The counts that are not zero, as attributes `profiler.lost.<cause>`.
    pub fn attributes(&self, dictionary: &mut Dictionary) -> Vec<AttributeId> {
        named(self.iter().map(|(cause, n)| (cause.name(), n)), LOST, dictionary)
    }
}

impl Degraded {
    /// The counts that are not zero, as attributes `profiler.degraded.<flaw>`.
    pub fn attributes(&self, dictionary: &mut Dictionary) -> Vec<AttributeId> {
        named(self.iter().map(|(flaw, n)| (flaw.name(), n)), DEGRADED, dictionary)
    }
}

fn named<'a>(
    counts: impl Iterator<Item = (&'a str, u64)>,
    prefix: &str,
    dictionary: &mut Dictionary,
) -> Vec<AttributeId> {
    let set = counts.filter(|(_, n)| *n > 0);
    set.map(|(name, n)| {
        dictionary.attribute(&format!("{prefix}{name}"), Value::Int(i64::try_from(n).unwrap_or(i64::MAX)))
    })
    .collect()
}

/// Prefix of the attributes that [`Loss`] puts on a profile.
const LOST: &str = "profiler.lost.";
/// Prefix of the attributes that [`Degraded`] puts on a profile.
const DEGRADED: &str = "profiler.degraded.";

/// Whether the attribute `key` of a profile is a count of stacks: parts share it out, sums add it up.
#[must_use]
pub fn is_count(key: &str) -> bool {
    key == STACKS || key.starts_with(LOST) || key.starts_with(DEGRADED)
}

/// The attribute of a profile that says how many stacks were taken for it; its samples' values say their weight.
pub const STACKS: &str = "profiler.stacks";

/// How many stacks a profile says it stands for ([`STACKS`]); 0 where it says nothing.
#[must_use]
pub fn stacks_of(profile: &crate::Profile, dictionary: &Dictionary) -> u64 {
    let stacks = dictionary.value_of(profile.attributes, STACKS).and_then(Value::as_int);
    stacks.and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

/// Where every on-CPU stack is: `taken = exported + pending + Σ lost`, in every state that can be seen.
///
/// Each figure is counted on its own, where the thing happens: `taken` and the handler's losses in the handler,
/// `pending` as stacks come out of the ring, `exported` from acknowledged bodies. None is made from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Stacks that fell due: the handler ran for them.
    pub taken: u64,
    /// Stacks that at least one destination accepted (the store, if there is no other).
    pub exported: u64,
    /// Stacks on their way.
    pub pending: u64,
    /// Stacks that will never arrive.
    pub lost: Loss,
}

impl Account {
    /// Enters what the handler counted (`taken`, `lost`) and what came out of the ring (`drained`) in the same epoch.
    pub fn enter(&mut self, taken: u64, drained: u64, lost: &Loss) {
        self.taken = self.taken.saturating_add(taken);
        self.pending = self.pending.saturating_add(drained);
        self.lost.merge(lost);
    }

    /// Moves `stacks` from pending to exported.
    pub fn exported(&mut self, stacks: u64) {
        self.pending = self.pending.saturating_sub(stacks);
        self.exported = self.exported.saturating_add(stacks);
    }

    /// Moves `stacks` from pending to lost.
    pub fn lost(&mut self, stacks: u64, cause: Cause) {
        self.pending = self.pending.saturating_sub(stacks);
        self.lost.add(cause, stacks);
    }

    /// Whether the equation holds; tests ask.
    #[must_use]
    pub fn balances(&self) -> bool {
        self.taken == self.exported + self.pending + self.lost.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that moving stacks between the columns keeps the equation.
    #[test]
    fn moves_keep_the_balance() {
        let mut account = Account::default();
        let mut lost = Loss::default();
        lost.add(Cause::RingFull, 3);
        account.enter(10, 7, &lost);
        assert!(account.balances());
        account.exported(4);
        account.lost(2, Cause::QueueFull);
        assert_eq!((account.exported, account.pending, account.lost.total()), (4, 1, 5));
        assert!(account.balances());
    }

    /// Check that an account whose figures do not agree says so: none is made from the others.
    #[test]
    fn a_wrong_count_is_seen() {
        let mut account = Account::default();
        account.enter(10, 9, &Loss::default());
        assert!(!account.balances());
    }
}
