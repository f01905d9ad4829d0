//! The heap where jemalloc has no hooks of samples: profiles are its own dumps.
//!
//! In: the program of `older`, on jemalloc 5.3.0, which is built when it is needed. Out: what lives, and what was allocated where jemalloc keeps count of it, by
//! function within the errors of sampling; that tags and spans are not known is said.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use profiler_proto::{Limits, ProfileSet, pprof};
use profiler_tests::fetch;
use profiler_tests::process::{Running, build, run};
use profiler_tests::statistics::STANDARD_ERRORS;
use serde_json::Value;

use crate::scenario::{LIMIT, clean, number, start, turn};

const TYPES: [&str; 4] = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];

/// A folder of its own to build in: in the other one, what both workspaces build would be built anew each time that they take turns.
const OPTIONS: [&str; 3] = ["--locked", "--target-dir", concat!(env!("CARGO_TARGET_TMPDIR"), "/older")];

/// The program. Its lock is its own: after a change of ours, `cargo update --workspace` in its folder brings it up to date.
fn older() -> &'static Path {
    static OLDER: OnceLock<PathBuf> = OnceLock::new();
    OLDER.get_or_init(|| built("as-it-is", &OPTIONS))
}

/// The same program, linked with a jemalloc that was built without profiling, as whoever builds it may have it. What does not stand on that one is built once for both, and what
/// does stays there beside the other, for the profile tells it apart.
fn unprofiled() -> &'static Path {
    static UNPROFILED: OnceLock<PathBuf> = OnceLock::new();
    UNPROFILED.get_or_init(|| {
        let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/unprofiled");
        let program = built_in("unprofiled", &["--locked", "--target-dir", folder]);
        let said = run(&mut Command::new(program), LIMIT).unwrap().lines;
        let linked = format!("env.JEMALLOC_OVERRIDE={:?}", said[0]);
        let apart = "profile.dev.package.tikv-jemalloc-sys.opt-level=1";
        built("unprofiled", &[&OPTIONS[..], &["--config", &linked, "--config", apart]].concat())
    })
}

/// Builds the program, and copies it to where the next one is not put in its place.
fn built(name: &str, options: &[&str]) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("older-{name}"));
    let program = built_in("older", options);
    // One that runs is not written to.
    drop(std::fs::remove_file(&copy));
    std::fs::copy(program, &copy).unwrap();
    copy
}

/// Builds what is in this folder.
fn built_in(folder: &str, options: &[&str]) -> PathBuf {
    let built = build(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), options).unwrap();
    built.into_iter().find(|path| path.ends_with(format!("profiler-{folder}"))).expect("cargo built no program")
}

/// Starts it with these options of jemalloc; and what it says first.
fn started(options: &str) -> (Running, Value, SocketAddr) {
    let mut command = Command::new(older());
    // One sample in a KiB, of so many blocks on each of four threads.
    command.args(["10", "94000"]).env_remove("MALLOC_CONF").env("_RJEM_MALLOC_CONF", options);
    clean(&mut command);
    let mut running = start(&mut command);
    let said = running.json().unwrap();
    let address = said["address"].as_str().unwrap().parse().unwrap();
    (running, said, address)
}

fn fetched(address: SocketAddr, path: &str) -> ProfileSet {
    let (status, body) = fetch::get(address, path, Duration::from_secs(60)).unwrap();
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    pprof::decode(&body, &Limits::default()).unwrap()
}

fn types(set: &ProfileSet) -> Vec<&str> {
    set.profiles.iter().map(|profile| set.dictionary.strings.text(profile.kind.sample_type.kind)).collect()
}

/// The four values of each function that is anywhere in a stack, and the functions at the leaves.
fn sums(set: &ProfileSet) -> (BTreeMap<String, [f64; 4]>, BTreeSet<String>) {
    let (mut sums, mut leaves) = (BTreeMap::<String, [f64; 4]>::new(), BTreeSet::new());
    let dictionary = &set.dictionary;
    for (profile, kind) in set.profiles.iter().zip(types(set)) {
        let place = TYPES.iter().position(|name| *name == kind).unwrap();
        for sample in &profile.samples {
            let stack = dictionary.stacks.get(sample.stack).unwrap();
            let lines = stack.locations.iter().flat_map(|id| &dictionary.locations.get(*id).unwrap().lines);
            let names =
                lines.map(|line| dictionary.strings.text(dictionary.functions.get(line.function).unwrap().name));
            let names: Vec<&str> = names.map(|name| name.rsplit("::").next().unwrap_or(name)).collect();
            leaves.extend(names.first().map(|name| (*name).to_owned()));
            for name in names.into_iter().collect::<BTreeSet<_>>() {
                sums.entry(name.to_owned()).or_default()[place] += sample.value as f64;
            }
        }
    }
    (sums, leaves)
}

/// Checks the estimates of these places: each within five standard errors of what jemalloc counts on average, which is within a sixteenth of
/// the truth for objects, and the truth for bytes.
#[track_caller]
fn assert_right(said: &Value, set: &ProfileSet, places: &Range<usize>) {
    let (sums, leaves) = sums(set);
    let rows = said["rows"].as_object().unwrap();
    assert_eq!(rows.len(), 4, "{said}");
    for (name, row) in rows {
        for (place, kind) in TYPES.iter().enumerate().take(places.end).skip(places.start) {
            let [truth, counted, error] = ["truth", "counted", "error"].map(|of| row[of][place].as_f64().unwrap());
            assert!(
                (counted - truth).abs() <= if place % 2 == 0 { truth / 16.0 } else { 0.0 },
                "{kind} of {name}: {row}"
            );
            let estimate = sums.get(name).unwrap_or_else(|| panic!("{name} is not in {sums:?}"))[place];
            // jemalloc writes whole numbers, of which the estimate is made.
            let bound = STANDARD_ERRORS * error + 1e-3 * counted;
            assert!((estimate - counted).abs() <= bound, "{kind} of {name}: {estimate}, not {counted} ± {bound}");
        }
    }
    let of_allocator = |leaf: &&String| leaf.contains("prof_") || leaf.contains("je_") || leaf.contains("malloc");
    assert_eq!(leaves.iter().find(of_allocator), None, "{leaves:?}");
}

/// Check that on a jemalloc without hooks what lives is right by function, that no frame of the allocator is shown, that nothing is left once all is freed,
/// and that the figures, the notes and the profile say what it is made of and what it lacks.
#[test]
fn dumps_say_what_lives() {
    let _turn = turn();
    let (mut running, said, address) = started("");
    let set = fetched(address, "/debug/pprof/heap");
    assert_eq!(types(&set), TYPES[2..]);
    assert_right(&said, &set, &(2..4));
    let comments = set.dictionary.value_of(set.profiles[0].attributes, "pprof.profile.comment").unwrap().to_string();
    assert!(comments.contains("jemalloc's own profile") && comments.contains("no tags"), "{comments}");
    assert_eq!(types(&fetched(address, "/debug/pprof/allocs")), TYPES[2..]);
    let stats = fetch::json(address, "/stats").unwrap();
    assert!(number(&stats, "/heap/dumps/read") >= 2 && number(&stats, "/heap/dumps/bytes") > 1000, "{stats}");
    assert_eq!((number(&stats, "/heap/dumps/failed"), number(&stats, "/heap/dumps/cut")), (0, 0), "{stats}");
    assert_eq!((&stats["heap"]["on"], &stats["heap"]["dumps"]["accumulated"]), (&true.into(), &false.into()));
    assert!(number(&stats, "/heap/live") > 10_000 && number(&stats, "/heap/allocator/allocated") > 0, "{stats}");
    let notes = stats["heap"]["notes"].to_string();
    assert!(notes.contains("without tags and spans") && notes.contains("prof_accum:true"), "{notes}");
    let choice = fetch::get(address, "/api/profile?type=alloc_space", Duration::from_secs(60)).unwrap();
    assert_eq!(choice.0, 400, "{}", String::from_utf8_lossy(&choice.1));
    running.say("free").unwrap();
    running.json().unwrap();
    let (left, _) = sums(&fetched(address, "/debug/pprof/heap"));
    let of_ours = said["rows"].as_object().unwrap().keys().find(|name| left.contains_key(*name));
    assert_eq!(of_ours, None, "{left:?}");
    running.say("end").unwrap();
    assert!(running.finish().unwrap().status.success());
}

/// Check that what was allocated is right, too, where jemalloc keeps count of it, beside what lives, and stays when all is freed.
#[test]
fn dumps_say_what_was_allocated_where_it_is_counted() {
    let _turn = turn();
    let (mut running, said, address) = started("prof_accum:true");
    let set = fetched(address, "/debug/pprof/heap");
    assert_eq!(types(&set), TYPES);
    assert_right(&said, &set, &(0..4));
    let stats = fetch::json(address, "/stats").unwrap();
    assert_eq!(stats["heap"]["dumps"]["accumulated"], true, "{stats}");
    running.say("free").unwrap();
    running.json().unwrap();
    let (before, after) = (sums(&set).0, sums(&fetched(address, "/debug/pprof/allocs")).0);
    for name in said["rows"].as_object().unwrap().keys() {
        assert_eq!(after[name], [before[name][0], before[name][1], 0.0, 0.0], "{name}");
    }
}

/// Check that what was allocated until another interval is set leaves before jemalloc forgets it, and that what lives is forgotten.
#[test]
fn another_interval_loses_nothing_of_what_was_allocated() {
    let _turn = turn();
    let (mut running, said, address) = started("prof_accum:true");
    // Names are known from here on, so that the next profile takes no time.
    fetched(address, "/debug/pprof/heap");
    running.say("interval").unwrap();
    running.json().unwrap();
    // Profiles that were sent before are summed up.
    assert_right(&said, &fetched(address, "/api/profile?type=alloc_space&format=pprof"), &(1..2));
    let (left, _) = sums(&fetched(address, "/debug/pprof/heap"));
    let of_ours = said["rows"].as_object().unwrap().keys().find(|name| left.contains_key(*name));
    assert_eq!(of_ours, None, "{left:?}");
    assert_eq!(number(&fetch::json(address, "/stats").unwrap(), "/heap/interval_bytes"), 2 << 10);
}

/// Check that of what was allocated before the start only what lives is shown, where jemalloc took samples and kept count before.
#[test]
fn what_was_allocated_counts_from_the_start_on() {
    let _turn = turn();
    let (_running, said, address) = started("prof_active:true,prof_accum:true,lg_prof_sample:10");
    let set = fetched(address, "/debug/pprof/allocs");
    assert_right(&said, &set, &(0..4));
    let early = sums(&set).0["early"];
    assert!(early[..2] == [0.0; 2] && early[2] > 500.0 && early[3] > 5e6, "{early:?}");
}

/// Check that a program whose jemalloc was built without profiling gets an error that says so, and what to change, whatever jemalloc is told in the environment.
#[test]
fn a_jemalloc_without_profiling_is_said() {
    let program = unprofiled();
    for options in ["", "prof:true"] {
        let mut command = Command::new(program);
        command.args(["10", "0"]).env_remove("MALLOC_CONF").env("_RJEM_MALLOC_CONF", options);
        clean(&mut command);
        let refusal = run(&mut command, LIMIT).unwrap().json().unwrap_err().to_string();
        assert!(refusal.contains("jemalloc was built without profiling"), "{refusal}");
        assert!(
            refusal.contains("its feature `profiling`") && refusal.contains("without JEMALLOC_OVERRIDE"),
            "{refusal}"
        );
    }
}
