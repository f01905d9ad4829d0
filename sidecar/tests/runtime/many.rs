//! Captures of a program with very many goroutines and stacks (`tests/go/many`): all of them, and beyond the bound how many are left out.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::{Duration, Instant};

use profiler_proto::{Limits, pprof};
use profiler_sidecar::capture::profile::{Builder, Window};
use profiler_sidecar::capture::{Bounds, Source};
use rustix::fs::{OFlags, fcntl_setfl};

use crate::inspect::is_root;
use crate::running::Running;
use crate::{is_torture, programs};

/// Check some thousands; a hundred thousand of each in `make torture`.
#[test]
fn very_many_goroutines_and_stacks_are_captured() {
    let (goroutines, log) = if is_torture() { (100_000, 17) } else { (10_000, 13) };
    let program = programs::build("many", "go1.27.0", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &[&goroutines.to_string(), &log.to_string()]);
    let source = Source::find(running.pid()).unwrap();
    let most = Bounds { buckets: 1_000_000, goroutines: 1_000_000 };

    let began = Instant::now();
    let all = source.goroutines(most).unwrap();
    let parked = all.list.iter().filter(|goroutine| goroutine.state().words == "chan receive (nil chan)").count();
    assert_eq!((parked, all.beyond, all.over_bytes), (goroutines, 0, 0));
    let mut heap = source.heap(most).unwrap();
    let took = began.elapsed();
    // Beside those of the program there are a few of the runtime's.
    let stacks = 1 << log;
    assert!((stacks..stacks + 500).contains(&heap.walk.taken), "{:?}", heap.walk);
    assert_eq!((heap.walk.over_bytes, heap.walk.beyond, heap.walk.broken), (0, 0, 0));

    let mut builder = Builder::new(&source, profiler_proto::resource::Resource::new().with("service.name", "many"));
    builder.heap(&mut heap, Window { start_unix_nanos: 1, duration_nanos: 1 });
    builder.goroutines(&all, Window { start_unix_nanos: 1, duration_nanos: 1 });
    eprintln!("{goroutines} goroutines, {stacks} stacks: read in {took:?}, built in {:?}", began.elapsed() - took);
    let set = builder.finish();
    let (objects, goroutine) = (&set.profiles[2].samples, &set.profiles[4].samples);
    assert!(objects.len() as u64 >= stacks, "{}", objects.len());
    assert_eq!(goroutine.iter().filter(|sample| sample.value >= goroutines as i64 / 20).count(), 20);

    let few = Bounds { buckets: 4000, goroutines: 1000 };
    assert_eq!(source.heap(few).unwrap().walk.beyond, heap.walk.taken - 4000);
    // Workers of the runtime come and go.
    let (few, all) = (source.goroutines(few).unwrap(), all.list.len());
    assert_eq!(few.list.len(), 1000);
    assert!((1000 + few.beyond).abs_diff(all as u64) < 50, "{} {all}", few.beyond);
}

/// Check that goroutines that ended take nobody's place: of twenty thousand the last ten are left, far behind a bound of a thousand, and are all there is.
#[test]
fn goroutines_that_ended_do_not_count_against_the_bound() {
    let program = programs::build("many", "go1.27.0", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &["20000", "1", "10"]);
    let source = Source::find(running.pid()).unwrap();
    let captured = source.goroutines(Bounds { goroutines: 1000, ..Bounds::default() }).unwrap();
    let parked = captured.list.iter().filter(|goroutine| goroutine.state().words == "chan receive (nil chan)");
    assert_eq!((parked.count(), captured.beyond, captured.broken), (10, 0, 0));
    // Where there is room for fewer than live, the rest is counted.
    let few = source.goroutines(Bounds { goroutines: 5, ..Bounds::default() }).unwrap();
    assert_eq!(few.list.len(), 5);
    assert!((5 + few.beyond).abs_diff(captured.list.len() as u64) < 50, "{}", few.beyond);
}

/// Check that for a hundred thousand stacks, and for as many goroutines, what is resident of a command at its peak is less than 64 MB above what it is for a
/// program that has few.
#[test]
fn a_hundred_thousand_take_less_than_64_mb_of_memory() {
    if !is_root() {
        return;
    }
    let program = programs::build("many", "go1.27.0", &["-ldflags=-s -w"], "amd64");
    let [many, few] = [["100000", "17"], ["1", "1"]].map(|arguments| Running::start(&program, &arguments));
    let file = program.with_extension(format!("{}.peak.pb.gz", many.pid()));
    for (command, bound, most) in [("heap", "--max-buckets", "100000"), ("goroutines", "--max-goroutines", "110000")] {
        let [most, least] = [&many, &few].map(|running| {
            let (pid, file) = (running.pid().to_string(), file.to_str().unwrap());
            peak(&[command, &pid, bound, most, "-o", file])
        });
        eprintln!("{command}: {} kB resident, {} kB of a program with few", most, least);
        assert!(most > least && most - least < 64_000, "{command}: {most} kB, {least} kB");
    }
    std::fs::remove_file(&file).unwrap();
}

/// The most that is resident of a command, in kB: as the kernel has it while it waits, for as long as it likes, to say what it did. It has no room to say it
/// until it was looked at.
fn peak(arguments: &[&str]) -> u64 {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut filled = 0;
    while let Ok(written) = writer.write(&[b'.'; 4096]) {
        filled += written;
    }
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_profiler-sidecar"));
    let mut child = command.args(arguments).stdout(writer).spawn().unwrap();
    drop(command);
    let of = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    // What it is in is said by number, and its first argument: standard output. Source: proc_pid_syscall(5).
    while !of("syscall").starts_with(&format!("{} 0x1 ", libc::SYS_write)) {
        assert!(Instant::now() < until, "{arguments:?}: {}", of("syscall"));
        std::thread::sleep(Duration::from_millis(1));
    }
    let status = of("status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(
        child.wait().unwrap().success() && text[filled..].contains(" stacks, "),
        "{arguments:?}: {}",
        &text[filled..]
    );
    peak
}

/// Check that a hundred thousand stacks, and as many goroutines, are read, named and written with 96 MiB of memory: the kernel gives no more
/// (`RLIMIT_DATA`, getrlimit(2): heap and private mappings), and a program that wants more ends. What is resident, of a release build, is measured by the row
/// `sidecar-runtime` of `make measure`, and less; how much the allocator has beside that depends on how threads meet.
#[test]
fn a_hundred_thousand_take_no_more_than_96_mib() {
    if !is_root() {
        return;
    }
    let program = programs::build("many", "go1.27.0", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &["100000", "17"]);
    let file = program.with_extension(format!("{}.pb.gz", running.pid()));
    for (command, bound, most, least) in
        [("heap", "--max-buckets", "100000", 99_900), ("goroutines", "--max-goroutines", "110000", 20)]
    {
        let mut limited = Command::new("prlimit");
        limited.args(["--data=100663296", env!("CARGO_BIN_EXE_profiler-sidecar"), command, &running.pid().to_string()]);
        let ran = limited.args([bound, most, "-o"]).arg(&file).output().unwrap();
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
        let told = String::from_utf8(ran.stdout).unwrap();
        let stacks: usize = told.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(stacks >= least, "{told}");
    }
    // Of the last command.
    let set = pprof::decode(&std::fs::read(&file).unwrap(), &Limits::default()).unwrap();
    let goroutines: i64 = set.profiles[0].samples.iter().map(|sample| sample.value).sum();
    assert!(goroutines >= 100_000, "{goroutines}");
    std::fs::remove_file(&file).unwrap();
}

/// Check that a hundred thousand goroutines with labels of their own are shown, grouped and each by itself, and written to a file, with 64 MiB of memory (as above),
/// though the text is longer than that; and that all of them are in it.
#[test]
fn a_hundred_thousand_with_labels_are_shown_with_64_mib() {
    if !is_root() {
        return;
    }
    let program = programs::build("many", "go1.27.0", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &["100000", "1", "100000", "labelled"]);
    let file = program.with_extension(format!("{}.txt", running.pid()));
    // On a slow machine, the time for which they have waited stands behind that.
    for (form, each) in [(&[][..], "\n1 [chan receive (nil chan)] {"), (&["--each"], "[chan receive (nil chan)")] {
        let mut limited = Command::new("prlimit");
        limited.args(["--data=67108864", env!("CARGO_BIN_EXE_profiler-sidecar"), "goroutines"]).args(form);
        limited.args(["--max-goroutines", "110000", &running.pid().to_string()]);
        let ran = limited.stdout(File::create(&file).unwrap()).output().unwrap();
        assert!(ran.status.success(), "{form:?}: {}", String::from_utf8_lossy(&ran.stderr));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.len() > 64 << 20, "{form:?}: {}", text.len());
        assert_eq!(text.matches(each).count(), 100_000, "{form:?}: {}", &text[..2000]);
        assert_eq!(text.matches("endpoint: /orders, request: ").count(), 100_000, "{form:?}");
    }
    let file_of_samples = file.with_extension("pb.gz");
    let mut limited = Command::new("prlimit");
    limited.args([
        "--data=67108864",
        env!("CARGO_BIN_EXE_profiler-sidecar"),
        "goroutines",
        "--max-goroutines",
        "110000",
    ]);
    let ran = limited.arg(running.pid().to_string()).arg("-o").arg(&file_of_samples).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let set = pprof::decode(&std::fs::read(&file_of_samples).unwrap(), &Limits::default()).unwrap();
    let with_labels =
        |sample: &&profiler_proto::Sample| set.dictionary.value_of(sample.attributes, "request").is_some();
    assert_eq!(set.profiles[0].samples.iter().filter(with_labels).count(), 100_000);
    std::fs::remove_file(&file_of_samples).unwrap();
    std::fs::remove_file(&file).unwrap();
}
