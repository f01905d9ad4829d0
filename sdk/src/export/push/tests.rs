//! Requests of push.v1: names, labels and bounds.

use profiler_proto::model::{Attribute, Kind, Link, Profile, Stack, ValueType};
use profiler_proto::resource::Resource;
use profiler_proto::split::split_by;
use profiler_proto::{Dictionary, Limits};

use super::*;

/// Profiles of these kinds, each with a sample that has these attributes.
fn set(kinds: impl FnOnce(&mut Dictionary) -> Vec<Kind>, attributes: &[(&str, Value)]) -> ProfileSet {
    let mut set = ProfileSet { resource: Resource::new().with("service.name", "shop"), ..ProfileSet::default() };
    let attributes = attributes.iter().map(|(key, value)| set.dictionary.attribute(key, value.clone()));
    let attributes: Vec<_> = attributes.collect();
    let samples = vec![Sample { attributes: set.dictionary.attribute_set(attributes), value: 3, ..Sample::default() }];
    set.profiles = kinds(&mut set.dictionary)
        .into_iter()
        .map(|kind| Profile { kind, samples: samples.clone(), ..Profile::default() })
        .collect();
    set.compacted()
}

fn cpu(dictionary: &mut Dictionary) -> Vec<Kind> {
    vec![Kind::cpu(dictionary, 10_000_000)]
}

/// The labels of the series for `part`.
fn labels(part: &ProfileSet, code: &[(&str, &str)]) -> Vec<(String, String)> {
    let code: Vec<_> = code.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let [series] = request(part, &code, usize::MAX).unwrap().series.try_into().unwrap();
    series.labels.into_iter().map(|pair| (pair.name, pair.value)).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Check that kinds get the names that Pyroscope's users know, and others one that it takes.
#[test]
fn series_have_canonical_names() {
    let other = |kind: &'static str, period: &'static str| {
        set(
            |d| {
                let [sample_type, period_type] = [kind, period].map(|text| ValueType::new(d, text, ""));
                vec![Kind { sample_type, period_type, period: 1 }]
            },
            &[],
        )
    };
    let service = ("service_name", "shop");
    assert_eq!(labels(&set(cpu, &[]), &[]), pairs(&[("__name__", "process_cpu"), service]));
    let heap = set(|d| Kind::heap(d, 512).to_vec(), &[]);
    assert_eq!(labels(&heap, &[]), pairs(&[("__name__", "memory"), service, ("__delta__", "false")]));
    assert_eq!(labels(&other("wall", "wall clock"), &[]), pairs(&[("__name__", "wall_clock"), service]));
    assert_eq!(labels(&other("off.cpu", ""), &[]), pairs(&[("__name__", "off_cpu"), service]));
}

/// Check that a tag holds over an attribute of the process of its name, and that samples without the tag have the attribute.
#[test]
fn a_tag_holds_over_an_attribute_of_its_name() {
    let mut part = set(cpu, &[("host.name", "tag".into())]);
    part.resource = part.resource.with("host.name", "process").with("region", "eu");
    part.profiles[0].samples.push(Sample { value: 1, ..Sample::default() });
    let expected = pairs(&[("__name__", "process_cpu"), ("service_name", "shop"), ("region", "eu")]);
    assert_eq!(labels(&part, &[]), expected);
    let file = &request(&part, &[], usize::MAX).unwrap().series[0].samples[0].raw_profile;
    let read = pprof::decode(file, &Limits::default()).unwrap();
    let hosts = samples(&read).map(|sample| {
        let tags = read.dictionary.attributes_of(sample.attributes);
        let host =
            tags.filter(|(key, _)| *key == "host_name" || *key == "host.name").map(|(_, value)| value.to_string());
        (sample.value, host.collect::<Vec<_>>())
    });
    let mut hosts: Vec<_> = hosts.collect();
    hosts.sort();
    hosts.dedup();
    let of = |name: &str| hosts.iter().filter(|(_, hosts)| hosts.len() == 1 && hosts[0].contains(name)).count();
    assert_eq!((of("tag"), of("process"), of("")), (hosts.len() / 2, hosts.len() / 2, hosts.len()), "{hosts:?}");
    assert!(!hosts.is_empty());
}

/// Check that labels of code go before those of the process, that names are such that every server takes, and values too.
#[test]
fn labels_are_named_and_cut() {
    let mut part = set(cpu, &[]);
    let long = "é".repeat(LONGEST_VALUE);
    let list = Value::List([Value::Int(1)].into());
    part.resource = Resource::new().with("host.name", "a").with("host-name", "b").with("1st", 1).with("up", true);
    part.resource = part
        .resource
        .with("team", "process")
        .with("long", &*long)
        .with("größe", "x")
        .with("none", "")
        .with("list", list);
    let expected = [
        ("__name__", "process_cpu"),
        ("service_name", "unknown_service"),
        ("team", "code"),
        ("host_name", "a"),
        ("_1st", "1"),
        ("up", "true"),
        ("long", &long[..LONGEST_VALUE]),
        ("gr__e", "x"),
    ];
    assert_eq!(labels(&part, &[("team", "code")]), pairs(&expected));
    assert_eq!(labels(&part, &[("service_name", "code")])[1], ("service_name".into(), "code".into()));
}

/// Check that the labels of a series leave room for the texts on its samples, and that those that matter least are left out.
#[test]
fn samples_have_room_for_their_labels() {
    let text = |number| (format!("tag{number}"), Value::from("x"));
    for (tags, expected) in [(0, 30), (4, 26), (40, 3)] {
        let tags: Vec<_> = (0..tags).map(text).chain([("thread.id".to_owned(), Value::Int(7))]).collect();
        let tags: Vec<_> = tags.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let mut part = set(cpu, &tags);
        (0..40).for_each(|number| part.resource.set(format!("r{number}"), "x"));
        let labels = labels(&part, &[("team", "core")]);
        assert_eq!(labels.len(), expected);
        let first = ["__name__", "service_name", "team", "r0"].into_iter().take(expected);
        assert!(first.eq(labels.iter().map(|(name, _)| name.as_str()).take(4)), "{labels:?}");
    }
}

/// Check that the file holds what was measured, labels under names that every server takes, and the span as labels of its own.
#[test]
fn the_file_holds_the_samples() {
    let mut part =
        set(cpu, &[("thread.name", "worker".into()), ("span.id", "mine".into()), ("thread.id", Value::Int(7))]);
    let link = Link { trace_id: [1; 16], span_id: [2; 8] };
    part.profiles[0].samples[0].link = part.dictionary.links.intern(link);
    let [series] = request(&part, &[], usize::MAX).unwrap().series.try_into().unwrap();
    let file = pprof::decode(&series.samples[0].raw_profile, &Limits::default()).unwrap();
    let (profile, dictionary) = (&file.profiles[0], &file.dictionary);
    assert!(profile.kind.is_cpu(dictionary));
    let sample = profile.samples[0];
    assert_eq!((sample.value, dictionary.links.get(sample.link)), (3, Some(&link)));
    let mut found: Vec<_> = dictionary.attributes_of(sample.attributes).collect();
    found.sort_by_key(|(key, _)| *key);
    assert_eq!(found, [("thread_id", &Value::Int(7)), ("thread_name", &"worker".into())]);
}

fn fits(part: &ProfileSet, bytes: usize) -> bool {
    request(part, &[], bytes).is_some()
}

fn parts(set: &ProfileSet) -> Vec<ProfileSet> {
    let mut parts = Vec::new();
    split_by(
        set,
        |part| request(part, &[], usize::MAX),
        |part, request| parts.extend(request.map(|_| part.into_owned())),
    );
    parts
}

/// Check that a part is one capture, of no more bytes and samples than the server takes, where profiles share no samples too.
#[test]
fn what_does_not_fit_is_divided() {
    let two = set(|d| vec![Kind::cpu(d, 1), Kind::heap(d, 1)[0]], &[]);
    assert!(!fits(&two, usize::MAX) && parts(&two).len() == 2);
    let one = set(cpu, &[]);
    let bytes = pprof::encode_compact(&one, label_name).len();
    assert!(fits(&one, bytes) && !fits(&one, bytes - 1));

    let mut heap = set(|d| Kind::heap(d, 1).to_vec(), &[]);
    let d = &mut heap.dictionary;
    let attribute = |d: &mut Dictionary, number: i64| {
        let key = d.strings.intern_str("n");
        let id = d.attributes.intern(Attribute { key, value: number.into(), unit: Default::default() });
        d.attribute_set([id])
    };
    let stack = d.stacks.intern(Stack::default());
    let most = i64::try_from(MAX_SAMPLES).unwrap();
    for (number, profile) in heap.profiles.iter_mut().enumerate() {
        // Allocations at some places, live blocks at others.
        let first = if number < 2 { 0 } else { most / 2 + 1 };
        let sample = |place| Sample { stack, attributes: attribute(d, place), value: 1, ..Sample::default() };
        profile.samples = (first..first + most / 2 + 1).map(sample).collect();
    }
    assert_eq!(rows(&heap), MAX_SAMPLES + 2);
    let parts = parts(&heap);
    assert_eq!(
        parts.iter().map(|part| (part.profiles.len(), rows(part))).collect::<Vec<_>>(),
        [(2, MAX_SAMPLES / 2 + 1); 2]
    );
}

/// Check that ids are UUIDs as the server parses them, and differ.
#[test]
fn ids_are_random_uuids() {
    let ids: HashSet<_> = (0..1000).map(|_| random_id()).collect();
    assert_eq!(ids.len(), 1000);
    for id in ids {
        let groups: Vec<_> = id.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
        assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
        assert!(id.bytes().all(|digit| digit == b'-' || digit.is_ascii_hexdigit()), "{id}");
    }
}
