//! Captures on demand, beside the windows.
//!
//! In: named samples. Out: windows of the time that was asked for, to whoever asked. Bounded in number, and all together as one
//! [`Aggregate`] is.

use std::sync::Arc;
use std::time::Instant;

use profiler_proto::hash::Map;

use super::Interval;
use crate::aggregate::Aggregate;
use crate::clock::Moment;
use crate::discover::Target;
use crate::naming::Stack;
use crate::sample::Sample;
use crate::target::Process;

/// Captures at once.
const MOST: usize = 4;

/// Who takes the windows of a capture.
pub trait Tapped: Send {
    /// Whether nobody waits for them any more.
    fn is_gone(&self) -> bool;
    /// Takes them, with what was lost of no process that has one; `None`: there are too many captures.
    fn take(self: Box<Self>, interval: Option<Interval>);
}

/// Those under way.
#[derive(Debug, Default)]
pub(super) struct Taps(Vec<Tap>);

/// One capture.
pub(super) struct Tap {
    until: Instant,
    pid: Option<u32>,
    aggregate: Aggregate,
    sampled: Map<Process, Arc<Target>>,
    tapped: Box<dyn Tapped>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("until", &self.until).field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Tap {
    pub(super) fn new(until: Instant, pid: Option<u32>, tapped: Box<dyn Tapped>) -> Self {
        Self { until, pid, aggregate: Aggregate::begin(Moment::now()), sampled: Map::default(), tapped }
    }

    fn end(mut self) {
        let windows = self.aggregate.end(Moment::now()).into_iter();
        let named = windows.filter_map(|window| {
            let target = self.sampled.get(&window.process())?;
            Some((window, Arc::clone(target)))
        });
        let windows = named.collect();
        self.tapped.take(Some(Interval { windows, lost: self.aggregate.without_window() }));
    }
}

impl Taps {
    pub(super) fn begin(&mut self, tap: Tap) {
        // Who has gone gives its place to others.
        self.0.retain(|tap| !tap.tapped.is_gone());
        if self.0.len() < MOST { self.0.push(tap) } else { tap.tapped.take(None) }
    }

    pub(super) fn add(&mut self, target: &Arc<Target>, sample: &Sample, stack: &Stack) {
        let mut bytes = self.bytes();
        for tap in self.0.iter_mut().filter(|tap| tap.pid.is_none_or(|pid| pid == sample.pid)) {
            let before = tap.aggregate.bytes();
            // What finds no room is noted in the capture's own window, or in its interval where there is no room for that either.
            let added = tap.aggregate.add_beside(bytes - before, target.process, sample, stack);
            bytes = bytes - before + tap.aggregate.bytes();
            if added.is_ok() {
                tap.sampled.insert(target.process, Arc::clone(target));
            }
        }
    }

    /// Bytes of their windows, about.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|tap| tap.aggregate.bytes()).sum()
    }

    /// Ends those whose time is over.
    pub(super) fn end(&mut self, now: Instant) {
        self.0.retain(|tap| !tap.tapped.is_gone());
        let (over, open) = std::mem::take(&mut self.0).into_iter().partition(|tap| tap.until <= now);
        self.0 = open;
        let over: Vec<Tap> = over;
        over.into_iter().for_each(Tap::end);
    }
}
