//! What the kernel side is told of a process, and of the program that it runs.
//!
//! In: a process, where it keeps goroutines, which program it started, if that was seen, and what the kernel side knows by now. Out: what to tell, which is told. On the sampling
//! thread.

use super::goroutines::{Goroutines, Place};
use crate::bpf::{Go, Knowledge, Sampler, Started};
use crate::discover::{Target, WhyNot};
use crate::error::Error;

/// Of whom no samples are wanted.
const LEFT_OUT: Knowledge = Knowledge { is_excluded: true, go: None, context_offset: None };

/// What became of a telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Told,
    /// It has another number than that of the program that it started, and was not told: if it has become another program, what is known is of the one before. It is told
    /// again, without that program, whatever its number is by then: numbers change also where there is no more room for them.
    HasLeft,
    /// Its program gave no answer yet, or there is no room for it.
    Later,
}

/// Who tells.
#[derive(Debug, Default)]
pub(super) struct Teller {
    goroutines: Goroutines,
    /// It was said that one was not taken, and why: it is tried again in each round, and so are others.
    is_said: bool,
}

impl Teller {
    /// Tells that no samples of a process are wanted.
    pub(super) fn leave_out(&mut self, sampler: &mut Sampler, pid: u32) {
        if let Err(error) = sampler.tell(pid, &LEFT_OUT) {
            self.refuse(pid, &error);
        }
    }

    fn refuse(&mut self, pid: u32, error: &Error) {
        if !std::mem::replace(&mut self.is_said, true) {
            tracing::warn!(%error, pid, "the kernel side does not know a process");
        }
    }

    /// Tells of one process, which started that program, if it was seen.
    pub(super) fn tell(&mut self, sampler: &mut Sampler, target: &Target, started: Option<Started>) -> Outcome {
        let pid = target.process.pid();
        // Of what is left out there are no samples that need them.
        let place = if target.profiled.is_ok() { self.goroutines.of(target) } else { Place::Nowhere };
        // Behind what may have to wait for an answer.
        let by_now = ByNow {
            has_left: started.is_some_and(|started| sampler.has_left(pid, started)),
            is_known_by_executable: sampler.is_known_by_executable(pid),
        };
        let telling = Telling::new(target, place, started, by_now);
        if let Some((started, go)) = telling.program {
            sampler.tell_program(pid, started, go.as_ref());
        }
        let told = telling.process.map_or(Ok(()), |knowledge| sampler.tell(pid, &knowledge));
        match told {
            Ok(()) => telling.outcome,
            Err(error) => {
                self.refuse(pid, &error);
                Outcome::Later
            }
        }
    }
}

/// What the kernel side knows of a process when it is told.
#[derive(Debug, Clone, Copy, Default)]
struct ByNow {
    /// It has another number than that of the program that it started.
    has_left: bool,
    /// Where it keeps goroutines is known by the file of its program.
    is_known_by_executable: bool,
}

/// What it is told.
#[derive(Debug, PartialEq, Eq)]
struct Telling {
    /// Of the process; nothing of one that may be profiled and gave no answer: its samples are lost, and counted as such.
    process: Option<Knowledge>,
    /// Of the program, for others that will run it: where it keeps goroutines, or that it keeps them nowhere.
    program: Option<(Started, Option<Go>)>,
    outcome: Outcome,
}

impl Telling {
    fn new(target: &Target, place: Place, started: Option<Started>, by_now: ByNow) -> Self {
        if by_now.has_left {
            return Self { process: None, program: None, outcome: Outcome::HasLeft };
        }
        let (go, is_read) = match place {
            Place::At(go) => (Some(go), true),
            Place::Nowhere => (None, true),
            Place::Unread | Place::Later => (None, false),
        };
        let (is_profiled, has_answered) = (target.profiled.is_ok(), target.profiled != Err(WhyNot::NoAnswer));
        let context_offset = target.context.as_ref().and_then(|context| context.thread_offset());
        let process = if is_profiled { Knowledge { is_excluded: false, go, context_offset } } else { LEFT_OUT };
        // Of the file that was looked at, which is the one that was started: whoever holds a process can give it another one.
        let is_same = |started: &Started| target.exe.identity.is_some_and(|file| file.size == started.executable.size);
        Self {
            // What it knows by the file is more than nothing.
            process: (has_answered && (is_read || !by_now.is_known_by_executable)).then_some(process),
            program: started.filter(is_same).filter(|_| is_profiled && is_read).map(|started| (started, go)),
            outcome: if place == Place::Later { Outcome::Later } else { Outcome::Told },
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_sidecar_ebpf::Executable;

    use super::*;
    use crate::discover::Kind;
    use crate::target::{Device, Identity, Process};

    const SIZE: u64 = 4096;
    const IS_KNOWN: ByNow = ByNow { has_left: false, is_known_by_executable: true };

    fn go() -> Go {
        Go { tls_offset: -8, ..Go::default() }
    }

    /// A process of a file of that size.
    fn target() -> Target {
        let mut target = Target::bare(Process::new(7, 1), Kind::Go("go1.24.0".into()));
        let device = Device { major: 8, minor: 1 };
        target.exe.identity = Some(Identity { device, inode: 2, size: SIZE, modified: (3, 0) });
        target
    }

    fn started(size: u64) -> Started {
        Started { program: 5, executable: Executable { inode: 2, size, ..Executable::default() } }
    }

    /// What is told of goroutines of the process, and of the program.
    fn told(place: Place, by_now: ByNow) -> (Option<Option<Go>>, Option<Option<Go>>, Outcome) {
        let telling = Telling::new(&target(), place, Some(started(SIZE)), by_now);
        (telling.process.map(|process| process.go), telling.program.map(|(_, go)| go), telling.outcome)
    }

    /// Check that what was read is told in place of all, and what was not read in place of nothing that the kernel side knows by the file; and that only what was read is told
    /// of the program.
    #[test]
    fn what_was_not_read_replaces_nothing() {
        let (at, nowhere) = (Some(Some(go())), Some(None));
        for by_now in [ByNow::default(), IS_KNOWN] {
            assert_eq!(told(Place::At(go()), by_now), (at, at, Outcome::Told));
            assert_eq!(told(Place::Nowhere, by_now), (nowhere, nowhere, Outcome::Told));
        }
        assert_eq!(told(Place::Unread, ByNow::default()), (nowhere, None, Outcome::Told));
        assert_eq!(told(Place::Later, ByNow::default()), (nowhere, None, Outcome::Later));
        assert_eq!(told(Place::Unread, IS_KNOWN), (None, None, Outcome::Told));
        assert_eq!(told(Place::Later, IS_KNOWN), (None, None, Outcome::Later));
    }

    /// Check that nothing is told of a process that may be another program by now.
    #[test]
    fn who_has_left_is_told_later() {
        for is_known_by_executable in [false, true] {
            let by_now = ByNow { has_left: true, is_known_by_executable };
            for place in [Place::At(go()), Place::Nowhere, Place::Unread, Place::Later] {
                assert_eq!(told(place, by_now), (None, None, Outcome::HasLeft));
            }
        }
    }

    /// Check that one that is left out is told as such whatever is known, and nothing of its program, which others may run that are not; nothing of one that gave no answer; and that
    /// nothing is told of a program whose start was not seen, or whose file is not the one that was looked at.
    #[test]
    fn a_program_is_told_of_by_those_that_are_profiled() {
        let telling = |target: &Target, started| Telling::new(target, Place::At(go()), started, IS_KNOWN);
        let left_out = Target { profiled: Err(WhyNot::Ourselves), ..target() };
        let of_left_out = Telling::new(&left_out, Place::Nowhere, Some(started(SIZE)), IS_KNOWN);
        assert_eq!(of_left_out, Telling { process: Some(LEFT_OUT), program: None, outcome: Outcome::Told });
        let silent = Target { profiled: Err(WhyNot::NoAnswer), ..target() };
        let of_silent = Telling::new(&silent, Place::Nowhere, Some(started(SIZE)), ByNow::default());
        assert_eq!(of_silent, Telling { process: None, program: None, outcome: Outcome::Told });
        for started in [None, Some(started(SIZE + 1))] {
            let told = telling(&target(), started);
            assert_eq!((told.process.and_then(|process| process.go), told.program), (Some(go()), None));
        }
        let mut unread = target();
        unread.exe.identity = None;
        assert_eq!(telling(&unread, Some(started(SIZE))).program, None);
        assert_eq!(telling(&target(), Some(started(SIZE))).program, Some((started(SIZE), Some(go()))));
    }
}
