//! The agent's `record` against programs that know all of themselves (`tests/go/matrix`), by Go's versions and ways of linking: how much time they
//! used, where, under which labels, who called whom, and what their own runtime and profiler say of each address, inlined calls, files and lines.

mod damaged;
mod places;
mod program;
mod recorded;

use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;
use program::{Form, Program, VERSIONS};
use recorded::{Own, Recorded, Since};

use crate::process::{self, Running, agent, built_before};
use crate::undivided::{ahead, pinned};
use crate::{DEADLINE, decode, is_root, stats};

/// A tick a millisecond, and no round number; fewer where a machine is emulated, which takes ten times as long for each.
fn rate_hz() -> &'static str {
    if built_before().is_some() { "199" } else { "997" }
}

/// Goroutines that work.
const WORKERS: &str = "2";
/// Many that do.
const MANY: &str = "64";
/// So often a program is recorded anew if the hypervisor takes time meanwhile.
const TRIES: u32 = 5;

/// Held while programs are recorded: one recording of them at a time, for each has a processor to itself, or all of them. And by hostile ones.
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

/// Whether it is `make torture` that asks.
fn is_torture() -> bool {
    std::env::var_os("TORTURE_SECONDS").is_some()
}

/// CPU time under labels.
fn milliseconds() -> &'static str {
    if is_torture() || built_before().is_some() { "4000" } else { "800" }
}

/// What is there to be recorded: all versions; of a machine that was given its programs, and is emulated, the ends.
fn versions() -> Vec<&'static str> {
    let all = VERSIONS.into_iter();
    all.filter(|version| built_before().is_none() || [VERSIONS[0], VERSIONS[VERSIONS.len() - 1]].contains(version))
        .collect()
}

/// Builds what tests here start in a machine without compilers, where a folder is given.
#[test]
fn what_another_machine_needs_is_built() {
    if built_before().is_none() {
        return;
    }
    program::all("matrix", &versions(), forms);
    process::build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/shares"), process::GO);
}

/// In which forms each version builds its program. Each is another library to compile, but those of the first three, which are one; other tests have those of three versions
/// compiled, too. Position-independent and without paths at once, those of the others are one as well.
fn forms(version: &str) -> Vec<Form> {
    if is_torture() || ["go1.21.13", "go1.24.13", "go1.27.0"].contains(&version) {
        return vec![Form::Normal, Form::Stripped, Form::Cgo, Form::Pie, Form::Trimmed];
    }
    vec![Form::Normal, Form::Stripped, Form::Cgo, Form::TrimmedPie]
}

/// Check what `record` says of programs that start after it: of each version of Go, in each form.
#[test]
fn programs_are_recorded_as_they_know_themselves() {
    if !is_root() {
        return;
    }
    let programs = program::all("matrix", &versions(), forms);
    let under = Cell::new((0, 0));
    each_undisturbed(&programs, |recorded| {
        recorded.check();
        let ((all, bare), (more, more_bare)) = (under.get(), recorded.bare());
        under.set((all + more, bare + more_bare));
    });
    let (all, bare) = under.get();
    eprintln!("{bare} of {all} samples that were taken under labels lack them");
    assert!(bare * 1000 <= all, "{bare} of {all} samples that were taken under labels lack them");
}

/// Checks each program by what was recorded of it, once the hypervisor did not take time from it, or has done so too often.
fn each_undisturbed<'a>(programs: &'a [Program], check: impl Fn(&Recorded<'a>)) {
    let mut left: Vec<&'a Program> = programs.iter().collect();
    for tried in 1..=TRIES {
        let (owns, sets) = one_after_the_other(&left);
        let mut again = Vec::new();
        for (program, own) in left.into_iter().zip(owns) {
            if tried < TRIES && own.was_disturbed() {
                eprintln!("once more: {}", program.name());
                again.push(program);
            } else {
                check(&Recorded::of(program, own, &sets, Since::Birth));
            }
        }
        left = again;
        if left.is_empty() {
            break;
        }
    }
}

/// Records them all at once, as one shell starts them one after the other; what each said, and what was recorded of all.
fn one_after_the_other(programs: &[&Program]) -> (Vec<Own>, [ProfileSet; 1]) {
    let line = |program: &&Program| {
        let [path, own, said] = ["", ".own", ".said"].map(|extension| program.file(extension).display().to_string());
        format!("{path} {own} {} {WORKERS} > {said} || exit\n", milliseconds())
    };
    let script: String = programs.iter().map(line).collect();
    let output = programs[0].file(".pb.gz");
    let mut shell = Command::new("sh");
    // Behind the recorder, and both before all others: programs are found before they set labels, however busy the machine is.
    let shell = ahead(1, &pinned(shell.arg("-c").arg(script)));
    let mut record = agent(&["record", "--rate-hz", rate_hz(), "-o"]);
    record.arg(&output).arg("-c").arg(shell.get_program()).args(shell.get_args());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ran = ahead(2, &record).stdin(Stdio::null()).output().unwrap();
    drop(alone);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let own = |program: &&Program| Own::of(&std::fs::read_to_string(program.file(".said")).unwrap());
    (programs.iter().map(own).collect(), [decode(&std::fs::read(&output).unwrap())])
}

/// Check the same of programs that ran before the agent, in which many goroutines are busy on all processors: of the oldest version and the newest, in
/// `make torture` of all.
#[test]
fn many_goroutines_that_ran_before_are_recorded_as_they_know_themselves() {
    if !is_root() {
        return;
    }
    let ends = [VERSIONS[0], VERSIONS[VERSIONS.len() - 1]];
    let versions: Vec<_> = VERSIONS.into_iter().filter(|version| is_torture() || ends.contains(version)).collect();
    for program in program::all("many", &versions, |_| vec![Form::Normal]) {
        for tried in 1..=TRIES {
            let (own, sets) = that_ran_before(&program);
            if tried == TRIES || !own.was_disturbed() {
                Recorded::of(&program, own, &sets, Since::Work).check();
                break;
            }
            eprintln!("once more: {}", program.name());
        }
    }
}

/// Has `run` write what it samples of a program into files, from before the program begins to work until its end.
fn that_ran_before(program: &Program) -> (Own, Vec<ProfileSet>) {
    let [own, said, files] = [".own", ".said", ".files"].map(|extension| program.file(extension));
    let mut command = Command::new(&program.path);
    command.arg(own).args(["3000", MANY]);
    let mut command = ahead(1, &command);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = Ended(command.stdin(Stdio::piped()).stdout(File::create(&said).unwrap()).spawn().unwrap());
    // It may have been made for one that is to be recorded once more.
    drop(std::fs::remove_dir_all(&files));
    std::fs::create_dir(&files).unwrap();
    let pid = running.0.id().to_string();
    let mut run =
        agent(&["run", "--rate-hz", rate_hz(), "--runtime-interval", "off", "--interval", "1s", "--pid", &pid]);
    // Before the program, which has all processors to itself: what is not read in time is lost.
    let run = Running::agent(&mut ahead(2, run.env("PROFILER_FILES_DIR", &files)));
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    while stats(&page)["processes"]["sampled"] != 1 {
        assert!(Instant::now() < until, "{} {}", stats(&page), run.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(running.0.stdin.take());
    assert!(running.0.wait().unwrap().success());
    let log = run.log();
    assert_eq!(run.end(), Some(0), "{log}");
    let written = std::fs::read_dir(files).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    (Own::of(&std::fs::read_to_string(said).unwrap()), written.map(|bytes| decode(&bytes)).collect())
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
