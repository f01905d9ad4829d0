//! The processes of our pid namespace, each known once, as long as samples of it can come.
//!
//! In: what the kernel side tells ([`Table::told`]), a look around in `/proc` now and then ([`Table::sweep`]), samples of pids
//! ([`Table::visit`]). Out: targets. Events make it quick, sweeps make it true: without events all is found a sweep later. One thread owns
//! it. Its size is bounded: those that ended go first, the longest unseen before others; when so many live that there is no room, further ones
//! are left out and counted.

mod entry;
mod round;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use self::entry::Entry;
use self::round::Round;
use super::program::Programs;
use super::resource::Pod;
use super::target::{Candidate, Target};
use crate::target::Process;

/// Most processes that wait to be looked at because of an event. Those beyond are found by a sample or a sweep.
const MOST_TOLD: usize = 4096;

/// What the kernel side tells of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It runs another program now.
    Exec {
        /// Which.
        pid: u32,
    },
    /// It ended.
    Exit {
        /// Which.
        pid: u32,
    },
    /// It is new, with its parent's program.
    Fork {
        /// Whose child.
        parent: u32,
        /// Which.
        child: u32,
    },
}

/// What the settings say of processes.
pub struct Options {
    /// Most processes that are known at once, ended ones included.
    pub most: usize,
    /// Whether processes that profile themselves are profiled all the same.
    pub sdk_too: bool,
    /// Whether a process is to be profiled, or why not.
    pub choose: Box<dyn Fn(&Candidate<'_>) -> Result<(), String> + Send>,
}

impl Default for Options {
    /// 4,096 processes, all chosen that do not profile themselves.
    fn default() -> Self {
        Self { most: 4096, sdk_too: false, choose: Box::new(|_| Ok(())) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Options {{ most: {}, sdk_too: {} }}", self.most, self.sdk_too)
    }
}

/// What a part of a sweep did.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// Targets that are new, or not what they were: their program changed, or what they publish.
    pub changed: Vec<Arc<Target>>,
    /// Processes that ended.
    pub ended: Vec<Process>,
    /// All of `/proc` was looked at since the last time that this was `true`.
    pub is_whole: bool,
}

/// What did not go as it should, since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Looks at processes that found out what they are.
    pub classified: u64,
    /// Samples or events of processes that were gone before anybody looked.
    pub gone_before: u64,
    /// Looks at processes for which there was no room.
    pub crowded: u64,
    /// Events that were not kept, as too many waited.
    pub untold: u64,
    /// `/proc` could not be listed.
    pub unlisted: u64,
}

/// The processes.
#[derive(Debug)]
pub struct Table {
    options: Options,
    pod: Pod,
    programs: Programs,
    entries: HashMap<u32, Entry>,
    told: VecDeque<u32>,
    round: Round,
    counters: Counters,
    /// Goes up with each use of an entry.
    clock: u64,
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
            options,
            pod,
            programs: Programs::default(),
            entries: HashMap::new(),
            told: VecDeque::new(),
            round: Round::default(),
            counters: Counters::default(),
            clock: 0,
        }
    }

    /// Takes an event. Looks at nothing: that is done when a sample comes or at the next sweep, for a machine may start a thousand processes
    /// a second of which none is ever sampled.
    pub fn told(&mut self, event: Event) {
        match event {
            Event::Exec { pid } | Event::Fork { child: pid, .. } => {
                if let Some(entry) = self.entries.get_mut(&pid) {
                    entry.is_stale = true;
                }
                if self.told.len() < MOST_TOLD {
                    self.told.push_back(pid);
                } else {
                    self.counters.untold += 1;
                }
            }
            Event::Exit { pid } => {
                if let Some(entry) = self.entries.get_mut(&pid) {
                    entry.has_ended = true;
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
                !entry.is_stale
            }
            None => false,
        };
        if !is_fresh {
            self.look(pid, now);
        }
        self.entries.get(&pid)?.target.clone()
    }

    /// Looks at events and at up to `work` processes, going on where the last call ended. A process costs about 20 µs, one that is new or has
    /// changed up to a millisecond.
    pub fn sweep(&mut self, work: usize, now: Instant) -> Sweep {
        let mut sweep = Sweep::default();
        let mut work = work.max(1);
        while let Some(pid) = self.told.pop_front() {
            if self.entries.get(&pid).is_none_or(|entry| entry.is_stale) {
                self.see(pid, now, &mut sweep);
            }
            work -= 1;
            if work == 0 {
                return sweep;
            }
        }
        if self.round.is_done() && !self.round.begin() {
            self.counters.unlisted += 1;
            return sweep;
        }
        while work > 0 {
            let Some(pid) = self.round.next() else { break };
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

    /// What the settings say.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Looks at a process as part of a sweep, and tells what came of it.
    fn see(&mut self, pid: u32, now: Instant, sweep: &mut Sweep) {
        let before = self.entries.get(&pid).map(|entry| (entry.process, entry.target.clone(), entry.has_ended));
        self.look(pid, now);
        let after = self.entries.get(&pid).map(|entry| (entry.process, entry.target.clone(), entry.has_ended));
        let lived = before.as_ref().filter(|(_, target, ended)| target.is_some() && !ended);
        let lives = after.as_ref().filter(|(_, _, ended)| !ended);
        if let Some((process, ..)) = lived.filter(|(process, ..)| lives.is_none_or(|(now, ..)| now != process)) {
            sweep.ended.push(*process);
        }
        if let Some((_, Some(target), _)) = lives {
            let known = before.and_then(|(_, target, _)| target);
            if known.is_none_or(|known| !Arc::ptr_eq(&known, target)) {
                sweep.changed.push(Arc::clone(target));
            }
        }
    }

    /// Brings the entry of a pid up to date.
    fn look(&mut self, pid: u32, now: Instant) {
        let Ok((process, folder, stat)) = Process::find_with(pid) else { return self.lose(pid) };
        if let Some(entry) = self.entries.get_mut(&pid).filter(|entry| entry.process == process) {
            if entry.is_current(&stat, now) {
                return;
            }
        } else if !self.has_room(pid) {
            self.counters.crowded += 1;
            return;
        }
        let known = self.entries.remove(&pid).filter(|entry| entry.process == process);
        let surroundings = (&self.options, &self.pod, &mut self.programs);
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
    fn lose(&mut self, pid: u32) {
        match self.entries.get_mut(&pid) {
            Some(entry) => {
                entry.has_ended = true;
                entry.is_stale = false;
            }
            None => self.counters.gone_before += 1,
        }
    }

    /// Makes room for one more; `false`: all that are known live.
    fn has_room(&mut self, pid: u32) -> bool {
        if self.entries.contains_key(&pid) || self.entries.len() < self.options.most {
            return true;
        }
        let ended = self.entries.iter().filter(|(_, entry)| entry.has_ended);
        let oldest = ended.min_by_key(|(_, entry)| entry.used).map(|(pid, _)| *pid);
        oldest.is_some_and(|oldest| self.entries.remove(&oldest).is_some())
    }

    /// All that is in `/proc` was seen: what was known before and is not there has ended.
    fn end_round(&mut self, sweep: &mut Sweep) {
        for (pid, entry) in &mut self.entries {
            if !entry.has_ended && !self.round.has(*pid) && !entry.process.is_alive() {
                entry.has_ended = true;
                if entry.target.is_some() {
                    sweep.ended.push(entry.process);
                }
            }
        }
        sweep.is_whole = true;
    }
}

#[cfg(test)]
mod tests;
