//! Figures of the runtime as they are read from outside, beside what the program says itself by `runtime/metrics` and `runtime/debug`.

use std::time::{Duration, Instant};

use profiler_sidecar::capture::profile::{Builder, Window};
use profiler_sidecar::capture::{Bounds, RuntimeFigures, Source, Variables};

use crate::running::Running;
use crate::{is_torture, programs};

/// Check the oldest version that is known, a middle one and the newest, in three paces; `make torture` has each version.
#[test]
fn figures_are_those_of_the_program_itself() {
    let some = ["go1.21.13", "go1.24.13", "go1.27.0"];
    let versions = if is_torture() { &programs::VERSIONS[..] } else { &some[..] };
    for version in versions {
        let program = programs::build("parked", version, &["-ldflags=-s -w"], "amd64");
        let mut running = Running::start(&program, &[]);
        let source = Source::find(running.pid()).unwrap();
        let plain = equal(version, &mut running, &source);
        assert_eq!((plain.percent, plain.limit), (Some(100), None), "{version}");
        assert!(plain.goal.unwrap() > plain.live && plain.threads > 0, "{version}: {plain:?}");
        running.ask("tune", "tuned");
        let tuned = equal(version, &mut running, &source);
        assert_eq!((tuned.percent, tuned.limit, tuned.processors), (Some(50), Some(60 << 20), 3), "{version}");
        assert!(tuned.collections > plain.collections && tuned.paused > plain.paused, "{version}: {tuned:?}");
        // What half as much again as is live would be is beyond the limit.
        assert!(tuned.goal.unwrap() < tuned.live + tuned.live / 2, "{version}: {tuned:?}");
        running.ask("uncollected", "uncollected");
        let uncollected = equal(version, &mut running, &source);
        assert_eq!((uncollected.percent, uncollected.goal, uncollected.limit), (None, None, None), "{version}");
    }
}

/// Check that the goroutine that runs finalizers is shown while one waits in it or runs, and else is not, and that it never counts, as it does not for the program itself.
#[test]
fn a_finalizer_that_does_not_end_is_shown_and_does_not_count() {
    for version in ["go1.21.13", "go1.24.13", "go1.27.0"] {
        let program = programs::build("parked", version, &["-ldflags=-s -w"], "amd64");
        for form in ["waiting", "busy"] {
            let mut running = Running::start(&program, &[form]);
            let source = Source::find(running.pid()).unwrap();
            let before = equal(version, &mut running, &source).goroutines.unwrap();
            assert_eq!(shown(&source).1, before, "{version}, {form}");
            running.ask("finalize", "finalizes");
            let after = equal(version, &mut running, &source).goroutines.unwrap();
            assert_eq!((after, shown(&source).1), (before, before + 1), "{version}, {form}");
        }
    }
}

/// Check that without a variable there are no figures, rather than others.
#[test]
fn figures_that_cannot_be_found_are_refused() {
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &[]);
    let all = *Source::find(running.pid()).unwrap().variables();
    for variables in [
        Variables { pacer: None, ..all },
        Variables { collections: None, ..all },
        Variables { processors: None, ..all },
        Variables { pacer: Some(8), ..all },
    ] {
        let source = Source::find(running.pid()).unwrap().with_variables(variables);
        let told = source.figures().unwrap_err().to_string();
        assert!(told.contains("the figures of process") && told.contains("not where go1.24.13 keeps them"), "{told}");
    }
}

/// What is read between two answers of the program that are the same: memory is given back to the system in the background, and whoever asks
/// takes some.
fn equal(version: &str, running: &mut Running, source: &Source) -> RuntimeFigures {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let before = theirs(running);
        let ours = source.figures().unwrap();
        let goroutines = shown(source).0;
        if before == theirs(running) {
            let ours = RuntimeFigures { goroutines: Some(goroutines), ..ours };
            assert_eq!(RuntimeFigures { threads: 0, ..ours }, before, "{version}");
            return ours;
        }
        assert!(Instant::now() < until, "{version}: the program does not come to rest");
    }
}

/// How many goroutines there are said to be, and how many are shown.
fn shown(source: &Source) -> (u64, u64) {
    let all = source.goroutines(Bounds::default()).unwrap();
    let mut builder = Builder::new(source, profiler_proto::resource::Resource::new());
    let count = builder.goroutines(&all, Window { start_unix_nanos: 1, duration_nanos: 1 }).unwrap();
    let shown: i64 = builder.finish().profiles[0].samples.iter().map(|sample| sample.value).sum();
    (count, shown as u64)
}

/// What `figures` of `tests/go/parked` prints. Threads are the kernel's figure.
fn theirs(running: &mut Running) -> RuntimeFigures {
    let text = running.told("figures");
    let words: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
    let [cycles, live, goal, percent, limit, processors, total, released, allocated, count, paused, last, goroutines] =
        words[..]
    else {
        panic!("{text}");
    };
    assert_eq!(cycles, count);
    let limit = Some(limit).filter(|limit| *limit != i64::MAX as u64);
    // "If GC is disabled, then the value is math.MaxUint64."
    let percent = Some(percent).filter(|percent| *percent <= i32::MAX as u64);
    RuntimeFigures {
        collections: cycles,
        paused,
        last_pause: Some(last),
        live,
        // Without both, it is what no heap comes to.
        goal: Some(goal).filter(|_| limit.is_some() || percent.is_some()),
        allocated,
        used: total - released,
        limit,
        percent,
        processors,
        threads: 0,
        goroutines: Some(goroutines),
    }
}
