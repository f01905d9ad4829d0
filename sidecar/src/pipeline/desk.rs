//! What is done with every record.
//!
//! In: records, in the order in which they were written. Out: named samples in windows; processes that the kernel side is to be told of. Every
//! sample is entered in the ledger as taken, and then either waits in a window or is lost by a cause.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler::Ledger;
use profiler_proto::hash::Map;
use profiler_proto::loss::{Cause, Degraded, Loss};

use super::Named;
use super::begun::Welcome;
use super::figures::Figures;
use super::follow::Family;
use super::programs::Programs;
use super::tap::{Tap, Tapped, Taps};
use super::told::Told;
use crate::aggregate::{Aggregate, Full};
use crate::bpf::{Counters, Started};
use crate::clock::{self, Moment, thread_cpu};
use crate::discover::{self, Kind, Table, Target, WhyNot};
use crate::drain::{self, Event};
use crate::naming::{Namer, Stats};
use crate::sample::Sample;
use crate::target::Process;

/// Who is meant, as far as numbers say: of others nothing needs to be known.
#[derive(Debug)]
pub(super) struct Numbers {
    /// These alone; empty: all.
    pub(super) pids: Vec<u32>,
    pub(super) family: Option<Family>,
}

impl Numbers {
    fn take(&self, pid: u32) -> bool {
        (self.pids.is_empty() || self.pids.contains(&pid))
            && self.family.as_ref().is_none_or(|family| family.takes(pid).is_ok())
    }
}

/// Looks in one call, and calls, of the look around at the beginning.
const WORK: usize = 64;
const MOST_CALLS: usize = 256;
/// Processes that are looked at in one turn, where a family missed births.
const PARENTS: usize = 32;
/// Most records that wait to be looked at together.
const AT_ONCE: usize = 512;
/// Samples that wait to be named together.
const MOST_WAITING: usize = 256;

#[derive(Debug)]
pub(super) struct Desk {
    table: Table,
    namer: Namer,
    /// Samples of this turn without names: these are looked up together, for each look costs a wait.
    waiting: Vec<(Arc<Target>, Box<Sample>)>,
    aggregate: Aggregate,
    taps: Taps,
    numbers: Numbers,
    ledger: Arc<Ledger>,
    /// What each process was that has samples in the open windows.
    sampled: Map<Process, Arc<Target>>,
    told: Told,
    programs: Programs,
    /// Settings tell programs apart: what nobody looked at while it ran may be one that is not wanted.
    is_choosy: bool,
    /// Ended in this interval; their last samples may still come.
    exited: Vec<Process>,
    /// Found ended in this interval, while the news of that, and samples before it, may still come: these may take until the next one.
    vanished: Vec<Process>,
    /// Lost, of processes that can no more say it.
    unattributed: Loss,
    figures: Figures,
    /// Records that were taken and not looked at yet.
    events: Vec<Event>,
    welcome: Welcome,
    /// When one that is profiled last became another program.
    pub(super) begun: Option<Instant>,
    /// CPU time that went into samples, of this thread.
    pub(super) cost: Duration,
    /// CPU time of [`Desk::settle`] amid records.
    pub(super) settled: Duration,
}

impl Desk {
    pub(super) fn new(table: Table, namer: Namer, numbers: Numbers, ledger: Arc<Ledger>) -> Self {
        Self {
            table,
            namer,
            waiting: Vec::new(),
            aggregate: Aggregate::begin(Moment::now()),
            taps: Taps::default(),
            numbers,
            ledger,
            sampled: Map::default(),
            told: Told::default(),
            programs: Programs::default(),
            is_choosy: false,
            exited: Vec::new(),
            vanished: Vec::new(),
            unattributed: Loss::default(),
            figures: Figures::default(),
            events: Vec::new(),
            welcome: Welcome::default(),
            begun: None,
            cost: Duration::ZERO,
            settled: Duration::ZERO,
        }
    }

    /// From now on windows tell samples apart by their processors.
    pub(super) fn tell_processors(&mut self) {
        self.aggregate = Aggregate::begin(Moment::now()).by_processor(true);
    }

    /// Some programs are wanted, or some are not.
    pub(super) fn chooses_programs(&mut self) {
        self.is_choosy = true;
    }

    /// From now on every exec and exit is in the records.
    pub(super) fn hears_all(&mut self) {
        self.table.hears_all();
    }

    /// Records of such were lost.
    pub(super) fn doubt(&mut self) {
        self.table.doubt();
        self.told.doubt();
        self.numbers.family.iter().for_each(Family::doubt);
    }

    /// Takes one record. What it says is done in [`Desk::settle`], or when there are many.
    pub(super) fn take(&mut self, record: &[u8], now: Instant) {
        match drain::decode(record) {
            Ok(event) => self.events.push(event),
            Err(fault) if drain::is_sample(record) => {
                tracing::error!(%fault, "a sample is lost; please report this");
                self.figures.unreadable += 1;
                self.lose(Cause::Failed);
            }
            Err(fault) => {
                tracing::error!(%fault, "what happened to a process is not known; please report this");
                self.doubt();
            }
        }
        if self.events.len() >= AT_ONCE {
            let begun = thread_cpu();
            self.settle(now);
            self.settled += thread_cpu().saturating_sub(begun);
        }
    }

    /// Does all that is to be done of records.
    pub(super) fn settle(&mut self, now: Instant) {
        self.happen(now);
        self.name(now);
    }

    /// Does what records say, in their order, and looks at programs that began, and for births that were not told. Samples still have no names, which can take long: those of
    /// programs that began lack their labels until the kernel side is told.
    pub(super) fn happen(&mut self, now: Instant) {
        let mut begun = BTreeSet::new();
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::Sample(sample) => self.sample(sample, now),
                event => {
                    if let Event::Exec { pid, .. } = event {
                        begun.insert(pid);
                    }
                    self.happened(&event, now);
                }
            }
        }
        let wanted = begun.into_iter().filter(|pid| self.numbers.take(*pid));
        let met: Vec<u32> = wanted.take(self.welcome.room(now)).collect();
        self.welcome.met(met.len());
        met.into_iter().for_each(|pid| self.meet(pid, now));
        let missed = self.numbers.family.as_ref().map(|family| family.look(PARENTS)).unwrap_or_default();
        // Until now each was taken for a stranger, and told as one.
        missed.into_iter().for_each(|(pid, child)| self.happened(&Event::Fork { pid, child }, now));
    }

    /// Something happened to a process.
    fn happened(&mut self, event: &Event, now: Instant) {
        match *event {
            Event::Sample(_) => {}
            Event::Exec { pid, started } => {
                // The same process, with another program: nothing that was mapped is there any more.
                self.name(now);
                if let Some(process) = self.told.process(pid) {
                    self.namer.forget(process);
                }
                self.told.starts(pid, started);
                self.table.told(discover::Event::Exec { pid });
            }
            Event::Exit { pid } => {
                self.exited.extend(self.told.process(pid));
                self.told.exited(pid);
                self.table.told(discover::Event::Exit { pid });
                self.numbers.family.iter().for_each(|family| family.left(pid));
            }
            Event::Fork { pid, child } => {
                self.numbers.family.iter().for_each(|family| family.born(pid, child));
                self.told.begins(child);
                self.programs.forget(child);
                self.table.told(discover::Event::Fork { parent: pid, child });
            }
        }
    }

    /// Looks at a program that begins, so that the kernel side knows where its labels are before they are set.
    fn meet(&mut self, pid: u32, now: Instant) {
        let Some(target) = self.table.visit(pid, now) else { return };
        self.tell(&target);
        if target.profiled.is_ok() {
            self.begun = Some(now);
            self.namer.prepare(target.process, now);
        }
    }

    /// Has the kernel side told of a process, unless it ended: its last samples come behind the news of that, and nobody would say once more that it is to be forgotten.
    fn tell(&mut self, target: &Arc<Target>) {
        if self.table.lives(target.process) {
            self.told.find(target);
        }
    }

    /// A sample of what was gone before anybody looked, or gave no answer.
    fn gone(&mut self) {
        self.figures.gone += 1;
        self.lose(Cause::Gone);
    }

    /// A stack came out of the ring, and is lost; no process can say so.
    fn lose(&mut self, cause: Cause) {
        self.taken();
        self.ledger.lost(1, cause);
        self.unattributed.add(cause, 1);
    }

    /// Takes one record for which there is no time any more.
    pub(super) fn leave(&mut self, record: &[u8]) {
        if drain::is_sample(record) {
            self.figures.late += 1;
            self.lose(Cause::Shutdown);
        }
    }

    fn sample(&mut self, mut sample: Box<Sample>, now: Instant) {
        if !self.numbers.take(sample.pid) {
            self.figures.left_out += 1;
            self.told.leave_out(sample.pid);
            return;
        }
        let Some(target) = self.table.visit(sample.pid, now) else {
            // One of the kernel's, which its own side tells apart only where it knows its offsets.
            if self.table.is_none_to_profile(sample.pid) {
                self.figures.left_out += 1;
                return self.told.leave_out(sample.pid);
            }
            return self.gone();
        };
        self.tell(&target);
        let process = target.process;
        let its_own = self.programs.of(sample.program, &target, || self.namer.running(process));
        let is_former = its_own.as_ref().is_none_or(|its_own| !Arc::ptr_eq(its_own, &target));
        let target = match its_own {
            Some(its_own) => its_own,
            None if self.is_choosy => return self.gone(),
            // Of another process that had this number before.
            None if clock::earliest_start_nanos(process.start_time()).is_some_and(|start| sample.program < start) => {
                return self.gone();
            }
            None => target,
        };
        match target.profiled {
            Ok(()) => {}
            // Who it is was not told in time.
            Err(WhyNot::NoAnswer) => return self.gone(),
            Err(_) => {
                self.figures.left_out += 1;
                return;
            }
        }
        self.taken();
        self.figures.sampled += 1;
        // One that is on its way out has nothing to tell.
        if matches!(target.kind, Kind::Go(_))
            && !sample.is_known
            && !sample.user.is_empty()
            && !self.told.has_ended(sample.pid)
        {
            self.figures.goroutines_unknown += 1;
        }
        let target =
            if is_former { without_tags(&mut sample, target) } else { self.with_tags(&mut sample, target, now) };
        self.waiting.push((target, sample));
        if self.waiting.len() >= MOST_WAITING {
            self.name(now);
        }
    }

    /// Gives those that wait their names, and puts them into their windows.
    pub(super) fn name(&mut self, now: Instant) {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return;
        }
        let begun = thread_cpu();
        let mut of_processes: Map<Process, Vec<&Sample>> = Map::default();
        for (target, sample) in &waiting {
            of_processes.entry(target.process).or_default().push(sample);
        }
        for (process, samples) in of_processes {
            self.namer.learn(process, &samples, now);
        }
        for (target, sample) in waiting {
            let stack = self.namer.name(target.process, &sample, now);
            self.taps.add(&target, &sample, &stack);
            match self.aggregate.add(target.process, &sample, &stack) {
                // The last program that it ran is what its window is of.
                Ok(()) => _ = self.sampled.insert(target.process, target),
                Err(Full) => self.ledger.lost(1, Cause::AggregateFull),
            }
        }
        self.cost += thread_cpu().saturating_sub(begun);
    }

    /// A stack came out of the ring.
    fn taken(&self) {
        self.ledger.enter(1, 1, 1, &Loss::default(), &Degraded::default());
    }

    /// Gives the attributes of a thread context the names that its process publishes; where one is new, it is looked up.
    fn with_tags(&mut self, sample: &mut Sample, mut target: Arc<Target>, now: Instant) -> Arc<Target> {
        let Some(most) = sample.attributes.iter().map(|(number, _)| usize::from(*number)).max() else { return target };
        let known = |target: &Target| target.context.as_ref().map_or(0, |context| context.keys().len());
        if most >= known(&target) {
            target = self.table.refresh(sample.pid, now).unwrap_or(target);
        }
        let keys = target.context.as_ref().map(|context| context.keys()).unwrap_or_default();
        for (number, value) in std::mem::take(&mut sample.attributes) {
            match keys.get(usize::from(number)) {
                Some(key) => sample.labels.push(key.as_bytes(), &value),
                None => sample.labels_cut = true,
            }
        }
        target
    }

    /// It was told without all that may be known of it later: it is to be told again.
    pub(super) fn lacks(&mut self, target: Arc<Target>, started: Option<Started>) {
        self.told.lacks(target, started);
    }

    /// Which program a process started, once.
    pub(super) fn started(&mut self, pid: u32) -> Option<Started> {
        self.told.started(pid)
    }

    /// What the kernel side is to be told: it forgets those that ended first.
    pub(super) fn ended(&mut self) -> Vec<u32> {
        self.told.ended()
    }

    pub(super) fn left_out(&mut self) -> Vec<u32> {
        self.told.left_out()
    }

    pub(super) fn found(&mut self) -> Vec<Arc<Target>> {
        self.told.found()
    }

    /// Looks at all processes once, at the beginning.
    pub(super) fn look_around(&mut self, now: Instant) {
        // Each call looks at some; so many calls see more than there can be.
        _ = (0..MOST_CALLS).any(|_| self.sweep(WORK, now));
    }

    /// Looks at up to `work` processes; whether all were seen by now.
    pub(super) fn sweep(&mut self, work: usize, now: Instant) -> bool {
        let sweep = self.table.sweep(work, now);
        // First: the number of one that ended may already be that of one that is new.
        for process in sweep.ended {
            self.told.end_of(process.pid());
            self.vanished.push(process);
        }
        for target in &sweep.changed {
            self.told.find(target);
            if target.profiled.is_ok() {
                self.namer.prepare(target.process, now);
            }
        }
        if sweep.is_whole {
            self.told.looked_around();
        }
        sweep.is_whole
    }

    /// Forgets a process that ended; what it lost and can no more say is told by others.
    fn forget(&mut self, process: Process) {
        self.namer.forget(process);
        self.unattributed.merge(&self.aggregate.forget(process));
    }

    /// Enters stacks that were lost before they came here.
    pub(super) fn lost_in_kernel(&mut self, lost: &Loss) {
        self.ledger.enter(lost.total(), 0, lost.total(), lost, &Degraded::default());
    }

    /// What was lost of no process that could say it, since the last time.
    pub(super) fn unattributed(&mut self) -> Loss {
        let mut lost = std::mem::take(&mut self.unattributed);
        lost.merge(&self.aggregate.without_window());
        lost
    }

    /// Ends the windows.
    pub(super) fn end(&mut self, now: Moment) -> Vec<Named> {
        let begun = thread_cpu();
        let windows = self.aggregate.end(now);
        self.cost += thread_cpu().saturating_sub(begun);
        // Only now that what they had to say is out of the window.
        std::mem::take(&mut self.exited).into_iter().for_each(|process| self.forget(process));
        self.exited.append(&mut self.vanished);
        let sampled = std::mem::take(&mut self.sampled);
        let mut degraded = Degraded::default();
        let mut named = Vec::with_capacity(windows.len());
        for window in windows {
            degraded.merge(&window.degraded());
            if let Some(target) = sampled.get(&window.process()) {
                named.push((window, Arc::clone(target)));
            }
        }
        self.ledger.enter(0, 0, 0, &Loss::default(), &degraded);
        named
    }

    pub(super) fn tap(&mut self, until: Instant, pid: Option<u32>, tapped: Box<dyn Tapped>) {
        self.taps.begin(Tap::new(until, pid, tapped));
    }

    pub(super) fn end_taps(&mut self, now: Instant) {
        self.taps.end(now);
    }

    pub(super) fn targets(&self) -> Vec<Arc<Target>> {
        self.table.targets()
    }

    /// Lets go of what can be made again.
    pub(super) fn shed(&mut self) {
        self.namer.forget_all();
    }

    pub(super) fn held(&self) -> u64 {
        (self.namer.held() + self.aggregate.bytes() + self.taps.bytes()) as u64
    }

    pub(super) fn figures(&self) -> Figures {
        let naming = self.namer.stats();
        let (names_bytes, crowded) = (self.namer.bytes() as u64, self.table.counters().crowded);
        Figures { naming, names_bytes, crowded, kernel: Counters::default(), ..self.figures }
    }

    pub(super) fn stacks_by_process(&self) -> BTreeMap<Process, Stats> {
        self.namer.stats_by_process()
    }
}

/// A program that is over publishes nothing any more that would say what the attributes of its thread context are.
fn without_tags(sample: &mut Sample, target: Arc<Target>) -> Arc<Target> {
    sample.labels_cut |= !sample.attributes.is_empty();
    sample.attributes.clear();
    target
}

#[cfg(test)]
mod tests;
