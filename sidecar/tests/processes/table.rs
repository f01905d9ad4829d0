//! The table of processes: what each is, and that it is noticed when it becomes something else.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_proto::model::Value;
use profiler_sidecar::discover::{Candidate, Event, Kind, Options, Table, Target, WhyNot};
use profiler_sidecar::target::Process;

use crate::fuse::Disk;
use crate::subject::{BUILT_ALREADY, Subject, copy_of, folder, go_program, until};

/// However slow the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

fn table() -> Table {
    Table::new(Options { patience: PATIENCE, ..Options::default() })
}

fn visit(table: &mut Table, pid: u32) -> Arc<Target> {
    table.visit(pid, Instant::now()).expect("it lives")
}

/// A whole round of sweeps, by parts.
fn sweep(table: &mut Table) -> Vec<Process> {
    let mut ended = Vec::new();
    loop {
        let part = table.sweep(16, Instant::now());
        ended.extend(part.ended);
        if part.is_whole {
            return ended;
        }
    }
}

fn text<'a>(target: &'a Target, key: &str) -> Option<&'a str> {
    target.resource.get(key).and_then(Value::as_str)
}

/// Check what is found out of a Go program: version, name, resource by its variables.
#[test]
fn a_go_program_is_known_by_version_and_variables() {
    let mut command = Command::new(go_program());
    command.env("OTEL_SERVICE_NAME", "inventory");
    command.env(
        "OTEL_RESOURCE_ATTRIBUTES",
        "service.version=1.2%2B3,deployment.environment.name=prod,team=a%20b,broken,service.name=no",
    );
    command.env("K8S_POD_NAME", "shop-7").env("SECRET", "hunter2");
    let subject = Subject::start(command.arg("hunter2"));
    let target = visit(&mut table(), subject.pid());
    let Kind::Go(version) = &target.kind else { panic!("{target:?}") };
    assert!(version.starts_with("go1."), "{version}");
    assert_eq!((target.service.as_str(), &target.profiled), ("inventory", &Ok(())));
    let of = |key| text(&target, key);
    assert_eq!(
        (of("service.name"), of("service.version"), of("deployment.environment.name")),
        (Some("inventory"), Some("1.2+3"), Some("prod"))
    );
    assert_eq!(
        (of("team"), of("k8s.pod.name"), of("process.executable.name")),
        (Some("a b"), Some("shop-7"), Some("subject"))
    );
    assert_eq!((of("process.runtime.name"), of("process.runtime.version")), (Some("go"), Some(version.as_str())));
    assert_eq!(target.resource.get("process.pid"), Some(&Value::Int(i64::from(subject.pid()))));
    assert!(!format!("{target:?}").contains("hunter2"));
    assert!(target.resource.attributes().len() <= 18);
}

/// Check that programs that are not Go are native ones, named by their file, and we ourselves are left out.
#[test]
fn others_are_native_and_we_are_left_out() {
    let copy = copy_of("/bin/cat", "native", "renamed");
    let subject = Subject::start(
        Command::new("sh")
            .args(["-c", "echo ready; exec \"$0\"", copy.to_str().unwrap()])
            .env_remove("OTEL_SERVICE_NAME"),
    );
    let mut table = table();
    let target = until("exec", || {
        table.told(Event::Exec { pid: subject.pid() });
        Some(visit(&mut table, subject.pid())).filter(|target| target.exe.name() == "renamed")
    });
    assert_eq!((&target.kind, target.service.as_str(), &target.profiled), (&Kind::Native, "renamed", &Ok(())));
    let own = visit(&mut table, std::process::id());
    assert_eq!(own.profiled, Err(WhyNot::Ourselves));
}

/// Check that a process that becomes another program is looked at anew, told by an event or by a sweep alone.
#[test]
fn another_program_is_noticed_by_event_and_by_sweep() {
    // One moment for all, so that the process's own time to be looked at again does not come.
    let now = Instant::now();
    let visit = |table: &mut Table, pid| table.visit(pid, now).unwrap();
    for is_told in [true, false] {
        let mut table = table();
        let mut subject = Subject::go(&["exec", "/bin/cat"]);
        let before = visit(&mut table, subject.pid());
        assert!(matches!(before.kind, Kind::Go(_)));
        subject.tell("go on");
        let comm = format!("/proc/{}/comm", subject.pid());
        until("exec", || Some(()).filter(|()| std::fs::read_to_string(&comm).unwrap() == "cat\n"));
        assert!(Arc::ptr_eq(&before, &visit(&mut table, subject.pid())), "nobody told, and nobody looked");
        if is_told {
            table.told(Event::Exec { pid: subject.pid() });
        } else {
            sweep(&mut table);
        }
        let after = visit(&mut table, subject.pid());
        assert_eq!((&after.kind, after.service.as_str(), after.process), (&Kind::Native, "cat", before.process));
        sweep(&mut table);
        assert!(Arc::ptr_eq(&after, &visit(&mut table, subject.pid())), "what did not change is the same");
    }
}

/// Check that who hears of every exec looks at a process that says nothing in one round of five, or when something was not heard; and at those that
/// are new, or gone, in each.
#[test]
fn what_would_be_told_is_looked_at_seldom() {
    // One moment for all, so that the process's own time to be looked at again does not come.
    let now = Instant::now();
    let round = |table: &mut Table| {
        let mut ended = Vec::new();
        loop {
            let part = table.sweep(16, now);
            ended.extend(part.ended.iter().map(Process::pid));
            if part.is_whole {
                return ended;
            }
        }
    };
    let mut subject = Subject::go(&["exec", "/bin/cat"]);
    let mut tables = [table(), table()];
    for table in &mut tables {
        table.hears_all();
        round(table);
    }
    let before = tables.each_mut().map(|table| table.visit(subject.pid(), now).unwrap());
    subject.tell("go on");
    let comm = format!("/proc/{}/comm", subject.pid());
    until("exec", || Some(()).filter(|()| std::fs::read_to_string(&comm).unwrap() == "cat\n"));
    let [mut table, mut doubtful] = tables;
    let is_noticed = |table: &mut Table, before: &Arc<Target>| {
        round(table);
        !Arc::ptr_eq(before, &table.visit(subject.pid(), now).unwrap())
    };
    assert_eq!([(); 5].map(|()| is_noticed(&mut table, &before[0])), [false, false, false, false, true]);
    doubtful.doubt();
    doubtful.sweep(2, now);
    // A doubt in the midst of a round takes nothing from it.
    doubtful.doubt();
    assert!(is_noticed(&mut doubtful, &before[1]));
    let new = Subject::go(&[]);
    round(&mut table);
    let pid = new.pid();
    assert!(table.targets().iter().any(|target| target.process.pid() == pid));
    new.end();
    assert!(round(&mut table).contains(&pid));
}

/// Check that a process that ended is still known to its last samples, is said to have ended once, and is no longer listed.
#[test]
fn the_ended_are_known_to_their_last_samples() {
    let mut table = table();
    let subject = Subject::go(&[]);
    let pid = subject.pid();
    sweep(&mut table);
    let target = visit(&mut table, pid);
    subject.end();
    let ended: Vec<_> = sweep(&mut table).into_iter().filter(|process| process.pid() == pid).collect();
    assert_eq!(ended, [target.process]);
    assert!(!sweep(&mut table).contains(&target.process));
    assert!(Arc::ptr_eq(&target, &visit(&mut table, pid)));
    assert!(table.targets().iter().all(|target| target.process.pid() != pid));
    let told = Subject::go(&[]);
    let target = visit(&mut table, told.pid());
    table.told(Event::Exit { pid: told.pid() });
    assert!(Arc::ptr_eq(&target, &visit(&mut table, told.pid())));
}

/// Check that a process that a sample finds gone, of whose end nobody was told, is said to have ended, once.
#[test]
fn an_end_that_a_sample_finds_is_told() {
    let mut table = table();
    let subject = Subject::go(&[]);
    let pid = subject.pid();
    sweep(&mut table);
    let target = visit(&mut table, pid);
    subject.end();
    // Behind the shortest time between two looks.
    let later = Instant::now() + Duration::from_secs(60);
    assert!(table.refresh(pid, later).is_some_and(|known| Arc::ptr_eq(&known, &target)));
    assert!(table.targets().iter().all(|known| known.process != target.process));
    assert!(sweep(&mut table).contains(&target.process));
    assert!(!sweep(&mut table).contains(&target.process));
}

/// Check that who became another program, or is another process of the same number, and ended before anybody looked, is not taken for what it was before.
#[test]
fn what_was_before_is_not_what_ended_unseen() {
    for event in [|pid| Event::Exec { pid }, |pid| Event::Fork { parent: 1, child: pid }] {
        let mut table = table();
        let subject = Subject::go(&[]);
        let pid = subject.pid();
        visit(&mut table, pid);
        table.told(event(pid));
        subject.end();
        assert!(table.visit(pid, Instant::now()).is_none());
    }
}

/// Check that what the settings leave out carries their words, and that there is no end to what is left out.
#[test]
fn the_settings_are_asked() {
    let options = Options {
        choose: Box::new(|candidate| {
            if candidate.exe.ends_with("/subject") && candidate.service == "a" { Ok(()) } else { Err("not you".into()) }
        }),
        ..Options::default()
    };
    let mut table = Table::new(options);
    let [a, b] = ["a", "b"].map(|name| Subject::start(Command::new(go_program()).env("OTEL_SERVICE_NAME", name)));
    assert_eq!(visit(&mut table, a.pid()).profiled, Ok(()));
    assert_eq!(visit(&mut table, b.pid()).profiled, Err(WhyNot::NotChosen("not you".into())));
}

/// Check that a thousand processes, one after the other, leave no more behind than there is room for, and that with no room those that
/// live stay.
#[test]
fn a_thousand_short_lives_leave_no_trace() {
    let mut table = Table::new(Options { most: 16, patience: PATIENCE, ..Options::default() });
    let subject = Subject::go(&[]);
    let target = visit(&mut table, subject.pid());
    for _ in 0..1000 {
        let mut child = Command::new("/bin/true").spawn().unwrap();
        table.told(Event::Fork { parent: std::process::id(), child: child.id() });
        table.told(Event::Exec { pid: child.id() });
        let _ = table.visit(child.id(), Instant::now());
        child.wait().unwrap();
        table.told(Event::Exit { pid: child.id() });
    }
    assert!(Arc::ptr_eq(&target, &visit(&mut table, subject.pid())));
    assert!(table.targets().len() <= 16);
    assert_eq!(table.counters().untold, 0, "{:?}", table.counters());
    sweep(&mut table);
    assert!(table.targets().iter().any(|other| other.process == target.process));
}

/// Check that where all places are taken, one that is sampled has that of one that is not to be profiled, but of none that is; and that a sweep alone gives no place away.
#[test]
fn one_that_is_sampled_has_the_place_of_one_that_is_left_out() {
    let choose = |candidate: &Candidate<'_>| {
        if candidate.service.starts_with("chosen") { Ok(()) } else { Err("not you".to_owned()) }
    };
    let mut table = Table::new(Options { most: 4, patience: PATIENCE, choose: Box::new(choose), ..Options::default() });
    let start = |name: &str| Subject::start(Command::new(go_program()).env("OTEL_SERVICE_NAME", name));
    let others: Vec<Subject> = (0..4).map(|_| start("other")).collect();
    others.iter().for_each(|other| assert!(visit(&mut table, other.pid()).profiled.is_err()));
    let chosen: Vec<Subject> = (0..5).map(|number| start(&format!("chosen-{number}"))).collect();
    let now = Instant::now();
    chosen[..4].iter().for_each(|one| table.told(Event::Exec { pid: one.pid() }));
    table.sweep(100, now);
    assert!(chosen[..4].iter().all(|one| !table.targets().iter().any(|target| target.process.pid() == one.pid())));
    assert!(table.counters().crowded >= 4, "{:?}", table.counters());
    chosen[..4].iter().for_each(|one| assert_eq!(visit(&mut table, one.pid()).profiled, Ok(())));
    assert!(table.visit(chosen[4].pid(), now).is_none());
}

/// Says that this run is the inner one, in a pid namespace of its own.
const INSIDE: &str = "PROFILER_TEST_INSIDE";

/// Runs one of these tests again in a pid namespace of its own with a `/proc` of its own, as in a pod; `false`: that is not permitted here.
fn again_in_a_namespace(test: &str) -> bool {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--mount", "--fork", "--mount-proc"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        return false;
    }
    let mut inner = unshare();
    inner.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    inner.env(INSIDE, "1").env(BUILT_ALREADY, go_program());
    assert!(inner.status().unwrap().success(), "{test} in a pid namespace");
    true
}

/// Check that a later process with a number that was used before is another one, whether its birth is told, a sweep finds it, or nothing but its sample, and that the earlier one is
/// said to have ended. Needs root, and a kernel that lets numbers be chosen.
#[test]
fn a_number_that_is_used_again_is_another_process() {
    const NEXT: &str = "/proc/sys/kernel/ns_last_pid";
    if std::env::var_os(INSIDE).is_none() {
        if !again_in_a_namespace("table::a_number_that_is_used_again_is_another_process") {
            println!("left out: namespaces are not permitted here");
        }
        return;
    }
    for found_by in ["event", "sweep", "sample"] {
        let first = Subject::start(Command::new(go_program()).env("OTEL_SERVICE_NAME", "first"));
        let mut table = table();
        sweep(&mut table);
        let before = visit(&mut table, first.pid());
        assert_eq!(before.service, "first");
        let pid = first.pid();
        first.end();
        // Until it is in another tick of the clock that starts are told by.
        let second = until("a process of the same number", || {
            if let Err(error) = std::fs::write(NEXT, (pid - 1).to_string()) {
                println!("left out: {NEXT}: {error}");
                return Some(None);
            }
            let second = Subject::start(Command::new(go_program()).env("OTEL_SERVICE_NAME", "second"));
            let is_other = second.pid() == pid && Process::find(pid).unwrap() != before.process;
            is_other.then_some(Some(second))
        });
        let Some(second) = second else { return };
        let mut now = Instant::now();
        match found_by {
            "event" => table.told(Event::Fork { parent: 1, child: pid }),
            "sweep" => assert!(sweep(&mut table).contains(&before.process)),
            _ => {
                table.told(Event::Exit { pid });
                now += Duration::from_secs(60);
            }
        }
        let after = table.visit(second.pid(), now).unwrap();
        assert_eq!((after.service.as_str(), after.process.pid()), ("second", pid));
        assert!(before.process.mappings().unwrap_err().is_gone());
    }
}

/// Check that in a pid namespace of its own, as in a pod, the table has its processes by its numbers, and no other.
#[test]
fn nothing_outside_of_the_pod_is_seen() {
    if std::env::var_os(INSIDE).is_none() {
        if !again_in_a_namespace("table::nothing_outside_of_the_pod_is_seen") {
            println!("left out: namespaces are not permitted here");
        }
        return;
    }
    let subject = Subject::go(&[]);
    let mut table = table();
    sweep(&mut table);
    let pids: Vec<_> = table.targets().iter().map(|target| target.process.pid()).collect();
    assert_eq!(pids, [std::process::id(), subject.pid()]);
}

/// Check that a process whose memory never answers costs one thread, is said to give no answer, keeps no other from being known, and that the thread
/// is back when the process is gone.
#[test]
fn who_gives_no_answer_is_left_alone() {
    let hangs = Subject::go(&["hang"]);
    let mut table = Table::new(Options { patience: Duration::from_secs(1), ..Options::default() });
    let target = visit(&mut table, hangs.pid());
    assert_eq!((&target.profiled, table.away()), (&Err(WhyNot::NoAnswer), 1));
    for _ in 0..20 {
        table.told(Event::Exec { pid: hangs.pid() });
        assert_eq!(visit(&mut table, hangs.pid()).profiled, Err(WhyNot::NoAnswer));
    }
    // Other tests of this program look at all processes, so its threads tell nothing.
    assert_eq!(table.away(), 1, "one thread waits, however often it was asked for");
    let other = Subject::go(&[]);
    until("a look at another", || {
        table.told(Event::Exec { pid: other.pid() });
        Some(()).filter(|()| visit(&mut table, other.pid()).profiled.is_ok())
    });
    assert!(table.away() >= 1);
    hangs.end();
    until("the end of the look", || Some(()).filter(|()| table.away() == 0));
}

/// Check that programs on a disk that hangs cost one thread in all, lose themselves alone, and are known once it answers.
#[test]
fn programs_on_a_disk_that_hangs_lose_themselves_alone() {
    let Some(disk) = Disk::mount(&folder("disk"), std::fs::read(go_program()).unwrap()) else {
        return println!("left out: mounts are not permitted here");
    };
    let subjects = [(); 12].map(|()| Subject::start(&mut Command::new(disk.file())));
    disk.hang(|_| true);
    let mut table = Table::new(Options { patience: Duration::from_secs(1), ..Options::default() });
    for subject in &subjects {
        assert_eq!(visit(&mut table, subject.pid()).profiled, Err(WhyNot::NoAnswer));
    }
    assert_eq!(table.away(), 1);
    let other = Subject::go(&[]);
    until("a look at another", || {
        table.told(Event::Exec { pid: other.pid() });
        Some(()).filter(|()| visit(&mut table, other.pid()).profiled.is_ok())
    });
    disk.go_on();
    for subject in &subjects {
        until("a look at one of the disk", || {
            table.told(Event::Exec { pid: subject.pid() });
            Some(()).filter(|()| visit(&mut table, subject.pid()).profiled.is_ok())
        });
    }
    // One that is known and still runs its program stays what it is, whoever keeps the disk busy when it is looked at again.
    disk.hang(|_| true);
    let known = &subjects[0];
    until("a look at a known one, without an answer", || {
        let target = table.refresh(known.pid(), Instant::now()).unwrap();
        assert_eq!(target.profiled, Ok(()));
        Some(()).filter(|()| table.away() == 1)
    });
    assert_eq!(visit(&mut table, known.pid()).profiled, Ok(()));
    disk.go_on();
    drop(subjects);
    assert_eq!(table.away(), 0);
}
