//! The whole way of a sample, from the kernel to a profile, against what a Go program's own profiler says of the same seconds.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use profiler_proto::loss::{Cause, Loss, stacks_of};
use profiler_proto::model::resource::Resource;
use profiler_proto::validate::validate;
use profiler_proto::{Limits, folded, otlp, pprof};
use profiler_sidecar::aggregate::{Aggregate, Window};
use profiler_sidecar::assemble::assemble;
use profiler_sidecar::bpf::{Knowledge, Options, Sampler};
use profiler_sidecar::clock::Moment;
use profiler_sidecar::drain::{self, Event};
use profiler_sidecar::naming::{Granularity, Kernel, Kind, Namer, Stats};
use profiler_sidecar::{elf, go};

use super::build::{Running, go_program, versions};

/// Four times what the program's own profiler has, and no multiple of it.
pub(crate) const RATE_HZ: u32 = 397;
/// Generous: the machine may be busy with twenty other things.
const DEADLINE: Duration = Duration::from_secs(120);

/// How often each stack was seen, root first, by name.
pub(crate) type Stacks = BTreeMap<String, u64>;

#[test]
fn a_go_program_is_seen_as_by_its_own_profiler() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("NOT RUN: eBPF programs can be loaded by root only; run the tests as root");
        return;
    }
    for version in versions() {
        let program = go_program("busy", version, &["-ldflags=-s -w"]);
        let file = program.with_extension("pb.gz");
        let (window, stats) = sampled(Command::new(&program).arg(&file).arg("4"));
        // One that ends while it is in the kernel has no stack any more, nor names.
        assert!((stats.stacks - stats.whole) * 50 <= stats.stacks, "{version}: {stats:?}");
        assert!(stats.mended * 5 > stats.stacks, "{version}: {stats:?}");
        assert!(stats.unnamed * 1000 <= stats.frames, "{version}: {stats:?}");
        let set =
            assemble(&window, &Resource::new().with("service.name", "busy"), &Loss::default(), Granularity::Lines);
        assert_eq!(validate(&otlp::encode(&set)), []);
        let told: u64 = set.profiles.iter().map(|profile| stacks_of(profile, &set.dictionary)).sum();
        assert_eq!((told, window.lost().count(Cause::AggregateFull)), (stats.stacks, 0));
        compare(&ours(&window), &theirs(&file), version);
    }
}

/// What is sampled of a program from its start to its end.
pub(crate) fn sampled(program: &mut Command) -> (Window, Stats) {
    // The first samples wait for all names of the program, which takes seconds on a busy machine: those that come meanwhile have room.
    let mut sampler =
        Sampler::load(Options { rate_hz: RATE_HZ, ring_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let mut running = Running::start(program);
    let process = running.process();
    let file = elf::File::open(std::fs::File::open(program.get_program()).unwrap()).unwrap();
    let tables = go::Program::open(file.into()).unwrap().unwrap();
    // At the end of exec the kernel side forgets what it was told, and whoever starts a program goes on before that.
    let (began, mut has_begun) = (Instant::now(), false);
    while !has_begun {
        assert!(began.elapsed() < DEADLINE, "the program does not begin");
        sampler.wait(Duration::from_millis(20));
        sampler.drain(|record| {
            has_begun |= matches!(drain::decode(record).unwrap(), Event::Exec { pid, .. } if pid == process.pid());
        });
    }
    let knowledge = Knowledge { go: go::offsets::offsets(&tables), ..Knowledge::default() };
    sampler.tell(process.pid(), &knowledge).unwrap();
    let (mut namer, mut aggregate) = (Namer::new(Kernel::read().unwrap()), Aggregate::begin(Moment::now()));
    running.write("\n");
    let (began, mut has_ended) = (Instant::now(), false);
    while !has_ended {
        assert!(began.elapsed() < DEADLINE, "the program does not end");
        sampler.wait(Duration::from_millis(20));
        sampler.drain(|record| match drain::decode(record).unwrap() {
            Event::Sample(sample) if sample.pid == process.pid() => {
                let stack = namer.name(process, &sample, Instant::now());
                aggregate.add(process, &sample, &stack).unwrap();
            }
            Event::Exit { pid } => has_ended |= pid == process.pid(),
            _ => {}
        });
    }
    (aggregate.end(Moment::now()).pop().unwrap(), namer.stats())
}

/// Without the kernel's frames, which a program does not see of itself.
pub(crate) fn ours(window: &Window) -> Stacks {
    let mut stacks = Stacks::new();
    for entry in window.entries(Granularity::Addresses) {
        let user = entry.stack.iter().rev().filter(|location| location.kind != Kind::Kernel);
        let names = user.flat_map(|location| location.lines.iter().rev()).map(|line| &*line.function.name);
        *stacks.entry(names.collect::<Vec<_>>().join(";")).or_default() += entry.count;
    }
    stacks
}

fn theirs(file: &Path) -> Stacks {
    let set = pprof::decode(&std::fs::read(file).unwrap(), &Limits::default()).unwrap();
    let mut stacks = Stacks::new();
    for line in folded::encode(&set.profiles[0], &set.dictionary, folded::Tags::Left).lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        // The runtime's own signal for goroutines that run for long comes together with that of its profiler.
        let stack = stack.strip_suffix(";runtime.asyncPreempt").unwrap_or(stack);
        *stacks.entry(stack.to_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    stacks
}

/// Check that each saw every stack that the other saw often. One that theirs saw `n` times is seen by ours `4 n` times on average, and not once with
/// a chance of `exp(-4 n)`: with 6, 4e-11. One that ours saw 60 times is not seen by theirs with a chance of `exp(-15)`.
fn compare(ours: &Stacks, theirs: &Stacks, version: &str) {
    let missing = |seen: &Stacks, least: u64, other: &Stacks| {
        let often = seen.iter().filter(|(_, count)| **count >= least);
        often
            .filter(|(stack, _)| !other.contains_key(*stack))
            .map(|(stack, count)| format!("{count} {stack}"))
            .collect::<Vec<_>>()
    };
    let often = theirs.values().filter(|count| **count >= 6).count();
    assert!(often >= 3, "{version}: the program hardly ran: {theirs:?}");
    assert_eq!(missing(theirs, 6, ours), [""; 0], "{version}: its own profiler saw");
    assert_eq!(missing(ours, 60, theirs), [""; 0], "{version}: its own profiler did not see");
}
