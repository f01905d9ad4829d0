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

/// A target, and the number that its process had once it was found: a later program can have come meanwhile, an earlier one cannot.
#[derive(Debug, Clone)]
struct Found {
    target: Arc<Target>,
    program: u64,
}

impl Programs {
    /// The target that a sample of that program is of; `current` was found at the last look. `running` says which number its process has now (0: nobody can
    /// tell; `None`: it is becoming another program), and is asked once after each look.
    pub(super) fn of(
        &mut self,
        program: u64,
        current: &Arc<Target>,
        running: impl FnOnce() -> Option<u64>,
    ) -> Option<Arc<Target>> {
        let pid = current.process.pid();
        let known = self.seen.get(&pid);
        if known.is_none_or(|seen| !Arc::ptr_eq(&seen.now.target, current) || program > seen.now.program) {
            let now = Found { target: Arc::clone(current), program: running().unwrap_or(u64::MAX) };
            if self.seen.len() >= MOST {
                self.seen.clear();
            }
            let before = self.seen.remove(&pid).and_then(|seen| seen.before_this(current));
            self.seen.insert(pid, Seen { now, before });
        }
        let seen = self.seen.get(&pid)?;
        if program == 0 || program >= seen.now.program {
            return Some(Arc::clone(current));
        }
        seen.before.as_ref().filter(|before| before.program == program).map(|before| Arc::clone(&before.target))
    }

    /// A number is another process's from now on.
    pub(super) fn forget(&mut self, pid: u32) {
        self.seen.remove(&pid);
    }
}

impl Seen {
    /// What there was before `current`.
    fn before_this(self, current: &Arc<Target>) -> Option<Found> {
        if Arc::ptr_eq(&self.now.target, current) { self.before } else { Some(self.now) }
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

    /// Check that a process that is becoming another program when it was looked at is taken for neither, that one which has another number without another program is asked for it again, and
    /// that where nobody can tell all is as it was found.
    #[test]
    fn where_it_cannot_be_told_nothing_is_made_up() {
        let (mut programs, found) = (Programs::default(), target());
        assert!(programs.of(4, &found, || None).is_none());
        programs.forget(7);
        assert!(programs.of(4, &found, || Some(4)).is_some());
        // The kernel side had no more room for the number.
        assert!(programs.of(9, &found, || Some(9)).is_some());
        programs.forget(7);
        assert!([0, 5].into_iter().all(|program| programs.of(program, &found, || Some(0)).is_some()));
    }
}
