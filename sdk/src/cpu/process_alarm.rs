//! The process-wide alarm: for threads that have none of their own.
//!
//! In: the engines that can be tried. Out: SIGPROF to some thread for each period of CPU time that the process uses.
//! Owned by [`Threads`](super::threads::Threads).

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::clocks::process_cpu_time;
use super::engine::{self, Alarm, Engine, Findings, Pace, Target};
use super::filter::Filter;
use super::progress::Progress;
use super::shared::Shared;
use crate::engine::EngineChoice;
use crate::error::Error;

/// The process-wide alarm.
#[derive(Debug)]
pub(super) struct ProcessAlarm {
    alarm: Box<dyn Alarm>,
    engine: Box<dyn Engine>,
    progress: Progress,
}

impl ProcessAlarm {
    /// Sets the best one that can be had; what refused ones said goes into `findings`.
    ///
    /// # Errors
    /// When not even `setitimer` works.
    pub(super) fn start(
        shared: &Shared,
        choice: EngineChoice,
        pace: Pace,
        filter: &Filter,
        findings: &mut Findings,
    ) -> Result<Self, Error> {
        let mut why = io::Error::from(io::ErrorKind::Unsupported);
        for engine in engine::for_the_process(choice, filter, findings) {
            // Before the first signal can come; only this engine's signals look like it.
            shared.interval_timer.store(engine.name() == "setitimer", Ordering::Relaxed);
            match engine.arm(Target::Process { marker: shared.process_marker() }, pace) {
                Ok(alarm) => {
                    let told = shared.process_told.load(Ordering::Relaxed);
                    let progress = Progress::begin(process_cpu_time(), told, pace);
                    return Ok(Self { alarm, engine, progress });
                }
                Err(error) => {
                    findings.refuse(engine.name(), format!("{}: {error}", engine.call()));
                    why = error;
                }
            }
        }
        shared.interval_timer.store(false, Ordering::Relaxed);
        Err(Error::environment("timer_create and setitimer(ITIMER_PROF)", why, "allow this process to set timers"))
    }

    /// The name of its engine.
    pub(super) fn name(&self) -> &'static str {
        self.engine.name()
    }

    /// Begins now.
    pub(super) fn begin_anew(&mut self, shared: &Shared, pace: Pace) {
        self.progress = Progress::begin(process_cpu_time(), shared.process_told.load(Ordering::Relaxed), pace);
        self.set_pace(pace);
    }

    /// Goes on at another rate.
    pub(super) fn set_period(&mut self, shared: &Shared, period: Duration) {
        // The clock first: what is told between the two looks makes the difference too small, never too large.
        let cpu = process_cpu_time();
        let pace = self.progress.keep_step(cpu, shared.process_told.load(Ordering::Relaxed), period);
        self.set_pace(pace);
    }

    fn set_pace(&mut self, pace: Pace) {
        if let Err(error) = self.alarm.set_pace(pace) {
            tracing::warn!(%error, "the process-wide timer keeps its old rate");
        }
    }

    /// The periods that passed on the process's clock without a signal; from now on they count as made good.
    pub(super) fn make_good(&mut self, shared: &Shared, period: Duration) -> u32 {
        if self.engine.tells_all() {
            return self.progress.take_due(period);
        }
        let cpu = process_cpu_time();
        let behind = self.progress.behind(cpu, shared.process_told.load(Ordering::Relaxed), period);
        self.progress.make_good(behind, period);
        behind + self.progress.take_due(period)
    }
}
