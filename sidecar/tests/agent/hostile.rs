//! The agent beside processes that make it hard (`hostile.c`): it goes on, in bounded memory, and says of others what is true.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;
use profiler_proto::model::Value;

use crate::http::get;
use crate::map_count::Raised;
use crate::matrix::ALONE;
use crate::process::{Running, agent, go_program};
use crate::shares::Shares;
use crate::{DEADLINE, ENOUGH, assert_balanced, decode, folder, is_root, stats};

/// More than a debug build holds beside ordinary processes, many times less than what these could make it hold.
const MOST_RESIDENT: u64 = 400 << 20;

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
    started(Command::new(program).args(arguments))
}

fn started(command: &mut Command) -> Running {
    let running = Running::program(command);
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

/// Seconds in which a process makes a thousand others, each.
const SECONDS: usize = 10;
const FORKS: f64 = 1000.0;
/// Most mappings that the hostile one has.
const MAPPINGS: usize = 120_000;
const RATE_HZ: u64 = 499;

/// Check that beside all of them, for so many seconds of a thousand forks each, a Go program is profiled as it is built and nothing of its CPU time is missing but
/// what is counted, pages answer, memory is bounded, the account is exact, and the agent ends when it is told to; and that stacks that lead nowhere end.
#[test]
fn hostile_processes_do_no_harm_to_others() {
    if !is_root() {
        return;
    }
    // Thousands of forks a second are all told to whoever records: programs that count each tick under their labels are not beside them.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let raised = Raised::to(2 * MAPPINGS);
    let go = go_program("shares");
    let hostile = ["forks", "maps", "frames"].map(|mode| match mode {
        "forks" => started(Command::new("nice").args(["-n", "-10"]).arg(build(mode))),
        mode => start(&build(mode), &[]),
    });
    if raised.is_some() {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", hostile[1].pid())).unwrap();
        assert!(maps.lines().count() >= MAPPINGS, "{}", maps.lines().count());
    }
    let run = Running::agent(&mut agent(&["run", "--rate-hz", &RATE_HZ.to_string(), "--interval", "1s"]));
    let page = run.address_after("http://");
    let (until, mut shares, mut early) = (Instant::now() + 3 * DEADLINE, Shares::default(), true);
    let begun = forks(&hostile[0]).len();
    let before = Sampled::of(&page, go.pid());
    while shares.samples < ENOUGH || forks(&hostile[0])[begun..].iter().filter(|rate| **rate >= FORKS).count() < SECONDS
    {
        assert!(Instant::now() < until, "{shares:?} {:?} {}", &forks(&hostile[0])[begun..], run.log());
        let answer = get(&page, &format!("/debug/pprof/profile?seconds=2&pid={}", go.pid()));
        // In the first some may have been taken before the kernel side was told where labels are.
        match answer.status {
            200 if early => early = false,
            200 => shares.add(&decode(&answer.body)),
            _ => {}
        }
    }
    shares.assert_as_built(0.99);
    before.assert_complete(&page, go.pid());
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
    // Of the hostile one's mappings only so many are kept.
    let left_out = stats["stacks"]["mappings_left_out"].as_u64().unwrap();
    assert!(raised.is_none() || left_out > 0 || unanswered() > 0, "{stats}");
    assert_balanced(&stats);
    assert_all_sent_is_accounted_for(&page);
    eprintln!("forks a second: {:?}", &forks(&hostile[0])[begun..]);
    drop(hostile);
    assert_eq!(run.end(), Some(0));
}

/// How many processes it made a second, of each second until now.
fn forks(program: &Running) -> Vec<f64> {
    let log = program.log();
    let lines = log.lines().filter_map(|line| line.strip_prefix("forked ")?.split_once(" in "));
    lines.map(|(forks, seconds)| forks.parse::<f64>().unwrap() / seconds.parse::<f64>().unwrap()).collect()
}
/// What there is of a process at one moment.
#[derive(Debug)]
struct Sampled {
    stacks: f64,
    /// Ticks that were lost, whomever they hit.
    lost: f64,
    /// Seconds of CPU time that it used.
    used: f64,
}

impl Sampled {
    /// Of the process, once there are some.
    fn of(page: &str, pid: u32) -> Self {
        let until = Instant::now() + 3 * DEADLINE;
        loop {
            let stats = stats(page);
            if let Some(stacks) = stats[format!("stacks_{pid}")]["stacks"].as_f64() {
                let count = |path: &str| stats.pointer(path).and_then(serde_json::Value::as_f64).unwrap();
                let lost = ["/kernel/ring_full", "/stacks/gone"].map(count).iter().sum();
                // Source: proc_pid_stat(5), `utime` and `stime`, in hundredths of a second.
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                let ticks = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
                let used = ticks.map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum();
                return Self { stacks, lost, used };
            }
            assert!(Instant::now() < until, "{stats}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Checks that since then the CPU time is in samples, or in what is counted as lost. Five thousand samples are uncertain by four standard errors of 1.4 percent
    /// each; the rest is for what waits in the ring, and for what a hypervisor takes.
    fn assert_complete(&self, page: &str, pid: u32) {
        let now = Self::of(page, pid);
        let (due, stacks) = ((now.used - self.used) * RATE_HZ as f64, now.stacks - self.stacks);
        eprintln!(
            "{stacks} stacks of {due:.0} that were due, {} ticks were lost of all processes",
            now.lost - self.lost
        );
        assert!(stacks + now.lost - self.lost >= 0.9 * due, "{self:?}, then {now:?}");
    }
}

/// Checks that what the kernel side counted is what became of it, but for what is under way at the moment, of which there is little now and then.
fn assert_all_sent_is_accounted_for(page: &str) {
    let until = Instant::now() + DEADLINE;
    loop {
        let stats = stats(page);
        let sum = |section: &str, names: &[&str]| -> u64 {
            names.iter().map(|name| stats[section][*name].as_u64().unwrap()).sum()
        };
        let seen = sum("kernel", &["seen"]).checked_sub(sum("kernel", &["sent", "ring_full"]));
        let sent = sum("kernel", &["sent"]);
        let came = sent.checked_sub(sum("stacks", &["sampled", "left_out", "gone", "unreadable"]));
        if seen.is_some_and(|rest| rest < 16) && came.is_some_and(|rest| rest < RATE_HZ) {
            assert!(sent > 10 * RATE_HZ, "{stats}");
            return;
        }
        assert!(Instant::now() < until, "{seen:?} {came:?} {stats}");
    }
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
