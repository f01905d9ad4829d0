//! What of which process is read from outside, and how often captures and pulls told what came of it: one book for both, so that no time is told twice.
//!
//! In: from each side, that it is about to read, and what it has read. Out: of which kinds it may tell the difference to what it had read before: of those that the other
//! side told nothing of since that reading began. What it may not tell is lost, and it goes on from this reading. On the thread that captures and the main thread; each
//! entry is one step.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use profiler_proto::model::{Contention, Dictionary};
use profiler_proto::{Profile, ProfileSet};

use crate::capture::What;
use crate::target::Process;

/// The book.
#[derive(Debug, Default)]
pub(super) struct Outside {
    processes: Mutex<HashMap<Process, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// What was read last; `None`: that was not tried yet.
    read: Option<Vec<What>>,
    /// How often captures told of each kind.
    captured: Counts,
    /// How often pulls did.
    pulled: Counts,
}

/// How often a side told of each kind.
type Counts = HashMap<What, u64>;

/// What one side read of a process: of each kind, how often the other side had told of it when that began.
#[derive(Debug, Default)]
pub(super) struct Readings {
    last: Counts,
    now: Counts,
}

impl Readings {
    /// Forgets all but these kinds.
    pub(super) fn keep(&mut self, kinds: &[What]) {
        self.last.retain(|what, _| kinds.contains(what));
    }

    /// Has read these kinds. Those whose difference may be told, which counts.
    fn end(&mut self, kinds: &[What], own: &mut Counts, others: &Counts) -> Vec<What> {
        let count = |counts: &Counts, what: &What| counts.get(what).copied().unwrap_or(0);
        let is_free = |what: &&What| self.last.get(*what).is_some_and(|before| *before == count(others, what));
        let free: Vec<What> = kinds.iter().filter(is_free).copied().collect();
        free.iter().for_each(|what| *own.entry(*what).or_default() += 1);
        self.last.extend(kinds.iter().map(|what| (*what, count(&self.now, what))));
        free
    }
}

impl Outside {
    /// A capture of `process` is about to begin.
    pub(super) fn captures(&self, process: Process, readings: &mut Readings) {
        readings.now = self.processes().get(&process).map(|entry| entry.pulled.clone()).unwrap_or_default();
    }

    /// A capture has read these kinds: none, where it could not. Those whose difference it may tell.
    pub(super) fn captured(&self, process: Process, readings: &mut Readings, read: Vec<What>) -> Vec<What> {
        let mut processes = self.processes();
        let Entry { read: last, captured, pulled } = processes.entry(process).or_default();
        let free = readings.end(&read, captured, pulled);
        *last = Some(read);
        free
    }

    /// A pull of `process` is about to begin.
    pub(super) fn pulls(&self, process: Process, readings: &mut Readings) {
        readings.now = self.processes().get(&process).map(|entry| entry.captured.clone()).unwrap_or_default();
    }

    /// A pull has answers of these kinds. Those whose difference it may tell; of what is read from outside by now that is none.
    pub(super) fn pulled(&self, process: Process, readings: &mut Readings, answered: &[What]) -> Vec<What> {
        let mut processes = self.processes();
        let Entry { read, captured, pulled } = processes.entry(process).or_default();
        let is_read = |what: &What| read.iter().flatten().any(|read| read == what);
        let answered: Vec<What> = answered.iter().filter(|what| !is_read(what)).copied().collect();
        readings.end(&answered, pulled, captured)
    }

    /// Nothing of `process` is read for now.
    pub(super) fn leave(&self, process: Process) {
        self.processes().entry(process).or_default().read = Some(Vec::new());
    }

    /// What of `process` is read; `None`: it was not tried yet.
    pub(super) fn read(&self, process: Process) -> Option<Vec<What>> {
        self.processes().get(&process)?.read.clone()
    }

    /// Forgets all but those that live.
    pub(super) fn retain(&self, living: &HashSet<Process>) {
        self.processes().retain(|process, _| living.contains(process));
    }

    fn processes(&self) -> MutexGuard<'_, HashMap<Process, Entry>> {
        // Whatever panics meanwhile: an entry says less than was told at worst, never more.
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves in `set` what there is at its end, and of the differences those of these kinds.
pub(super) fn keep_told(set: &mut ProfileSet, told: &[What]) {
    let dictionary = &set.dictionary;
    set.profiles.retain(|profile| differs(profile, dictionary).is_none_or(|of| told.contains(&of)));
}

/// Which kind a profile is of, where it has what came since the one before.
fn differs(profile: &Profile, dictionary: &Dictionary) -> Option<What> {
    let text = |id| dictionary.strings.text(id);
    match (text(profile.kind.sample_type.kind), text(profile.kind.period_type.kind)) {
        ("alloc_objects" | "alloc_space", _) => Some(What::Heap),
        (_, of) if of == Contention::Block.name() => Some(What::Block),
        (_, of) if of == Contention::Mutex.name() => Some(What::Mutex),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use profiler_proto::model::Kind;

    use super::*;

    const HEAP: &[What] = &[What::Heap];
    const NONE: &[What] = &[];

    /// Both sides of one process.
    struct Both {
        outside: Outside,
        process: Process,
        capture: Readings,
        pull: Readings,
    }

    impl Both {
        fn new() -> Self {
            let (capture, pull) = Default::default();
            Self { outside: Outside::default(), process: Process::new(1, 1), capture, pull }
        }

        fn captures(&mut self) {
            self.outside.captures(self.process, &mut self.capture);
        }

        fn captured(&mut self, read: &[What]) -> Vec<What> {
            self.outside.captured(self.process, &mut self.capture, read.to_vec())
        }

        fn pulls(&mut self) {
            self.outside.pulls(self.process, &mut self.pull);
        }

        fn pulled(&mut self, answered: &[What]) -> Vec<What> {
            self.outside.pulled(self.process, &mut self.pull, answered)
        }
    }

    /// Check that each side tells of each kind from its second reading on, as long as the other one does not.
    #[test]
    fn who_reads_alone_tells_all_but_the_first() {
        let mut both = Both::new();
        assert_eq!(both.outside.read(both.process), None);
        for told in [NONE, HEAP, HEAP] {
            both.captures();
            assert_eq!(both.captured(HEAP), told);
            assert_eq!(both.outside.read(both.process).unwrap(), HEAP);
        }
        let mut both = Both::new();
        for told in [NONE, HEAP, HEAP] {
            both.pulls();
            assert_eq!(both.pulled(HEAP), told);
            // Nothing is known of another kind.
            both.captures();
            assert!(!both.captured(&[What::Block]).contains(&What::Heap));
        }
    }

    /// Check that what a capture reads by then is not for the pull, and that a capture that was under way when a pull told is not told, nor is its successor
    /// if the pull may have read behind it.
    #[test]
    fn what_one_told_meanwhile_the_other_does_not_tell() {
        let mut both = Both::new();
        both.pulls();
        assert_eq!(both.pulled(HEAP), NONE);
        both.captures();
        both.captured(NONE);
        // Capture and pull overlap; the pull is entered first.
        both.captures();
        both.pulls();
        assert_eq!((both.pulled(HEAP), both.captured(HEAP)), (HEAP.to_vec(), NONE.to_vec()));
        both.captures();
        assert_eq!(both.captured(HEAP), NONE);
        both.captures();
        assert_eq!(both.captured(HEAP), HEAP);
        // It is read from outside.
        both.pulls();
        assert_eq!(both.pulled(HEAP), NONE);
        both.outside.retain(&HashSet::new());
        assert_eq!(both.outside.read(both.process), None);
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Step {
        CaptureBegins,
        /// Whether it could read, and if so whether it did at its begin or at its end.
        CaptureEnds(Option<When>),
        PullBegins,
        PullEnds(When),
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum When {
        First,
        Last,
    }

    const STEPS: [Step; 7] = [
        Step::CaptureBegins,
        Step::CaptureEnds(None),
        Step::CaptureEnds(Some(When::First)),
        Step::CaptureEnds(Some(When::Last)),
        Step::PullBegins,
        Step::PullEnds(When::First),
        Step::PullEnds(When::Last),
    ];

    /// When a side read: that of a reading that goes on, and that of the last one.
    #[derive(Debug, Default, Clone, Copy)]
    struct Times {
        begun: Option<usize>,
        last: Option<usize>,
    }

    impl Times {
        /// The time from the last reading to this one, which has ended.
        fn end(&mut self, now: usize, when: When) -> Option<(usize, usize)> {
            let at = if when == When::First { self.begun? } else { now };
            self.begun = None;
            self.last.replace(at).map(|last| (last, at))
        }
    }

    /// The times that are told by either side; nothing, where a step cannot be.
    fn told(steps: &[Step]) -> Option<Vec<(usize, usize)>> {
        let (mut both, mut told) = (Both::new(), Vec::new());
        let (mut capture, mut pull) = (Times::default(), Times::default());
        for (now, step) in steps.iter().enumerate() {
            let (side, is_begin) = match step {
                Step::CaptureBegins => (&mut capture, true),
                Step::CaptureEnds(_) => (&mut capture, false),
                Step::PullBegins => (&mut pull, true),
                Step::PullEnds(_) => (&mut pull, false),
            };
            if side.begun.is_some() == is_begin {
                return None;
            }
            let (free, time) = match step {
                Step::CaptureBegins | Step::PullBegins => {
                    side.begun = Some(now);
                    if *step == Step::PullBegins {
                        both.pulls();
                    } else {
                        both.captures();
                    }
                    continue;
                }
                Step::CaptureEnds(None) => {
                    side.begun = None;
                    (both.captured(NONE), None)
                }
                Step::CaptureEnds(Some(when)) => (both.captured(HEAP), side.end(now, *when)),
                Step::PullEnds(when) => {
                    let is_read = both.outside.read(both.process).is_some_and(|read| !read.is_empty());
                    let free = both.pulled(HEAP);
                    // What is read from outside is not handed on, and the puller goes on from it all the same.
                    assert!(!is_read || free.is_empty());
                    (free, side.end(now, *when))
                }
            };
            told.extend(time.filter(|_| !free.is_empty()));
        }
        Some(told)
    }

    fn go_on(steps: &mut Vec<Step>, most: usize) -> usize {
        let Some(times) = (steps.len() <= most).then(|| told(steps)).flatten() else { return 0 };
        for (place, (from, to)) in times.iter().enumerate() {
            let is_apart = |(other_from, other_to): &(usize, usize)| to <= other_from || other_to <= from;
            assert!(times[..place].iter().all(is_apart), "{steps:?}: {times:?}");
        }
        let mut tried = 1;
        for step in STEPS {
            steps.push(step);
            tried += go_on(steps, most);
            steps.pop();
        }
        tried
    }

    /// Check that no time is told twice, in whichever order captures and pulls begin, read and end.
    #[test]
    fn no_time_is_told_twice() {
        let tried = go_on(&mut Vec::new(), 10);
        assert!(tried > 50_000, "{tried}");
    }

    /// Check that what is not for a side to tell goes, and that what there is at the end of its window stays.
    #[test]
    fn differences_that_are_not_told_go() {
        let mut set = ProfileSet::default();
        let heap = Kind::heap(&mut set.dictionary, 1).to_vec();
        let [block, mutex] =
            [Contention::Block, Contention::Mutex].map(|of| Kind::contention(&mut set.dictionary, of).to_vec());
        let goroutine = vec![Kind::goroutine(&mut set.dictionary)];
        let kinds = [heap, block, mutex, goroutine].concat();
        set.profiles = kinds.into_iter().map(|kind| Profile { kind, ..Profile::default() }).collect();
        let kept = |told: &[What]| {
            let mut set = set.clone();
            keep_told(&mut set, told);
            let name = |profile: &Profile| set.dictionary.strings.text(profile.kind.sample_type.kind).to_owned();
            set.profiles.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        let [allocated, waited, there] =
            ["alloc_objects alloc_space ", "contentions delay ", "inuse_objects inuse_space "];
        assert_eq!(kept(&[]), format!("{there}goroutine"));
        assert_eq!(kept(&[What::Heap]), format!("{allocated}{there}goroutine"));
        assert_eq!(kept(&[What::Mutex]), format!("{there}{waited}goroutine"));
        assert_eq!(kept(&What::ALL), format!("{allocated}{there}{waited}{waited}goroutine"));
    }
}
