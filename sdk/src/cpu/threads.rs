//! The threads of the process, each with an alarm of its own, and one alarm for those that have none yet.
//!
//! In: `/proc/self/task`, the threads that handlers met. Out: SIGPROF for the CPU time of every thread, counted once: the
//! process-wide alarm covers threads until they are found, and all of them where nothing else can be had; the handler
//! ignores it on threads with an alarm of their own. Also their names, and the periods that passed on their clocks without
//! a signal. Owned by the `profiler` thread.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::clocks::{cpu_time, nanos, process_cpu_time};
use super::covered::Covered;
use super::departed::{Departed, Use};
use super::engine::{self, Engine, Findings, Pace, Target};
use super::filter::{Call, DEADLY, Filter};
use super::phases::Phases;
use super::process_alarm::ProcessAlarm;
use super::progress::Progress;
use super::shared::Shared;
use super::stack_bounds::StackBounds;
use super::tasks::{name_of, thread_count, thread_ids};
use super::thread_id::own_id;
use super::untold::Untold;
use crate::engine::EngineChoice;
use crate::error::Error;
use crate::unwind::memory::read_own_memory;

/// Threads are looked after at least this often. Those without an alarm of their own that use CPU are found at once.
const SWEEP: Duration = Duration::from_secs(1);

/// When the process-wide alarm would go off that is to begin later.
const LATER: Duration = Duration::from_secs(3600);

/// All alarms of one run.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: &'static Shared,
    period: Duration,
    covered: HashMap<u32, Covered>,
    /// Names of threads without an alarm, kept until the next sweep.
    strangers: HashMap<u32, Option<Arc<str>>>,
    /// For single threads, best first.
    engines: Vec<Box<dyn Engine>>,
    process: ProcessAlarm,
    findings: Findings,
    swept: Option<Instant>,
    /// How many there were when they were looked for last.
    count: Option<u64>,
    stacks: StackBounds,
    phases: Phases,
    departed: Departed,
    /// What alarms before these left untold.
    untold: Untold,
    /// Periods written off since they were taken.
    written_off: u64,
    /// Some engine covers single threads, and none was refused since the last sweep to a thread that has no other.
    may_cover: bool,
    /// A better engine than the one that threads start with is there, and took all that it was given.
    may_promote: bool,
}

impl Threads {
    /// Sets the process-wide alarm and one for each thread that there is, which tells of what the last one left `untold`.
    ///
    /// # Errors
    /// When not even `setitimer` works.
    pub(crate) fn start(
        shared: &'static Shared,
        filter: &Filter,
        choice: EngineChoice,
        period: Duration,
        mut untold: Untold,
    ) -> Result<Self, Error> {
        let mut findings = Findings::default();
        let tells_threads = shared.id_place.is_known();
        let engines = engine::for_threads(choice, period, filter, tells_threads, &mut findings);
        let (call, known) = (Call::ProcessVmReadv, 1_u64);
        if read_own_memory(own_id(), (&raw const known) as u64, &mut [0]) == 0 {
            let why = if filter.is_deadly(call) { DEADLY } else { "it is refused" };
            findings
                .note(format!("{call}: {why}: coroutines' stacks cannot be walked, nor a thread's own when it is new"));
        }
        let mut phases = Phases::new();
        let pace = phases.pace(period);
        // Where sampling goes on, what threads use until they are covered is known by their clocks, and must not be told twice.
        let may_cover = !engines.is_empty();
        let first = if untold.goes_on() && may_cover { LATER } else { pace.first };
        let process = ProcessAlarm::start(shared, choice, Pace { first, ..pace }, filter, &mut findings)?;
        let (departed, nobody_told) = untold.departed().unwrap_or_else(|| {
            let told = shared.process_told.load(Ordering::Relaxed);
            (Departed::begin(process_cpu_time(), told, engine::kernel_tick()), 0)
        });
        let mut threads = Self {
            shared,
            period,
            covered: HashMap::new(),
            strangers: HashMap::new(),
            engines,
            process,
            findings,
            swept: Some(Instant::now()),
            count: None,
            stacks: StackBounds::default(),
            phases,
            departed,
            untold,
            written_off: 0,
            may_cover,
            may_promote: false,
        };
        threads.find();
        threads.may_promote = threads.engines.len() > 1;
        if !threads.untold.goes_on() {
            let used = threads.used();
            threads.departed.go_on(used, nobody_told);
        }
        if first == LATER {
            threads.process.begin_anew(shared, pace);
        }
        // Those that were met before they were covered.
        drop(shared.newcomers.take());
        threads.untold.abandoned().for_each(|nanos| threads.departed.leave(-nanos));
        Ok(threads)
    }

    /// The engines in use and how many threads each covers, the best first; the process-wide one, which covers all others,
    /// comes last.
    pub(crate) fn engines(&self) -> Vec<(&'static str, usize)> {
        let count = |engine: usize| self.covered.values().filter(|thread| thread.engine == engine).count();
        let mut counted: Vec<_> = (0..self.engines.len()).map(|at| (self.engines[at].name(), count(at))).collect();
        counted.retain(|(_, threads)| *threads > 0);
        counted.push((self.process.name(), 0));
        counted
    }

    /// The engines that could not be had, and why.
    pub(crate) fn refused(&self) -> &[(String, String)] {
        &self.findings.refused
    }

    /// What else is not as it could be.
    pub(crate) fn notes(&self) -> &[String] {
        &self.findings.notes
    }

    /// Finds threads that came and went, where it is time to look. Cheap where nothing happened. Whether somebody came or went since the
    /// last call, as far as that shows at once.
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        let newcomers = self.shared.newcomers.take();
        let is_someone_new = self.may_cover && (newcomers.is_some() || thread_count() != self.count);
        if self.swept.is_none_or(|swept| now - swept >= SWEEP) {
            self.sweep(now);
        } else if self.may_cover {
            newcomers.into_iter().flatten().for_each(|tid| self.meet(tid));
            if is_someone_new {
                self.find();
            }
        }
        self.promote();
        self.stacks.learn(self.covered.values().map(|thread| thread.slot), now);
        is_someone_new
    }

    /// Goes on at another rate.
    pub(crate) fn set_period(&mut self, period: Duration) {
        self.period = period;
        let phases = &mut self.phases;
        let lost = self.covered.extract_if(|tid, thread| !thread.set_period(*tid, phases.pace(period), phases.draw()));
        let lost: Vec<(u32, Covered)> = lost.collect();
        for (tid, thread) in lost {
            self.departed.leave(thread.end());
            self.cover(tid);
        }
        self.process.set_period(self.shared, period);
    }

    /// The name of a thread, as it was last read; `None` where it cannot be known any more.
    pub(crate) fn name(&mut self, tid: u32) -> Option<Arc<str>> {
        match self.covered.get_mut(&tid) {
            Some(thread) => {
                if thread.named_at == 0 {
                    // It was not born with the name that it has by the time it works.
                    thread.read_name(tid);
                }
                thread.name.clone()
            }
            None => self.strangers.entry(tid).or_insert_with(|| name_of(tid)).clone(),
        }
    }

    /// The periods that passed on the clock of a thread, which has just told of some, without a signal; from now on they
    /// count as made good. Always 0 for engines that tell of all themselves. Thread 0 stands for all that have no alarm.
    pub(crate) fn make_good(&mut self, tid: u32) -> u32 {
        let period = self.period;
        let alone = tid == 0 && self.covered.is_empty();
        match self.covered.get_mut(&tid) {
            Some(thread) if self.engines[thread.engine].tells_all() => thread.progress.take_due(period),
            Some(thread) => {
                let behind = cpu_time(tid).map_or(0, |cpu| thread.progress.behind(cpu, thread.slot.told(), period));
                let lost = behind.saturating_sub(left_to_timer(period));
                thread.progress.make_good(lost, period);
                thread.slot.make_good(u64::from(lost).saturating_mul(period.as_nanos() as u64));
                lost + thread.progress.take_due(period)
            }
            // Only where it is alone does the process's clock say what it should have told.
            None if alone => {
                let periods = self.process.make_good(self.shared, period);
                self.departed.tell(periods.into(), period);
                periods
            }
            None => 0,
        }
    }

    /// Whether this thread's samples may stand for what threads of short lives left untold: it has ended, or was not there
    /// the sweep before last.
    pub(crate) fn is_brief(&self, tid: u32) -> bool {
        let swept = self.swept;
        self.covered.get(&tid).is_none_or(|thread| swept.is_some_and(|swept| thread.met + SWEEP > swept))
    }

    /// Up to so many of the periods that threads left untold when they ended; from now on they count as made good.
    pub(crate) fn make_departed_good(&mut self, at_most: u64) -> u64 {
        self.departed.take(at_most, self.period)
    }

    /// Looks a last time: the periods to write off, and what threads leave untold.
    pub(crate) fn end(mut self) -> (u64, Untold) {
        self.sweep(Instant::now());
        let used = self.used();
        let nobody_told = self.departed.untold(used);
        self.departed.leave_to_living(nanos(used.living));
        let living = self.covered.iter().map(|(tid, thread)| (*tid, thread.left()));
        let untold = Untold::of(living, self.departed.clone(), nobody_told);
        (self.take_written_off(), untold)
    }

    /// What all clocks say, one look right behind the other.
    fn used(&mut self) -> Use {
        // Before the clocks of the threads: what they use meanwhile must not look like time of others.
        let process = process_cpu_time();
        let process_told = self.shared.process_told.load(Ordering::Relaxed);
        for (tid, thread) in &mut self.covered {
            thread.cpu = cpu_time(*tid).unwrap_or_default().max(thread.cpu);
        }
        Use { process, living: self.living(), process_told }
    }

    /// What threads that live used since they have their alarms, by the last look at their clocks.
    fn living(&self) -> Duration {
        self.covered.values().map(|thread| thread.cpu.saturating_sub(thread.since)).sum()
    }

    /// The periods of threads that block the signal, which were written off since the last call.
    pub(crate) fn take_written_off(&mut self) -> u64 {
        std::mem::take(&mut self.written_off)
    }

    /// Looks after every thread: those that ended, those that came, those that a better engine may cover.
    fn sweep(&mut self, now: Instant) {
        self.swept = Some(now);
        self.strangers.clear();
        // Before the clocks of the threads: what they use meanwhile must not look like time of others.
        let process = process_cpu_time();
        let ended = self.covered.extract_if(|tid, thread| !thread.is_alive(*tid));
        ended.for_each(|(tid, thread)| {
            self.stacks.forget(tid);
            self.departed.leave(thread.end());
        });
        if !self.engines.is_empty() {
            let process_told = self.shared.process_told.load(Ordering::Relaxed);
            let used = Use { process, living: self.living(), process_told };
            let given_up = self.departed.look(used, self.period, left_to_timer(self.period));
            if given_up > 0 {
                tracing::debug!(periods = given_up, "CPU time of ended threads that nobody told of: lost as blocked");
            }
            self.written_off += given_up;
        }
        self.may_cover = !self.engines.is_empty();
        self.find();
        self.may_promote = self.engines.len() > 1;
        for (tid, thread) in &mut self.covered {
            thread.read_name(*tid);
            let periods = thread.write_off(self.period);
            if periods > 0 {
                tracing::debug!(tid, periods, "a thread told of none of its CPU time for long: lost as blocked");
            }
            self.written_off += u64::from(periods);
        }
    }

    /// Covers threads that have no alarm yet, where the kernel lists them.
    fn find(&mut self) {
        if self.engines.is_empty() {
            return;
        }
        self.count = thread_count();
        match thread_ids() {
            Ok(tids) => tids.into_iter().for_each(|tid| self.cover(tid)),
            Err(error) => self.findings.note(format!("/proc/self/task: {error}; threads are found once they use CPU")),
        }
    }

    /// A thread was met without an alarm of its own: whoever had its id before has ended. Or it got its alarm right after it was met.
    fn meet(&mut self, tid: u32) {
        if self.covered.get_mut(&tid).is_some_and(|thread| thread.is_alive(tid)) {
            return;
        }
        if let Some(thread) = self.covered.remove(&tid) {
            self.stacks.forget(tid);
            self.departed.leave(thread.end());
        }
        self.cover(tid);
    }

    /// Sets an alarm for a thread, unless it has one: by the last engine that can, for its first period is random.
    fn cover(&mut self, tid: u32) {
        if self.covered.contains_key(&tid) {
            return;
        }
        let Some(cpu) = cpu_time(tid) else { return };
        let Some(slot) = self.shared.slots.insert(tid) else {
            self.may_cover = false;
            return self.findings.note("too many threads: some are covered by the process-wide alarm only".to_owned());
        };
        slot.set_period(nanos(self.period).unsigned_abs());
        let fresh = self.phases.pace(self.period);
        let (progress, pace) = match self.untold.of_thread(tid, cpu) {
            Some((untold, phase)) => {
                // Sampling goes on at once where there is another period.
                let fresh = nanos(self.period.saturating_sub(fresh.first));
                let (untold, phase) =
                    if self.untold.goes_on() { (untold - phase + fresh, fresh) } else { (untold, phase) };
                Progress::go_on(cpu, untold, phase, self.period, self.phases.draw())
            }
            None => (Progress::begin(cpu, 0, fresh), fresh),
        };
        let mut ended = false;
        for engine in (0..self.engines.len()).rev() {
            match self.engines[engine].arm(Target::Thread(slot), pace) {
                Ok(alarm) => {
                    let name = name_of(tid);
                    let (since, met) = (cpu, Instant::now());
                    let covered =
                        Covered { alarm, better: None, engine, slot, progress, since, met, cpu, name, named_at: 0 };
                    self.covered.insert(tid, covered);
                    return self.departed.leave_to_living(self.untold.take_over(tid, cpu));
                }
                Err(error) => ended |= self.refuse_thread(engine, &error),
            }
        }
        self.may_cover &= ended;
        slot.free();
    }

    /// Sets an alarm of the best engine for threads that began with another one, whose first period was a random one: once
    /// that has gone off, one whose first period is whole may follow.
    fn promote(&mut self) {
        if !self.may_promote {
            return;
        }
        let pace = Pace { first: self.period, period: self.period };
        let mut refused = None;
        for (tid, thread) in
            self.covered.iter_mut().filter(|(_, thread)| thread.engine > 0 && thread.slot.is_signalled())
        {
            match self.engines[0].arm(Target::Thread(thread.slot), pace) {
                Ok(alarm) => {
                    (thread.better, thread.engine) = (Some(alarm), 0);
                    let cpu = cpu_time(*tid).unwrap_or_default();
                    let periods =
                        thread.progress.change_alarm(cpu, thread.slot.told(), self.period, self.phases.draw());
                    thread.slot.make_good(u64::from(periods) * self.period.as_nanos() as u64);
                }
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {} // it has ended meanwhile
                // The next try has time until the next sweep.
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = refused {
            self.refuse_thread(0, &error);
            self.may_promote = false;
        }
    }

    /// Why a thread is not covered by this engine; that it has ended meanwhile is no reason worth saying. Whether that is it.
    fn refuse_thread(&mut self, engine: usize, error: &io::Error) -> bool {
        // EINVAL: timer_create(2); ESRCH: perf_event_open(2).
        let ended = matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ESRCH));
        if !ended {
            let engine = &self.engines[engine];
            self.findings.refuse(engine.name(), format!("{}: {error}", engine.call()));
        }
        ended
    }
}

/// Periods that a thread with an event may be behind its clock without having lost any: the timer's next signals may find it
/// in the kernel and tell of them. As many as pass in three of the timer's expiries, or two.
pub(super) fn left_to_timer(period: Duration) -> u32 {
    let ticks = 3 * engine::kernel_tick().as_nanos() / period.as_nanos().max(1);
    u32::try_from(ticks).unwrap_or(u32::MAX).max(2)
}

impl Drop for Threads {
    fn drop(&mut self) {
        for (_, thread) in self.covered.drain() {
            thread.end();
        }
        self.shared.interval_timer.store(false, Ordering::Relaxed);
    }
}
