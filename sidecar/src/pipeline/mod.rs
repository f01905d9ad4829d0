//! From the kernel side to windows of named samples: the stages of the sampling thread, wired.
//!
//! In: records of the ring ([`Sampler`]), the processes that there are ([`Table`]). Out: windows,
//! each with the process that it is of, and an entry in the ledger for every stack where it happens. One thread owns it; it
//! waits for nothing but records. Without a sampler it still knows the processes.
//!
//! ```text
//! wait ─► drain ─► decode ─► who is it? ─► name ─► aggregate ─► windows
//!                    ╰ exec, exit, fork ─► discover        ╰──► captures on demand
//! ```

mod begun;
mod desk;
mod figures;
mod follow;
mod goroutines;
mod pace;
mod programs;
mod tap;
mod telling;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler::Ledger;
use profiler_proto::ProfileSet;
use profiler_proto::loss::{Cause, Loss};

use self::desk::{Desk, Numbers};
pub use self::figures::Figures;
pub use self::follow::Family;
use self::pace::Pace;
pub use self::tap::Tapped;
use self::telling::{Outcome, Teller};
use crate::aggregate::Window;
use crate::allocator;
use crate::assemble::assemble;
use crate::bpf::{self, Sampler};
use crate::clock::{Moment, thread_cpu};
use crate::config::Filter;
use crate::discover::{self, Candidate, Table, Target};
use crate::error::Error;
use crate::naming::Granularity;
use crate::naming::{Kernel, Namer, Stats};
use crate::privilege;
use crate::target::Process;

/// How often all processes are looked at, beside what events tell.
const SWEEP: Duration = Duration::from_secs(2);
/// So many processes are looked at in one turn.
const SWEEP_WORK: usize = 16;
/// The longest wait, for so long after a program began: it may be over soon, and its first samples want a look at it.
const BRISK: Duration = Duration::from_millis(50);
const BRISK_FOR: Duration = Duration::from_millis(500);
/// How long what is in the ring is waited for; whoever stops the agent waits longer for the last windows.
const LAST: Duration = Duration::from_secs(2);
/// Most calls, of a twentieth of a second each, to count what nobody looks at any more.
const LAST_CALLS: u32 = 20;
/// How often the kernel side's counters are read.
const COUNT: Duration = Duration::from_secs(1);

/// What to sample.
#[derive(Debug, Clone)]
pub struct Options {
    /// Samples a second and processor.
    pub rate_hz: u32,
    /// Whether stacks go on into the kernel.
    pub kernel: bool,
    /// Which processes.
    pub filter: Filter,
    /// A process with its descendants, and no others.
    pub family: Option<Family>,
    /// Whether processes that profile themselves are sampled all the same.
    pub profile_sdk: bool,
    /// Whether samples are told apart by the processor that they were taken on.
    pub processors: bool,
}

/// The samples of one process in one window.
pub type Named = (Window, Arc<Target>);

/// All windows of one interval.
#[derive(Debug, Default)]
pub struct Interval {
    /// One for each process that was sampled.
    pub windows: Vec<Named>,
    /// What was lost of no process in particular.
    pub lost: Loss,
}

impl Interval {
    /// Stacks in all windows.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.windows.iter().map(|(window, _)| window.stacks()).sum()
    }
}

/// One set for each process, in the order of the windows; the one with most stacks tells what was lost of none in particular, for sums over all sets
/// are to be true.
#[must_use]
pub fn assembled(windows: &[Named], lost: &Loss, granularity: Granularity) -> Vec<ProfileSet> {
    let largest = windows.iter().enumerate().max_by_key(|(_, (window, _))| window.stacks()).map(|(place, _)| place);
    let assembled = windows.iter().enumerate().map(|(place, (window, target))| {
        let lost = if Some(place) == largest { *lost } else { Loss::default() };
        assemble(window, &target.resource, &lost, granularity)
    });
    assembled.collect()
}

/// The sampling thread's stages.
#[derive(Debug)]
pub struct Pipeline {
    sampler: Option<Sampler>,
    desk: Desk,
    teller: Teller,
    next_sweep: Instant,
    next_processors: Instant,
    next_count: Instant,
    pace: Pace,
    /// Records were left when the last turn ended.
    is_behind: bool,
    /// There is a processor that is not sampled, which was said.
    is_refused: bool,
    counted: bpf::Counters,
    /// Lost in the kernel, and told by no profile yet.
    lost: Loss,
}

impl Pipeline {
    /// Loads the kernel side and reads the kernel's names, for both of which privilege is needed that can be dropped afterwards. What
    /// cannot be had is said in the log: without a kernel side nothing is sampled.
    ///
    /// # Errors
    /// Why the kernel side cannot be loaded, if `must_sample`.
    pub fn open(options: Options, ledger: Arc<Ledger>, must_sample: bool) -> Result<Self, Error> {
        let wanted = bpf::Options { rate_hz: options.rate_hz, kernel_stacks: options.kernel, ..Default::default() };
        let kernel = Kernel::read().inspect_err(|error| tracing::warn!(%error, "kernel frames have no names"));
        let numbers = Numbers { pids: options.filter.pids.clone(), family: options.family.clone() };
        let mut sampler = unless_it_must(Sampler::ready(wanted), must_sample)?;
        let namer = Namer::new(kernel.unwrap_or_default()).knowing(sampler.as_mut().and_then(Sampler::programs));
        let processors = options.processors;
        let is_choosy = !options.filter.include.is_empty() || !options.filter.exclude.is_empty();
        let mut desk = Desk::new(Table::new(discovery(options)), namer, numbers, ledger);
        if processors {
            desk.tell_processors();
        }
        if is_choosy {
            desk.chooses_programs();
        }
        let now = Instant::now();
        desk.look_around(now);
        if sampler.as_ref().is_some_and(|sampler| sampler.lacks().is_empty()) {
            desk.hears_all();
        }
        let (teller, counted, lost) = (Teller::default(), bpf::Counters::default(), Loss::default());
        let next_sweep = now + SWEEP;
        let mut pipeline = Self {
            sampler,
            desk,
            teller,
            next_sweep,
            next_processors: next_sweep,
            next_count: now,
            pace: Pace::new(now),
            is_behind: false,
            is_refused: false,
            counted,
            lost,
        };
        // What is known before the first tick is told before it, so that first samples have labels, too.
        pipeline.tell_kernel_side();
        pipeline.start(must_sample)?;
        Ok(pipeline)
    }

    /// Starts the clock.
    fn start(&mut self, must_sample: bool) -> Result<(), Error> {
        let Some(mut sampler) = self.sampler.take() else { return Ok(()) };
        sampler.lacks().iter().for_each(|lack| tracing::warn!("{lack}"));
        self.sampler = unless_it_must(sampler.start().map(|()| sampler), must_sample)?;
        Ok(())
    }

    /// Whether anything is sampled.
    #[must_use]
    pub fn samples(&self) -> bool {
        self.sampler.is_some()
    }

    /// Waits for records, at most `timeout`, and takes those that are there: all of them, unless that takes so long that the rest of a turn could not wait,
    /// without which the kernel side would not learn whom to leave out, nor the budget be kept.
    pub fn turn(&mut self, timeout: Duration) {
        let is_brisk = self.desk.begun.is_some_and(|begun| begun.elapsed() < BRISK_FOR);
        let timeout = if is_brisk { timeout.min(BRISK) } else { timeout };
        match &self.sampler {
            Some(_) if self.is_behind => {}
            Some(sampler) if sampler.wait(timeout) => std::thread::sleep(self.pace.rest(Instant::now())),
            Some(_) => {}
            None => std::thread::sleep(timeout),
        }
        let now = Instant::now();
        if let Some(sampler) = &mut self.sampler {
            let (settled, begun) = (self.desk.settled, thread_cpu());
            self.is_behind = !sampler.drain(|record| self.desk.take(record, now));
            // What was named meanwhile counts itself.
            let settled = self.desk.settled.saturating_sub(settled);
            self.desk.cost += thread_cpu().saturating_sub(begun).saturating_sub(settled);
        }
        self.desk.happen(now);
        self.tell_kernel_side();
        self.desk.name(now);
        if now >= self.next_sweep && self.desk.sweep(SWEEP_WORK, now) {
            self.next_sweep = now + SWEEP;
        }
        if now >= self.next_processors {
            self.next_processors = now + SWEEP;
            self.follow_processors();
        }
        self.tell_kernel_side();
        if now >= self.next_count {
            self.next_count = now + COUNT;
            self.count();
        }
        self.desk.end_taps(now);
        self.pace.ended(Instant::now());
    }

    /// Stops the clock and takes what is left: of all that the kernel side sent, nothing is behind the last windows then.
    pub fn stop(&mut self) {
        self.sampler.iter_mut().for_each(Sampler::stop_clock);
        self.catch_up();
        // Nobody waits for their names: whoever ends us has little patience.
        if let Some(sampler) = self.sampler.as_mut().filter(|_| self.is_behind) {
            (0..LAST_CALLS).any(|_| sampler.drain(|record| self.desk.leave(record)));
        }
    }

    /// Takes all that is there, as far as it comes in [`LAST`].
    pub fn catch_up(&mut self) {
        let until = Instant::now() + LAST;
        self.turn(Duration::ZERO);
        // Events go on, whatever becomes of samples.
        while self.is_behind && Instant::now() < until {
            self.turn(Duration::ZERO);
        }
    }

    /// Ends the windows; the next ones begin at once.
    pub fn end(&mut self) -> Interval {
        self.count();
        let mut lost = std::mem::take(&mut self.lost);
        lost.merge(&self.desk.unattributed());
        Interval { windows: self.desk.end(Moment::now()), lost }
    }

    /// The same; `None` where there are no windows: no profile could tell what was lost, so it is told with the next ones.
    pub fn end_of_profiles(&mut self) -> Option<Interval> {
        let interval = self.end();
        if interval.windows.is_empty() {
            self.lost.merge(&interval.lost);
            return None;
        }
        Some(interval)
    }

    /// Gives the samples of the next `duration` to `tapped`, beside the windows, if there are not too many such already.
    pub fn tap(&mut self, duration: Duration, pid: Option<u32>, tapped: Box<dyn Tapped>) {
        self.desk.tap(Instant::now() + duration, pid, tapped);
    }

    /// CPU time that went into samples until now, of the thread that takes turns: what grows with the rate, without looks at processes.
    #[must_use]
    pub fn cost(&self) -> Duration {
        self.desk.cost
    }

    /// Bytes of names, and of samples that wait for the end of their window.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.desk.held()
    }

    /// Samples at another rate from now on; needs `CAP_PERFMON`, which is taken back for the moment.
    ///
    /// # Errors
    /// Why the old rate stays.
    pub fn set_rate_hz(&mut self, rate_hz: u32) -> Result<(), Error> {
        let Some(sampler) = &mut self.sampler else { return Ok(()) };
        privilege::with_clock(|| sampler.set_rate_hz(rate_hz))?
    }

    /// Lets go of names, which are looked up again as they are needed, and gives their memory back to the system: the allocator would keep it,
    /// and the next look at the budget find as much held as before.
    pub fn shed(&mut self) {
        self.desk.shed();
        allocator::give_back();
    }

    /// The processes that are known.
    #[must_use]
    pub fn targets(&self) -> Vec<Arc<Target>> {
        self.desk.targets()
    }

    /// What was counted until now; of the kernel side, when it was last asked.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures { kernel: self.counted, ..self.desk.figures() }
    }

    /// What became of the stacks of each process.
    #[must_use]
    pub fn stacks_by_process(&self) -> BTreeMap<Process, Stats> {
        self.desk.stacks_by_process()
    }

    /// Tells the kernel side what was found out of processes.
    fn tell_kernel_side(&mut self) {
        let (ended, left_out, found) = (self.desk.ended(), self.desk.left_out(), self.desk.found());
        let Some(sampler) = &mut self.sampler else { return };
        ended.into_iter().for_each(|pid| sampler.forget(pid));
        for pid in left_out {
            self.teller.leave_out(sampler, pid);
        }
        for target in found {
            let started = self.desk.started(target.process.pid());
            match self.teller.tell(sampler, &target, started) {
                Outcome::Told => {}
                Outcome::HasLeft => self.desk.lacks(target, None),
                Outcome::Later => self.desk.lacks(target, started),
            }
        }
    }

    /// Samples on processors that came since.
    fn follow_processors(&mut self) {
        let Some(sampler) = &mut self.sampler else { return };
        let followed = privilege::with_clock(|| sampler.follow_processors()).flatten();
        let was_refused = std::mem::replace(&mut self.is_refused, followed.is_err());
        if let Err(error) = followed
            && !was_refused
        {
            tracing::warn!(%error, "not all processors are sampled");
        }
    }

    /// Asks the kernel side what it counted, and enters what it lost since the last time.
    pub fn count(&mut self) {
        let Some(now) = self.sampler.as_ref().and_then(|sampler| sampler.counters().ok()) else { return };
        let before = std::mem::replace(&mut self.counted, now);
        let mut lost = Loss::default();
        lost.add(Cause::RingFull, now.ring_full.saturating_sub(before.ring_full));
        if now.events_lost > before.events_lost {
            self.desk.doubt();
        }
        self.desk.lost_in_kernel(&lost);
        self.lost.merge(&lost);
    }
}

/// The kernel side; `None` where it cannot be had and need not.
fn unless_it_must(sampler: Result<Sampler, Error>, must_sample: bool) -> Result<Option<Sampler>, Error> {
    match sampler {
        Ok(sampler) => Ok(Some(sampler)),
        Err(error) if must_sample => Err(error),
        Err(error) => {
            tracing::error!(%error, "CPU is not sampled");
            Ok(None)
        }
    }
}

/// The options as discovery has them.
#[must_use]
pub fn discovery(options: Options) -> discover::Options {
    let Options { filter, family, profile_sdk, .. } = options;
    let choose = move |candidate: &Candidate<'_>| {
        if let Some(family) = &family {
            family.takes(candidate.pid)?;
        }
        filter
            .takes(candidate.pid, candidate.exe, candidate.service, candidate.container)
            .map_err(|left_out| left_out.to_string())
    };
    discover::Options { sdk_too: profile_sdk, choose: Box::new(choose), ..Default::default() }
}
