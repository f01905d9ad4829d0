//! Names of files, files, tables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use profiler_proto::loss::{Cause, Degraded, Flaw, Loss};
use profiler_proto::model::{self, Kind};
use profiler_proto::{Limits, ProfileSet, folded, pprof};

use super::lost::flaws_text;
use super::output::Form;
use super::*;
use crate::aggregate::Aggregate;
use crate::clock::Moment;
use crate::discover::{self, Target};
use crate::naming::{Location, Stack};
use crate::pipeline::Interval;
use crate::sample::Sample;
use crate::target::{Process, State};

/// Check that the name of a file says its form, and that a name that does not is refused with what to do.
#[test]
fn the_name_says_the_form() {
    let form = |name: &str| Form::of(Path::new(name));
    for (name, said) in [
        ("/tmp/out.pb.gz", Form::Pprof),
        ("out.pprof", Form::Pprof),
        ("out.pb", Form::PprofPlain),
        ("out.folded", Form::Folded),
        ("out.svg", Form::Svg),
    ] {
        assert_eq!(form(name), Some(said), "{name}");
    }
    for name in ["out", ".pb.gz", "out.json", "/", ""] {
        assert!(Output::of(name.into()).unwrap_err().contains("end it in .pb.gz"), "{name}");
    }
}

/// Check the table: own time, time with callees, a function that calls itself counted once, hottest first.
#[test]
fn the_table_has_own_time_and_time_with_callees() {
    let set = samples("main;work;work;hash 6\nmain;work 3\nmain;idle 1\n");
    let expected = "     self   self%    total  total%  function
    3.00s   60.0%    3.00s   60.0%  hash
    1.50s   30.0%    4.50s   90.0%  work
    0.50s   10.0%    0.50s   10.0%  idle
";
    assert_eq!(top::table(&set, 3), expected);
}

/// Check that no name of a program is a command to the terminal, and that what has none is shown by its address.
#[test]
fn names_in_the_table_are_plain() {
    let mut set = samples("main;\\x1b[2Jred 6\n");
    let table = top::table(&set, 3);
    assert!(table.contains("  \u{fffd}[2Jred\n") && !table.contains('\u{1b}'), "{table}");
    let location = set.dictionary.locations.intern(model::Location { address: 0xabc, ..model::Location::default() });
    let stack = set.dictionary.stacks.intern(model::Stack { locations: [location].into() });
    set.profiles[0].samples[0].stack = stack;
    assert!(top::table(&set, 3).contains("  0xabc\n"));
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("profiler-sidecar-record-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Folded stacks as a set with samples.
fn samples(text: &str) -> ProfileSet {
    let mut set = folded::decode(text.as_bytes(), &Limits::default()).unwrap();
    let kind = Kind::cpu(&mut set.dictionary, 500_000_000);
    set.profiles[0].kind = kind;
    set
}

/// Check that a file is written whole, and that one that cannot be is named and leaves nothing behind.
#[test]
fn a_file_is_whole_or_not_there() {
    let folder = folder("whole");
    let set = samples("main;work 6\n");
    let output = |name: &str| Output::of(folder.join(name)).unwrap();
    output("a.pb.gz").check().unwrap();
    for again in 0..2 {
        let size = output("a.pb.gz").write(&set, "samples").unwrap();
        let bytes = std::fs::read(folder.join("a.pb.gz")).unwrap();
        assert_eq!(bytes.len() as u64, size, "{again}");
        let read = pprof::decode(&bytes, &Limits::default()).unwrap();
        assert_eq!(folded::encode(&read.profiles[0], &read.dictionary, folded::Tags::Left), "main;work 6\n");
    }
    let error = output("no/such.folded").write(&set, "samples").unwrap_err().to_string();
    assert!(error.contains("no/such.folded") && error.contains("-o"), "{error}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Check that what is there and no regular file is neither written to nor replaced, and that no name beside it can be taken before.
#[test]
fn what_is_no_regular_file_is_left_alone() {
    let folder = folder("irregular");
    let (theirs, link, pipe) = (folder.join("theirs"), folder.join("link.folded"), folder.join("pipe.folded"));
    std::fs::write(&theirs, "theirs").unwrap();
    std::os::unix::fs::symlink(&theirs, &link).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let set = samples("main;work 6\n");
    for path in [&link, &pipe] {
        let output = Output::of(path.clone()).unwrap();
        for error in [output.check().err(), output.write(&set, "samples").err()] {
            assert!(error.unwrap().to_string().contains("-o"), "{}", path.display());
        }
    }
    // The name that a file had before it was whole.
    let beside = folder.join(format!("out.folded.{}.part", std::process::id()));
    std::os::unix::fs::symlink(&theirs, &beside).unwrap();
    Output::of(folder.join("out.folded")).unwrap().write(&set, "samples").unwrap();
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
    assert_eq!(std::fs::read_to_string(folder.join("out.folded")).unwrap(), "main;work 6\n");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Check that sets of several processes become one, told apart by pid, and one process's stays as it is.
#[test]
fn several_processes_are_told_apart() {
    let set = |pid: i64| {
        let mut set = folded::decode(b"main;work 6\n", &Limits::default()).unwrap();
        set.resource.set("process.pid", pid);
        set
    };
    assert_eq!(output::joined(vec![set(7)], 99, Duration::ZERO), set(7));
    let both = output::joined(vec![set(7), set(8)], 99, Duration::ZERO);
    let folded = folded::encode(&both.profiles[0], &both.dictionary, folded::Tags::Kept);
    assert!(folded.contains("pid=7") && folded.contains("pid=8"), "{folded}");
}

/// Check that all causes of loss are summed, and told by name.
#[test]
fn losses_have_causes() {
    let (mut before, mut after) = (Loss::default(), Loss::default());
    assert_eq!(lost_text(&lost_since(&before, &after)), "0 lost");
    before.add(Cause::Gone, 2);
    for (cause, count) in [(Cause::Gone, 82), (Cause::AggregateFull, 16)] {
        after.add(cause, count);
    }
    let told = lost_text(&lost_since(&before, &after));
    assert!(
        told.starts_with("96 lost (80 of processes that ended before") && told.contains(", 16 for which"),
        "{told}"
    );
}

/// Check that flaws are told by what is missing, each once, and nothing where there is none.
#[test]
fn flaws_are_told_once() {
    let mut degraded = Degraded::default();
    assert_eq!(flaws_text(&degraded), "");
    for (flaw, count) in [(Flaw::UnwindStopped, 3), (Flaw::UnwindUnknown, 3), (Flaw::NoContext, 1)] {
        degraded.add(flaw, count);
    }
    let told = flaws_text(&degraded);
    assert!(told.starts_with("Less than perfect: 3 samples of stacks that end") && told.ends_with('\n'), "{told}");
    assert!(told.contains(", 1 sample without") && told.matches("sample").count() == 2, "{told}");
}

/// Check that windows of one process become one set, which is of the program that it ran last.
#[test]
fn windows_are_summed() {
    const STACKS: u32 = 30_000;
    let (mut windows, process, start) = (windows::Windows::default(), Process::new(7, 1), Moment::now());
    let mut aggregate = Aggregate::begin(start);
    let mut one_lost = Loss::default();
    one_lost.add(Cause::RingFull, 1);
    let stack = |number: u32| Stack { frames: [Location::remark(&format!("f{number}"))].into(), ..Stack::default() };
    let sample = Sample { tid: 7, period_nanos: 10, ..Sample::default() };
    for (second, service) in [(1, "shell"), (2, "program")] {
        for number in (0..STACKS).filter(|number| number % 2 == second % 2).chain([STACKS; 5]) {
            aggregate.add(process, &sample, &stack(number)).unwrap();
        }
        let mut target = Target::bare(process, discover::Kind::Native);
        target.resource.set("service.name", service);
        let target = Arc::new(target);
        let ended = aggregate
            .end(start.later(Duration::from_secs(second.into()), start.wall + Duration::from_secs(second.into())));
        let windows_of = ended.into_iter().map(|window| (window, Arc::clone(&target))).collect();
        // Behind the last one something is lost and nothing sampled.
        for windows_of in [Vec::new(), windows_of, Vec::new()] {
            windows.add(Interval { windows: windows_of, lost: one_lost });
        }
    }
    let sets = windows.sets();
    assert_eq!((sets.len(), sets[0].resource.service_name()), (1, Some("program")));
    let [profile] = &*sets[0].profiles else { panic!("{} profiles", sets[0].profiles.len()) };
    assert_eq!((profile.samples.len(), profile.duration_nanos), (STACKS as usize + 1, 2_000_000_000));
    assert_eq!(profile.samples.iter().map(|sample| sample.value).sum::<i64>(), i64::from(STACKS) + 10);
    let file = pprof::decode(&pprof::encode(&sets[0]), &Limits::default()).unwrap();
    let told = format!("{:?}", file.dictionary.attributes);
    assert!(told.contains("profiler.lost.ring_full=6\""), "{told}");
}

/// Check that a capture without a sample has its types and its time, so that it can be read.
#[test]
fn a_capture_without_samples_is_one() {
    let bytes = pprof::encode(&joined(Vec::new(), 100, Duration::from_secs(2)));
    let read = pprof::decode(&bytes, &Limits::default()).unwrap();
    let [profile] = &*read.profiles else { panic!("{} profiles", read.profiles.len()) };
    assert!(profile.kind.is_cpu(&read.dictionary) && profile.samples.is_empty());
    assert_eq!((profile.kind.period, profile.duration_nanos), (10_000_000, 2_000_000_000));
}

/// Check that a thread, a process that has ended and a number of none are refused by what they are.
#[test]
fn who_cannot_be_sampled_is_told_why() {
    fn why(pid: u32) -> String {
        process_of(pid).unwrap_err().to_string()
    }
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    while Process::find_with(ended.id()).unwrap().2.state != State::Ended {
        std::thread::yield_now();
    }
    assert!(why(ended.id()).contains("it has ended"), "{}", why(ended.id()));
    ended.wait().unwrap();
    assert!(why(u32::MAX >> 1).contains("there is no process"));
    let thread = std::thread::spawn(|| {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        why(own.file_name().unwrap().to_str().unwrap().parse().unwrap())
    });
    let told = thread.join().unwrap();
    assert!(told.contains(&format!("but a thread of process {}", std::process::id())), "{told}");
    assert_eq!(process_of(std::process::id()).unwrap().pid(), std::process::id());
    // In a container there may be none.
    if Process::find_with(2).is_ok_and(|(_, _, stat)| stat.is_kernel_thread) {
        assert!(why(2).contains("thread of the kernel"), "{}", why(2));
    }
}
