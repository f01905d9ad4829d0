//! What the kernel side was told of processes, and what it is to be told next.
//!
//! In: processes that were found, numbers of those that ended. Out: what is news to it, each once. On the sampling thread. Pure.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use profiler_proto::hash::Map;

use crate::bpf::Started;
use crate::discover::Target;
use crate::target::Process;

/// Most numbers of strangers that are kept: the samples of others are left out when they are read.
const STRANGERS: usize = 4096;
/// Most programs that were started of which is kept which file they are.
const STARTED: usize = 4096;
/// So many that ended are remembered: their last samples come behind the news of their end.
const GONE: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Told {
    known: Map<u32, Arc<Target>>,
    found: Vec<Arc<Target>>,
    /// Of whom something was lacking when they were told, which may be known by now.
    incomplete: Vec<Arc<Target>>,
    ended: Vec<u32>,
    /// What processes started that were not told since.
    started: Map<u32, Started>,
    /// Numbers of those of whom nothing is known but that they are left out, and which of them are news.
    strangers: HashSet<u32>,
    left_out: Vec<u32>,
    /// Numbers of those that ended, the latest last, that are nobody else's yet.
    gone: VecDeque<u32>,
    /// Rounds of looks at all processes that are to end until what was told is told again.
    rounds: u8,
    /// There was another doubt in the last of them: it is told once more, behind the one after.
    is_in_doubt: bool,
}

impl Told {
    /// Which process has this number, as far as was told.
    pub(super) fn process(&self, pid: u32) -> Option<Process> {
        self.known.get(&pid).map(|target| target.process)
    }

    /// Notes what is to be told, if it is not known yet.
    pub(super) fn find(&mut self, target: &Arc<Target>) {
        let pid = target.process.pid();
        if self.known.get(&pid).is_none_or(|known| !Arc::ptr_eq(known, target)) {
            self.known.insert(pid, Arc::clone(target));
            self.found.push(Arc::clone(target));
        }
    }

    /// An exec may have been missed, at which the kernel side forgot what it was told: it is told of all again, once all were looked at, in the round that follows the one that
    /// may be under way. However many doubts there are meanwhile, none puts that off.
    pub(super) fn doubt(&mut self) {
        match self.rounds {
            0 => self.rounds = 2,
            1 => self.is_in_doubt = true,
            // That round is still to begin.
            _ => {}
        }
    }

    /// It was told, but not all of it: it is told again behind the next look at all processes, if it is still what it was, and with the program that it started.
    pub(super) fn lacks(&mut self, target: Arc<Target>, started: Option<Started>) {
        if let Some(started) = started {
            self.started.insert(target.process.pid(), started);
        }
        self.incomplete.push(target);
    }

    /// All processes were looked at.
    pub(super) fn looked_around(&mut self) {
        for target in std::mem::take(&mut self.incomplete) {
            let is_known = self.known.get(&target.process.pid()).is_some_and(|known| Arc::ptr_eq(known, &target));
            if is_known && self.rounds != 1 {
                self.found.push(target);
            }
        }
        if self.rounds == 1 {
            self.found = self.known.values().map(Arc::clone).collect();
            self.left_out = self.strangers.iter().copied().collect();
            self.rounds += u8::from(std::mem::take(&mut self.is_in_doubt));
        }
        self.rounds = self.rounds.saturating_sub(1);
    }

    /// A process is left out by its number, whatever it is; not one that ended: nobody would say once more that it is to be forgotten.
    pub(super) fn leave_out(&mut self, pid: u32) {
        if self.strangers.len() < STRANGERS && !self.gone.contains(&pid) && self.strangers.insert(pid) {
            self.left_out.push(pid);
        }
    }

    /// A process has ended.
    pub(super) fn exited(&mut self, pid: u32) {
        self.end_of(pid);
        self.gone.push_back(pid);
        if self.gone.len() > GONE {
            self.gone.pop_front();
        }
    }

    /// Whether a process has ended, and its number is nobody else's yet.
    pub(super) fn has_ended(&self, pid: u32) -> bool {
        self.gone.contains(&pid)
    }

    /// A process begins. If its number was another one's, the kernel side has forgotten that, or was told of it since then.
    pub(super) fn begins(&mut self, pid: u32) {
        self.gone.retain(|gone| *gone != pid);
        self.end_of(pid);
    }

    /// A program begins: the same.
    pub(super) fn starts(&mut self, pid: u32, started: Started) {
        self.begins(pid);
        if self.started.len() >= STARTED {
            self.started.clear();
        }
        self.started.insert(pid, started);
    }

    /// Which program a process started, once.
    pub(super) fn started(&mut self, pid: u32) -> Option<Started> {
        self.started.remove(&pid)
    }

    /// What is known of a process is of no use any more.
    pub(super) fn end_of(&mut self, pid: u32) {
        self.started.remove(&pid);
        let (was_known, was_stranger) = (self.known.remove(&pid).is_some(), self.strangers.remove(&pid));
        if was_known || was_stranger {
            self.found.retain(|target| target.process.pid() != pid);
            self.left_out.retain(|left_out| *left_out != pid);
            self.ended.push(pid);
        }
    }

    /// Numbers of those that ended: these are told first.
    pub(super) fn ended(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended)
    }

    /// Numbers of those that are left out since.
    pub(super) fn left_out(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.left_out)
    }

    /// What was found since.
    pub(super) fn found(&mut self) -> Vec<Arc<Target>> {
        std::mem::take(&mut self.found)
    }
}

#[cfg(test)]
mod tests {
    use profiler_sidecar_ebpf::Executable;

    use super::*;
    use crate::discover::Kind;

    /// Check that one of whom something was lacking is told again behind the next round, once, and not if it is another one by then.
    #[test]
    fn what_was_lacking_is_told_later() {
        let mut told = Told::default();
        let [first, second] = [1, 2].map(|started| Arc::new(Target::bare(Process::new(7, started), Kind::Native)));
        told.find(&first);
        let found = |told: &mut Told| told.found().iter().map(|target| target.process).collect::<Vec<_>>();
        assert_eq!(found(&mut told), [first.process]);
        told.lacks(Arc::clone(&first), None);
        assert_eq!(found(&mut told), []);
        told.looked_around();
        assert_eq!(found(&mut told), [first.process]);
        told.looked_around();
        assert_eq!(found(&mut told), []);
        told.lacks(first, None);
        told.find(&second);
        told.looked_around();
        assert_eq!(found(&mut told), [second.process]);
    }

    /// Check that what was told of a process is taken back when it becomes another program, and that what it started is said once, and not when it has ended.
    #[test]
    fn another_program_is_another_story() {
        let mut told = Told::default();
        let started = |program| Started { program, executable: Executable { inode: program, ..Executable::default() } };
        told.find(&Arc::new(Target::bare(Process::new(7, 1), Kind::Native)));
        told.starts(7, started(2));
        assert_eq!((told.ended(), told.found().len()), (vec![7], 0));
        told.starts(7, started(4));
        assert_eq!([told.started(7), told.started(7)], [Some(started(4)), None]);
        told.starts(7, started(6));
        assert!(!told.has_ended(7));
        told.exited(7);
        assert_eq!((told.started(7), told.has_ended(7)), (None, true));
        told.begins(7);
        assert!(!told.has_ended(7));
        for pid in 0..3 * STARTED as u32 {
            told.starts(pid, started(8));
            assert!(told.started.len() <= STARTED);
        }
    }

    /// Check that what was told is told again behind the round that follows a doubt, however many doubts come meanwhile, and behind each round as long as they come.
    #[test]
    fn doubts_without_end_put_nothing_off() {
        let mut told = Told::default();
        told.find(&Arc::new(Target::bare(Process::new(7, 1), Kind::Native)));
        told.leave_out(8);
        let round = |doubts: u32| {
            (0..doubts).for_each(|_| told.doubt());
            told.looked_around();
            (told.found().len(), told.left_out().len())
        };
        let (nothing, all) = ((0, 0), (1, 1));
        assert_eq!([0, 0, 3, 3, 3, 1, 0, 0].map(round), [all, nothing, nothing, all, all, all, all, nothing]);
    }
}
