//! A thread with an alarm of its own, as the `profiler` thread keeps it.
//!
//! In: its alarms, its clock, what its signals told. Out: whether it lives, what it owes, what it leaves. Owned by
//! [`Threads`](super::threads::Threads).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::clocks::{cpu_time, nanos};
use super::engine::{Alarm, Pace};
use super::handler::BLOCKED_NANOS;
use super::progress::Progress;
use super::slots::Slot;
use super::tasks::name_of;
use super::untold::Left;

/// How often an alarm is set to another pace because signals came meanwhile.
const MOST_SETTINGS: u32 = 3;

/// A thread with an alarm of its own. Its alarms go before the slot is free for another thread.
#[derive(Debug)]
pub(super) struct Covered {
    pub(super) alarm: Box<dyn Alarm>,
    /// One of the best engine, beside the first one.
    pub(super) better: Option<Box<dyn Alarm>>,
    /// Index of the best engine that covers it.
    pub(super) engine: usize,
    pub(super) slot: &'static Slot,
    pub(super) progress: Progress,
    /// What its clock said when the alarm was set.
    pub(super) since: Duration,
    /// When that was.
    pub(super) met: Instant,
    /// What its clock said last: one that says less is another thread's.
    pub(super) cpu: Duration,
    pub(super) name: Option<Arc<str>>,
    /// What its signals told when the name was read.
    pub(super) named_at: u64,
}

impl Covered {
    /// Whether the thread still lives: an alarm outlives its thread, whose id may have gone to another one since.
    pub(super) fn is_alive(&mut self, tid: u32) -> bool {
        let cpu = cpu_time(tid).filter(|cpu| *cpu >= self.cpu);
        self.cpu = cpu.unwrap_or_default();
        if self.better.as_ref().is_some_and(|alarm| !alarm.is_alive()) {
            self.lose_better();
        }
        cpu.is_some() && self.alarm.is_alive()
    }

    /// Goes on at another rate, that of an alarm which would be set to `fresh`; `false` where its own cannot. `random`: of any size.
    pub(super) fn set_period(&mut self, tid: u32, fresh: Pace, random: u64) -> bool {
        for _ in 0..MOST_SETTINGS {
            let Some(cpu) = cpu_time(tid) else { return false };
            let told = self.slot.told();
            let pace = self.progress.change_period(cpu, told, fresh, random);
            self.slot.make_all_good();
            if self.better.as_mut().is_some_and(|alarm| alarm.set_pace(pace).is_err()) {
                self.lose_better();
            }
            if self.alarm.set_pace(pace).is_err() {
                return false;
            }
            // Behind the alarm: a signal that came meanwhile fell due by the old one.
            self.slot.set_period(nanos(fresh.period).unsigned_abs());
            if self.slot.told() == told {
                break;
            }
            // What that one told of, the new pace does not know.
        }
        true
    }

    /// The program closed the better alarm's descriptor, with all of them: the first one goes on alone until there is another.
    pub(super) fn lose_better(&mut self) {
        self.better = None;
        self.engine += 1;
    }

    /// Takes the alarms away and frees the slot; the nanoseconds that signals told of and that were made good.
    pub(super) fn end(self) -> i64 {
        let Self { alarm, better, slot, progress, .. } = self;
        drop((alarm, better));
        let accounted = progress.accounted(slot.told());
        slot.free();
        accounted
    }

    /// Reads the name again if the thread did something: many get theirs only after they have begun.
    pub(super) fn read_name(&mut self, tid: u32) {
        let told = self.slot.told();
        if self.named_at != told || self.name.is_none() {
            self.name = name_of(tid).or_else(|| self.name.take());
            self.named_at = told;
        }
    }

    /// Gives up periods that no signal told of for so long that it must be blocked; how many.
    pub(super) fn write_off(&mut self, period: Duration) -> u32 {
        // The signal of the last one may be under way.
        let waiting = u64::from(self.untold(period).saturating_sub(1));
        if waiting.saturating_mul(period.as_nanos() as u64) < BLOCKED_NANOS {
            return 0;
        }
        let behind = self.progress.behind(self.cpu, self.slot.told(), period);
        self.slot.write_off(behind);
        self.progress.make_good(behind, period);
        behind + self.progress.take_due(period)
    }

    /// What its next alarm has to tell.
    pub(super) fn left(&self) -> Left {
        let (cpu, told) = (self.cpu, self.slot.told());
        let used = nanos(cpu.saturating_sub(self.since));
        let unaccounted = used - self.progress.accounted(told);
        Left { cpu, nanos: self.progress.left(cpu, told), phase: self.progress.phase(), unaccounted }
    }

    /// Periods that passed by its clock and that neither a signal nor a sample stands for.
    pub(super) fn untold(&self, period: Duration) -> u32 {
        self.progress.behind(self.cpu, self.slot.told(), period) + self.progress.due(period)
    }
}
