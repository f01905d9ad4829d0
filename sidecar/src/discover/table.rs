//! The processes of our pid namespace, each known once, as long as samples of it can come.
//!
//! In: what the kernel side tells ([`Table::told`]), a look around in `/proc` now and then ([`Table::sweep`]), samples of pids
//! ([`Table::visit`]). Out: targets. Events make it quick, sweeps make it true: without events all is found a sweep later. One thread owns
//! it. Its size is bounded: those that ended go first, the longest unseen before others; when so many live that there is no room, further ones
//! are left out and counted.

mod entry;
mod round;
mod terms;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use self::entry::Entry;
use self::round::Round;
pub use self::terms::{Choose, Counters, Event, Options, Sweep};
use super::resource::Pod;
use super::scout::Scout;
use super::target::Target;
use crate::target::Process;

/// Most processes that wait to be looked at because of an event. Those beyond are found by a sample or a sweep.
const MOST_TOLD: usize = 4096;
/// Rounds of which one looks at every process, where events tell what becomes of them.
const ROUNDS: u32 = 5;

/// The processes.
#[derive(Debug)]
pub struct Table {
    options: Options,
    pod: Pod,
    scout: Scout,
    entries: HashMap<u32, Entry>,
    told: VecDeque<u32>,
    /// Whether events tell of every exec and exit.
    hears_all: bool,
    /// Rounds since one that looked at every process; that one is 0.
    rounds: u32,
    /// The next round looks at every process.
    is_in_doubt: bool,
    round: Round,
    counters: Counters,
    /// Goes up with each use of an entry.
    clock: u64,
}

/// Why a process is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It was on a processor.
    Sampled,
    Swept,
}

impl Table {
    /// A table without processes.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::within(options, Pod::detect())
    }

    /// The same, of a sidecar in this pod.
    #[must_use]
    pub fn within(options: Options, pod: Pod) -> Self {
        Self {
            scout: Scout::new(options.patience),
            options,
            pod,
            entries: HashMap::new(),
            told: VecDeque::new(),
            hears_all: false,
            rounds: ROUNDS,
            is_in_doubt: false,
            round: Round::default(),
            counters: Counters::default(),
            clock: 0,
        }
    }

    /// From now on it is told of every exec and exit but those in nested pid namespaces, whose programs are looked at in the fifth round: of five rounds of sweeps, four look at
    /// those alone that are new or may have something new to say.
    pub fn hears_all(&mut self) {
        self.hears_all = true;
    }

    /// Some of what it should have been told was lost: the next round looks at all. The one that is under way goes on as it began.
    pub fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// Takes an event. Looks at nothing: that is done when a sample comes or at the next sweep, for a machine may start a thousand processes
    /// a second of which none is ever sampled.
    pub fn told(&mut self, event: Event) {
        match event {
            Event::Exec { pid } | Event::Fork { child: pid, .. } => {
                if let Some(entry) = self.entries.get_mut(&pid) {
                    (entry.is_stale, entry.is_another) = (true, true);
                }
                if self.told.len() < MOST_TOLD {
                    self.told.push_back(pid);
                } else {
                    self.counters.untold += 1;
                }
            }
            Event::Exit { pid } => {
                if let Some(entry) = self.entries.get_mut(&pid) {
                    (entry.has_ended, entry.is_end_told) = (true, true);
                }
            }
        }
    }

    /// The process that a sample is of, looked at now if it is not known. Ended ones are known until there is no room for them, so that
    /// their last samples find them. `None`: it was gone before anybody looked, or is none to profile.
    pub fn visit(&mut self, pid: u32, now: Instant) -> Option<Arc<Target>> {
        self.clock += 1;
        let clock = self.clock;
        let is_fresh = match self.entries.get_mut(&pid) {
            Some(entry) => {
                entry.used = clock;
                !entry.is_in_question(now)
            }
            None => false,
        };
        if !is_fresh {
            self.look(pid, now, Why::Sampled);
        }
        self.entries.get(&pid)?.target.clone()
    }

    /// Whether what lives there is known and none to profile: a thread of the kernel.
    pub(crate) fn is_none_to_profile(&self, pid: u32) -> bool {
        self.entries.get(&pid).is_some_and(|entry| entry.target.is_none() && !entry.has_ended)
    }

    /// Whether a process is known, and not known to have ended.
    pub(crate) fn lives(&self, process: Process) -> bool {
        self.entries.get(&process.pid()).is_some_and(|entry| entry.process == process && !entry.has_ended)
    }

    /// Looks at events and at up to `work` processes, going on where the last call ended. A process costs a
    /// few system calls, one that is new or has changed is looked into.
    pub fn sweep(&mut self, work: usize, now: Instant) -> Sweep {
        let mut sweep = Sweep::default();
        // Half for the round, however much happens: it also finds what nobody tells of.
        let mut work = work.max(2);
        let of_round = work / 2;
        while work > of_round
            && let Some(pid) = self.told.pop_front()
        {
            if self.entries.get(&pid).is_none_or(|entry| entry.is_stale) {
                self.see(pid, now, &mut sweep);
                work -= 1;
            }
        }
        if self.round.is_done() && !self.begin_round() {
            self.counters.unlisted += 1;
            return sweep;
        }
        while work > 0 {
            let Some(pid) = self.round.next() else { break };
            if self.is_seldom() && self.entries.get(&pid).is_some_and(|entry| entry.is_settled(now)) {
                continue;
            }
            self.see(pid, now, &mut sweep);
            work -= 1;
        }
        if self.round.is_done() {
            self.end_round(&mut sweep);
        }
        sweep
    }

    /// Looks at a process anew: what it publishes may have changed, such as the keys of thread contexts. At most
    /// ten times a second.
    pub fn refresh(&mut self, pid: u32, now: Instant) -> Option<Arc<Target>> {
        if let Some(entry) = self.entries.get_mut(&pid) {
            entry.refresh(now);
        }
        self.visit(pid, now)
    }

    /// Those that live, as far as is known, by pid.
    #[must_use]
    pub fn targets(&self) -> Vec<Arc<Target>> {
        let living = self.entries.values().filter(|entry| !entry.has_ended);
        let mut targets: Vec<_> = living.filter_map(|entry| entry.target.clone()).collect();
        targets.sort_unstable_by_key(|target| target.process.pid());
        targets
    }

    /// What is counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Threads that look at a process and have not come back yet: nothing can be done about them but to end the process.
    #[must_use]
    pub fn away(&self) -> usize {
        self.scout.away()
    }

    /// What the settings say.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Looks at a process as part of a sweep, and tells what came of it.
    fn see(&mut self, pid: u32, now: Instant, sweep: &mut Sweep) {
        let before = self.entries.get(&pid).map(|entry| (entry.process, entry.target.clone(), entry.has_ended));
        self.look(pid, now, Why::Swept);
        let after = self.entries.get(&pid).map(|entry| (entry.process, entry.target.clone(), entry.has_ended));
        let lived = before.as_ref().filter(|(_, target, ended)| target.is_some() && !ended);
        let lives = after.as_ref().filter(|(_, _, ended)| !ended);
        if let Some((process, ..)) = lived.filter(|(process, ..)| lives.is_none_or(|(now, ..)| now != process)) {
            sweep.ended.push(*process);
            if let Some(entry) = self.entries.get_mut(&pid).filter(|entry| entry.process == *process) {
                entry.is_end_told = true;
            }
        }
        if let Some((_, Some(target), _)) = lives {
            let known = before.and_then(|(_, target, _)| target);
            if known.is_none_or(|known| !Arc::ptr_eq(&known, target)) {
                sweep.changed.push(Arc::clone(target));
            }
        }
    }

    /// Brings the entry of a pid up to date.
    fn look(&mut self, pid: u32, now: Instant, why: Why) {
        let Ok((process, folder, stat)) = Process::find_with(pid) else { return self.lose(pid, now) };
        if let Some(entry) = self.entries.get_mut(&pid).filter(|entry| entry.process == process) {
            if entry.is_current(&stat, &self.scout, now) {
                return;
            }
        } else if stat.is_kernel_thread && self.entries.len() >= self.options.most {
            // Nothing is to be known of it, and it takes nobody's place.
            return;
        } else if !self.has_room(pid, why) {
            if self.counters.crowded == 0 {
                let most = self.options.most;
                tracing::warn!(
                    "{most} processes in sight are known, and no more can be: one that comes now is profiled only once it is sampled, in the place of one that is not profiled"
                );
            }
            self.counters.crowded += 1;
            return;
        }
        let known = self.entries.remove(&pid).filter(|entry| entry.process == process);
        let surroundings = (&self.options, &self.pod, &self.scout);
        match Entry::classify(process, &stat, folder, surroundings, (known, now)) {
            Ok(mut entry) => {
                self.counters.classified += 1;
                self.clock += 1;
                entry.used = self.clock;
                self.entries.insert(pid, entry);
            }
            Err(Some(entry)) => {
                self.entries.insert(pid, entry);
            }
            Err(None) => self.counters.gone_before += 1,
        }
    }

    /// A pid that is no process's any more.
    fn lose(&mut self, pid: u32, now: Instant) {
        match self.entries.get_mut(&pid) {
            Some(entry) => entry.ends(now),
            None => self.counters.gone_before += 1,
        }
    }

    /// Makes room for one more; `false`: all that are known live. Of what is none to profile, such as threads of the kernel, nothing needs to be known. One that spends time
    /// on processors has the place of one that is not profiled, of which all is known again when it is looked at; in a sweep, each would have that of another.
    fn has_room(&mut self, pid: u32, why: Why) -> bool {
        if self.entries.contains_key(&pid) || self.entries.len() < self.options.most {
            return true;
        }
        let is_idle = |entry: &Entry| entry.has_ended || entry.target.is_none();
        let is_left_out = |entry: &Entry| entry.target.as_ref().is_some_and(|target| target.profiled.is_err());
        let oldest = |of: &dyn Fn(&Entry) -> bool| {
            let fitting = self.entries.iter().filter(|(_, entry)| of(entry));
            fitting.min_by_key(|(_, entry)| entry.used).map(|(pid, _)| *pid)
        };
        let left_out = || (why == Why::Sampled).then(|| oldest(&is_left_out)).flatten();
        let oldest = oldest(&is_idle).or_else(left_out);
        oldest.is_some_and(|oldest| self.entries.remove(&oldest).is_some())
    }

    fn begin_round(&mut self) -> bool {
        if !self.round.begin() {
            return false;
        }
        let is_whole = std::mem::take(&mut self.is_in_doubt) || self.rounds + 1 >= ROUNDS;
        self.rounds = if is_whole { 0 } else { self.rounds + 1 };
        true
    }

    /// Whether the round leaves out of whom nothing new is to be expected.
    fn is_seldom(&self) -> bool {
        self.hears_all && self.rounds != 0
    }

    /// All that is in `/proc` was seen: what was known before and is not there has ended. So has what a sample found gone, of which nobody was told.
    fn end_round(&mut self, sweep: &mut Sweep) {
        for (pid, entry) in &mut self.entries {
            entry.has_ended |= !self.round.has(*pid) && !entry.process.is_alive();
            if entry.has_ended && !std::mem::replace(&mut entry.is_end_told, true) && entry.target.is_some() {
                sweep.ended.push(entry.process);
            }
        }
        self.scout.begin_round();
        sweep.is_whole = true;
    }
}
