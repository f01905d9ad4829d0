//! The agent's `record` against programs that know all of themselves (`tests/go/matrix`), by Go's versions and ways of linking: how much time they
//! used, where, under which labels, what called their leaves, and what their own profiler says of inlined calls, files and lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use profiler_proto::ProfileSet;
use profiler_proto::model::{Location, Profile, Sample, Value};

use crate::process::agent;
use crate::steal::undisturbed;
use crate::undivided::{ahead, pinned};
use crate::{decode, folder, is_root};

/// A tick a millisecond, and no round number.
const RATE_HZ: &str = "997";
/// CPU time under labels.
const MILLISECONDS: &str = "4000";
const OLDEST: &str = "go1.21.13";
const NEWEST: &str = "go1.27.0";
const OTHERS: [&str; 5] = ["go1.22.12", "go1.23.12", "go1.24.13", "go1.25.11", "go1.26.8"];

/// How a program is built.
#[derive(Debug, Clone, Copy)]
enum Form {
    Normal,
    Stripped,
    Pie,
    Cgo,
    Trimmed,
}

const FORMS: [Form; 5] = [Form::Normal, Form::Stripped, Form::Pie, Form::Cgo, Form::Trimmed];

impl Form {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Normal => &[],
            Self::Stripped => &["-ldflags=-s -w"],
            Self::Pie => &["-buildmode=pie"],
            Self::Cgo => &["-tags=withc"],
            Self::Trimmed => &["-trimpath"],
        }
    }
}

/// Check what `record` says of programs: two in each run, all in `make torture`.
#[test]
fn programs_are_recorded_as_they_know_themselves() {
    if !is_root() {
        return;
    }
    let all = std::env::var_os("TORTURE_SECONDS").is_some();
    let versions = [OLDEST, NEWEST].into_iter().chain(OTHERS.into_iter().filter(|_| all));
    let wanted = versions.flat_map(|version| FORMS.map(|form| (version, form)));
    let few =
        |(version, form): &(&str, Form)| matches!((*version, form), (OLDEST, Form::Cgo) | (NEWEST, Form::Stripped));
    for (version, form) in wanted.filter(|one| all || few(one)) {
        let program = build(version, form);
        let recorded = undisturbed(|| Recorded::of(&program));
        eprintln!("{version} {form:?}: {}", recorded.summary());
        recorded.check(form, &format!("{version} {form:?}"));
    }
}

fn build(version: &str, form: Form) -> PathBuf {
    let program = folder(&format!("matrix-{version}-{form:?}")).join("matrix");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/matrix");
    let mut go = Command::new("go");
    go.current_dir(source).env("GOTOOLCHAIN", version).env("GOFLAGS", "-mod=mod -buildvcs=false");
    go.env("CGO_ENABLED", if matches!(form, Form::Cgo) { "1" } else { "0" });
    let built = go.arg("build").args(form.arguments()).arg("-o").arg(&program).arg(".").output();
    let built = built.expect("go: run `make setup`");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// Functions of a place, innermost first: name, file, line.
type Lines = Vec<(String, String, u32)>;

/// What a program said, and what was recorded of it.
struct Recorded {
    used_nanos: f64,
    /// By label.
    spent_nanos: BTreeMap<String, f64>,
    theirs: BTreeMap<Lines, i64>,
    ours: BTreeSet<Lines>,
    all_nanos: f64,
    samples: Vec<Seen>,
}

/// A sample.
struct Seen {
    nanos: f64,
    count: i64,
    /// Leaf first.
    names: Vec<String>,
    endpoint: Option<String>,
    has_worker: bool,
}

impl Recorded {
    fn of(program: &Path) -> Self {
        let (output, file) = (program.with_extension("pb.gz"), program.with_extension("own"));
        let mut record = agent(&["record", "--rate-hz", RATE_HZ, "-o"]);
        let mut command = Command::new(program);
        let command = pinned(command.arg(&file).arg(MILLISECONDS));
        record.arg(&output).arg("-c").arg(command.get_program()).args(command.get_args());
        // Both before all others: the program is found before it sets labels, however busy the machine is.
        let ran = ahead(&record).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let set = decode(&std::fs::read(&output).unwrap());
        let profile = set.profiles.iter().find(|profile| profile.kind.is_cpu(&set.dictionary)).unwrap();
        let period = profile.kind.period as f64;
        let (mut used_nanos, mut spent_nanos) = (0.0, BTreeMap::new());
        // In order: what was used before it began was not of this program, and was not recorded.
        for line in String::from_utf8(ran.stdout).unwrap().lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["began", nanos] => used_nanos -= nanos.parse::<f64>().unwrap(),
                ["used", nanos] => used_nanos += nanos.parse::<f64>().unwrap(),
                ["spent", label, nanos] => _ = spent_nanos.insert(label.to_owned(), nanos.parse().unwrap()),
                _ => panic!("{line}"),
            }
        }
        let own = decode(&std::fs::read(&file).unwrap());
        Self {
            used_nanos,
            spent_nanos,
            theirs: places(&own, &own.profiles[0]),
            ours: places(&set, profile).into_keys().collect(),
            all_nanos: profile.samples.iter().map(|sample| sample.value as f64 * period).sum(),
            samples: profile.samples.iter().map(|sample| seen(&set, sample, period)).collect(),
        }
    }

    fn summary(&self) -> String {
        let labelled = self.samples.iter().filter(|seen| seen.endpoint.is_some()).map(|seen| seen.count).sum::<i64>();
        format!("{:.4} of its CPU time, {labelled} samples with labels", self.all_nanos / self.used_nanos)
    }

    fn check(&self, form: Form, what: &str) {
        let complete = self.all_nanos / self.used_nanos;
        assert!((0.98..=1.02).contains(&complete), "{what}: {complete:.4} of its CPU time");
        self.check_labels(what);
        self.check_stacks(form, what);
        // The runtime's own signal for goroutines that run for long comes together with that of its profiler.
        let preempted = |lines: &Lines| lines.iter().any(|(name, ..)| name == "runtime.asyncPreempt");
        let often = self.theirs.iter().filter(|(lines, count)| **count >= 4 && !preempted(lines));
        let missing: Vec<_> = often.filter(|(lines, _)| !self.ours.contains(*lines)).collect();
        assert!(missing.is_empty(), "{what}: its own profiler saw {missing:#?}");
    }

    /// Time by label is what the program measured, within four standard errors; labels are on all samples taken under them.
    fn check_labels(&self, what: &str) {
        let total: f64 = self.spent_nanos.values().sum();
        let counted: i64 = self.samples.iter().filter(|seen| seen.endpoint.is_some()).map(|seen| seen.count).sum();
        let sampled: f64 =
            self.spent_nanos.keys().flat_map(|endpoint| self.under(endpoint)).map(|seen| seen.nanos).sum();
        for (endpoint, spent) in &self.spent_nanos {
            let (share, truth) = (self.under(endpoint).map(|seen| seen.nanos).sum::<f64>() / sampled, spent / total);
            let error = (truth * (1.0 - truth) / counted as f64).sqrt();
            assert!(
                (share - truth).abs() <= 4.0 * error,
                "{what}: {endpoint} {share:.4}, it was {truth:.4} ± {error:.4}"
            );
        }
        for (function, endpoint) in [("main.heavy", "/heavy"), ("main.light", "/light"), ("main.deep", "/deep")] {
            let of = || self.samples.iter().filter(move |seen| seen.names.iter().any(|name| name == function));
            let all: i64 = of().map(|seen| seen.count).sum();
            let right = of().filter(|seen| seen.endpoint.as_deref() == Some(endpoint) && seen.has_worker);
            let (right, other) = (
                right.map(|seen| seen.count).sum::<i64>(),
                of().find(|seen| seen.endpoint.as_deref().is_some_and(|label| label != endpoint)),
            );
            assert!(other.is_none(), "{what}: {function} under a label of another");
            assert!(
                all > 0 && (all - right) * 1000 <= all,
                "{what}: {right} of {all} samples of {function} have its labels"
            );
        }
    }

    fn under<'a>(&'a self, endpoint: &'a str) -> impl Iterator<Item = &'a Seen> {
        self.samples.iter().filter(move |seen| seen.endpoint.as_deref() == Some(endpoint))
    }

    /// Callers of leaves without a frame, and the depth of stacks.
    fn check_stacks(&self, form: Form, what: &str) {
        for seen in self.samples.iter().filter(|seen| seen.names.first().is_some_and(|name| name == "main.leaf")) {
            assert_eq!(seen.names[1], "main.deep", "{what}: {:?}", seen.names);
        }
        let depth = |seen: &Seen| seen.names.iter().filter(|name| *name == "main.deep").count();
        let count = |of: &dyn Fn(&&Seen) -> bool| self.samples.iter().filter(of).map(|seen| seen.count).sum::<i64>();
        let (deep, known) = (count(&|seen| depth(seen) > 0), count(&|seen| [100, 500].contains(&depth(seen))));
        // The others are on the way down or up.
        assert!(deep > 20 && known * 100 >= deep * 95, "{what}: {known} of {deep} are 100 or 500 calls deep");
        let worked = |seen: &Seen| seen.endpoint.is_some() && !(matches!(form, Form::Cgo) && is_in_c(seen));
        let whole =
            |seen: &Seen| ["main.under", "main.work"].iter().all(|name| seen.names.iter().any(|own| own == name));
        let (all, whole) = (count(&|seen| worked(seen)), count(&|seen| worked(seen) && whole(seen)));
        assert!(whole * 1000 >= all * 995, "{what}: {whole} of {all} stacks are whole");
    }
}

/// Whether a sample was taken in C, whose compiler leaves out frame pointers unless it is told not to.
fn is_in_c(seen: &Seen) -> bool {
    seen.endpoint.as_deref() == Some("/c")
}

fn seen(set: &ProfileSet, sample: &Sample, period: f64) -> Seen {
    let names = locations(set, sample).flat_map(|location| lines(set, location)).map(|(name, ..)| name).collect();
    let label = |key: &str| match set.dictionary.value_of(sample.attributes, key) {
        Some(Value::String(text)) => Some(text.to_string()),
        _ => None,
    };
    let (endpoint, has_worker) = (label("endpoint"), label("worker").is_some());
    Seen { nanos: sample.value as f64 * period, count: sample.value, names, endpoint, has_worker }
}

/// All places with source lines, with how often they were on a stack; but for those taken in C: Go knows who called it, frame pointers do not.
fn places(set: &ProfileSet, profile: &Profile) -> BTreeMap<Lines, i64> {
    let mut places = BTreeMap::new();
    let in_c = |sample: &&Sample| matches!(set.dictionary.value_of(sample.attributes, "endpoint"), Some(Value::String(label)) if **label == *"/c");
    for sample in profile.samples.iter().filter(|sample| !in_c(sample)) {
        for location in locations(set, sample) {
            *places.entry(lines(set, location)).or_default() += sample.value;
        }
    }
    places
}

fn locations<'a>(set: &'a ProfileSet, sample: &Sample) -> impl Iterator<Item = &'a Location> {
    let stack = set.dictionary.stacks.get(sample.stack).unwrap();
    stack.locations.iter().map(|location| set.dictionary.locations.get(*location).unwrap())
}

fn lines(set: &ProfileSet, location: &Location) -> Lines {
    let text = |id| set.dictionary.strings.text(id).to_owned();
    let line = |line: &profiler_proto::model::Line| {
        let function = set.dictionary.functions.get(line.function).unwrap();
        (text(function.name), text(function.filename), line.line)
    };
    location.lines.iter().map(line).collect()
}
