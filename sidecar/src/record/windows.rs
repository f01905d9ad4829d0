//! The windows of a recording, summed.
//!
//! In: intervals, one after the other. Out: one set for each process, of which one tells what was lost of none in particular. A window holds so many bytes and no more: a long
//! recording has many of them, and what it holds in all is what is distinct in it.

use std::collections::BTreeMap;

use profiler_proto::ProfileSet;
use profiler_proto::loss::{Degraded, Loss};
use profiler_proto::model::Merge;
use profiler_proto::resource::Resource;

use crate::naming::Granularity;
use crate::pipeline::{Interval, assembled};
use crate::target::Process;

/// What was recorded of each process until now.
#[derive(Debug, Default)]
pub(super) struct Windows {
    sums: BTreeMap<Process, (Merge, Resource)>,
    degraded: Degraded,
    /// The last interval, which waits for what is lost behind it: only samples can tell it.
    last: Interval,
}

impl Windows {
    /// Adds all windows of one interval.
    pub(super) fn add(&mut self, interval: Interval) {
        if interval.windows.is_empty() {
            return self.lose(&interval.lost);
        }
        let before = std::mem::replace(&mut self.last, interval);
        match before.windows.is_empty() {
            // Nothing was sampled yet that could have told it.
            true => self.lose(&before.lost),
            false => self.sum(&before),
        }
    }

    /// Notes what was lost, of no process in particular.
    pub(super) fn lose(&mut self, lost: &Loss) {
        self.last.lost.merge(lost);
    }

    fn sum(&mut self, interval: &Interval) {
        let sets = assembled(&interval.windows, &interval.lost, Granularity::Addresses);
        for ((window, _), set) in interval.windows.iter().zip(sets) {
            self.degraded.merge(&window.degraded());
            let (sum, resource) = self.sums.entry(window.process()).or_default();
            sum.add(&set);
            // The last program that it ran is what the set is of.
            *resource = set.resource;
        }
    }

    /// In what way what was recorded is less than perfect.
    pub(super) fn degraded(&self) -> Degraded {
        let mut degraded = self.degraded;
        self.last.windows.iter().for_each(|(window, _)| degraded.merge(&window.degraded()));
        degraded
    }

    /// One set for each process.
    pub(super) fn sets(mut self) -> Vec<ProfileSet> {
        let last = std::mem::take(&mut self.last);
        self.sum(&last);
        let sums = self.sums.into_values();
        sums.map(|(sum, resource)| ProfileSet { resource, ..sum.finish() }).collect()
    }
}
