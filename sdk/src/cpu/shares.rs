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
}

#[derive(Debug, Default)]
struct Share {
    /// What signals tell of.
    weight: u64,
    /// Periods to share out; `None`: not asked yet.
    periods: Option<u64>,
    /// Weight of the samples that got their part.
    served: u64,
}

impl Shares {
    /// Of no samples yet.
    pub(super) fn new(period: u64) -> Self {
        Self { period, threads: HashMap::new(), brief: Share::default() }
    }

    /// There is such a sample.
    pub(super) fn count(&mut self, head: &Head, threads: &Threads) {
        if u64::from(head.period) == self.period {
            self.threads.entry(owner(head)).or_default().weight += u64::from(head.weight);
            if threads.is_brief(head.tid) {
                self.brief.weight += u64::from(head.weight);
            }
        }
    }

    /// Adds to a sample its part of what clocks say beyond the signals. Every sample must have been counted before.
    pub(super) fn add(&mut self, head: &mut Head, threads: &mut Threads) {
        if u64::from(head.period) != self.period {
            return;
        }
        let (owner, weight) = (owner(head), u64::from(head.weight));
        let share = self.threads.entry(owner).or_default();
        let mut part = share.next(weight, |_| threads.make_good(owner).into());
        if threads.is_brief(head.tid) {
            // So that a sample comes to stand for no more than twice as much.
            part += self.brief.next(weight, |all| threads.make_departed_good(all.div_ceil(2)));
        }
        head.weight = head.weight.saturating_add(u32::try_from(part).unwrap_or(u32::MAX));
        head.scaled = part > 0;
    }
}

impl Share {
    /// The part of the next sample, by its weight; `periods` says what there is to share out over the weight of all.
    fn next(&mut self, weight: u64, periods: impl FnOnce(u64) -> u64) -> u64 {
        let all = self.weight.max(1);
        let periods = u128::from(*self.periods.get_or_insert_with(|| periods(all)));
        // The difference of two rounded-down sums: all of it is shared out.
        let until = |served: u64| u64::try_from(periods * u128::from(served) / u128::from(all)).unwrap_or(u64::MAX);
        let part = until(self.served + weight) - until(self.served);
        self.served += weight;
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

    fn parts(weights: &[u64], periods: impl Fn(u64) -> u64) -> Vec<u64> {
        let (mut share, mut asked) = (Share { weight: weights.iter().sum(), ..Share::default() }, 0);
        let mut next = |weight: &u64| {
            share.next(*weight, |all| {
                asked += 1;
                periods(all)
            })
        };
        let parts = weights.iter().map(&mut next).collect();
        assert_eq!(asked, 1);
        parts
    }

    /// Check that all of it is shared out by weight, and asked for once.
    #[test]
    fn all_is_shared_out_by_weight() {
        assert_eq!(parts(&[1, 1, 1, 1], |_| 7), [1, 2, 2, 2]);
        assert_eq!(parts(&[9, 1, 2], |_| 24), [18, 2, 4]);
    }

    /// Check that half of the weight, rounded up, doubles no sample's.
    #[test]
    fn half_of_the_weight_doubles_no_sample() {
        for weights in [&[1][..], &[1, 1, 1], &[9, 1], &[1, 9, 1, 1], &[3, 2, 1]] {
            let parts = parts(weights, |all| all.div_ceil(2));
            assert!(parts.iter().zip(weights).all(|(part, weight)| part <= weight), "{weights:?}: {parts:?}");
        }
    }
}
