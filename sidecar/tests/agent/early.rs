//! The beginning of things: processes that begin when the agent samples already, and are soon over; and an agent that begins beside processes that are at work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::matrix::ALONE;
use crate::process::{Running, agent, quiet};
use crate::received::{Received, Taken, pid, samples, text};
use crate::shop::Shop;
use crate::steal::{self, undisturbed};
use crate::undivided::{ahead, pinned};
use crate::{DEADLINE, folder, is_root, stats};

/// A tick a millisecond, and no round number.
const RATE_HZ: &str = "997";
/// CPU time of each process.
const MILLISECONDS: &str = "200";
const PROCESSES: usize = 40;

/// Builds `tests/go/NAME`.
pub(crate) fn build(name: &str, toolchain: &str, program: &Path) {
    build_with(name, toolchain, &[], program);
}

/// The same, with these variables.
pub(crate) fn build_with(name: &str, toolchain: &str, variables: &[(&str, &str)], program: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go").join(name);
    let mut go = Command::new("go");
    go.current_dir(source).env("GOTOOLCHAIN", toolchain).env("GOFLAGS", "-buildvcs=false").env("CGO_ENABLED", "0");
    let built = go
        .envs(variables.iter().copied())
        .arg("build")
        .arg("-o")
        .arg(program)
        .arg(".")
        .output()
        .expect("go: run `make setup`");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// An agent that exports what these programs do to `received`, once it says that it samples; before all other processes.
fn sampling(received: &Received, programs: &str) -> Running {
    let mut command = agent(&["run", "--rate-hz", RATE_HZ, "--interval", "100ms", "--runtime-interval", "off"]);
    command.args(["--include", programs]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint()).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let run = Running::agent(&mut ahead(2, &command));
    let page = run.address_after("http://");
    until(&run, || stats(&page)["engine"]["name"] == "ebpf");
    run
}

pub(crate) fn until(run: &Running, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "{}", run.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until what was sampled of these programs has arrived. Others run all the while, and are sampled and left out.
pub(crate) fn settle(received: &Received, run: &Running) {
    let (page, mut before) = (run.address_after("/stats: http://"), u64::MAX);
    until(run, || {
        let stats = stats(&page);
        let [pending, exported] = ["pending", "exported"].map(|figure| stats[figure].as_u64().unwrap());
        let is_settled = std::mem::replace(&mut before, exported) == exported && pending == 0;
        // The ring is looked at five times a second.
        std::thread::sleep(Duration::from_secs(1));
        is_settled && i64::try_from(exported).unwrap() == received.count()
    });
}

/// How many samples say nothing of goroutines, as the agent has counted.
fn unknown(run: &Running) -> i64 {
    stats(&run.address_after("/stats: http://"))["stacks"]["goroutines_unknown"].as_i64().unwrap()
}

/// A process as the one that started it knows it.
struct Known {
    pid: u32,
    started: SystemTime,
    used_nanos: f64,
}

/// Runs these programs one after the other.
fn in_turn(programs: &[PathBuf]) -> Vec<Known> {
    let mut early = Command::new(&programs[0]);
    quiet(early.arg(MILLISECONDS).args(programs).env("OTEL_SERVICE_NAME", "soon-over"));
    let early = Running::program(&mut ahead(1, &pinned(&early)));
    early.address_after("ended");
    let log = early.log();
    let numbers = |line: &str| line.split(' ').skip(1).map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>();
    let lines = log.lines().filter(|line| line.starts_with("process "));
    let known = lines.map(|line| match numbers(line)[..] {
        [pid, started, used] => Known {
            pid: u32::try_from(pid).unwrap(),
            started: UNIX_EPOCH + Duration::from_nanos(started),
            used_nanos: used as f64,
        },
        _ => panic!("{line}"),
    });
    known.collect()
}

/// What came of processes, with how long after its start the first sample of each came that has the name of the function which is busy.
#[derive(Default)]
struct Came {
    taken: BTreeMap<u32, Vec<Taken>>,
    services: BTreeMap<u32, String>,
    named_after: BTreeMap<u32, Duration>,
}

impl Came {
    fn of(known: &[Known], received: &Received) -> Self {
        let mut came = Self::default();
        received.all(|sets| {
            for (at, set) in sets {
                let Some(process) = known.iter().find(|process| process.pid == pid(set)) else { continue };
                let samples: Vec<Taken> = samples(set).collect();
                if samples.iter().any(|sample| sample.has("main.busy")) {
                    let after = at.duration_since(process.started).unwrap_or_default();
                    came.named_after.entry(process.pid).or_insert(after);
                }
                came.services.insert(process.pid, text(set, "service.name").to_owned());
                came.taken.entry(process.pid).or_default().extend(samples);
            }
        });
        came
    }

    fn nanos(&self) -> f64 {
        self.taken.values().flatten().map(|sample| sample.nanos).sum()
    }

    /// Samples of work without their label.
    fn bare(&self) -> i64 {
        self.count(|sample| sample.has("main.busy") && sample.labels.get("at").is_none_or(|at| at != "work"))
    }

    fn count(&self, is_counted: impl Fn(&Taken) -> bool) -> i64 {
        self.taken.values().flatten().filter(|sample| is_counted(sample)).map(|sample| sample.count).sum()
    }
}

/// Check that processes of 200 ms, each of a file that was never seen before, are sampled from fork to exit, each with its service and with names.
#[test]
fn processes_that_are_soon_over_are_sampled_from_their_beginning() {
    if !is_root() {
        return;
    }
    let folder = folder("early");
    let programs: Vec<PathBuf> = (0..PROCESSES).map(|number| folder.join(format!("early-{number}"))).collect();
    build("early", "go1.22.12", &programs[0]);
    for program in &programs[1..] {
        // By a process of its own: what this one has open for writing cannot be run.
        assert!(Command::new("cp").arg(&programs[0]).arg(program).status().unwrap().success());
    }
    let received = Received::at("127.0.0.1:0");
    let run = sampling(&received, "*/early-*");
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (known, stolen) = undisturbed(|| in_turn(&programs));
    drop(alone);
    settle(&received, &run);
    let unknown = unknown(&run);
    let log = run.log();
    assert_eq!(run.end(), Some(0), "{log}");
    let came = Came::of(&known, &received);
    let used: f64 = known.iter().map(|process| process.used_nanos).sum();
    let (complete, all) = (came.nanos() / used, came.count(|_| true));
    let named = came.count(|sample| sample.has("main.busy"));
    let mut after: Vec<Duration> = came.named_after.values().copied().collect();
    after.sort_unstable();
    eprintln!(
        "{PROCESSES} processes of {MILLISECONDS} ms: {complete:.4} of their CPU time, {named} of {all} samples named; the first named one \
         came {:?} after the start, at most {:?}",
        after.get(after.len() / 2),
        after.last()
    );
    assert_eq!((known.len(), came.named_after.len()), (PROCESSES, PROCESSES), "{log}");
    assert!(came.services.values().all(|service| service == "soon-over"), "{:?}", came.services);
    assert!(steal::complete(0.05, stolen).contains(&complete), "{complete:.4} of their CPU time: {log}");
    assert!(named * 100 >= all * 95, "{named} of {all}");
    let bare = came.bare();
    assert!(
        bare <= unknown + all / 1000,
        "{bare} samples of work without their label, and {unknown} were counted: {log}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// Check that processes of 200 ms, all of one file, have their labels on all samples of work. The one that starts them runs that file, too: by the second of them it is known.
#[test]
fn processes_of_a_program_that_ran_before_have_labels_from_their_first_sample_on() {
    if !is_root() {
        return;
    }
    let folder = folder("again");
    let program = folder.join("early-again");
    build("early", "go1.26.8", &program);
    let received = Received::at("127.0.0.1:0");
    let run = sampling(&received, "*/early-again");
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let known = in_turn(&vec![program; PROCESSES]);
    drop(alone);
    settle(&received, &run);
    let unknown = unknown(&run);
    let log = run.log();
    assert_eq!(run.end(), Some(0), "{log}");
    let mut came = Came::of(&known, &received);
    assert_eq!((known.len(), came.taken.len()), (PROCESSES, PROCESSES), "{log}");
    let with_first = came.bare();
    came.taken.remove(&known[0].pid);
    let (all, bare) = (came.count(|sample| sample.has("main.busy")), came.bare());
    eprintln!(
        "{bare} of {all} samples of work without their label, {with_first} with the first process; {unknown} of programs that were not known"
    );
    assert!(all > 1000 && bare * 1000 <= all, "{bare} of {all}: {log}");
    assert!(with_first <= unknown + all / 1000, "{with_first}, and {unknown} were counted: {log}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Check that of a program that is at work when the agent begins nothing is lost from then on when the agent says that it samples, and that samples have their
/// labels, spans and names from the first on.
#[test]
fn nothing_is_lost_in_the_first_seconds_of_an_agent() {
    const SECONDS: Duration = Duration::from_secs(3);
    if !is_root() {
        return;
    }
    let folder = folder("first");
    let program = folder.join("shop");
    build("shop", "go1.22.12", &program);
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ((from, told, taken, log), stolen) = undisturbed(|| {
        let received = Received::at("127.0.0.1:0");
        let mut command = Command::new(&program);
        quiet(&mut command);
        let mut shop = Shop::start(&mut ahead(1, &pinned(&command)));
        // It has begun to work under labels.
        shop.until_used(Duration::from_secs(1));
        let run = sampling(&received, "*/first-*/shop");
        let from = shop.used();
        shop.until_used(from + SECONDS);
        let told = shop.end();
        settle(&received, &run);
        let log = run.log();
        assert_eq!(run.end(), Some(0), "{log}");
        let taken = received.of_program("shop").remove(&shop.pid()).unwrap();
        (from, told, taken, log)
    });
    drop(alone);
    let complete = told.complete_since(from, &taken);
    eprintln!("{complete:.4} of the CPU time since the agent said that it samples");
    assert!(steal::complete(0.02, stolen).contains(&complete), "{complete:.4}: {log}");
    told.check(&taken);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Check that an agent that is told to stop while it sets up ends in order, as one at work does, also where it is process 1, which signals that nobody handles do not reach. Its
/// first line is that of its privilege; all set-up comes behind it.
#[test]
fn an_agent_that_is_told_to_stop_before_it_is_ready_ends_in_order() {
    if !is_root() {
        return;
    }
    for signal in ["-TERM", "-INT", "-QUIT", "-HUP"] {
        let agent = agent(&["run"]);
        let mut first = Command::new("unshare");
        first.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(agent.get_program()).args(agent.get_args());
        let run = Running::agent({
            quiet(&mut first);
            &mut first
        });
        run.address_after("privilege ");
        let children = format!("/proc/{0}/task/{0}/children", run.pid());
        let first = std::fs::read_to_string(children).unwrap();
        assert!(Command::new("kill").args([signal, first.trim()]).status().unwrap().success());
        run.address_after("told to stop");
        assert_eq!(run.ended(), Some(0), "{signal}");
    }
}
