//! The thread that samples: turns of the pipeline, an interval after the other, within the budget.
//!
//! In: records, commands of the main thread. Out: intervals, to the main thread; figures, to whoever asks. Where the main thread is behind, the
//! windows stay open: they are bounded by themselves. It ends when it is told to, or when the main thread is gone.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant, SystemTime};

use super::io::{Task, Tasks};
use super::source::{Command, Handle};
use crate::budget::{Bounds, Governor, Judgement, Usage};
use crate::config::Config;
use crate::pipeline::Pipeline;

/// Longest that records wait, and commands.
const TURN: Duration = Duration::from_millis(100);
/// How often figures are published.
const PUBLISH: Duration = Duration::from_secs(1);
/// How often the budget is looked at.
const JUDGE: Duration = Duration::from_secs(5);

/// The thread's state.
pub(super) struct Sampling {
    pipeline: Pipeline,
    interval: Duration,
    governor: Governor,
    handle: Handle,
    tasks: Tasks,
    next_end: Instant,
    next_publish: Instant,
    judged: Instant,
}

impl Sampling {
    pub(super) fn new(pipeline: Pipeline, config: &Config, bounds: Bounds, handle: Handle, tasks: Tasks) -> Self {
        let now = Instant::now();
        let governor = Governor::new(config.rate_hz, bounds, Usage::read().unwrap_or_default());
        let interval = config.interval;
        let next_end = now + interval;
        Self { pipeline, interval, governor, handle, tasks, next_end, next_publish: now, judged: now }
    }

    /// Samples until it is told to stop; what there is then goes out last.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        self.handle.sampling(self.pipeline.samples());
        while self.obey(commands) {
            self.pipeline.turn(TURN.min(self.next_end.saturating_duration_since(Instant::now())));
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
        self.end();
        self.publish();
        self.handle.sampling(false);
    }

    /// Does what was asked for; `false`: it is to end.
    fn obey(&mut self, commands: &Receiver<Command>) -> bool {
        loop {
            match commands.try_recv() {
                Ok(Command::Capture { duration, pid, tapped }) => self.pipeline.tap(duration, pid, tapped),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Hands the interval to the main thread, if anything was sampled in it.
    fn end(&mut self) {
        if let Some(interval) = self.pipeline.end_of_profiles(SystemTime::now()) {
            self.tasks.send(Task::Export(interval), &self.handle);
        }
    }

    fn publish(&self) {
        self.handle.publish(self.pipeline.targets(), self.pipeline.figures(), self.pipeline.stacks_by_process());
    }

    /// Keeps within the budget.
    fn judge(&mut self, now: Instant) {
        let elapsed = now.duration_since(std::mem::replace(&mut self.judged, now));
        let usage = match Usage::read() {
            Ok(usage) => usage,
            Err(error) => return tracing::warn!(%error, "the budget is not looked at"),
        };
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
        if is_set || judgement.shed {
            tracing::warn!("{judgement}");
        }
        self.handle.judged(judgement);
    }
}
