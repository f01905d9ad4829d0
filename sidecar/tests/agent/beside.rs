//! One process that cannot be looked at, or gives no answer, beside others, which are profiled all the same; and what need not be there.

use std::process::Command;
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;

use crate::fuse::Disk;
use crate::http::get;
use crate::process::{Running, agent, go_program, go_program_with, quiet, said};
use crate::shares::Shares;
use crate::{DEADLINE, decode, folder, is_root, pretender, stats};

/// Asks for profiles of a process until there are so many samples of its functions.
fn sampled(run: &Running, page: &str, pid: u32, enough: i64) -> Shares {
    let (until, mut shares) = (Instant::now() + DEADLINE, Shares::default());
    while shares.samples < enough {
        assert!(Instant::now() < until, "{shares:?} {}", run.log());
        let answer = get(page, &format!("/debug/pprof/profile?seconds=1&pid={pid}"));
        if answer.status == 200 {
            shares.add(&decode(&answer.body));
        }
    }
    shares
}

/// Check that without tracefs, which containers hardly have, nothing is missing: a program that begins later is found at once.
#[test]
fn without_tracefs_nothing_is_missing() {
    if !is_root() {
        return;
    }
    let mut hidden = Command::new("unshare");
    let script =
        "for at in /sys/kernel/tracing /sys/kernel/debug; do mount -t tmpfs none $at; done; exec \"$0\" \"$@\"";
    hidden.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_profiler-sidecar")]);
    hidden.args(["run", "--rate-hz", "499", "--include", "*/shares"]);
    quiet(&mut hidden);
    let run = Running::agent(&mut hidden);
    let page = run.address_after("http://");
    assert!(run.log().contains("privilege `full`"), "{}", run.log());
    let program = go_program("shares");
    sampled(&run, &page, program.pid(), 50);
    assert!(stats(&page)["kernel"]["events"].as_u64().unwrap() > 0, "{}", stats(&page));
    assert_eq!(run.end(), Some(0));
}

/// Check that a process that is not ours to look at, of another user's, costs the others nothing, and that it is said which capability is missing for it.
#[test]
fn who_may_not_be_read_costs_others_nothing() {
    if !is_root() {
        return;
    }
    const GRANTED: [&str; 3] = ["--bounding-set=-all,+bpf,+perfmon,+syslog", "--inh-caps=-all", "--no-new-privs"];
    let ours = go_program("shares");
    // Without capabilities that the agent lacks.
    let program = std::fs::read_link(format!("/proc/{}/exe", ours.pid())).unwrap();
    drop(ours);
    let mut command = Command::new("setpriv");
    command.args(GRANTED).arg(&program);
    quiet(&mut command);
    let ours = Running::program(&mut command);
    ours.address_after("ready");
    let mut theirs = Command::new("setpriv");
    theirs.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", "echo started; while :; do :; done"]);
    let theirs = Running::program(&mut theirs);
    theirs.address_after("started");
    let mut command = Command::new("setpriv");
    command.args(GRANTED).arg(env!("CARGO_BIN_EXE_profiler-sidecar")).args(["run", "--rate-hz", "499"]);
    quiet(&mut command);
    let run = Running::agent(&mut command);
    let page = run.address_after("http://");
    sampled(&run, &page, ours.pid(), 50).assert_as_built(0.95);
    let answer = get(&page, &format!("/debug/pprof/profile?seconds=1&pid={}", theirs.pid()));
    assert_eq!(answer.status, 404, "{}", run.log());
    assert!(run.log().contains("CAP_SYS_PTRACE is missing"), "{}", run.log());
    let counts = stats(&page)["processes"].clone();
    assert!(
        counts["known"].as_u64() > counts["profiled"].as_u64() && counts["profiled"].as_u64() > Some(0),
        "{counts}"
    );
    assert_eq!(run.end(), Some(0));
}

/// Waits until these figures of captures have come so far.
fn until_captured(run: &Running, page: &str, wanted: &[(&str, u64)]) {
    let until = Instant::now() + DEADLINE;
    loop {
        let captures = stats(page)["captures"].clone();
        if wanted.iter().all(|(figure, least)| captures[*figure].as_u64() >= Some(*least)) {
            return;
        }
        assert!(Instant::now() < until, "{captures} {}", run.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// How many goroutines the page knows of a process; else its status.
fn goroutines(page: &str, pid: &str) -> Result<i64, u16> {
    let answer = get(page, &format!("/debug/pprof/goroutine?pid={pid}"));
    if answer.status != 200 {
        return Err(answer.status);
    }
    let set: ProfileSet = decode(&answer.body);
    Ok(set.profiles.iter().flat_map(|profile| &profile.samples).map(|sample| sample.value).sum())
}

/// Check that goroutines are served as the text that the command shows, equal ones together or each by itself.
#[test]
fn goroutines_are_served_as_text() {
    if !is_root() {
        return;
    }
    let program = go_program("parked");
    let pid = program.pid().to_string();
    let run = Running::agent(&mut agent(&["run", "--pid", &pid, "--runtime-interval", "off"]));
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    for (debug, each) in [("1", None), ("2", Some("--each"))] {
        // What the runtime's own do may differ from one moment to the next.
        loop {
            let served = get(&page, &format!("/debug/pprof/goroutine?debug={debug}"));
            let shown = said(agent(&["goroutines", &pid]).args(each));
            let served = (served.status, String::from_utf8(served.body).unwrap());
            if served == (200, shown.clone()) && shown.contains("chan receive") {
                break;
            }
            assert!(Instant::now() < until, "{served:?} {shown}");
        }
    }
    assert_eq!(run.end(), Some(0));
}

/// Check that a process whose runtime lies in memory that gives no answer is said to give none, and keeps nobody else from being captured.
#[test]
fn a_runtime_that_gives_no_answer_keeps_nobody_else_from_being_captured() {
    if !is_root() {
        return;
    }
    let place = folder("hanging");
    let Some(disk) = Disk::mount(&place, vec![0; 1 << 20]) else {
        return println!("NOT RUN: mounts are not permitted here");
    };
    let hanging = go_program_with("hangs", &[disk.file().to_str().unwrap()]);
    disk.hang(|_| true);
    let other = go_program("parked");
    let pids = [&hanging, &other].map(|program| program.pid().to_string());
    let run = Running::agent(&mut agent(&["run", "--runtime-interval", "1s", "--pid", &pids[0], "--pid", &pids[1]]));
    // Goes first, whatever happens: a thread that reads what does not answer cannot be ended.
    let disk = disk;
    let page = run.address_after("http://");
    until_captured(&run, &page, &[("sets", 5), ("without_answer", 1)]);
    assert_eq!(goroutines(&page, &pids[1]).map(|count| count >= 18), Ok(true));
    let log = run.log();
    let said = format!("too little CPU time for the sidecar?) pid={} ", pids[0]);
    assert_eq!(log.matches(&said).count(), 1, "{log}");
    disk.go_on();
    assert_eq!(run.end(), Some(0));
    drop(hanging);
    drop(disk);
    std::fs::remove_dir_all(place).unwrap();
}

/// Check that a program that pretends to be Go is refused in the log, once, and keeps nobody else from being captured.
#[test]
fn who_is_refused_keeps_nobody_else_from_being_captured() {
    if !is_root() {
        return;
    }
    let (place, other) = (folder("pretends"), go_program("parked"));
    let pretends = pretender::make(&std::fs::read_link(format!("/proc/{}/exe", other.pid())).unwrap(), &place);
    let mut sleeping = Command::new(&pretends).arg("600").spawn().unwrap();
    let pids = [sleeping.id(), other.pid()].map(|pid| pid.to_string());
    let run = Running::agent(&mut agent(&["run", "--runtime-interval", "1s", "--pid", &pids[0], "--pid", &pids[1]]));
    let page = run.address_after("http://");
    until_captured(&run, &page, &[("sets", 3), ("refused", 1)]);
    assert_eq!(goroutines(&page, &pids[1]).map(|count| count >= 18), Ok(true));
    assert!(goroutines(&page, &pids[0]).is_err());
    let log = run.log();
    let refused = format!("are not captured: the program of process {}: not built by Go", pids[0]);
    assert_eq!(log.matches(&refused).count(), 1, "{log}");
    assert_eq!(run.end(), Some(0));
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    std::fs::remove_dir_all(place).unwrap();
}
