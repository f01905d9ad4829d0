//! That a set says what its window holds, whatever that is, and that every receiver takes it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use profiler_proto::loss::{Cause, Degraded, Flaw, stacks_of};
use profiler_proto::model::Id;
use profiler_proto::otlp;
use profiler_proto::validate::validate;
use proptest::prelude::*;

use super::*;
use crate::aggregate::Aggregate;
use crate::clock::Moment;
use crate::naming::{self, BuildId, Line, Location, Module};
use crate::sample;
use crate::target::Process;

fn function(name: &str, file: &str) -> Arc<naming::Function> {
    Arc::new(naming::Function { name: name.into(), file: file.into(), start_line: 3, ..naming::Function::default() })
}

fn module(build_ids: &[(BuildId, &str)]) -> Arc<Module> {
    let build_ids = build_ids.iter().map(|(kind, id)| (*kind, (*id).into())).collect();
    Arc::new(Module { start: 0x1000, end: 0x9000, offset: 0, path: "/app/shop".into(), build_ids })
}

fn go(address: u64, module: &Arc<Module>) -> Arc<Location> {
    let line = |name, line| Line { function: function(name, "shop.go"), line };
    let lines = Arc::new([line("main.inlined", 12), line("main.handle", 40)]);
    Arc::new(Location { address, module: Some(Arc::clone(module)), lines, kind: naming::Kind::Go })
}

fn taken(period_nanos: u64, labels: &[(&str, &str)]) -> sample::Sample {
    let labels = labels.iter().copied().collect();
    sample::Sample { tid: 9, comm: "shop".into(), period_nanos, labels, ..sample::Sample::default() }
}

fn window(samples: &[(sample::Sample, naming::Stack)]) -> Window {
    let start = Moment::now().later(Duration::ZERO, UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let mut aggregate = Aggregate::begin(start);
    for (sample, stack) in samples {
        aggregate.add(Process::new(7, 1), sample, stack).unwrap();
    }
    aggregate.end(start.later(Duration::from_secs(10), start.wall)).pop().unwrap()
}

fn resource() -> Resource {
    Resource::new().with("service.name", "shop")
}

/// Check that names, files, lines, inlined functions, builds, tags, threads, spans and losses arrive, and that receivers take it.
#[test]
fn a_window_is_told_whole() {
    let module = module(&[(BuildId::Gnu, "abcd"), (BuildId::Go, "x/y")]);
    let frames = [go(0x1010, &module), Location::remark("[frames left out]"), go(0x2020, &module)];
    let mut flaws = Degraded::default();
    flaws.add(Flaw::Truncated, 1);
    let stack = naming::Stack { frames: frames.into(), flaws, number: None };
    let labels = [("endpoint", "/orders"), ("trace_id", "a"), ("span_id", "b")];
    let window = window(&[(taken(10, &labels), stack.clone()), (taken(10, &labels), stack)]);
    let mut lost = Loss::default();
    lost.add(Cause::RingFull, 4);
    let set = assemble(&window, &resource(), &lost, Granularity::Lines);
    assert_eq!(validate(&otlp::encode(&set)), []);
    assert!(matches!(set.compact(), Cow::Borrowed(_)), "it is sent as it is made");
    assert_eq!((set.scope.name.as_str(), set.profiles.len()), ("profiler_sidecar", 1));
    let (dictionary, profile) = (&set.dictionary, &set.profiles[0]);
    assert!(profile.kind.is_cpu(dictionary));
    assert_eq!((profile.kind.period, profile.duration_nanos, profile.samples.len()), (10, 10_000_000_000, 1));
    assert_eq!(stacks_of(profile, dictionary), 2);
    let count = |key| dictionary.value_of(profile.attributes, key).and_then(Value::as_int);
    assert_eq!((count("profiler.lost.ring_full"), count("profiler.degraded.truncated")), (Some(4), Some(2)));
    let sample = profile.samples[0];
    let tags: Vec<String> =
        dictionary.attributes_of(sample.attributes).map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(tags, ["endpoint=/orders"]);
    let link = dictionary.links.get(sample.link).unwrap();
    assert_eq!((link.trace_id, link.span_id), (10_u128.to_be_bytes(), 11_u64.to_be_bytes()));
    let stack = dictionary.stacks.get(sample.stack).unwrap();
    let leaf = dictionary.locations.get(stack.locations[0]).unwrap();
    let name = |line: &profiler_proto::model::Line| {
        dictionary.strings.text(dictionary.functions.get(line.function).unwrap().name).to_owned()
    };
    assert_eq!(
        leaf.lines.iter().map(|line| (name(line), line.line)).collect::<Vec<_>>(),
        [("main.inlined".into(), 12), ("main.handle".into(), 40)]
    );
    assert_eq!(dictionary.value_of(leaf.attributes, "profile.frame.type").and_then(Value::as_str), Some("go"));
    let mapping = dictionary.mappings.get(leaf.mapping).unwrap();
    assert_eq!(dictionary.attributes_of(mapping.attributes).count(), 2);
    assert_eq!(dictionary.locations.get(stack.locations[1]).unwrap().attributes.index(), 0);
}

/// Check that samples of a thread say which, and that those of goroutines, which move from thread to thread, are one whatever thread it was.
#[test]
fn threads_are_told_of_all_but_goroutines() {
    let native = naming::Stack { frames: [Location::remark("a")].into(), ..naming::Stack::default() };
    let frames = [Location::remark("entry"), go(0x1010, &module(&[]))].into();
    let of_go = naming::Stack { frames, ..naming::Stack::default() };
    let on = |tid| sample::Sample { tid, ..taken(10, &[]) };
    let samples = [(on(1), &native), (on(2), &native), (on(1), &of_go), (on(2), &of_go)];
    let set = assemble(
        &window(&samples.map(|(sample, stack)| (sample, stack.clone()))),
        &resource(),
        &Loss::default(),
        Granularity::Lines,
    );
    let told: Vec<(Vec<String>, i64)> = set.profiles[0]
        .samples
        .iter()
        .map(|sample| {
            let tags = set.dictionary.attributes_of(sample.attributes);
            let mut tags: Vec<String> = tags.map(|(key, value)| format!("{key}={value}")).collect();
            tags.sort_unstable();
            (tags, sample.value)
        })
        .collect();
    let thread = |id: &str| vec![format!("thread.id={id}"), "thread.name=shop".to_owned()];
    assert_eq!(told, [(vec![], 2), (thread("1"), 1), (thread("2"), 1)]);
}

/// Check that instructions of a line of Go are one place where lines are enough, that other lines, other inlined calls, other mappings and what has
/// no lines are places of their own, and that each instruction is where addresses are asked for.
#[test]
fn instructions_of_a_line_are_one_place() {
    let file = module(&[(BuildId::Gnu, "abcd")]);
    let other = Arc::new(Module { start: 0x2000, ..Module::clone(&file) });
    // A program that the process became, at the same addresses.
    let rebuilt = module(&[(BuildId::Gnu, "ef01")]);
    let place = |address, module: &Arc<Module>, lines: &[(&str, u32)], kind| {
        let line = |(name, line): &(&str, u32)| Line { function: function(name, "a.go"), line: *line };
        Arc::new(Location { address, module: Some(Arc::clone(module)), lines: lines.iter().map(line).collect(), kind })
    };
    use naming::Kind::{Go, Native};
    let places = [
        place(0x2001, &file, &[("f", 1)], Go),
        place(0x2002, &file, &[("f", 1)], Go),
        place(0x2003, &file, &[("f", 2)], Go),
        place(0x2004, &file, &[("g", 1), ("f", 1)], Go),
        place(0x2005, &other, &[("f", 1)], Go),
        place(0x2006, &file, &[("f", 0)], Go),
        place(0x2007, &file, &[("f", 0)], Go),
        place(0x2008, &file, &[("c", 1)], Native),
        place(0x2009, &file, &[("c", 1)], Native),
        place(0x2001, &rebuilt, &[("f", 1)], Go),
    ];
    let stack = |place| naming::Stack { frames: [place].into(), ..naming::Stack::default() };
    let window = window(&places.map(|place| (taken(1, &[]), stack(place))));
    let told = |granularity| {
        let set = assemble(&window, &resource(), &Loss::default(), granularity);
        assert_eq!(validate(&otlp::encode(&set)), []);
        assert!(matches!(set.compact(), Cow::Borrowed(_)));
        let addresses: Vec<u64> = set.dictionary.locations.iter().skip(1).map(|location| location.address).collect();
        (addresses, set.profiles[0].samples.iter().map(|sample| sample.value).collect::<Vec<_>>())
    };
    let (all, each) = told(Granularity::Addresses);
    // Those of no thread first.
    assert_eq!(all, [0x2001, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008, 0x2009]);
    assert_eq!(each, [1; 10]);
    let (some, counts) = told(Granularity::Lines);
    // Of these, those that were seen once.
    assert_eq!(some, [0, 0, 0, 0, 0x2006, 0x2007, 0, 0x2008, 0x2009]);
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 2, 1, 1]);
}

/// Check that a rate that changed within a window keeps totals true: nanoseconds in all, losses once.
#[test]
fn a_changed_rate_keeps_totals_true() {
    let stack = naming::Stack { frames: [Location::remark("a")].into(), ..naming::Stack::default() };
    let samples: Vec<_> = [10, 40, 10, 40, 40].map(|period| (taken(period, &[]), stack.clone())).into();
    let mut lost = Loss::default();
    lost.add(Cause::RingFull, 1);
    let set = assemble(&window(&samples), &resource(), &lost, Granularity::Lines);
    assert_eq!(validate(&otlp::encode(&set)), []);
    let nanos =
        |profile: &Profile| profile.kind.period * profile.samples.iter().map(|sample| sample.value).sum::<i64>();
    assert_eq!(set.profiles.iter().map(nanos).collect::<Vec<_>>(), [20, 120]);
    assert_eq!(set.profiles.iter().map(|profile| stacks_of(profile, &set.dictionary)).sum::<u64>(), 5);
    let told = |profile: &Profile| set.dictionary.value_of(profile.attributes, "profiler.lost.ring_full").is_some();
    assert_eq!(set.profiles.iter().filter(|profile| told(profile)).count(), 1);
}

/// Check that a file nobody can name by its build is no mapping, that the frame stays, and that no place in memory that is outside of its
/// mapping is told as inside.
#[test]
fn a_mapping_without_a_build_is_none() {
    let frames = [go(0x1010, &module(&[])), go(0xffff_0000, &module(&[(BuildId::Hash, "ab")]))];
    let set = assemble(
        &window(&[(taken(1, &[]), naming::Stack { frames: frames.into(), ..naming::Stack::default() })]),
        &resource(),
        &Loss::default(),
        Granularity::Lines,
    );
    assert_eq!(validate(&otlp::encode(&set)), []);
    assert_eq!((set.dictionary.mappings.len(), set.dictionary.locations.len()), (1, 3));
}

/// Check that places that are kept twice are one sample, and that a tag goes before a label of ours.
#[test]
fn what_looks_the_same_is_one_sample() {
    let stack = || naming::Stack { frames: [Location::remark("same")].into(), ..naming::Stack::default() };
    let labels = [("thread.name", "mine")];
    let set = assemble(
        &window(&[(taken(1, &labels), stack()), (taken(1, &labels), stack())]),
        &resource(),
        &Loss::default(),
        Granularity::Lines,
    );
    assert_eq!(set.profiles[0].samples.iter().map(|sample| sample.value).collect::<Vec<_>>(), [2]);
    let attributes = set.profiles[0].samples[0].attributes;
    assert_eq!(set.dictionary.value_of(attributes, "thread.name").and_then(Value::as_str), Some("mine"));
    assert_eq!(validate(&otlp::encode(&set)), []);
}

fn location() -> impl Strategy<Value = Arc<Location>> {
    let kinds = [naming::Kind::Go, naming::Kind::Rust, naming::Kind::Native, naming::Kind::Kernel];
    let lines = proptest::collection::vec((".{1,12}", ".{0,6}", any::<u32>()), 1..4);
    let modules = proptest::option::of((any::<u64>(), any::<u64>(), "[a-f0-9]{0,8}", ".{0,8}"));
    (any::<u64>(), lines, modules, proptest::sample::select(kinds.to_vec())).prop_map(
        |(address, lines, module, kind)| {
            let lines = lines.iter().map(|(name, file, line)| Line { function: function(name, file), line: line >> 1 });
            let module = module.map(|(start, end, id, path)| {
                let build_ids = if id.is_empty() { vec![] } else { vec![(BuildId::Gnu, id.into())] };
                Arc::new(Module { start, end, offset: start, path: path.as_str().into(), build_ids: build_ids.into() })
            });
            Arc::new(Location { address, module, lines: lines.collect(), kind })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Check that whatever names, addresses, labels and weights there are, totals are true, receivers take the set, and it is the same again.
    #[test]
    fn anything_is_told_as_receivers_take_it(
        locations in proptest::collection::vec(location(), 1..8),
        samples in proptest::collection::vec(
            (proptest::collection::vec(any::<prop::sample::Index>(), 0..6), any::<u64>(), 0..3_u32,
             proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..9), proptest::collection::vec(any::<u8>(), 0..9)), 0..5)),
            1..20),
    ) {
        let samples: Vec<_> = samples.into_iter().map(|(places, period, tid, labels)| {
            let frames = places.iter().map(|place| Arc::clone(place.get(&locations))).collect();
            let labels = labels.into_iter().collect();
            let sample = sample::Sample { tid, period_nanos: period, labels, comm: "ü".into(), ..sample::Sample::default() };
            (sample, naming::Stack { frames, ..naming::Stack::default() })
        }).collect();
        let set = assemble(&window(&samples), &resource(), &Loss::default(), Granularity::Lines);
        prop_assert_eq!(validate(&otlp::encode(&set)), []);
        let told: i64 = set.profiles.iter().flat_map(|profile| &profile.samples).map(|sample| sample.value).sum();
        prop_assert_eq!(told, samples.len() as i64);
        prop_assert_eq!(set, assemble(&window(&samples), &resource(), &Loss::default(), Granularity::Lines));
    }
}
