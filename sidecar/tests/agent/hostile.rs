//! The agent beside processes that make it hard (`hostile.c`): it goes on, in bounded memory, and says of others what is true.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;
use profiler_proto::model::Value;

use crate::http::get;
use crate::process::{Running, agent, go_program};
use crate::shares::Shares;
use crate::{DEADLINE, ENOUGH, assert_balanced, decode, folder, is_root, stats};

/// More than a debug build holds beside ordinary processes, many times less than what these could make it hold.
const MOST_RESIDENT: u64 = 400 << 20;

/// One at a time: each is a load of its own.
static ALONE: Mutex<()> = Mutex::new(());

/// Builds `hostile.c`; the function that is busy, the process and its thread have this name.
fn build(mode: &str) -> PathBuf {
    let program = folder(&format!("hostile-{mode}")).join(mode);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/hostile.c");
    let mut cc = Command::new("cc");
    // Both that become each other at the same address, so that names of one would do for the other.
    cc.args(["-O1", "-no-pie", "-fno-omit-frame-pointer"])
        .args([format!("-DMODE={mode}"), format!("-D{}", mode.to_uppercase())]);
    let built = cc.arg("-o").arg(&program).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

fn start(program: &Path, arguments: &[&Path]) -> Running {
    let running = Running::program(Command::new(program).args(arguments));
    running.address_after("ready");
    running
}

/// Names of functions, with how often, and the thread's name.
fn seen(set: &ProfileSet) -> Vec<(Vec<String>, String)> {
    let text = |id| set.dictionary.strings.text(id).to_owned();
    let samples = set.profiles.iter().flat_map(|profile| &profile.samples);
    let names = |sample: &profiler_proto::model::Sample| {
        let stack = set.dictionary.stacks.get(sample.stack).unwrap();
        let places = stack.locations.iter().map(|location| set.dictionary.locations.get(*location).unwrap());
        let lines = places.flat_map(|place| place.lines.iter());
        lines.map(|line| text(set.dictionary.functions.get(line.function).unwrap().name)).collect()
    };
    let thread =
        |sample: &profiler_proto::model::Sample| match set.dictionary.value_of(sample.attributes, "thread.name") {
            Some(Value::String(name)) => name.to_string(),
            _ => String::new(),
        };
    samples.map(|sample| (names(sample), thread(sample))).collect()
}

/// Check that beside all of them a Go program is profiled as it is built, pages answer, memory is bounded, the account is exact, and the agent ends
/// when it is told to; and that stacks that lead nowhere end.
#[test]
fn hostile_processes_do_no_harm_to_others() {
    if !is_root() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let go = go_program("shares");
    let hostile = ["forks", "maps", "frames"].map(|mode| start(&build(mode), &[]));
    let run = Running::agent(&mut agent(&["run", "--rate-hz", "499", "--interval", "1s"]));
    let page = run.address_after("http://");
    let (until, mut shares, mut early) = (Instant::now() + 3 * DEADLINE, Shares::default(), true);
    while shares.samples < ENOUGH {
        assert!(Instant::now() < until, "{shares:?} {}", run.log());
        let answer = get(&page, &format!("/debug/pprof/profile?seconds=2&pid={}", go.pid()));
        // In the first some may have been taken before the kernel side was told where labels are.
        match answer.status {
            200 if early => early = false,
            200 => shares.add(&decode(&answer.body)),
            _ => {}
        }
    }
    shares.assert_as_built(0.99);
    let named = |program: &Running, busy| is_named(&page, program.pid(), busy);
    assert!(named(&hostile[2], "spin"), "{}", run.log());
    // Its mappings take long to read; where the machine is too busy for the second that is given to it, that is said.
    let unanswered = || stats(&page)["stacks"]["unanswered"].as_u64().unwrap();
    assert!(named(&hostile[1], "maps") || unanswered() > 0, "{}", run.log());
    let status = std::fs::read_to_string(format!("/proc/{}/status", run.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim().trim_end_matches(" kB");
    assert!(resident.parse::<u64>().unwrap() << 10 < MOST_RESIDENT, "{resident} KiB");
    let stats = stats(&page);
    // Those that ended are no more known as living, but for some of the last sweep's.
    assert!(stats["processes"]["known"].as_u64().unwrap() < 2000, "{stats}");
    assert_balanced(&stats);
    drop(hostile);
    assert_eq!(run.end(), Some(0));
}

/// Whether samples of a process are in a function of this name.
fn is_named(page: &str, pid: u32, name: &str) -> bool {
    let until = Instant::now() + DEADLINE;
    while Instant::now() < until {
        let answer = get(page, &format!("/debug/pprof/profile?seconds=1&pid={pid}"));
        if answer.status == 200
            && seen(&decode(&answer.body)).iter().any(|(names, _)| names.iter().any(|own| own == name))
        {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Check that samples of a process that becomes another program again and again have the names of the one that ran, whenever they are looked at: the
/// thread's name, which the kernel changes with the program, says which it was.
#[test]
fn a_process_that_swaps_its_program_has_the_names_of_the_one_that_ran() {
    if !is_root() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (first, second) = (build("first"), build("second"));
    let swaps = start(&first, &[&second]);
    // The agent comes late with everything.
    let busy = build("busy");
    let _both = [start(&busy, &[]), start(&busy, &[])];
    let run = Running::agent(&mut agent(&["run", "--rate-hz", "499", "--interval", "1s"]));
    let page = run.address_after("http://");
    let (until, mut right, mut wrong) = (Instant::now() + DEADLINE, [0, 0], 0);
    while right.iter().any(|seen| *seen < 10) {
        assert!(Instant::now() < until, "{right:?} {wrong} {}", run.log());
        let answer = get(&page, &format!("/debug/pprof/profile?seconds=2&pid={}", swaps.pid()));
        if answer.status != 200 {
            continue;
        }
        for (names, thread) in seen(&decode(&answer.body)) {
            let other = match thread.as_str() {
                "first" => "second",
                "second" => "first",
                _ => continue,
            };
            wrong += usize::from(names.iter().any(|name| name == other));
            right[usize::from(thread == "second")] += usize::from(names.contains(&thread));
        }
    }
    assert_eq!(wrong, 0, "{right:?} right");
    drop(swaps);
    assert_eq!(run.end(), Some(0));
}
