//! A process and all that it starts.
//!
//! In: who is born of whom, and who ends; where some of that was lost, `/proc`. Out: whether a process belongs to the family. Shared between the table, which asks, and the thread
//! that hears of births; both are one thread.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::target::Process;

/// More processes at once than any machine numbers by default.
const MOST: usize = 1 << 16;
/// So many that ended are still of it: their last samples come behind the news of their end.
const ENDED: usize = 1024;

/// Generations that are looked through for an ancestor.
const GENERATIONS: usize = 256;

/// A process with its descendants.
#[derive(Debug, Clone)]
pub struct Family(Arc<Mutex<Members>>);

/// Their numbers.
#[derive(Debug, Default)]
struct Members {
    all: HashSet<u32>,
    /// Those of them that ended, the latest last.
    ended: VecDeque<u32>,
    /// Births were not told since all processes were listed.
    is_in_doubt: bool,
    /// Processes that are still to be looked at for their parents, and those of the others.
    listed: Vec<u32>,
    parents: HashMap<u32, u32>,
}

impl Family {
    /// The family of `ancestor`.
    #[must_use]
    pub fn of(ancestor: u32) -> Self {
        Self(Arc::new(Mutex::new(Members { all: HashSet::from([ancestor]), ..Members::default() })))
    }

    /// A child belongs to the family of its parent.
    pub(super) fn born(&self, parent: u32, child: u32) {
        let mut members = self.members();
        // If it had been one's that ended, it is another one's now.
        if members.all.remove(&child) {
            members.ended.retain(|ended| *ended != child);
        }
        if members.all.contains(&parent) && members.all.len() < MOST {
            members.all.insert(child);
        }
    }

    /// A process has ended: its number may be another one's, some time.
    pub(super) fn left(&self, pid: u32) {
        let mut members = self.members();
        if !members.all.contains(&pid) || members.ended.contains(&pid) {
            return;
        }
        members.ended.push_back(pid);
        if members.ended.len() > ENDED
            && let Some(gone) = members.ended.pop_front()
        {
            members.all.remove(&gone);
        }
    }

    /// Some births were not told.
    pub(super) fn doubt(&self) {
        self.members().is_in_doubt = true;
    }

    /// Looks at up to `work` processes after births that were not told, going on where the last call ended. Once all were looked at, those whose parent belongs to
    /// it do so, too: these, each with its parent.
    pub(super) fn look(&self, work: usize) -> Vec<(u32, u32)> {
        let mut members = self.members();
        if members.listed.is_empty() {
            if !members.is_in_doubt {
                return Vec::new();
            }
            let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
            let pids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            (members.listed, members.is_in_doubt) = (pids.take(MOST).collect(), false);
        }
        let rest = members.listed.len().saturating_sub(work);
        let pids = members.listed.split_off(rest);
        members.parents.extend(pids.into_iter().filter_map(|pid| Some((pid, Process::find_with(pid).ok()?.2.parent))));
        if rest > 0 {
            return Vec::new();
        }
        let parents = std::mem::take(&mut members.parents);
        drop(members);
        self.adopt(&parents)
    }

    /// All whose parents, by this list, lead to a member; those that are new, each with its parent.
    fn adopt(&self, parents: &HashMap<u32, u32>) -> Vec<(u32, u32)> {
        let (mut members, mut adopted) = (self.members(), Vec::new());
        // Who has their numbers now may be anybody.
        while let Some(ended) = members.ended.pop_front() {
            members.all.remove(&ended);
        }
        for child in parents.keys() {
            let line = std::iter::successors(Some(*child), |pid| parents.get(pid).copied()).take(GENERATIONS);
            let strangers: Vec<u32> = line.take_while(|pid| !members.all.contains(pid)).collect();
            let leads_to_one =
                strangers.last().and_then(|last| parents.get(last)).is_some_and(|to| members.all.contains(to));
            if leads_to_one && members.all.len() + strangers.len() <= MOST {
                adopted.extend(strangers.iter().filter_map(|child| Some((*parents.get(child)?, *child))));
                members.all.extend(strangers);
            }
        }
        adopted
    }

    /// Whether a process belongs to it.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn takes(&self, pid: u32) -> Result<(), String> {
        if self.members().all.contains(&pid) {
            Ok(())
        } else {
            Err("it was not started by the command that is recorded".into())
        }
    }

    fn members(&self) -> std::sync::MutexGuard<'_, Members> {
        // Each is whole between two calls of its methods.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that children and their children belong to it, strangers do not, and the number of one that ended is free again.
    #[test]
    fn descendants_belong_to_the_family() {
        let family = Family::of(7);
        for (parent, child) in [(7, 8), (8, 9), (1, 10)] {
            family.born(parent, child);
        }
        let members = || (1..12).filter(|pid| family.takes(*pid).is_ok()).collect::<Vec<u32>>();
        assert_eq!(members(), [7, 8, 9]);
        // Its last samples are still to come; then its number is a stranger's child's.
        family.left(8);
        family.left(8);
        assert_eq!(members(), [7, 8, 9]);
        family.born(1, 8);
        assert_eq!(members(), [7, 9]);
        // Again and again the same number.
        for _ in 0..2 * ENDED {
            family.born(9, 8);
            family.left(8);
        }
        assert_eq!(members(), [7, 8, 9]);
        (100..100 + ENDED as u32).for_each(|pid| {
            family.born(7, pid);
            family.left(pid);
        });
        assert_eq!(members(), [7, 9], "too many have ended since");
    }

    /// Check that those whose birth was not told are found by their parents, whatever these say.
    #[test]
    fn births_that_were_missed_are_made_good() {
        let family = Family::of(7);
        family.born(7, 4);
        family.left(4);
        let mut adopted =
            family.adopt(&HashMap::from([(8, 7), (9, 8), (10, 9), (1, 0), (2, 1), (3, 4), (4, 3), (5, 5)]));
        adopted.sort_unstable();
        assert_eq!(adopted, [(7, 8), (8, 9), (9, 10)]);
        let members: Vec<u32> = (0..12).filter(|pid| family.takes(*pid).is_ok()).collect();
        assert_eq!(members, [7, 8, 9, 10]);
    }

    /// Check that all processes are looked at in parts, once for all doubts before, and once more for those that come meanwhile.
    #[test]
    fn one_look_is_for_many_doubts() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        let family = Family::of(own);
        assert_eq!(family.look(1), []);
        family.doubt();
        family.doubt();
        let mut parts = (1..MOST).map(|part| (part, family.look(2)));
        let (parts, adopted) = parts.find(|(_, adopted)| !adopted.is_empty()).unwrap();
        assert!(parts > 1 && adopted.contains(&(own, child.id())), "{parts} {adopted:?}");
        assert!(!family.members().is_in_doubt && family.members().listed.is_empty());
        family.doubt();
        family.look(2);
        family.doubt();
        while !family.members().listed.is_empty() {
            family.look(2);
        }
        assert!(family.members().is_in_doubt);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
