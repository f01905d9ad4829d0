//! Engines: ways to be interrupted by SIGPROF after each period of CPU time.
//!
//! In: whom to interrupt and how often. Out: an [`Alarm`] that does it until it is dropped. [`Choice`] says which engines
//! are tried, best first, and what refused ones said. Used by the `profiler` thread and by `start`; what a signal looks
//! like when it arrives, the handler knows.

mod interval;
mod perf;
mod timer;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) use self::interval::IntervalTimer;
pub(super) use self::perf::Perf;
pub(super) use self::timer::{ProcessTimer, ThreadTimer};
use super::filter::{Call, DEADLY, Filter};
use super::slots::Slot;
use crate::engine::EngineChoice;

/// A way to be interrupted after each period of CPU time.
pub(super) trait Engine: fmt::Debug + Send {
    /// As `stats()` and the log call it.
    fn name(&self) -> &'static str;

    /// The system call that sets its alarms, for the reasons that are given where it fails.
    fn call(&self) -> Call;

    /// Whether its signals tell of every period that passed: one that comes late says how many were overrun.
    fn tells_all(&self) -> bool;

    /// Starts to interrupt `target`. The error kind is `Unsupported` where the engine has no such alarms.
    fn arm(&self, target: Target, pace: Pace) -> io::Result<Box<dyn Alarm>>;
}

/// Interrupts its target until it is dropped.
pub(super) trait Alarm: fmt::Debug + Send {
    /// Whether there is still somebody to interrupt; an alarm outlives its thread.
    fn is_alive(&self) -> bool;

    /// Goes on at another pace.
    fn set_pace(&mut self, pace: Pace) -> io::Result<()>;
}

/// Whom to interrupt, and how the handler knows whose signal it is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// A thread, for the CPU time that it uses.
    Thread(&'static Slot),
    /// Any thread, for the CPU time that the process uses; the marker comes with the signal.
    Process { marker: usize },
}

/// How often: once after `first`, then after each `period` of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) first: Duration,
    pub(super) period: Duration,
}

/// Why the engine is not what it could be; everything is said once.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Engines that cannot be used, for some thread or for all: name and reason.
    pub(super) refused: Vec<(String, String)>,
    /// What else is worth knowing.
    pub(super) notes: Vec<String>,
}

impl Findings {
    /// An engine cannot be used.
    pub(super) fn refuse(&mut self, engine: &str, why: impl fmt::Display) {
        if !self.refused.iter().any(|(known, _)| known == engine) {
            tracing::warn!(engine, %why, "an engine cannot be used everywhere: others take its place");
            self.refused.push((engine.to_owned(), why.to_string()));
        }
    }

    /// Whether an engine's call may be made at all; says so where not.
    fn may_use(&mut self, engine: &dyn Engine, filter: &Filter) -> bool {
        let deadly = filter.is_deadly(engine.call());
        if deadly {
            self.refuse(engine.name(), format!("{}: {DEADLY}", engine.call()));
        }
        !deadly
    }

    /// Something else is not as it could be.
    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            tracing::warn!("{note}");
            self.notes.push(note);
        }
    }
}

/// Whether perf events are wanted at this period: timers cannot follow one that is shorter than the kernel's tick.
pub(super) fn wants_perf(choice: EngineChoice, period: Duration) -> bool {
    match choice {
        EngineChoice::Perf => true,
        EngineChoice::Auto => period < kernel_tick(),
        EngineChoice::Timer | EngineChoice::ProcessTimer | EngineChoice::Setitimer => false,
    }
}

/// The engines that cover single threads, best first; none where only the process as a whole is to be timed.
/// `tells_threads`: a handler can tell which thread it is on, which it must to know a perf event's signal.
pub(super) fn for_threads(
    choice: EngineChoice,
    period: Duration,
    filter: &Filter,
    tells_threads: bool,
    findings: &mut Findings,
) -> Vec<Box<dyn Engine>> {
    if matches!(choice, EngineChoice::ProcessTimer | EngineChoice::Setitimer) {
        return Vec::new();
    }
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    if wants_perf(choice, period) {
        let perf = match filter.is_deadly(Call::PerfEventOpen) {
            true => Err(format!("{}: {DEADLY}", Call::PerfEventOpen)),
            false if !tells_threads => Err("a thread's id cannot be told without a system call here".to_owned()),
            false => Perf::try_out(),
        };
        match perf {
            Ok(perf) => engines.push(Box::new(perf)),
            Err(why) => findings.refuse("perf", why),
        }
    }
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if matches!(choice, EngineChoice::Auto) && !wants_perf(choice, period) && !IS_SAID.swap(true, Ordering::Relaxed) {
        tracing::info!(tick = ?kernel_tick(), ?period, "perf is not tried: timers follow a period that is not shorter than the kernel's tick");
    }
    engines.push(Box::new(ThreadTimer));
    engines.retain(|engine| findings.may_use(engine.as_ref(), filter));
    engines
}

/// The engines that cover the process as a whole, best first.
pub(super) fn for_the_process(choice: EngineChoice, filter: &Filter, findings: &mut Findings) -> Vec<Box<dyn Engine>> {
    let mut engines: Vec<Box<dyn Engine>> = match choice {
        EngineChoice::Setitimer => vec![Box::new(IntervalTimer)],
        _ => vec![Box::new(ProcessTimer), Box::new(IntervalTimer)],
    };
    engines.retain(|engine| findings.may_use(engine.as_ref(), filter));
    engines
}

/// The length of the kernel's tick, which is the resolution of its coarse clock (clock_getres(2)), and of the timers on
/// CPU clocks.
pub(super) fn kernel_tick() -> Duration {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_getres(2) writes to a structure that is valid for the call.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    Duration::new(0, u32::try_from(tick.tv_nsec).unwrap_or(0))
}
