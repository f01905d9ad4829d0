//! What is read of a Go program from outside, beside what its own `runtime/pprof` wrote at the same moment.
//!
//! The program (`tests/go/parked`) has a known heap, goroutines in all states and contention, collects garbage, writes its profiles and waits. The
//! same stacks with the same names, files, lines and inlined functions must come out, with the same values. Left aside is what cannot be the same: the
//! goroutine that wrote the files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::running::Running;
use crate::{is_torture, programs};
use profiler_proto::model::{LinkId, ProfileSet, Value};
use profiler_proto::otlp;
use profiler_proto::validate::validate_bytes;
use profiler_proto::{Limits, pprof};
use profiler_sidecar::capture::contention::Kind;
use profiler_sidecar::capture::heap::State;
use profiler_sidecar::capture::profile::{Builder, Window};
use profiler_sidecar::capture::{Bounds, Goroutines, Periodic, Source, Variables};
use profiler_sidecar::go::Call;

/// Forms of a program: as it comes (static), without symbols and debug information, position-independent, both; with C, linked by the system's linker to shared
/// libraries, and to none; not optimized, as for a debugger.
const FORMS: [&[&str]; 7] = [
    &[],
    &["-ldflags=-s -w"],
    &["-buildmode=pie"],
    &["-buildmode=pie", "-ldflags=-s -w"],
    &["-ldflags=-s -w -linkmode=external"],
    &["-ldflags=-linkmode=external -extldflags=-static"],
    &["-gcflags=all=-N -l"],
];

pub(crate) const WINDOW: Window = Window { start_unix_nanos: 1_700_000_000_000_000_000, duration_nanos: 1 };

/// Of each version, the forms in which it is compared; `make torture` has each version in each.
const COMPARED: [&[usize]; 7] = [&[0, 1], &[1, 2], &[0, 1], &[0, 1, 2, 3, 4, 5, 6], &[1, 3], &[0, 4], &[2, 3, 4, 5, 6]];

/// Check each version in two forms, a middle one in all and the newest in most; each form with two versions at least.
#[test]
fn captures_are_what_the_program_says_itself() {
    for (version, some) in programs::VERSIONS.into_iter().zip(COMPARED) {
        for (number, form) in FORMS.into_iter().enumerate() {
            assert!(COMPARED.iter().filter(|forms| forms.contains(&number)).count() >= 2 && some.len() >= 2);
            if is_torture() || some.contains(&number) {
                compare(version, form);
            }
        }
    }
}

/// Check that a program that has heap profiling off is told from one without a heap, and from one that the linker left it out of.
#[test]
fn what_is_off_is_said() {
    for version in ["go1.21.13", "go1.24.13", "go1.27.0"] {
        let program = programs::build("bare", version, &["-ldflags=-s -w"], "amd64");
        let running = Running::start(&program, &[]);
        let heap = Source::find(running.pid()).unwrap().heap(Bounds::default()).unwrap();
        assert_eq!((heap.rate, heap.state), (0, State::Unlinked), "{version}");
        assert!(heap.state.advice().unwrap().contains("the linker left it out"));

        let program = programs::build("parked", version, &[], "amd64");
        let running = Running::start(&program, &["off"]);
        let source = Source::find(running.pid()).unwrap();
        let heap = source.heap(Bounds::default()).unwrap();
        // What was allocated before `main`, at the usual rate, may be there.
        assert_eq!((heap.rate, heap.state), (0, State::Off), "{version}");
        assert!(heap.state.advice().unwrap().contains("runtime.MemProfileRate is 0, by a line of the program"));
        for kind in [Kind::Block, Kind::Mutex] {
            let contention = source.contention(kind, Bounds::default()).unwrap();
            assert_eq!((contention.rate, contention.records.len()), (0, 0));
        }
    }
}

/// Check of real programs that a heap of which no garbage was collected yet is all that was allocated, and that one of which nothing is ever sampled is told from one
/// that is empty.
#[test]
fn what_is_not_collected_or_not_sampled_is_said() {
    for version in ["go1.21.13", "go1.24.13", "go1.27.0"] {
        let program = programs::build("parked", version, &["-ldflags=-s -w"], "amd64");
        let heap_of = |running: &Running| Source::find(running.pid()).unwrap().heap(Bounds::default()).unwrap();
        let mut running = Running::start_with(&program, &[], &[("GOGC", "off")]);
        let heap = heap_of(&running);
        let bytes: i64 = heap.records.iter().map(|record| record.allocated.unsampled(heap.rate).bytes).sum();
        assert!(heap.state == State::NoCollection && !heap.mixed, "{version}: {:?}", heap.state);
        // `fill` and `waste` of the program: nothing of it is free yet.
        assert!((50_000_000..80_000_000).contains(&bytes), "{version}: {bytes}");
        assert!(heap.records.iter().all(|record| record.in_use == record.allocated), "{version}");
        collected(&program, &mut running);
        let after = heap_of(&running);
        assert!(
            after.state == State::Collected && after.records.iter().any(|record| record.in_use != record.allocated)
        );
        // Stacks may be limited to nothing since 1.23; those are not kept then.
        if version != "go1.21.13" {
            let mut running = Running::start_with(&program, &[], &[("GODEBUG", "profstackdepth=0")]);
            collected(&program, &mut running);
            let heap = heap_of(&running);
            assert_eq!((heap.state, heap.records.len()), (State::Unsampled, 0), "{version}");
        }
    }
}

/// Has the program collect its garbage.
fn collected(program: &Path, running: &mut Running) {
    let folder = program.with_extension(format!("{}.collected", running.pid()));
    std::fs::create_dir_all(&folder).unwrap();
    running.ask(&format!("write {}", folder.display()), "written");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Check that a goroutine that runs is marked as one whose frames are not known, and that labels that name a span are its link.
#[test]
fn goroutines_are_marked_and_linked() {
    let program = programs::build("parked", "go1.24.13", &[], "amd64");
    let mut running = Running::start(&program, &[]);
    running.ask("run", "runs");
    let source = Source::find(running.pid()).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    // Between two of its time slices, or where the machine is busy, it does not run. What it stands in before it waits is not known.
    let (set, stack) = loop {
        let goroutines = source.goroutines(Bounds::default()).unwrap();
        let mut builder =
            Builder::new(&source, profiler_proto::resource::Resource::new().with("service.name", "parked"));
        builder.goroutines(&goroutines, WINDOW);
        let set = builder.finish();
        assert_eq!(validate_bytes(&otlp::encode_to_vec(&set)), []);
        let stacks = set.profiles[0].samples.iter().map(|sample| stack(&set, sample));
        let runs = stacks.clone().find(|stack| stack.len() == 2 && stack[1].starts_with("main.run "));
        let in_span = set.dictionary.links.iter().any(|link| link.span_id != [0; 8]);
        match runs.filter(|_| in_span) {
            Some(runs) => break (set.clone(), runs),
            None => assert!(Instant::now() < until, "{:#?}", stacks.collect::<Vec<_>>()),
        }
    };
    assert_eq!(stack[0], "[running] :0 (0)");
    let linked = set.profiles[0].samples.iter().find(|sample| sample.link != LinkId::ZERO).unwrap();
    let link = set.dictionary.links.get(linked.link).unwrap();
    assert_eq!(link.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
    assert_eq!(link.span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!(labels(&set, linked), "user=ada");
}

/// Check since when goroutines wait, by the same clock as the system's: as far as the collector noticed, which it did after they began to. Of one that was
/// not noticed yet it is not known.
#[test]
fn how_long_goroutines_wait_is_known_once_garbage_was_collected() {
    let program = programs::build("parked", "go1.24.13", &[], "amd64");
    let before = monotonic();
    let mut running = Running::start(&program, &[]);
    let folder = program.with_extension(format!("{}.waits", running.pid()));
    std::fs::create_dir_all(&folder).unwrap();
    running.ask(&format!("write {}", folder.display()), "written");
    std::fs::remove_dir_all(&folder).unwrap();
    let collected = monotonic();
    running.ask("run", "runs");
    let source = Source::find(running.pid()).unwrap();
    let all = source.goroutines(Bounds::default()).unwrap();
    let waiting = all.list.iter().filter(|goroutine| goroutine.state().words == "chan receive");
    let since: Vec<u64> = waiting.map(|goroutine| goroutine.waiting_since.unwrap()).collect();
    assert!(since.len() >= 4 && since.iter().all(|since| (before..collected).contains(since)), "{before} {since:?}");
    // It began to wait after the collection.
    let new = all.list.iter().find(|goroutine| goroutine.labels.iter().any(|(key, _)| key == "span_id"));
    assert!(new.is_some_and(|new| new.waiting_since.is_none_or(|since| since > collected)), "{new:?}");
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which is Go's `nanotime`.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// In the first bytes of the file of a program that is not PIE, behind what is zero there.
const NO_LIST: u64 = 0x40_0010;

/// Check that a variable that is not found, or is not what it should be, takes its own kinds along, and no others.
#[test]
fn what_cannot_be_read_is_missing_alone() {
    let program = programs::build("parked", "go1.24.13", &[], "amd64");
    let running = Running::start(&program, &[]);
    let all = *Source::find(running.pid()).unwrap().variables();
    let cases = [
        (Variables { memory_rate: None, ..all }, &["heap"][..], &["goroutine"][..]),
        (Variables { goroutines: None, ..all }, &["goroutine"], &["inuse_space"]),
        (Variables { block_rate: None, ..all }, &["block", "mutex"], &["inuse_space", "goroutine"]),
        // No list, and no pointer to one.
        (Variables { buckets: Some(NO_LIST), ..all }, &["heap", "block", "mutex"], &["goroutine"]),
        (Variables { goroutines: Some(NO_LIST), ..all }, &["goroutine"], &["inuse_space"]),
    ];
    for (variables, missing, there) in cases {
        let mut periodic = Periodic::new(Source::find(running.pid()).unwrap().with_variables(variables));
        let resource = || profiler_proto::resource::Resource::new().with("service.name", "parked");
        let captured = periodic.capture(resource(), WINDOW, Bounds::default()).unwrap();
        let told: Vec<&str> = captured.missing.iter().map(|(what, _)| what.name()).collect();
        assert_eq!(told, missing);
        let set = captured.set;
        let kinds: Vec<&str> =
            set.profiles.iter().map(|profile| set.dictionary.strings.text(profile.kind.sample_type.kind)).collect();
        assert!(there.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    }
    let mut periodic = Periodic::new(Source::find(running.pid()).unwrap().with_variables(Variables::default()));
    let none = periodic.capture(profiler_proto::resource::Resource::new(), WINDOW, Bounds::default());
    assert!(none.unwrap_err().to_string().contains("not where go1.24.13 keeps them"));
}

/// Check that a process that became another program, even the same one again, is told: its counts begin anew and its variables may be elsewhere.
#[test]
fn a_program_that_was_replaced_is_not_taken_for_what_it_was() {
    let program = programs::build("parked", "go1.24.13", &[], "amd64");
    let mut running = Running::start(&program, &[]);
    let source = Source::find(running.pid()).unwrap();
    // Another test that builds the program touches it.
    std::fs::File::open(&program).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    assert!(source.heap(Bounds::default()).is_ok() && source.is_same());
    running.ask("exec", "ready");
    assert!(!source.is_same());
    let told = source.heap(Bounds::default()).unwrap_err().to_string();
    assert!(told.contains("it runs another program by now"), "{told}");
    assert!(Source::find(running.pid()).unwrap().heap(Bounds::default()).is_ok());
}

/// Check that a Go of the future is refused by its name, with what to do: its numbers may be others.
#[test]
fn a_version_that_is_not_known_is_refused() {
    let program = programs::build("bare", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let mut bytes = std::fs::read(&program).unwrap();
    let (from, to) = (b"go1.24.13", b"go1.99.13");
    let places: Vec<usize> = (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[*at..at + to.len()].copy_from_slice(to));
    let future = program.with_extension(format!("{}.future", std::process::id()));
    std::fs::write(&future, bytes).unwrap();
    std::fs::set_permissions(&future, std::fs::metadata(&program).unwrap().permissions()).unwrap();
    let running = Running::start(&future, &[]);
    let told = Source::find(running.pid()).unwrap_err().to_string();
    assert_eq!(
        told,
        format!(
            "the program of process {}: built by \"go1.99.13\", whose runtime is not known; releases of Go 1.21 to 1.27 can be read from outside; for others import \
             net/http/pprof and pull",
            running.pid()
        )
    );
    std::fs::remove_file(&future).unwrap();
}

/// Check that a program of 32 bits, which this kernel runs beside those of 64, is refused by name: its words are others.
#[test]
fn a_program_of_32_bits_is_refused() {
    let program = programs::build("bare", "go1.24.13", &["-ldflags=-s -w"], "386");
    let running = Running::start(&program, &[]);
    let told = Source::find(running.pid()).unwrap_err().to_string();
    assert!(told.starts_with(&format!("the program of process {}: ", running.pid())), "{told}");
    assert!(told.contains("only programs of ELF with 64 bits, built by Go, can be read"), "{told}");
}

fn compare(version: &str, form: &[&str]) {
    let program = programs::build("parked", version, form, "amd64");
    let mut running = Running::start(&program, &[]);
    let folder = program.with_extension(format!("{}.profiles", running.pid()));
    std::fs::create_dir_all(&folder).unwrap();
    running.ask(&format!("write {}", folder.display()), "written");
    let source = Source::find(running.pid()).unwrap();
    let what = format!("{version} {form:?}");

    let mut heap = source.heap(Bounds::default()).unwrap();
    assert_eq!((heap.state, heap.torn, heap.walk.foreign, heap.walk.broken), (State::Collected, 0, 0, 0), "{what}");
    let ours = built(&source, |builder| builder.heap(&mut heap, WINDOW));
    same(&what, "heap", &table(&ours, |_| true), &table(&theirs(&folder, "heap"), |_| true));

    let goroutines = source.goroutines(Bounds::default()).unwrap();
    assert_eq!((goroutines.changed, goroutines.broken), (0, 0), "{what}");
    let ours = built(&source, |builder| _ = builder.goroutines(&goroutines, WINDOW));
    // The one that writes the profiles is elsewhere by now.
    let others = |stack: &[String]| !stack.iter().any(|frame| frame.starts_with("main.main "));
    same(&what, "goroutine", &table(&ours, others), &table(&theirs(&folder, "goroutine"), others));
    states(&what, &source, &folder);

    for kind in [Kind::Block, Kind::Mutex] {
        let contention = source.contention(kind, Bounds::default()).unwrap();
        assert_eq!((contention.rate, contention.walk.foreign, contention.walk.broken), (1, 0, 0), "{what}");
        let ours = built(&source, |builder| builder.contention(&contention, WINDOW));
        // The runtime's own locks (1.23 and newer) go on to be waited for, and while profiles are written.
        let settled = |stack: &[String]| {
            let of = |name: &str| stack.iter().any(|frame| frame.starts_with(name));
            of("main.") && !of("main.write ") && (kind == Kind::Block || !stack[0].starts_with("runtime."))
        };
        same(&what, kind.name(), &table(&ours, settled), &table(&theirs(&folder, kind.name()), settled));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Ours, sent and received as others do: nothing amiss, and as a file.
pub(crate) fn built(source: &Source, fill: impl FnOnce(&mut Builder<'_>)) -> ProfileSet {
    let mut builder = Builder::new(source, profiler_proto::resource::Resource::new().with("service.name", "parked"));
    fill(&mut builder);
    let set = builder.finish();
    assert_eq!(validate_bytes(&otlp::encode_to_vec(&set)), []);
    pprof::decode(&pprof::encode(&set), &Limits::default()).unwrap()
}

pub(crate) fn theirs(folder: &Path, name: &str) -> ProfileSet {
    pprof::decode(&std::fs::read(folder.join(format!("{name}.pb.gz"))).unwrap(), &Limits::default()).unwrap()
}

pub(crate) type Table = BTreeMap<(Vec<String>, String), Vec<i64>>;

/// Values by stack and labels; each function of a stack as name, file, line and first line, leaf first, with the address where it stands.
pub(crate) fn table(set: &ProfileSet, wanted: impl Fn(&[String]) -> bool) -> Table {
    let mut table = Table::new();
    for (column, profile) in set.profiles.iter().enumerate() {
        for sample in &profile.samples {
            let mut stack = stack(set, sample);
            if wanted(&stack) && sample.value != 0 {
                stack.iter_mut().zip(addresses(set, sample)).for_each(|(frame, at)| *frame += &format!(" at {at:#x}"));
                let labels = labels(set, sample);
                let values = table.entry((stack, labels)).or_insert_with(|| vec![0; set.profiles.len()]);
                values[column] += sample.value;
            }
        }
    }
    table
}

pub(crate) fn stack(set: &ProfileSet, sample: &profiler_proto::Sample) -> Vec<String> {
    let dictionary = &set.dictionary;
    let text = |id| dictionary.strings.text(id);
    let locations = &dictionary.stacks.get(sample.stack).unwrap().locations;
    let lines = locations.iter().flat_map(|id| &dictionary.locations.get(*id).unwrap().lines);
    let frame = |line: &profiler_proto::model::Line| {
        let function = dictionary.functions.get(line.function).unwrap();
        format!("{} {}:{} ({})", text(function.name), text(function.filename), line.line, function.start_line)
    };
    lines.map(frame).collect()
}

/// For each function of a stack the address of its place, which inlined ones share.
fn addresses(set: &ProfileSet, sample: &profiler_proto::Sample) -> Vec<u64> {
    let locations = set.dictionary.stacks.get(sample.stack).unwrap().locations.iter();
    let places = locations.map(|id| set.dictionary.locations.get(*id).unwrap());
    places.flat_map(|place| std::iter::repeat_n(place.address, place.lines.len())).collect()
}

/// Without what only one side has: Go's size of objects, our state of goroutines.
fn labels(set: &ProfileSet, sample: &profiler_proto::Sample) -> String {
    let all = set
        .dictionary
        .attributes_of(sample.attributes)
        .filter(|(key, _)| !["bytes", "go.goroutine.state"].contains(key));
    let mut labels: Vec<String> = all.map(|(key, value)| format!("{key}={}", plain(value))).collect();
    labels.sort();
    labels.join(" ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::List(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}

pub(crate) fn same(what: &str, profile: &str, ours: &Table, theirs: &Table) {
    assert!(!theirs.is_empty(), "{what}: {profile} is empty");
    for (key, values) in theirs {
        assert_eq!(ours.get(key), Some(values), "{what}: {profile}: {key:#?}, of ours:\n{:#?}", near(ours, key));
    }
    let more: Vec<_> = ours.iter().filter(|(key, _)| !theirs.contains_key(key)).collect();
    assert!(more.is_empty(), "{what}: {profile}: ours alone: {more:#?}");
}

/// Stacks with the same leaf or root.
fn near(table: &Table, (stack, _): &(Vec<String>, String)) -> Table {
    let alike = |other: &[String]| other.last() == stack.last() || other.first() == stack.first();
    table.iter().filter(|((other, _), _)| alike(other)).map(|(key, values)| (key.clone(), values.clone())).collect()
}

/// States and wait reasons by goroutine, as a panic would print them ("goroutine 7 [chan receive]:").
fn states(what: &str, source: &Source, folder: &Path) {
    let text = std::fs::read_to_string(PathBuf::from(folder).join("goroutines.txt")).unwrap();
    let headers = text.lines().filter_map(|line| line.strip_prefix("goroutine ")?.split_once(" ["));
    let theirs: BTreeMap<u64, String> = headers
        .map(|(id, rest)| {
            let state = rest.split(']').next().unwrap();
            // Waiting times and threads stand behind a comma; newer versions write labels and more behind the number.
            let id = id.split(' ').next().unwrap();
            (id.parse().unwrap(), state.split(", ").next().unwrap().to_owned())
        })
        .collect();
    let goroutines = source.goroutines(Bounds::default()).unwrap();
    let ours: BTreeMap<u64, String> =
        goroutines.list.iter().map(|goroutine| (goroutine.id, goroutine.state().to_string())).collect();
    assert!(theirs.len() > 15, "{what}: {text}");
    for (id, state) in theirs.iter().filter(|(id, _)| **id != 1) {
        assert_eq!(ours.get(id), Some(state), "{what}: goroutine {id}");
    }
    creators(what, &text, source, &goroutines);
}

/// Who started each goroutine, where, as a panic would print it ("created by main.park.func1 in goroutine 1", then the line).
fn creators(what: &str, text: &str, source: &Source, goroutines: &Goroutines) {
    let mut compared = 0;
    for theirs in text.split("\n\n") {
        let Some((_, rest)) = theirs.split_once("goroutine ") else { continue };
        let id: u64 = rest.split(' ').next().unwrap().parse().unwrap();
        let Some((_, creator)) = theirs.split_once("created by ") else { continue };
        let (by, place) = creator.split_once("\n\t").unwrap();
        let (function, parent) = by.split_once(" in goroutine ").unwrap();
        let ours = goroutines.list.iter().find(|goroutine| goroutine.id == id).unwrap();
        let frames = source.loaded().frames(ours.go_pc, Call::Return);
        let frame = frames.first().unwrap();
        assert_eq!((&*frame.function, ours.parent), (function, parent.parse().unwrap()), "{what}: goroutine {id}");
        let line = place.split(' ').next().unwrap().trim_end();
        assert_eq!(format!("{}:{}", frame.file, frame.line), line, "{what}: goroutine {id}");
        compared += 1;
    }
    assert!(compared > 15, "{what}: {text}");
}
