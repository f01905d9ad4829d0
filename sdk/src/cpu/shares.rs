//! What CPU clocks say beyond the signals, shared out over the samples that there are.
//!
//! In: the samples of one epoch, twice: to be counted, then to get their part. Out: weights. What a living thread's clock
//! says goes to its own samples; what threads left untold when they ended, to those of threads that live shortly. Used by the
//! `profiler` thread.

use std::collections::HashMap;

use super::record::Head;
use super::threads::Threads;

/// The shares of one epoch.
#[derive(Debug)]
pub(super) struct Shares {
    /// Nanoseconds of a period now; samples of another one get nothing.
    period: u64,
    /// By thread; 0 for those under the process-wide alarm.
    threads: HashMap<u32, Share>,
    /// Of threads that live shortly.
    brief: Share,
    /// What their signals tell of.
    brief_weight: u64,
}

#[derive(Debug, Default)]
struct Share {
    samples: u64,
    /// Periods to share out; `None`: not asked yet.
    periods: Option<u64>,
    /// Samples that got their part.
    served: u64,
}

impl Shares {
    /// Of no samples yet.
    pub(super) fn new(period: u64) -> Self {
        Self { period, threads: HashMap::new(), brief: Share::default(), brief_weight: 0 }
    }

    /// There is such a sample.
    pub(super) fn count(&mut self, head: &Head, threads: &Threads) {
        if u64::from(head.period) == self.period {
            self.threads.entry(owner(head)).or_default().samples += 1;
            if threads.is_brief(head.tid) {
                self.brief.samples += 1;
                self.brief_weight += u64::from(head.weight);
            }
        }
    }

    /// Adds to a sample its part of what clocks say beyond the signals. Every sample must have been counted before.
    pub(super) fn add(&mut self, head: &mut Head, threads: &mut Threads) {
        if u64::from(head.period) != self.period {
            return;
        }
        let owner = owner(head);
        let share = self.threads.entry(owner).or_default();
        let mut part = share.next(|| threads.make_good(owner).into());
        if threads.is_brief(head.tid) {
            // So that nobody's samples come to stand for much more than for themselves.
            let at_most = self.brief_weight.div_ceil(2);
            part += self.brief.next(|| threads.make_departed_good(at_most));
        }
        head.weight = head.weight.saturating_add(u32::try_from(part).unwrap_or(u32::MAX));
        head.scaled = part > 0;
    }
}

impl Share {
    /// The part of the next sample; `periods` says what there is to share out.
    fn next(&mut self, periods: impl FnOnce() -> u64) -> u64 {
        let periods = *self.periods.get_or_insert_with(periods);
        // Evenly: the difference of two rounded-down sums.
        let until = |served: u64| periods * served / self.samples.max(1);
        let part = until(self.served + 1) - until(self.served);
        self.served += 1;
        part
    }
}

/// Whose clock says what is missing.
fn owner(head: &Head) -> u32 {
    if head.own_alarm { head.tid } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all of it is shared out, evenly, and asked for once.
    #[test]
    fn all_is_shared_out_evenly() {
        let (mut share, mut asked) = (Share { samples: 4, ..Share::default() }, 0);
        let parts = [(); 4].map(|()| {
            share.next(|| {
                asked += 1;
                7
            })
        });
        assert_eq!((parts, asked), ([1, 2, 2, 2], 1));
    }
}
