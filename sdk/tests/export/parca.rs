//! Parca's `WriteRaw`: what arrives, by function and label, and what its answers mean.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use profiler::export::{Otlp, Parca, resolve};
use profiler_proto::loss::Cause;
use profiler_proto::model::{Function, Link, Value};
use profiler_proto::{ProfileSet, Sample};
use tonic::Status;

use super::grpc_peer::{GrpcPeer, Reaction};
use super::parca_peer::{Series, decode};
use super::profiles::{cpu_profile, heap_profiles, set};
use super::rig::{Rig, limits, target};

/// `set`, whose samples carry the tags that `tags` gives them by their number, and spans of their own.
fn tagged(mut set: ProfileSet, tags: impl Fn(usize) -> Vec<(&'static str, String)>) -> Arc<ProfileSet> {
    let dictionary = &mut set.dictionary;
    for profile in &mut set.profiles {
        for (number, sample) in profile.samples.iter_mut().enumerate() {
            let thread = dictionary.attribute("thread.id", 1000 + number as i64);
            let trace = dictionary.attribute("trace_id", format!("{number:032x}"));
            let tags = tags(number).into_iter().map(|(key, value)| dictionary.attribute(key, value));
            let attributes: Vec<_> = tags.chain([thread, trace]).collect();
            sample.attributes = dictionary.attribute_set(attributes);
            sample.link =
                dictionary.links.intern(Link { trace_id: [1; 16], span_id: (number as u64 + 1).to_be_bytes() });
        }
    }
    Arc::new(set)
}

/// Values by sample type, function and the value of a tag; what arrived says it of a label.
type Totals = BTreeMap<(String, String, String), i64>;

fn add(totals: &mut Totals, set: &ProfileSet, tag: impl Fn(&Sample) -> String) {
    let dictionary = &set.dictionary;
    for profile in &set.profiles {
        for sample in &profile.samples {
            let stack = dictionary.stacks.get(sample.stack).unwrap();
            let line = &dictionary.locations.get(stack.locations[0]).unwrap().lines[0];
            let function = dictionary.functions.get(line.function).unwrap().name;
            let text = |id| dictionary.strings.text(id).to_owned();
            let key = (text(profile.kind.sample_type.kind), text(function), tag(sample));
            *totals.entry(key).or_default() += sample.value;
        }
    }
}

fn offered(set: &ProfileSet, tag: &str) -> Totals {
    let mut totals = Totals::new();
    let text = |sample: &Sample| set.dictionary.value_of(sample.attributes, tag).map(ToString::to_string);
    add(&mut totals, set, |sample| text(sample).unwrap_or_default());
    totals
}

fn arrived(series: &[Series], label: &str) -> Totals {
    let mut totals = Totals::new();
    for Series { labels, files } in series {
        let value = labels.get(label).cloned().unwrap_or_default();
        files.iter().for_each(|file| add(&mut totals, file, |_| value.clone()));
    }
    totals
}

/// Check that what arrives has the totals of what was offered, by function and label, in one series a set of tags.
#[tokio::test]
async fn totals_by_function_and_label_are_those_offered() {
    let peer = GrpcPeer::start([]).await;
    let endpoints = ["/orders", "/search", "/cart"];
    let tags = |number: usize| vec![("http.route", endpoints[number % 3].to_owned()), ("method", "GET".to_owned())];
    let cpu = tagged(cpu_profile(90, 90), tags);
    let rig = Rig::to([Parca::new(peer.url())]);
    rig.offer(&cpu);
    rig.settle().await;

    let call = peer.calls().remove(0);
    let metadata = |key| call.metadata.get(key).map(|value| value.to_str().unwrap());
    assert_eq!((metadata("grpc-encoding"), metadata("grpc-timeout")), (Some("gzip"), Some("10000m")));
    assert_eq!(metadata("user-agent"), Some(concat!("profiler-sdk/", env!("CARGO_PKG_VERSION"))));
    let series = decode(&call.message);
    assert_eq!(series.len(), 3);
    assert_eq!(arrived(&series, "http_route"), offered(&cpu, "http.route"));
    let expected =
        [("__name__", "process_cpu"), ("http_route", "/orders"), ("method", "GET"), ("service_name", "shop")];
    let expected: BTreeMap<_, _> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert!(series.iter().any(|series| series.labels == expected), "{series:?}");
    rig.assert_settled(90, 0, Cause::Rejected);
    assert_eq!((rig.stats(0).name, rig.stats(0).untagged_samples), (format!("parca {}", peer.url()), 0));
}

/// Check that of the heap what was allocated has the window's length, and what is in use none, as of its end: so Parca tells a difference from
/// a state.
#[tokio::test]
async fn what_is_in_use_is_no_difference() {
    let peer = GrpcPeer::start([]).await;
    let heap = tagged(heap_profiles(8), |number| vec![("endpoint", format!("/{}", number % 2))]);
    let rig = Rig::to([Parca::new(peer.url())]);
    rig.offer(&heap);
    rig.settle().await;
    assert_eq!((rig.heap().offered, rig.heap().exported), (4, 4));

    let series = decode(&peer.calls()[0].message);
    assert_eq!(arrived(&series, "endpoint"), offered(&heap, "endpoint"));
    assert_eq!(series.len(), 2);
    let (start, length) = (heap.profiles[0].time_unix_nanos, heap.profiles[0].duration_nanos);
    for Series { labels, files } in series {
        assert_eq!(labels["__name__"], "memory");
        let types = |file: &ProfileSet| -> Vec<_> {
            file.profiles
                .iter()
                .map(|profile| file.dictionary.strings.text(profile.kind.sample_type.kind).to_owned())
                .collect()
        };
        let windows =
            files.iter().map(|file| (types(file), file.profiles[0].time_unix_nanos, file.profiles[0].duration_nanos));
        let [alloc, inuse] = [["alloc_objects", "alloc_space"], ["inuse_objects", "inuse_space"]].map(Vec::from);
        let expected = [(alloc, start, length), (inuse, start + length, 0)];
        assert!(windows.eq(expected.map(|(types, start, length)| (
            types.into_iter().map(str::to_owned).collect(),
            start,
            length
        ))));
    }
}

/// Check that on-CPU time arrives with samples: Parca shows both.
#[tokio::test]
async fn cpu_time_comes_with_the_samples() {
    let peer = GrpcPeer::start([]).await;
    let rig = Rig::to([Parca::new(peer.url())]);
    rig.offer(&set(3));
    rig.settle().await;
    let series = decode(&peer.calls()[0].message);
    let file = &series[0].files[0];
    // The decoder takes `samples` and the `cpu` that follows from it for what they are: on-CPU samples.
    assert!(file.profiles.len() == 1 && file.profiles[0].kind.is_cpu(&file.dictionary), "{file:?}");
    let names: Vec<_> = file.dictionary.strings.iter().collect();
    assert_eq!(file.profiles[0].samples.iter().map(|sample| sample.value).sum::<i64>(), 6, "{names:?}");
}

/// Check which label holds where names meet: the destination's over tags, tags over the process's; and that any key becomes a legal name.
#[tokio::test]
async fn labels_meet_in_order() {
    let peer = GrpcPeer::start([]).await;
    let mut cpu = cpu_profile(1, 1);
    cpu.resource.set("process.pid", 7_i64);
    cpu.resource.set("region", "resource");
    cpu.resource.set("cluster", "resource");
    cpu.resource.set("container.ids", Value::List([].into()));
    let tags = ["region", "cluster", "__name__", "9 lives", "größe", ""];
    let cpu = tagged(cpu, |_| tags.map(|key| (key, "tag".to_owned())).into());
    let rig = Rig::to([Parca::new(peer.url()).label("cluster", "old").label("cluster", "label")]);
    rig.offer(&cpu);
    rig.settle().await;
    let labels = decode(&peer.calls()[0].message).remove(0).labels;
    let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        ("_9_lives", "tag"),
        ("__name__", "process_cpu"),
        ("cluster", "label"),
        ("gr__e", "tag"),
        ("process_pid", "7"),
        ("region", "tag"),
        ("service_name", "shop"),
    ];
    assert_eq!(labels, expected);
    rig.assert_settled(1, 0, Cause::Rejected);
}

/// Check that a request has no more than 500 sets of tags and 8 MiB of files with them; what has the least share goes without, is all there,
/// is marked, counted and said.
#[tokio::test]
async fn series_are_bounded() {
    let many = tagged(cpu_profile(600, 600), |number| vec![("request", number.to_string())]);
    let long = tagged(cpu_profile(60, 60), |number| vec![("request", number.to_string())]);
    // Functions with names of 300 KB each: 27 series of them, and no more, are within 8 MiB.
    let long = Arc::new(with_long_names(&long, 300_000));
    for (offered_set, with_tags) in [(many, 500), (long, 27)] {
        let peer = GrpcPeer::start([]).await;
        let mut limits = limits();
        limits.request_bytes = 64 << 20;
        limits.queue_bytes = 64 << 20;
        let rig = Rig::start(vec![target(Parca::new(peer.url()))], limits);
        rig.offer(&offered_set);
        rig.settle().await;
        let samples = offered_set.profiles[0].samples.len();
        let series = decode(&peer.calls()[0].message);
        assert_eq!(series.len(), with_tags + 1);
        let (least, all) = (samples - with_tags, offered(&offered_set, "none"));
        assert_eq!(arrived(&series, "none"), all, "all functions have their totals");
        let overflow =
            series.iter().find(|series| series.labels.get("profiler_tags").is_some_and(|tags| tags == "overflow"));
        let values = &overflow.unwrap().files[0].profiles[0].samples;
        // The sample of number n has the value n + 1.
        assert_eq!(values.iter().map(|sample| sample.value).sum::<i64>(), (1..=least as i64).sum::<i64>());
        assert_eq!(rig.stats(0).untagged_samples, least as u64);
        assert!(rig.last_error().contains(&format!("{least} of {samples} samples")), "{}", rig.last_error());
        rig.assert_settled(samples as u64, 0, Cause::Rejected);
    }
}

/// `set`, whose functions have names of so many bytes.
fn with_long_names(set: &ProfileSet, bytes: usize) -> ProfileSet {
    let mut long = set.clone();
    long.dictionary.functions = Default::default();
    for function in set.dictionary.functions.iter() {
        let name = set.dictionary.strings.text(function.name);
        let padding = if name.is_empty() { String::new() } else { "x".repeat(bytes) };
        let name = long.dictionary.strings.intern_str(&format!("{name}{padding}"));
        long.dictionary.functions.intern(Function { name, ..*function });
    }
    long
}

/// Check that answers mean what OTLP's table says, `UNKNOWN`, with which Parca refuses, being final; and that a success is one whatever its
/// message holds.
#[tokio::test]
async fn answers_mean_what_otlps_table_says() {
    let finals = [
        Status::unknown("bad profile"),
        Status::invalid_argument(""),
        Status::unauthenticated(""),
        Status::resource_exhausted(""),
    ];
    for status in finals {
        let peer = GrpcPeer::start([Reaction::Fail(status.clone())]).await;
        let rig = Rig::to([Parca::new(peer.url())]);
        rig.offer(&set(10));
        rig.settle().await;
        assert!(rig.last_error().contains(status.message()), "{}", rig.last_error());
        assert_eq!(peer.calls().len(), 1, "{status:?}");
        rig.assert_settled(0, 10, Cause::Rejected);
    }
    let later = [Reaction::Fail(Status::unavailable("")), Reaction::Fail(Status::aborted("")), Reaction::Close];
    for reaction in later {
        let peer = GrpcPeer::start([reaction.clone(), reaction.clone()]).await;
        let rig = Rig::to([Parca::new(peer.url())]);
        rig.offer(&set(10));
        rig.settle().await;
        let calls = peer.calls();
        assert_eq!(calls.len(), 3, "{reaction:?}");
        assert!(calls.iter().all(|call| call.message == calls[0].message), "{reaction:?}");
        rig.assert_settled(10, 0, Cause::Rejected);
    }
    let peer = GrpcPeer::start([Reaction::Ok(Some((3, String::new())))]).await;
    let rig = Rig::to([Parca::new(peer.url())]);
    rig.offer(&set(10));
    rig.settle().await;
    rig.assert_settled(10, 0, Cause::Rejected);
}

/// Check that a set that is divided is accounted for in its parts, beside an OTLP destination that is sent the same.
#[tokio::test]
async fn a_divided_set_is_accounted_for_beside_otlp() {
    let (parca, otlp) = (GrpcPeer::start([Reaction::Fail(Status::unknown(""))]).await, GrpcPeer::start([]).await);
    let mut limits = limits();
    limits.request_bytes = 8000;
    let rig = Rig::start(vec![target(Parca::new(parca.url())), target(Otlp::grpc(otlp.url()))], limits);
    rig.offer(&set(500));
    rig.settle().await;
    let (first, second) = (rig.stats(0), rig.stats(1));
    assert!(parca.calls().len() > 2 && parca.calls().len() == otlp.calls().len(), "{}", parca.calls().len());
    let of_files: i64 =
        parca.calls()[1..].iter().flat_map(|call| decode(&call.message)).map(|series| weight(&series)).sum();
    let refused = weight_of(&parca.calls()[0].message);
    assert_eq!(of_files + refused, (1..=500).sum::<i64>());
    assert_eq!((first.delivered + first.dropped.count(Cause::Rejected), second.delivered), (500, 500));
    assert!(first.dropped.count(Cause::Rejected) > 0);
    rig.assert_settled(500, 0, Cause::Rejected);
}

fn weight_of(message: &[u8]) -> i64 {
    decode(message).iter().map(weight).sum()
}

fn weight(series: &Series) -> i64 {
    series
        .files
        .iter()
        .flat_map(|file| &file.profiles)
        .flat_map(|profile| &profile.samples)
        .map(|sample| sample.value)
        .sum()
}

/// Check that the token of Parca's own variable is sent where code sets none, and nothing of OTLP's variables.
#[tokio::test]
async fn the_token_may_stand_in_the_environment() {
    let variables = [
        ("PARCA_BEARER_TOKEN", "environment\n"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hunter2"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "7000"),
    ];
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| OsString::from(v));
    let peer = GrpcPeer::start([]).await;
    let endpoint = || Parca::new(peer.url()).header("x-region", "eu").timeout(Duration::from_secs(9));
    for (endpoint, token) in [(endpoint(), "Bearer environment"), (endpoint().bearer_token("code"), "Bearer code")] {
        let rig = Rig::start(resolve(vec![endpoint.into()], &lookup).unwrap(), limits());
        rig.offer(&set(10));
        rig.settle().await;
        rig.assert_settled(10, 0, Cause::Rejected);
        let metadata = peer.calls().pop().unwrap().metadata;
        let value = |key| metadata.get(key).map(|value| value.to_str().unwrap());
        assert_eq!((value("authorization"), value("x-region")), (Some(token), Some("eu")));
        assert_eq!((value("x-key"), value("grpc-timeout")), (None, Some("9000m")));
    }
}
