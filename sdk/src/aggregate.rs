//! Adds up equal samples of one window of time.
//!
//! In: records from the ring, on the `profiler` thread. Out: a [`Window`], handed to the `profiler-io` thread, in which
//! every distinct (stack, context) stands once with its count and weight. Bounded in bytes; what does not fit is refused
//! and the caller counts it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use profiler_proto::loss::{Degraded, Flaw, Loss};

use crate::context::Current;
use crate::context::tags::OVERFLOW;
use crate::cpu::record::{HEAD_WORDS, Head};
use crate::unwind::frames::StackEnd;
use crate::unwind::modules::Modules;

/// Most bytes of distinct stacks in one window.
const MAX_BYTES: usize = 8 << 20;
/// Most states of the loaded modules that a window keeps, the newest: addresses in libraries that were unloaded before are
/// then shown by number.
const MAX_STATES: usize = 8;
/// What an entry costs beside its words: the key's pointer and length, the tally, the map's control byte and slack.
const ENTRY_BYTES: usize = 64;

/// Samples of one window of time.
#[derive(Debug)]
pub(crate) struct Aggregate {
    entries: HashMap<Box<[u64]>, Tally>,
    bytes: usize,
    key: Vec<u64>,
    started: Instant,
    started_at: SystemTime,
    lost: Loss,
    degraded: Degraded,
    modules: Vec<Arc<Modules>>,
}

/// How often a (stack, context) was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Stacks.
    pub(crate) count: u64,
    /// Periods that they stand for.
    pub(crate) weight: u64,
}

/// The window holds as much as it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Aggregate {
    /// An empty window that begins now.
    pub(crate) fn begin(now: Instant, now_at: SystemTime) -> Self {
        Self {
            entries: HashMap::new(),
            bytes: 0,
            key: Vec::new(),
            started: now,
            started_at: now_at,
            lost: Loss::default(),
            degraded: Degraded::default(),
            modules: Vec::new(),
        }
    }

    /// Adds one sample, whose addresses are in one of these modules.
    pub(crate) fn add(&mut self, head: &Head, addresses: &[u64], modules: &Arc<Modules>) -> Result<(), Full> {
        self.key.clear();
        // The epoch and the weight do not tell stacks apart.
        self.key.extend(Head { epoch: 0, weight: 0, ..*head }.to_words());
        self.key.extend_from_slice(addresses);
        let tally = match self.entries.get_mut(self.key.as_slice()) {
            Some(tally) => tally,
            None => {
                let bytes = self.key.len() * size_of::<u64>() + ENTRY_BYTES;
                if self.bytes + bytes > MAX_BYTES {
                    return Err(Full);
                }
                self.bytes += bytes;
                self.entries.entry(self.key.as_slice().into()).or_default()
            }
        };
        tally.count += 1;
        tally.weight += u64::from(head.weight);
        count_flaws(&mut self.degraded, head);
        if !self.modules.last().is_some_and(|known| Arc::ptr_eq(known, modules)) {
            if self.modules.len() >= MAX_STATES {
                self.modules.remove(0);
            }
            self.modules.push(Arc::clone(modules));
        }
        Ok(())
    }

    /// Notes what was lost while this window was open.
    pub(crate) fn lose(&mut self, lost: &Loss) {
        self.lost.merge(lost);
    }

    /// Ends the window; the next one begins at once.
    pub(crate) fn end(&mut self, now: Instant, now_at: SystemTime, period: Duration) -> Window {
        let ended = std::mem::replace(self, Self::begin(now, now_at));
        Window {
            duration: now - ended.started,
            started_at: ended.started_at,
            period,
            entries: ended.entries,
            lost: ended.lost,
            degraded: ended.degraded,
            modules: ended.modules,
        }
    }

    /// How long this window is open.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now - self.started
    }
}

/// What is less than perfect about a sample.
pub(crate) fn count_flaws(degraded: &mut Degraded, head: &Head) {
    if head.elided > 0 || head.end == StackEnd::TooDeep {
        degraded.add(Flaw::Truncated, 1);
    }
    if head.end == StackEnd::Stopped {
        degraded.add(Flaw::UnwindStopped, 1);
    }
    if head.context.tag_set == OVERFLOW {
        degraded.add(Flaw::NoContext, 1);
    }
}

/// The samples of a window that has ended.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) started_at: SystemTime,
    pub(crate) duration: Duration,
    /// CPU time between samples.
    pub(crate) period: Duration,
    pub(crate) lost: Loss,
    pub(crate) degraded: Degraded,
    /// Every state of the loaded modules while samples came in, the newest last.
    pub(crate) modules: Vec<Arc<Modules>>,
    entries: HashMap<Box<[u64]>, Tally>,
}

/// A distinct (stack, context) of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) context: Current,
    pub(crate) end: StackEnd,
    /// Leaf first.
    pub(crate) addresses: &'a [u64],
    /// Frames were left out behind this many.
    pub(crate) gap_behind: Option<usize>,
    pub(crate) tally: Tally,
}

impl Window {
    /// How many stacks there are in all.
    pub(crate) fn stacks(&self) -> u64 {
        self.entries.values().map(|tally| tally.count).sum()
    }

    /// The entries in an order that does not depend on the map's.
    pub(crate) fn entries(&self) -> Vec<Entry<'_>> {
        let mut sorted: Vec<_> = self.entries.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        let entries = sorted.into_iter().filter_map(|(key, tally)| {
            let (head, addresses) = Head::split(key)?;
            let gap_behind = (head.elided > 0).then_some(usize::from(head.leaf_frames));
            Some(Entry { context: head.context, end: head.end, addresses, gap_behind, tally: *tally })
        });
        entries.collect()
    }

    /// Every distinct address.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        let mut addresses: Vec<u64> = self.entries.keys().flat_map(|key| key[HEAD_WORDS..].iter().copied()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(samples: &[(Head, &[u64])]) -> (Window, usize) {
        let modules = Arc::new(Modules::default());
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        let refused = samples.iter().filter(|(head, stack)| aggregate.add(head, stack, &modules).is_err()).count();
        (aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10)), refused)
    }

    /// Check that equal stacks under equal tags are added up and others are kept apart.
    #[test]
    fn equal_samples_are_added_up() {
        let head = |tag_set, weight, epoch| Head {
            weight,
            epoch,
            context: Current { tag_set, ..Current::default() },
            ..Head::default()
        };
        let samples: [(Head, &[u64]); 4] = [
            (head(1, 1, 0), &[10, 20]),
            (head(1, 3, 1), &[10, 20]),
            (head(2, 1, 0), &[10, 20]),
            (head(1, 1, 0), &[10]),
        ];
        let (window, refused) = window(&samples);
        let tallies: Vec<_> = window.entries().iter().map(|entry| (entry.tally.count, entry.tally.weight)).collect();
        let sum = tallies.iter().fold((0, 0), |sum, tally| (sum.0 + tally.0, sum.1 + tally.1));
        assert_eq!((sum, tallies.len(), refused), ((4, 6), 3, 0));
        assert!(tallies.contains(&(2, 4)));
        assert_eq!((window.stacks(), window.addresses()), (4, vec![10, 20]));
    }

    /// Check that memory is bounded and that what is beyond is refused.
    #[test]
    fn a_full_window_refuses() {
        let stacks: Vec<Vec<u64>> = (0..3000).map(|n| vec![n; 512]).collect();
        let samples: Vec<_> =
            stacks.iter().map(|stack| (Head { weight: 1, ..Head::default() }, stack.as_slice())).collect();
        let (window, refused) = window(&samples);
        let per_entry = (512 + HEAD_WORDS) * 8 + ENTRY_BYTES;
        assert_eq!((window.stacks() as usize, refused), (MAX_BYTES / per_entry, 3000 - MAX_BYTES / per_entry));
    }
}
