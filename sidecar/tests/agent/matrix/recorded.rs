//! What a program of `tests/go/matrix` said of itself, and what was recorded of it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use profiler_proto::ProfileSet;
use profiler_proto::model::{Sample, Value};

use super::places::{Address, Lines, Place, Places, Said, said_by};
use super::program::Program;
use crate::process::built_before;
use crate::{decode, steal};

/// What the program said.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) pid: String,
    /// Where its function `main` was.
    main: String,
    began_nanos: f64,
    used_nanos: f64,
    took: Duration,
    stolen: Duration,
    /// By label and worker.
    spent_nanos: BTreeMap<(String, String), f64>,
}

impl Own {
    /// Reads what it wrote.
    pub(super) fn of(said: &str) -> Self {
        let mut own = Self::default();
        let nanos = |text: &str| Duration::from_nanos(text.parse().unwrap());
        for line in said.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["pid", pid] => pid.clone_into(&mut own.pid),
                ["main", address] => address.clone_into(&mut own.main),
                ["began", nanos] => own.began_nanos = nanos.parse().unwrap(),
                ["used", nanos] => own.used_nanos = nanos.parse().unwrap(),
                ["took", time] => own.took = nanos(time),
                ["stolen", time] => own.stolen = nanos(time),
                ["spent", label, worker, nanos] => {
                    own.spent_nanos.insert((label.to_owned(), worker.to_owned()), nanos.parse().unwrap());
                }
                _ => panic!("{line}"),
            }
        }
        assert!(own.used_nanos > 0.0, "{said}");
        own
    }

    /// Whether the hypervisor took more than a hundredth of the time.
    pub(super) fn was_disturbed(&self) -> bool {
        self.share_stolen() > 0.01
    }

    /// How much it took, of the time of one processor.
    fn share_stolen(&self) -> f64 {
        self.stolen.as_secs_f64() / self.took.as_secs_f64()
    }

    /// By one of the two labels.
    fn spent_by(&self, of: impl Fn(&(String, String)) -> &String) -> BTreeMap<String, f64> {
        let mut by = BTreeMap::new();
        for (labels, nanos) in &self.spent_nanos {
            *by.entry(of(labels).clone()).or_default() += nanos;
        }
        by
    }
}

/// Functions that work under a label.
const UNDER: [(&str, &str); 3] = [("main.heavy", "/heavy"), ("main.light", "/light"), ("main.deep", "/deep")];
/// Most samples of one of them without, where the program had never run before: it is at work before anybody has looked at it, for some milliseconds on a busy machine.
const LATE: i64 = 20;

/// Since when a program was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// From the fork that made its process.
    Birth,
    /// From when it began to work: it waited before.
    Work,
}

/// A program, and what was recorded of it.
pub(super) struct Recorded<'a> {
    pub(super) program: &'a Program,
    own: Own,
    since: Since,
    used_nanos: f64,
    all_nanos: f64,
    samples: Vec<Seen>,
}

/// Samples of one stack and set of labels.
struct Seen {
    nanos: f64,
    count: i64,
    /// Leaf first.
    stack: Vec<Rc<Place>>,
    endpoint: Option<String>,
    worker: Option<String>,
}

impl Seen {
    fn has(&self, function: &str) -> bool {
        self.stack.iter().flat_map(|place| &place.lines).any(|(name, ..)| name == function)
    }

    /// Those of the process's own code.
    fn places(&self) -> impl Iterator<Item = &Rc<Place>> {
        self.stack.iter().filter(|place| place.is_own)
    }

    fn names(&self) -> Vec<&str> {
        self.stack.iter().map(|place| place.function()).collect()
    }
}

impl<'a> Recorded<'a> {
    /// What is said of `program` in a recording of it, or of several programs.
    pub(super) fn of(program: &'a Program, own: Own, sets: &[ProfileSet], since: Since) -> Self {
        let samples: Vec<Seen> = sets.iter().flat_map(|set| seen(set, &own.pid)).collect();
        let before = if since == Since::Work { own.began_nanos } else { 0.0 };
        Self {
            program,
            since,
            used_nanos: own.used_nanos - before,
            all_nanos: samples.iter().map(|seen| seen.nanos).sum(),
            samples,
            own,
        }
    }

    /// Checks all that is known.
    pub(super) fn check(&self) {
        let what = self.program.name();
        self.check_what_needs_no_names(&what);
        self.check_shares(&what, 4.0, &self.own.spent_by(|(endpoint, _)| endpoint), |seen| seen.endpoint.as_ref());
        // So many more comparisons than of endpoints that one of them would be beyond four of them now and then.
        self.check_shares(&what, 5.0, &self.own.spent_by(|(_, worker)| worker), |seen| seen.worker.as_ref());
        self.check_labels(&what);
        self.check_stacks(&what);
        self.check_recursion(&what);
        self.check_that_ours_has_theirs(&what);
    }

    /// Checks what is known of one whose functions have other names than in its source; without those of the runtime nobody finds its labels.
    pub(super) fn check_without_names(&self, has_labels: bool) {
        let what = self.program.name();
        self.check_what_needs_no_names(&what);
        if has_labels {
            self.check_shares(&what, 4.0, &self.own.spent_by(|(endpoint, _)| endpoint), |seen| seen.endpoint.as_ref());
        } else {
            assert_eq!(self.count(|seen| seen.endpoint.is_some() || seen.worker.is_some()), 0, "{what}");
        }
        let (mut hundreds, mut fives) = (0, 0);
        for seen in &self.samples {
            let addresses: Vec<u64> = seen.places().map(|place| place.address).collect();
            match addresses.chunk_by(|one, next| one == next).map(<[u64]>::len).max() {
                // What `deep` calls is called by the last of them from another place.
                Some(99) => hundreds += seen.count,
                Some(499) => fives += seen.count,
                _ => {}
            }
        }
        assert!(hundreds > 5 && fives > 5, "{what}: {hundreds} are 100, {fives} are 500 calls deep");
    }

    fn check_what_needs_no_names(&self, what: &str) {
        let complete = self.all_nanos / self.used_nanos;
        let (labelled, places) = (self.count(|seen| seen.endpoint.is_some()), self.check_places(what));
        let stolen = self.own.share_stolen();
        eprintln!("{what}: {complete:.4} of its CPU time, {labelled} samples with labels, {places}");
        // A machine that is emulated loses ticks wherever it is held up.
        let error = if built_before().is_some() { 0.1 } else { 0.02 };
        assert!(
            steal::complete(error, stolen).contains(&complete),
            "{what}: {complete:.4} of its CPU time, the hypervisor took {stolen:.4}"
        );
    }

    fn count(&self, of: impl Fn(&Seen) -> bool) -> i64 {
        self.samples.iter().filter(|seen| of(seen)).map(|seen| seen.count).sum()
    }

    /// Time by a label is what the program measured, within so many standard errors.
    fn check_shares(
        &self,
        what: &str,
        errors: f64,
        spent: &BTreeMap<String, f64>,
        of: impl Fn(&Seen) -> Option<&String>,
    ) {
        let under = |label: &String| {
            self.samples.iter().filter(|seen| of(seen) == Some(label)).map(|seen| seen.nanos).sum::<f64>()
        };
        let (total, sampled): (f64, f64) = (spent.values().sum(), spent.keys().map(&under).sum());
        let counted = self.count(|seen| of(seen).is_some()) as f64;
        for (label, spent) in spent {
            let (share, truth) = (under(label) / sampled, spent / total);
            let error = (truth * (1.0 - truth) / counted).sqrt();
            assert!(
                (share - truth).abs() <= errors * error,
                "{what}: {label} {share:.4}, it was {truth:.4} ± {error:.4}"
            );
        }
    }

    /// Samples of a function that works under a label, and those of them that have it.
    fn labelled(&self, function: &str, endpoint: &str) -> (i64, i64) {
        let right = self
            .count(|seen| seen.has(function) && seen.endpoint.as_deref() == Some(endpoint) && seen.worker.is_some());
        (self.count(|seen| seen.has(function)), right)
    }

    /// Samples taken under labels, and how many of them lack these.
    pub(super) fn bare(&self) -> (i64, i64) {
        UNDER.iter().fold((0, 0), |(sum, bare), (function, endpoint)| {
            let (all, right) = self.labelled(function, endpoint);
            (sum + all, bare + all - right)
        })
    }

    /// Labels are on all samples taken under them, and on no others.
    fn check_labels(&self, what: &str) {
        for (function, endpoint) in UNDER {
            let (all, right) = self.labelled(function, endpoint);
            let other = self
                .count(|seen| seen.has(function) && seen.endpoint.as_deref().is_some_and(|label| label != endpoint));
            assert_eq!(other, 0, "{what}: {function} under a label of another");
            let late = if self.since == Since::Birth { LATE } else { 0 };
            assert!(
                all > 0 && (all - right - late) * 1000 <= all,
                "{what}: {right} of {all} samples of {function} have its labels"
            );
        }
        let unlabelled =
            |seen: &Seen| seen.has("main.unlabelled") && (seen.endpoint.is_some() || seen.worker.is_some());
        let labelled: Vec<_> = self.samples.iter().filter(|seen| unlabelled(seen)).map(Seen::names).collect();
        assert!(labelled.is_empty(), "{what}: labels where none were set: {labelled:?}");
    }

    /// Callers of leaves without a frame, and roots.
    fn check_stacks(&self, what: &str) {
        for seen in &self.samples {
            let mut places = seen.places();
            if places.next().is_some_and(|leaf| leaf.function() == "main.leaf") {
                assert_eq!(
                    places.next().map(|caller| caller.function()),
                    Some("main.deep"),
                    "{what}: {:?}",
                    seen.names()
                );
            }
        }
        // Those in C as well, whose compiler leaves out frame pointers. Below the handler of its own profiler's signals what was interrupted is missing, and a signal takes
        // long where the machine is emulated.
        let handles = |seen: &Seen| ["runtime.sigtramp", "runtime.cgoSigtramp"].iter().any(|name| seen.has(name));
        // Or nothing is known of that, and said to be missing.
        let marks = ["[signal handler]", "[frames left out]", "[stack incomplete]"];
        let is_marked = |seen: &Seen| marks.iter().any(|mark| seen.has(mark));
        let unmarked = |seen: &Seen| seen.endpoint.is_some() && handles(seen) && !is_marked(seen);
        let unmarked: Vec<_> = self.samples.iter().filter(|seen| unmarked(seen)).map(Seen::names).collect();
        assert!(unmarked.is_empty(), "{what}: below a handler of signals is what it interrupted: {unmarked:?}");
        let worked = |seen: &Seen| seen.endpoint.is_some() && !handles(seen);
        let whole = |seen: &Seen| ["main.under", "main.work", "main.main.func1"].iter().all(|name| seen.has(name));
        let mut broken = self.samples.iter().filter(|seen| worked(seen) && !whole(seen)).map(Seen::names);
        let (all, whole) = (self.count(worked), self.count(|seen| worked(seen) && whole(seen)));
        // Those that are interrupted in `mcall` begin there, and code that seldom runs takes long where it is emulated.
        let least = if built_before().is_some() { 990 } else { 995 };
        assert!(
            whole * 1000 >= all * least,
            "{what}: {whole} of {all} stacks are whole, not {:?}",
            broken.by_ref().take(20).collect::<Vec<_>>()
        );
    }

    /// Stacks of deep recursion, call by call.
    fn check_recursion(&self, what: &str) {
        let below =
            ["main.work.func3", "main.under.func1", "runtime/pprof.Do", "main.under", "main.work", "main.main.func1"];
        let is_deep = |place: &Place| place.function() == "main.deep";
        let (mut all, mut right, mut by_depth, mut wrong) = (0, 0, BTreeMap::new(), Vec::new());
        // Below the handler of its own profiler's signals what was interrupted is missing.
        let is_called = |seen: &&Seen| seen.has("main.deep") && !seen.has("[signal handler]");
        for seen in self.samples.iter().filter(is_called) {
            let calls: Vec<_> = seen.places().skip_while(|place| !is_deep(place)).collect();
            let depth = calls.iter().take_while(|place| is_deep(place)).count();
            all += seen.count;
            *by_depth.entry(depth).or_insert(0) += seen.count;
            // There is one place in it that calls it again.
            let places: BTreeSet<_> = calls[1..depth].iter().map(|place| (place.address, &place.lines)).collect();
            let rest: Vec<&str> = calls[depth..].iter().map(|place| place.function()).collect();
            if places.len() <= 1 && rest == below {
                right += seen.count;
            } else {
                wrong.push(seen.names());
            }
        }
        let at = |depth| by_depth.get(&depth).copied().unwrap_or(0);
        // The others are on the way down or up: few, but more where caches are cold, and where a stack grows, which takes an emulated machine long.
        assert!(at(100) > 0 && at(500) > 0 && (at(100) + at(500)) * 10 >= all * 7, "{what}: {by_depth:?}");
        // A stack that grows is copied by the scheduler's, on a stack of its own.
        assert!(right * 100 >= all * 99, "{what}: {right} of {all} are what was called, not {wrong:?}");
    }

    /// Every address has the functions, files and lines that the program's own runtime says; gives how many. Profiles that are sent have none of Go.
    fn check_places(&self, what: &str) -> String {
        if self.since == Since::Work {
            let places = self.samples.iter().flat_map(Seen::places).filter(|place| place.address == 0);
            let places: BTreeSet<_> = places.map(|place| &place.lines).collect();
            let inlined = places.iter().filter(|lines| lines.len() > 1).count();
            assert!(places.len() > 30 && inlined > 2, "{what}: {} places, {inlined} with inlined calls", places.len());
            return format!("{} places by line, {inlined} with inlined calls", places.len());
        }
        let mut ours = BTreeMap::new();
        // In a machine that was given its programs, the shell that starts them is a static one, and so lies where programs of Go do.
        let is_shell = |seen: &&Seen| built_before().is_some() && seen.places().all(|place| place.is_unknown());
        for seen in self.samples.iter().filter(|seen| !is_shell(seen)) {
            // Below what the runtime has its goroutines give way by, which is not called, as well as the leaf.
            let mut is_interrupted = true;
            for place in seen.places() {
                ours.entry((place.address, is_interrupted)).or_insert((place, seen));
                is_interrupted = place.function() == "runtime.asyncPreempt";
            }
        }
        let both = |(address, _): &(u64, bool)| [Address::Interrupted(*address), Address::Return(*address)];
        let addresses: Vec<Address> = ours.keys().flat_map(both).collect();
        let said = said_by(self.program, &self.own.main, &addresses);
        let (mut equal, mut inlined, mut unclear, mut callers) = (0, 0, 0, 0);
        for (((address, is_interrupted), (place, seen)), [interrupted, back]) in
            ours.iter().zip(said.as_chunks::<2>().0)
        {
            let (said, other) = if *is_interrupted { (interrupted, back) } else { (back, interrupted) };
            // Wrappers are left out, by which assembly calls Go: then the caller stands first.
            let is_caller = *is_interrupted && !said.is_of(&place.lines) && other.is_of(&place.lines);
            callers += i32::from(is_caller);
            let is_right = said.is_of(&place.lines) || is_caller;
            assert!(is_right, "{what}: {address:#x}: {:?}, not {said:?}, in {:?}", place.lines, seen.names());
            unclear += i32::from(*said == Said::Unclear);
            equal += i32::from(matches!(said, Said::Lines(_)));
            inlined += i32::from(matches!(said, Said::Lines(lines) if lines.len() > 1));
        }
        assert!(
            equal > 30 && inlined > 2 && unclear * 50 <= equal && callers < 3,
            "{what}: {equal} places, {inlined} with inlined calls, {unclear} not clear, {callers} callers first"
        );
        format!("{equal} places, {inlined} with inlined calls")
    }

    /// Places that its own profiler saw often were recorded.
    fn check_that_ours_has_theirs(&self, what: &str) {
        let ours: BTreeSet<&Lines> =
            self.samples.iter().flat_map(|seen| &seen.stack).map(|place| &place.lines).collect();
        // The runtime's own signal for goroutines that run for long comes together with that of its profiler.
        // Where it has called C is told by the call before, of `entersyscall`.
        let others = ["runtime.asyncPreempt", "runtime.cgocall"];
        let is_other = |lines: &Lines| lines.iter().any(|(name, ..)| others.contains(&name.as_str()));
        let theirs = theirs(&decode(&std::fs::read(self.program.file(".own")).unwrap()));
        let often = theirs.iter().filter(|(lines, count)| **count >= 4 && !is_other(lines));
        let missing: Vec<_> = often.filter(|(lines, _)| !ours.contains(*lines)).collect();
        assert!(missing.is_empty(), "{what}: its own profiler saw {missing:#?}");
    }
}

/// Samples of a process: of the only one, or of that with this number.
fn seen(set: &ProfileSet, own: &str) -> Vec<Seen> {
    let mut places = Places::of(set);
    let label = |sample: &Sample, key: &str| match set.dictionary.value_of(sample.attributes, key) {
        Some(Value::String(text)) => Some(text.to_string()),
        _ => None,
    };
    let is_own =
        |sample: &&Sample| set.dictionary.value_of(sample.attributes, "pid").is_none_or(|pid| pid.to_string() == own);
    let mut all = Vec::new();
    for profile in &set.profiles {
        assert!(profile.kind.is_cpu(&set.dictionary));
        for sample in profile.samples.iter().filter(is_own) {
            let nanos = sample.value as f64 * profile.kind.period as f64;
            let (endpoint, worker) = (label(sample, "endpoint"), label(sample, "worker"));
            all.push(Seen { nanos, count: sample.value, stack: places.stack(sample), endpoint, worker });
        }
    }
    all
}

/// All places of its own profile, with how often they were on a stack.
fn theirs(own: &ProfileSet) -> BTreeMap<Lines, i64> {
    let (mut places, mut theirs) = (Places::of(own), BTreeMap::new());
    for sample in &own.profiles[0].samples {
        for place in places.stack(sample) {
            *theirs.entry(place.lines.clone()).or_default() += sample.value;
        }
    }
    theirs
}
