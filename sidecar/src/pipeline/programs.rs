//! Which target a sample is of, where its process has become another program since: the settings may want the one and not the other.
//!
//! In: the number of a sample's program, the target that was found when its process was looked at, and the number that the kernel side has for that process then. Out: the
//! target that the sample is of; none, if nobody looked while that program ran. On the sampling thread. Pure.

use std::sync::Arc;

use profiler_proto::hash::Map;

use crate::discover::Target;

/// Most processes of which this is kept.
const MOST: usize = 4096;

/// What processes were and are, by pid.
#[derive(Debug, Default)]
pub(super) struct Programs {
    seen: Map<u32, Seen>,
}

/// What was found at the last look, and at the one before.
#[derive(Debug)]
struct Seen {
    now: Found,
    before: Option<Found>,
}

/// A target, with the numbers that its process had from when it was found on. Mostly one: a process gets another one without another program where the kernel side had
/// no more room for it, and where it cannot tell an exec from a thread that names itself.
#[derive(Debug)]
struct Found {
    target: Arc<Target>,
    first: u64,
    last: u64,
}

impl Programs {
    /// The target that a sample of that program is of; `current` was found at the last look, and no exec was told since then. `running` says which number its process has now
    /// (0: nobody can tell; `None`: it is becoming another program), and is asked once after each look, and where a sample has a later number.
    pub(super) fn of(
        &mut self,
        program: u64,
        current: &Arc<Target>,
        running: impl FnOnce() -> Option<u64>,
    ) -> Option<Arc<Target>> {
        let pid = current.process.pid();
        match self.seen.get_mut(&pid) {
            Some(seen) if Arc::ptr_eq(&seen.now.target, current) => {
                if seen.now.last != 0 && program > seen.now.last {
                    seen.now.last = running()?.max(program);
                }
            }
            // It can have become a later program since the look, not an earlier one.
            _ => self.find(pid, current, running()?),
        }
        let seen = self.seen.get(&pid)?;
        if program == 0 || program >= seen.now.first {
            return Some(Arc::clone(current));
        }
        let is_of = |found: &&Found| (found.first..=found.last).contains(&program);
        seen.before.as_ref().filter(is_of).map(|before| Arc::clone(&before.target))
    }

    fn find(&mut self, pid: u32, current: &Arc<Target>, number: u64) {
        let before = self.seen.remove(&pid).map(|seen| seen.now);
        if self.seen.len() >= MOST {
            self.seen.clear();
        }
        let now = Found { target: Arc::clone(current), first: number, last: number };
        self.seen.insert(pid, Seen { now, before });
    }

    /// A number is another process's from now on.
    pub(super) fn forget(&mut self, pid: u32) {
        self.seen.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Kind;
    use crate::target::Process;

    fn target() -> Arc<Target> {
        Arc::new(Target::bare(Process::new(7, 1), Kind::Native))
    }

    /// Check that samples of a program that was looked at are its own, before and after it was replaced, those of one that nobody looked at are nobody's, and that the kernel
    /// side is asked once after each look.
    #[test]
    fn samples_are_of_the_program_that_was_looked_at() {
        let (mut programs, first, second) = (Programs::default(), target(), target());
        let mut asked = 0;
        let mut of = |program: u64, current: &Arc<Target>, running: Option<u64>| {
            let found = programs.of(program, current, || {
                asked += 1;
                running
            });
            found.map(|found| if Arc::ptr_eq(&found, &first) { "first" } else { "second" })
        };
        assert_eq!([4, 4, 2].map(|program| of(program, &first, Some(4))), [Some("first"), Some("first"), None]);
        // Program 6 came and went without a look.
        assert_eq!(
            [4, 6, 8, 8].map(|program| of(program, &second, Some(8))),
            [Some("first"), None, Some("second"), Some("second")]
        );
        assert_eq!(asked, 2);
    }

    /// Check that a process that is becoming another program is taken for neither, and only as long as it does; that one which has another number without another program keeps its
    /// samples, also those that come late; and that where nobody can tell all is as it was found.
    #[test]
    fn another_number_is_not_always_another_program() {
        let (mut programs, found) = (Programs::default(), target());
        assert!(programs.of(4, &found, || None).is_none());
        assert!(programs.of(4, &found, || Some(4)).is_some());
        // A thread that named itself, of a kernel that does not say so; or there was no more room for the number.
        assert!(programs.of(8, &found, || None).is_none());
        assert!([8, 4, 8].into_iter().all(|program| programs.of(program, &found, || Some(8)).is_some()));
        assert!(programs.of(2, &found, || panic!("it is known")).is_none());
        let next = target();
        assert!([4, 8].into_iter().all(|program| {
            programs.of(program, &next, || Some(10)).is_some_and(|its_own| Arc::ptr_eq(&its_own, &found))
        }));
        programs.forget(7);
        assert!([0, 5].into_iter().all(|program| programs.of(program, &found, || Some(0)).is_some()));
    }

    /// Check that no more is kept than there may be, and that what is let go is asked for again.
    #[test]
    fn so_many_processes_are_kept() {
        let mut programs = Programs::default();
        for pid in 0..3 * MOST as u32 {
            let target = Arc::new(Target::bare(Process::new(pid, 1), Kind::Native));
            assert!(programs.of(4, &target, || Some(4)).is_some());
            assert!(programs.seen.len() <= MOST);
        }
    }
}
