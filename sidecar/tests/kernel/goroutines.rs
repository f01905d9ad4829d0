//! Goroutines of real Go programs: number, function, labels.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use profiler_sidecar::bpf::{Go, Knowledge, Started};
use profiler_sidecar::sample::{End, Labels, Sample};
use profiler_sidecar::{elf, go};
use profiler_sidecar_ebpf::{FRAMES, KEY, TARGET_WORDS, TargetFlag, VALUE};

use crate::programs::{Form, Talk, VERSIONS, labelled};
use crate::recorder::{Recorder, assert_complete, few, undisturbed};
use crate::undivided::{ahead, pinned};

fn open(program: &Path) -> go::Program {
    let elf = elf::File::open(File::open(program).unwrap()).unwrap();
    go::Program::open(Arc::new(elf)).unwrap().expect("a Go program")
}

fn offsets(program: &Path) -> Go {
    go::offsets::offsets(&open(program)).expect("a known version")
}

fn of_go(go: Go) -> Knowledge {
    Knowledge { go: Some(go), ..Knowledge::default() }
}

/// Bytes of the function.
fn length(program: &Path, name: &str) -> u64 {
    let program = open(program);
    let function = program.function(program.find(name).unwrap()).unwrap();
    function.end - function.entry
}

/// What a program of this version did, and what was seen of it.
struct Seen {
    samples: Vec<Sample>,
    /// How many of them were there when it was told to work.
    before: usize,
    /// Where the function is that the goroutines work in, under their labels.
    spin: Range<u64>,
    used: u64,
    /// Numbers of goroutines, in order.
    goroutines: Vec<u64>,
}

fn record(version: &str, form: Form, pairs: usize, goroutines: usize, milliseconds: u32) -> Option<Seen> {
    record_as(version, form, &[pairs, goroutines, milliseconds as usize], |command| command)
}

/// The same, of the program as `as_it_is` has it run.
fn record_as(
    version: &str,
    form: Form,
    arguments: &[usize],
    as_it_is: impl FnOnce(Command) -> Command,
) -> Option<Seen> {
    let (mut recorder, path) = Recorder::usual_with(|| labelled(version, form))?;
    let mut command = Command::new(&path);
    command.args(arguments.iter().map(usize::to_string));
    let tell = |recorder: &mut Recorder, pid| recorder.sampler.tell(pid, &of_go(offsets(&path))).unwrap();
    Some(watch(&mut recorder, as_it_is(command), &path, arguments[1], tell))
}

/// Runs the program to its end; before it works, `tell` says to the kernel side what is known of it.
fn watch(
    recorder: &mut Recorder,
    command: Command,
    path: &Path,
    goroutines: usize,
    tell: impl FnOnce(&mut Recorder, u32),
) -> Seen {
    let mut program = Talk::start(command);
    let pid = program.pid();
    let (mut numbers, mut spin) = (HashMap::new(), 0..0);
    loop {
        let line = recorder.line(&program);
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["spin", address] => {
                let entry = address.parse().unwrap();
                spin = entry..entry + length(path, "main.spin");
            }
            ["goroutine", which, number] => {
                numbers.insert(which.parse::<usize>().unwrap(), number.parse().unwrap());
            }
            _ => break assert_eq!(line, "ready"),
        };
    }
    // Not before the end of its exec, at which the kernel side forgets what it was told: whoever starts a program goes on before that.
    tell(recorder, pid);
    let before = recorder.samples_of(pid).len();
    program.go();
    recorder.until_exit(pid);
    let used = recorder.line(&program).strip_prefix("used ").unwrap().parse().unwrap();
    program.child.wait().unwrap();
    let samples = recorder.samples_of(pid).into_iter().cloned().collect();
    let goroutines = (0..goroutines).map(|which| numbers[&which]).collect();
    Seen { samples, before, spin, used, goroutines }
}

impl Seen {
    /// Samples of work, which is done by the goroutines alone, under their labels alone: all of them are to say so, however busy the machine is. What
    /// else there is are Go's own threads, which wake by the clock, and the program's beginning and end.
    fn at_work(&self) -> Vec<&Sample> {
        let at_work = self.samples.iter().filter(|sample| sample.user.first().is_some_and(|ip| self.spin.contains(ip)));
        let at_work: Vec<_> = at_work.collect();
        // Of samples, not of CPU time: in an emulated machine ticks come late, and many as one. The start of a program takes longer there than its
        // work.
        let all = self.samples.len() - self.before;
        assert!(at_work.len() > 20 && at_work.len() * 4 > all, "{} of {all}, {:?}", at_work.len(), self.spin);
        at_work
    }

    /// Which of the goroutines it is of.
    fn worker(&self, sample: &Sample) -> Option<usize> {
        sample.goroutine.and_then(|ran| self.goroutines.iter().position(|id| *id == ran.id))
    }
}

/// The labels of a goroutine, sorted.
fn labels(pairs: usize, goroutine: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |i| (format!("key-{i}").into_bytes(), format!("value-{i}-of-{goroutine}").into_bytes());
    let mut all: Vec<_> = (0..pairs).map(pair).collect();
    all.sort();
    all
}

/// The labels of a sample, in its order.
fn owned(labels: &Labels) -> Vec<(Vec<u8>, Vec<u8>)> {
    labels.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Samples of work have their goroutine and its labels; none has others.
fn assert_labelled(seen: &Seen, pairs: usize) {
    let (at_work, mut bare) = (seen.at_work(), 0);
    for sample in &at_work {
        let Some(worker) = seen.worker(sample).filter(|_| !sample.labels.is_empty()) else {
            bare += 1;
            continue;
        };
        let mut found = owned(&sample.labels);
        found.sort();
        assert_eq!(found, labels(pairs, worker));
        assert!(!sample.labels_cut);
        assert_eq!(sample.comm.text(), "", "the name of the thread, on the stack of a goroutine");
    }
    assert!(bare <= few(at_work.len()), "{bare} of {}", at_work.len());
}

#[test]
fn samples_of_every_version_carry_goroutine_and_labels() {
    for version in VERSIONS {
        let Some(seen) = record(version, Form::Normal, 2, 2, 300) else { return };
        assert_labelled(&seen, 2);
    }
}

/// Check that of a program that ran before others have goroutines and labels from their first instruction on, whoever tells of them; that the same program in another file is not
/// taken for it, nor the same file once it was changed; and that nothing is kept of who has ended.
#[test]
fn a_program_that_ran_before_is_known_from_the_first_sample_on() {
    let Some((mut recorder, path)) = Recorder::usual_with(|| labelled("go1.26.8", Form::Normal)) else { return };
    // Files of these tests' own: others start theirs meanwhile.
    let [path, other] = ["known", "other"].map(|name| {
        let copy = path.with_extension(name);
        // By a process of its own: what this one has open for writing cannot be run.
        assert!(Command::new("cp").arg(&path).arg(&copy).status().unwrap().success());
        copy
    });
    let command = |path: &Path| {
        let mut command = Command::new(path);
        command.args(["2", "2", "300"]);
        command
    };
    let is_unknown = |seen: &Seen| seen.at_work().iter().all(|sample| !sample.is_known && sample.goroutine.is_none());
    let first = watch(&mut recorder, command(&path), &path, 2, |recorder, pid| {
        let (started, go) = (recorder.started(pid), offsets(&path));
        recorder.sampler.tell_program(pid, started, Some(&go));
        // It is not what this process started, nor what that one started at another time.
        recorder.sampler.tell_program(std::process::id(), started, Some(&Go::default()));
        recorder.sampler.tell_program(pid, Started { program: 2, ..started }, None);
        assert!(recorder.sampler.has_left(pid, Started { program: 2, ..started }));
        assert!(!recorder.sampler.has_left(pid, started));
    });
    assert!(is_unknown(&first));
    let mut was_kept = false;
    let second = watch(&mut recorder, command(&path), &path, 2, |_, pid| was_kept = is_kept(pid));
    assert_labelled(&second, 2);
    let pid = second.samples[0].pid;
    let number = recorder.started(pid).program;
    // In the kernel it may have ended.
    let of_it = second.samples.iter().filter(|sample| sample.program == number && !sample.in_kernel);
    let unknown = of_it.filter(|sample| !sample.is_known).count();
    assert_eq!((unknown, was_kept, is_kept(pid)), (0, true, false), "samples; while it runs, and afterwards");
    assert!(is_unknown(&watch(&mut recorder, command(&other), &other, 2, |_, _| {})));
    assert_own_entry_stays(&mut recorder, &path);
    assert!(Command::new("chmod").args(["u+x,g-x"]).arg(&path).status().unwrap().success());
    assert!(is_unknown(&watch(&mut recorder, command(&path), &path, 2, |_, _| {})));
    [path, other].iter().for_each(|file| std::fs::remove_file(file).unwrap());
}

/// What was told of a process before it became a program that is known is taken back without what the kernel side has put there since.
fn assert_own_entry_stays(recorder: &mut Recorder, path: &Path) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo before; read line; exec \"$0\" 1 1 1"]).arg(path);
    let mut shell = Talk::start(shell);
    let pid = shell.pid();
    assert_eq!(recorder.line(&shell), "before");
    recorder.sampler.tell(pid, &Knowledge::default()).unwrap();
    assert!(!is_kept(pid));
    shell.go();
    while recorder.line(&shell) != "ready" {}
    recorder.sampler.forget(pid);
    assert!(is_kept(pid));
}

/// Whether a kernel side has an entry of its own for this process.
fn is_kept(pid: u32) -> bool {
    let maps = aya::maps::loaded_maps().filter_map(Result::ok).filter(|map| map.name_as_str() == Some("TARGETS"));
    let maps = maps.filter_map(|map| aya::maps::MapData::from_id(map.id()).ok()).map(aya::maps::Map::HashMap);
    let mut maps = maps.filter_map(|map| aya::maps::HashMap::<_, u32, [u64; TARGET_WORDS]>::try_from(map).ok());
    maps.any(|map| map.get(&pid, 0).is_ok_and(|[flags, ..]| flags & TargetFlag::ByExecutable as u64 != 0))
}

#[test]
fn programs_linked_in_other_ways_do_too() {
    for version in ["go1.21.13", "go1.26.8"] {
        for form in [Form::Pie, Form::Cgo, Form::CgoPie] {
            let Some(seen) = record(version, form, 2, 2, 300) else { return };
            assert_labelled(&seen, 2);
        }
    }
}

#[test]
fn sixty_four_busy_goroutines_are_told_apart() {
    let Some(seen) = record("go1.27.0", Form::Normal, 2, 64, 3000) else { return };
    assert_labelled(&seen, 2);
    let ran: HashSet<u64> = seen.samples.iter().filter_map(|sample| sample.goroutine).map(|ran| ran.id).collect();
    let missing: Vec<_> = seen.goroutines.iter().filter(|id| !ran.contains(id)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

#[test]
fn a_busy_go_program_has_a_sample_for_each_period_of_its_cpu_time() {
    let alone = |command: Command| ahead(1, &pinned(&command));
    let Some((seen, stolen)) = undisturbed(|| record_as("go1.26.8", Form::Normal, &[2, 2, 2000], alone)) else {
        return;
    };
    assert_complete(&seen.samples.iter().collect::<Vec<_>>(), seen.used, stolen);
}

#[test]
fn all_32_labels_are_there_in_both_forms() {
    for version in ["go1.23.12", "go1.26.8"] {
        for pairs in [9, 13, 27, 32] {
            let Some(seen) = record(version, Form::Normal, pairs, 1, 200) else { return };
            assert_labelled(&seen, pairs);
        }
    }
}

#[test]
fn more_labels_than_32_are_cut_and_marked() {
    for version in ["go1.23.12", "go1.26.8"] {
        let Some(seen) = record(version, Form::Normal, 40, 1, 200) else { return };
        let at_work = seen.at_work();
        let whole = at_work.iter().filter(|sample| !(sample.labels_cut && sample.labels.len() == 32)).count();
        assert!(whole <= few(at_work.len()), "{version}: {whole} of {}", at_work.len());
    }
}

/// Check that keys of 64 bytes and values of 256 are whole, and that longer ones are cut to these and marked.
#[test]
fn long_labels_are_whole_up_to_the_bound_and_cut_and_marked_beyond() {
    for version in ["go1.23.12", "go1.26.8"] {
        for (length, is_cut) in [(KEY, false), (KEY + 1, true)] {
            let Some(seen) = record_as(version, Form::Normal, &[3, 1, 200, length], |command| command) else { return };
            let filled = |text: Vec<u8>, most: usize| [text, vec![b'x'; most]].concat()[..most].to_vec();
            let expected = labels(3, 0).into_iter().map(|(key, value)| (filled(key, KEY), filled(value, VALUE)));
            let (expected, at_work) = (expected.collect::<Vec<_>>(), seen.at_work());
            let is_so = |sample: &Sample| {
                let mut found = owned(&sample.labels);
                found.sort();
                found == expected && sample.labels_cut == is_cut
            };
            let others = at_work.iter().filter(|sample| !is_so(sample)).count();
            assert!(others <= few(at_work.len()), "{version}, {length}: {others} of {}", at_work.len());
        }
    }
}

/// Check that a set without labels is none, and nothing of it is missing.
#[test]
fn no_labels_are_none_in_both_forms() {
    for version in ["go1.21.13", "go1.23.12", "go1.26.8"] {
        let Some(seen) = record(version, Form::Normal, 0, 1, 200) else { return };
        let at_work = seen.at_work();
        let known = at_work.iter().filter(|sample| seen.worker(sample).is_some()).count();
        assert!(at_work.len() - known <= few(at_work.len()), "{version}: {known} of {}", at_work.len());
        assert!(at_work.iter().all(|sample| sample.labels.is_empty() && !sample.labels_cut), "{version}");
    }
}

/// Check that a goroutine's stack of more than 512 frames is cut there, and marked, and that the goroutine's own function is known all the same.
#[test]
fn a_goroutine_below_600_calls_keeps_its_function() {
    let Some(seen) = record_as("go1.26.8", Form::Normal, &[2, 1, 300, 0, 600], |command| command) else { return };
    let at_work = seen.at_work();
    let is_so = |sample: &Sample| {
        let function = sample.goroutine.map(|ran| ran.start_pc);
        sample.user.len() == FRAMES && sample.end == End::Cut && function.is_some_and(|pc| pc != 0)
    };
    let others = at_work.iter().filter(|sample| !is_so(sample)).count();
    assert!(others <= few(at_work.len()), "{others} of {}", at_work.len());
    assert_labelled(&seen, 2);
}

#[test]
fn stacks_end_at_the_function_of_the_goroutine() {
    let Some(seen) = record("go1.26.8", Form::Normal, 2, 2, 300) else { return };
    let at_work = seen.at_work();
    let of_workers: Vec<_> = at_work.iter().filter(|sample| seen.worker(sample).is_some()).collect();
    let start_pc = of_workers[0].goroutine.unwrap().start_pc;
    assert!(of_workers.iter().all(|sample| sample.goroutine.unwrap().start_pc == start_pc), "one `go` statement");
    // The caller before `goexit` returns into that function, which is not large.
    let is_rooted = |sample: &Sample| {
        let root = sample.user.iter().rev().nth(1);
        root.is_some_and(|root| (start_pc..start_pc + 4096).contains(root))
    };
    let others = of_workers.iter().filter(|sample| !is_rooted(sample)).count();
    assert!(others <= few(of_workers.len()), "{others} of {}", of_workers.len());
}
