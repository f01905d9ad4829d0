//! The thread that captures: what each Go runtime keeps, again and again.
//!
//! In: the processes that the sampling thread published. Out: for each window a set of each Go program that is profiled, to the main thread, which
//! is waited for where it is behind. A process is read on a thread that can be left behind ([`Aside`]): one that gives no answer stops no
//! other, and loses its own windows only. Nobody waits for this thread: it is left when the agent ends.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::outside::{Readings, keep_told};
use super::source::Handle;
use crate::capture::profile::Window;
use crate::capture::{Awaited, Bounds, Captured, Periodic, Room, RuntimeFigures, Source, What};
use crate::clock::unix_nanos;
use crate::config::Config;
use crate::discover::Target;
use crate::error::Error;
use crate::go::Program;
use crate::target::{Aside, Identity, NoAnswer, Process};

/// How long a process may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same of one that let others wait lately, once another such one did in the same round: one after the other they would make a minute many.
const HURRIED: Duration = Duration::from_millis(500);
/// For so many rounds it is known who let others wait.
const SLOW: u8 = 10;
/// Most processes.
const MOST: usize = 256;
/// Bytes of names that are kept from one window to the next, of all processes together: those for whose there is no room are looked up anew each time.
const NAMES: usize = 64 << 20;
/// Bytes of what was counted in one window and is taken off in the next, of all processes together: those for whose there is no room begin anew.
const TOTALS: usize = 64 << 20;
/// When processes are captured first: by then those are known that ran before.
const FIRST: Duration = Duration::from_secs(2);

/// What became of captures.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Those that were handed on.
    pub(super) sets: AtomicU64,
    /// Processes that could not be read: the log says why.
    pub(super) refused: AtomicU64,
    /// Kinds that could not be read of processes of which others could.
    pub(super) missing: AtomicU64,
    /// Kinds of which something was left out, or could not be read: the log says what.
    pub(super) partial: AtomicU64,
    /// Processes that gave no answer in time, or were left to the next round because those before them took all of this one's.
    pub(super) without_answer: AtomicU64,
    /// Processes beyond those that are captured.
    pub(super) beyond: AtomicU64,
    /// Requests with figures that were taken as metrics.
    pub(super) metrics_sent: AtomicU64,
    /// Those that were not: the log says why.
    pub(super) metrics_failed: AtomicU64,
    /// Those that were not made, as the peer had said "later".
    pub(super) metrics_postponed: AtomicU64,
    /// What each program's runtime said of itself last.
    programs: Mutex<BTreeMap<Process, Counted>>,
    /// How often one said so; raised under the lock of `programs`.
    counted: AtomicU64,
}

/// A program, with the figures of its runtime.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) target: Arc<Target>,
    /// None where they could not be read.
    pub(super) figures: Option<RuntimeFigures>,
    /// Those that were read last, by now or before, and when.
    last: Option<(RuntimeFigures, u64)>,
    /// What is to be known of the profiles that it keeps.
    pub(super) states: Vec<(What, &'static str)>,
    /// When its counters began, nanoseconds since 1970: with the process, as it was found first, or when they were read last before they fell.
    pub(super) began_unix_nanos: u64,
    /// When the figures were read.
    pub(super) taken_unix_nanos: u64,
    /// Higher than that of all figures that were read before, whatever the clock says.
    pub(super) sequence: u64,
}

impl Figures {
    /// Enters what was read of a program `now`, which may be nothing: when its counters began is as true afterwards.
    pub(super) fn count(
        &self,
        target: &Arc<Target>,
        figures: Option<RuntimeFigures>,
        states: Vec<(What, &'static str)>,
        now: u64,
    ) {
        let (mut programs, process) = (self.programs(), target.process);
        let last = programs.get(&process).and_then(|known| known.last);
        let fallen = last.zip(figures).filter(|((last, _), now)| is_reset(last, now));
        // The clock may be set meanwhile; what counts from a begin has one begin.
        let began_unix_nanos = match (fallen, programs.get(&process)) {
            (Some(((_, read), _)), _) => read,
            (None, Some(known)) => known.began_unix_nanos,
            (None, None) => began(process, now),
        };
        let (target, taken_unix_nanos) = (Arc::clone(target), now.max(began_unix_nanos));
        let last = figures.map(|figures| (figures, taken_unix_nanos)).or(last);
        let sequence = self.counted.fetch_add(1, Ordering::Relaxed) + 1;
        let counted = Counted { target, figures, last, states, began_unix_nanos, taken_unix_nanos, sequence };
        programs.insert(process, counted);
    }

    /// What each program's runtime said of itself last; of [`MOST`] at most.
    pub(super) fn programs(&self) -> MutexGuard<'_, BTreeMap<Process, Counted>> {
        // A map is whole between two calls of its methods.
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's state.
pub(super) struct Captures {
    handle: Handle,
    every: Duration,
    bounds: Bounds,
    aside: Aside,
    programs: Arc<Programs>,
    names: Room,
    totals: Room,
    /// One let others wait in this round.
    is_hurried: bool,
    /// All waits of this round.
    waited: Duration,
    /// The process with which the next round begins: the first that this one had no time for, by its number.
    first: u32,
    known: HashMap<Process, Known>,
    sets: Sender<ProfileSet>,
}

/// One process.
struct Known {
    identity: Option<Identity>,
    state: Arc<Mutex<State>>,
    /// For how many rounds more it is one that lets others wait.
    slow: u8,
    /// What was wrong with it is said once.
    is_said: bool,
    /// What was said last of the profiles that it keeps.
    states: Vec<(What, &'static str)>,
    /// Of which of them it was said that something is missing.
    partial: HashSet<What>,
    /// What was read of it.
    readings: Readings,
}

/// What goes on from one window to the next; with the thread that reads, as long as it does.
#[derive(Default)]
struct State {
    periodic: Option<Periodic>,
    /// When the last window ended, nanoseconds since 1970.
    ended: Option<u64>,
}

/// Programs that are read, each once for all its processes.
#[derive(Default)]
struct Programs(Mutex<HashMap<Identity, Weak<Program>>>);

impl Captures {
    /// Starts the thread, unless the settings say otherwise; what it gives.
    pub(super) fn start(config: &Config, handle: &Handle) -> Result<Receiver<ProfileSet>, Error> {
        let (sets, taken) = channel(1);
        let Some(every) = config.runtime_interval else { return Ok(taken) };
        let captures = Self {
            handle: handle.clone(),
            every,
            bounds: config.runtime_bounds,
            aside: Aside::new("read", PATIENCE),
            programs: Arc::default(),
            names: Room::of(NAMES),
            totals: Room::of(TOTALS),
            is_hurried: false,
            waited: Duration::ZERO,
            first: 0,
            known: HashMap::new(),
            sets,
        };
        let started = std::thread::Builder::new().name("captures".into()).spawn(move || captures.run());
        let refused = |error: std::io::Error| {
            Error::new("a thread", error.to_string(), "raise the limit of processes (RLIMIT_NPROC, pids.max)")
        };
        started.map(|_| taken).map_err(refused)
    }

    fn run(mut self) {
        let mut next = Instant::now() + FIRST.min(self.every);
        loop {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            if !self.round() {
                return;
            }
            // A machine that slept does not make up for the windows that it missed; and whatever a round takes, it is half of the time at most.
            next = (next + self.every).max(Instant::now() + self.waited);
        }
    }

    /// Captures each process once; `false`: nobody takes any more.
    fn round(&mut self) -> bool {
        let targets = self.handle.go_programs();
        let living: HashSet<Process> = targets.iter().map(|target| target.process).collect();
        let captured: HashSet<Process> = targets.iter().take(MOST).map(|target| target.process).collect();
        self.known.retain(|process, _| captured.contains(process));
        self.handle.captures.programs().retain(|process, _| captured.contains(process));
        self.programs.forget_unused();
        (self.is_hurried, self.waited) = (false, Duration::ZERO);
        let beyond = targets.len().saturating_sub(MOST);
        self.handle.captures.beyond.fetch_add(beyond as u64, Ordering::Relaxed);
        self.handle.outside.retain(&living);
        targets.iter().skip(MOST).for_each(|target| self.handle.outside.leave(target.process));
        let mut targets = in_turn(targets.get(..MOST).unwrap_or(&targets), self.first);
        while let Some(target) = targets.next() {
            if self.waited >= self.every {
                // They keep what they have counted: their next window is longer.
                self.first = target.process.pid();
                self.handle.captures.without_answer.fetch_add(1 + targets.count() as u64, Ordering::Relaxed);
                break;
            }
            let Some(set) = self.capture(target).filter(|set| !set.profiles.is_empty()) else { continue };
            if self.sets.blocking_send(set).is_err() {
                return false;
            }
            self.handle.captures.sets.fetch_add(1, Ordering::Relaxed);
        }
        !self.sets.is_closed()
    }

    fn capture(&mut self, target: &Arc<Target>) -> Option<ProfileSet> {
        let identity = target.exe.identity;
        let known = self.known.entry(target.process).or_insert_with(|| Known::of(identity));
        // A touch is no exec; what is read finds out whether it is another program.
        let number = |identity: Option<Identity>| identity.map(|identity| (identity.device, identity.inode));
        if number(known.identity) != number(identity) {
            *known = Known::of(identity);
        }
        let (state, programs) = (Arc::clone(&known.state), Arc::clone(&self.programs));
        let (asked, rooms, bounds) = (Arc::clone(target), [&self.names, &self.totals].map(Room::clone), self.bounds);
        self.handle.outside.captures(target.process, &mut known.readings);
        let (awaiting, awaited) = Awaited::begin();
        let work = move || capture(&asked, &state, &programs, &rooms, (bounds, awaited));
        let begun = Instant::now();
        let is_hurried = self.is_hurried && known.slow > 0;
        let answer = self.aside.ask_within(target.process, if is_hurried { HURRIED } else { PATIENCE }, work);
        drop(awaiting);
        // Whoever was stopped meanwhile (SIGSTOP, a freezer) has waited no longer than that.
        let waited = begun.elapsed().min(2 * PATIENCE);
        self.waited += waited;
        // Also one that answers in the last moment.
        let is_slow = waited >= PATIENCE / 2 || matches!(answer, Err(NoAnswer::Away));
        known.slow = if is_slow { SLOW } else { known.slow.saturating_sub(1) };
        self.is_hurried |= is_slow;
        let pid = target.process.pid();
        let (figure, why) = match answer {
            Ok(Ok(Captured { mut set, missing, partial, states, figures })) => {
                let why: Vec<&Error> = missing.iter().map(|(_, why)| why).chain(figures.as_ref().err()).collect();
                self.handle.captures.missing.fetch_add(why.len() as u64, Ordering::Relaxed);
                // What lacks because it ended meanwhile is nobody's fault.
                let is_said = std::mem::replace(&mut known.is_said, !why.is_empty()) || !target.process.is_alive();
                for why in why.iter().filter(|_| !is_said) {
                    tracing::warn!(pid, service = %target.service, "not all is captured: {why}");
                }
                let news = states.iter().filter(|state| !known.states.contains(state));
                let news: Vec<String> = news.map(|(what, state)| format!("{}: {state}", what.name())).collect();
                if !news.is_empty() {
                    tracing::info!(pid, service = %target.service, "{}", news.join("; "));
                }
                known.states.clone_from(&states);
                self.handle.captures.partial.fetch_add(partial.len() as u64, Ordering::Relaxed);
                for (what, lacking) in partial.iter().filter(|(what, _)| known.partial.insert(*what)) {
                    let lacking = lacking.trim_end().replace('\n', "; ");
                    tracing::warn!(pid, service = %target.service, "{} is captured in part: {lacking}", what.name());
                }
                let is_missing = |what: &What| missing.iter().any(|(other, _)| other == what);
                let read = What::ALL.into_iter().filter(|what| !is_missing(what));
                let told = self.handle.outside.captured(target.process, &mut known.readings, read.collect());
                keep_told(&mut set, &told);
                self.handle.captures.count(target, figures.ok(), states, unix_nanos());
                return Some(set);
            }
            Ok(Err(error)) => (&self.handle.captures.refused, error.to_string()),
            Err(no_answer) => (&self.handle.captures.without_answer, no_answer.to_string()),
        };
        if !target.process.is_alive() {
            return None;
        }
        figure.fetch_add(1, Ordering::Relaxed);
        self.handle.captures.count(target, None, Vec::new(), unix_nanos());
        // What it is taken from next is read anew.
        known.readings = Readings::default();
        self.handle.outside.captured(target.process, &mut known.readings, Vec::new());
        if !std::mem::replace(&mut known.is_said, true) {
            tracing::warn!(pid, service = %target.service, "heap and goroutines are not captured: {why}");
        }
        None
    }
}

impl Known {
    fn of(identity: Option<Identity>) -> Self {
        Self {
            identity,
            state: Arc::default(),
            slow: 0,
            is_said: false,
            states: Vec::new(),
            partial: HashSet::new(),
            readings: Readings::default(),
        }
    }
}

/// Those from the number `first` on, and then the others.
fn in_turn(targets: &[Arc<Target>], first: u32) -> impl Iterator<Item = &Arc<Target>> {
    let (later, sooner): (Vec<_>, Vec<_>) = targets.iter().partition(|target| target.process.pid() >= first);
    later.into_iter().chain(sooner)
}

/// Whether a counter fell: the process has become another program, which counts from 0.
fn is_reset(known: &RuntimeFigures, now: &RuntimeFigures) -> bool {
    now.allocated < known.allocated || now.collections < known.collections || now.paused < known.paused
}

/// When a process began, nanoseconds since 1970, if it is `now`.
///
/// Source: proc_pid_stat(5), field 22: ticks since boot, of which a second has 100 where we run (`USER_HZ`).
fn began(process: Process, now: u64) -> u64 {
    const TICK: u64 = 1_000_000_000 / 100;
    let up = clock_gettime(ClockId::Boottime);
    let up = u64::try_from(up.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(up.tv_nsec as u64);
    now.saturating_sub(up.saturating_sub(process.start_time().saturating_mul(TICK)))
}

/// Captures a process for the window that ends now. What goes wrong has the next window begin anew.
fn capture(
    target: &Target,
    state: &Mutex<State>,
    programs: &Programs,
    [names, totals]: &[Room; 2],
    (bounds, awaited): (Bounds, Awaited),
) -> Result<Captured, Error> {
    let State { periodic, ended } = std::mem::take(&mut *state.lock().unwrap_or_else(PoisonError::into_inner));
    let mut periodic = match periodic {
        Some(periodic) => periodic,
        None => Periodic::new(Source::of(target.process, programs.program(target.process)?)?),
    };
    let now = unix_nanos();
    // The first window, and one in which the clock was set back, have no length.
    let start_unix_nanos = ended.unwrap_or(now).min(now);
    let window = Window { start_unix_nanos, duration_nanos: (now - start_unix_nanos).max(1) };
    periodic.read_while(awaited.clone());
    let mut captured = periodic.capture(target.resource.clone(), window, bounds)?;
    if awaited.is_over() {
        // Nobody sees it: the next one begins anew.
        return Ok(captured);
    }
    periodic.keep_names(names);
    if !periodic.keep_totals(totals) {
        let why = "the next window tells of nothing that counts from the start: what all programs have counted takes too much memory";
        captured.partial.push((What::Heap, why.to_owned()));
    }
    let next = State { periodic: Some(periodic), ended: Some(now) };
    *state.lock().unwrap_or_else(PoisonError::into_inner) = next;
    Ok(captured)
}

impl Programs {
    /// The program of a process, opened if no other process has it.
    fn program(&self, process: Process) -> Result<(Identity, Arc<Program>), Error> {
        // Not opened under the lock: a file may let us wait.
        let (identity, program) = Source::program_of(process, |identity| self.programs().get(identity)?.upgrade())?;
        self.programs().insert(identity, Arc::downgrade(&program));
        Ok((identity, program))
    }

    fn forget_unused(&self) {
        self.programs().retain(|_, program| program.strong_count() > 0);
    }

    fn programs(&self) -> std::sync::MutexGuard<'_, HashMap<Identity, Weak<Program>>> {
        // A map is whole between two calls of its methods.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Kind;

    /// Check that a round begins with the first one that the round before had no time for, also if that has ended, and comes to all.
    #[test]
    fn who_had_no_turn_is_first_the_next_time() {
        let go = |pid| Arc::new(Target::bare(Process::new(pid, 1), Kind::Go("go1.24.0".into())));
        let targets = [3, 5, 8].map(go);
        let order = |first| in_turn(&targets, first).map(|target| target.process.pid()).collect::<Vec<_>>();
        assert_eq!([0, 5, 6, 9].map(order), [[3, 5, 8], [5, 8, 3], [8, 3, 5], [3, 5, 8]].map(Vec::from));
    }
}
