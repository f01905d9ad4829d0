//! The thread that samples: turns of the pipeline, an interval after the other, within the budget.
//!
//! In: records, commands of the main thread. Out: intervals, to the main thread; figures, to whoever asks. Where the main thread is behind, the
//! windows stay open: they are bounded by themselves. It ends when it is told to.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use super::io::{Task, Tasks};
use super::source::{Command, Handle};
use crate::bpf;
use crate::budget::{Bounds, Governor, Judgement, Usage};
use crate::config::{Config, Filter};
use crate::pipeline::Pipeline;

/// Longest that records wait, and commands.
const TURN: Duration = Duration::from_millis(200);
/// How often figures are published.
const PUBLISH: Duration = Duration::from_secs(1);
/// For so long nothing may be profiled of what the settings name before that is said.
const NOBODY: Duration = Duration::from_secs(60);
/// What is said of a rate that is not the configured one, or is that again.
pub(super) const LIMIT_CHANGED: &str =
    "the kernel may leave out ticks beyond kernel.perf_event_max_sample_rate: no more than that are asked for";
/// How often the budget is looked at.
const JUDGE: Duration = Duration::from_secs(5);

/// The thread's state.
pub(super) struct Sampling {
    pipeline: Pipeline,
    interval: Duration,
    governor: Governor,
    wanted_hz: u32,
    attainable_hz: u32,
    handle: Handle,
    tasks: Tasks,
    next_end: Instant,
    next_publish: Instant,
    judged: Instant,
    first: First,
}

impl Sampling {
    /// `attainable_hz` is the rate that samples are taken at now, if it is lower than the configured one.
    pub(super) fn new(
        pipeline: Pipeline,
        config: &Config,
        (bounds, attainable_hz): (Bounds, u32),
        handle: Handle,
        tasks: Tasks,
    ) -> Self {
        let now = Instant::now();
        let usage = Usage::read().unwrap_or_default().with_sampling(pipeline.cost(), handle.made_by(), 0);
        let governor = Governor::new(config.rate_hz, bounds, usage, attainable_hz);
        let wanted_hz = config.rate_hz;
        let interval = config.interval;
        let first = First::of(&config.filter, now);
        let next_end = now + interval;
        let (next_publish, judged) = (now, now);
        Self {
            pipeline,
            interval,
            governor,
            wanted_hz,
            attainable_hz,
            handle,
            tasks,
            next_end,
            next_publish,
            judged,
            first,
        }
    }

    /// Samples until it is told to stop; what there is then goes out last.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        self.handle.sampling(self.pipeline.samples());
        while self.obey(commands) {
            self.pipeline.turn(patience(self.next_end, Instant::now(), self.tasks.has_room()));
            let now = Instant::now();
            if now >= self.next_end && self.tasks.has_room() {
                self.end();
                // A machine that slept does not make up for the intervals that it missed.
                self.next_end = (self.next_end + self.interval).max(now);
            }
            if now >= self.next_publish {
                self.next_publish = now + PUBLISH;
                self.publish();
            }
            if now.duration_since(self.judged) >= JUDGE {
                self.judge(now);
            }
        }
        self.pipeline.stop();
        if let Some(interval) = self.pipeline.end_of_profiles() {
            self.tasks.send_last(Task::Export(interval), &self.handle);
        }
        self.publish();
        self.handle.sampling(false);
    }

    /// Does what was asked for; `false`: it is to end.
    fn obey(&mut self, commands: &Receiver<Command>) -> bool {
        loop {
            match commands.try_recv() {
                Ok(Command::Capture { duration, pid, tapped }) => self.pipeline.tap(duration, pid, tapped),
                Ok(Command::Stop) => return false,
                // There is none: we keep a sender of our own.
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Hands the interval to the main thread, if anything was sampled in it.
    fn end(&mut self) {
        if let Some(interval) = self.pipeline.end_of_profiles() {
            self.tasks.send(Task::Export(interval), &self.handle);
        }
    }

    fn publish(&mut self) {
        let targets = self.pipeline.targets();
        if self.first.is_missing(|| targets.iter().any(|target| target.profiled.is_ok()), Instant::now()) {
            tracing::warn!(
                "nothing is profiled: no process is there of those that are meant, or none that can be profiled; `profiler-sidecar doctor` says why"
            );
        }
        // All as of one moment.
        self.pipeline.count();
        self.handle.publish(targets, self.pipeline.figures(), self.pipeline.stacks_by_process());
    }

    /// Keeps within the budget.
    fn judge(&mut self, now: Instant) {
        let elapsed = now.duration_since(std::mem::replace(&mut self.judged, now));
        let usage = match Usage::read() {
            Ok(usage) => usage.with_sampling(self.pipeline.cost(), self.handle.made_by(), self.pipeline.held()),
            Err(error) => {
                self.handle.unjudged();
                return tracing::warn!(%error, "the budget is not looked at");
            }
        };
        let attainable_hz = bpf::attainable_rate_hz(self.wanted_hz);
        if std::mem::replace(&mut self.attainable_hz, attainable_hz) != attainable_hz {
            tracing::warn!(attainable_hz, wanted_hz = self.wanted_hz, "{LIMIT_CHANGED}");
            self.governor.attains(attainable_hz);
        }
        let judgement = self.governor.judge(usage, elapsed);
        if judgement.shed {
            self.pipeline.shed();
        }
        let is_other = judgement.rate_hz != judgement.before_hz;
        let set = if is_other { self.pipeline.set_rate_hz(judgement.rate_hz) } else { Ok(()) };
        let (judgement, is_set) = match set {
            Ok(()) => (judgement, is_other),
            Err(error) => {
                let Judgement { before_hz, rate_hz, .. } = judgement;
                tracing::error!(%error, "the rate stays at {before_hz} Hz until the next look, and should be {rate_hz}");
                (self.governor.refused(judgement), false)
            }
        };
        if is_set || judgement.is_news {
            tracing::warn!("{judgement}");
        }
        self.handle.judged(judgement);
    }
}

/// The wait for a first process of those that the settings name.
struct First {
    /// Until when; `None`: there was one, or nobody waits, or waited in vain.
    until: Option<Instant>,
}

impl First {
    fn of(filter: &Filter, now: Instant) -> Self {
        let is_named = !filter.pids.is_empty() || !filter.include.is_empty();
        Self { until: is_named.then(|| now + NOBODY) }
    }

    /// Whether there was none for too long; said once.
    fn is_missing(&mut self, is_there: impl FnOnce() -> bool, now: Instant) -> bool {
        let Some(until) = self.until else { return false };
        let is_there = is_there();
        let is_late = now >= until;
        self.until = Some(until).filter(|_| !is_there && !is_late);
        is_late && !is_there
    }
}

/// How long records may wait: no longer than until the interval ends, unless its end is not taken yet.
fn patience(next_end: Instant, now: Instant, has_room: bool) -> Duration {
    let left = next_end.saturating_duration_since(now);
    if left.is_zero() && !has_room { TURN } else { TURN.min(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the thread rests between turns, also while an interval that is over is not taken.
    #[test]
    fn it_rests_where_the_main_thread_is_behind() {
        let now = Instant::now();
        let (soon, long) = (now + Duration::from_millis(3), now + Duration::from_secs(3));
        for (next_end, has_room, expected) in [
            (long, true, TURN),
            (long, false, TURN),
            (soon, false, soon - now),
            (now, true, Duration::ZERO),
            (now, false, TURN),
        ] {
            assert_eq!(patience(next_end, now, has_room), expected, "{has_room}");
        }
    }

    /// Check that a wait in vain is said once, and none where a process was there, or none was named.
    #[test]
    fn a_wait_in_vain_is_said_once() {
        let (now, one) = (Instant::now(), Filter { pids: vec![7], ..Filter::default() });
        let said = |filter: &Filter, seconds: &[u64], from: u64| {
            let mut first = First::of(filter, now);
            let at = |second: &u64| first.is_missing(|| *second >= from, now + Duration::from_secs(*second));
            seconds.iter().map(at).collect::<Vec<_>>()
        };
        assert_eq!(said(&one, &[1, 59, 60, 61], 100), [false, false, true, false]);
        assert_eq!(said(&one, &[1, 59, 60, 61], 59), [false; 4]);
        assert_eq!(said(&Filter::default(), &[60], 100), [false]);
    }
}
