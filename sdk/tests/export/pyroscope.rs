//! Pyroscope: what a server of push.v1 gets, and what its answers do.

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use profiler::export::{Otlp, Pyroscope, resolve};
use profiler_proto::loss::Cause;
use profiler_proto::model::{Kind, Link, Stack};
use profiler_proto::resource::Resource;
use profiler_proto::split::request_bytes;
use profiler_proto::{Profile, ProfileSet, Sample};

use super::http_peer::{HttpPeer, Reaction};
use super::profiles::{cpu_profile, decode, gunzip, heap_profiles, set};
use super::push::{Push, values};
use super::rig::{Rig, limits, target};

/// An error of Connect, as its servers write it.
fn connect_error(status: u16, code: &str, message: &str) -> Reaction {
    let body = format!(r#"{{"code":"{code}","message":"{message}"}}"#);
    Reaction::Answer(status, vec![("content-type", "application/json".into())], body.into_bytes())
}

/// One on-CPU profile of a span, with a tag and the id of its thread.
fn profile_of_a_span(link: Link) -> ProfileSet {
    let mut set = cpu_profile(40, 40);
    let tags = [set.dictionary.attribute("http.route", "/orders"), set.dictionary.attribute("thread.id", 7)];
    let (attributes, link) = (set.dictionary.attribute_set(tags), set.dictionary.links.intern(link));
    set.profiles[0].samples.iter_mut().for_each(|sample| (sample.attributes, sample.link) = (attributes, link));
    set.resource = Resource::new().with("service.name", "shop").with("host.name", "a").with("process.pid", 7);
    set
}

/// Check that a profile arrives whole, under the type, labels, span and headers that Pyroscope's users know.
#[tokio::test]
async fn a_profile_arrives_as_it_was_offered() {
    let peer = HttpPeer::start([]).await;
    let server = Pyroscope::new(peer.url()).basic_auth("1234", "token").tenant_id("team-a").header("x-region", "eu");
    let rig = Rig::to([server.label("team", "core")]);
    let link = Link { trace_id: [0xab; 16], span_id: [0xcd; 8] };
    let offered = Arc::new(profile_of_a_span(link));
    rig.offer(&offered);
    rig.settle().await;

    let (request, url) = (peer.requests().remove(0), peer.url());
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/push.v1.PusherService/Push"));
    let expected = [
        ("content-type", "application/proto"),
        ("content-encoding", "gzip"),
        ("connect-protocol-version", "1"),
        ("authorization", "Basic MTIzNDp0b2tlbg=="),
        ("x-scope-orgid", "team-a"),
        ("x-region", "eu"),
        ("host", url.trim_start_matches("http://")),
        ("user-agent", concat!("profiler-sdk/", env!("CARGO_PKG_VERSION"))),
    ];
    for (name, value) in expected {
        assert_eq!(request.headers[name], value, "{name}");
    }

    let push = Push::of(&request.message());
    assert_eq!(push.types(), ["process_cpu:cpu:nanoseconds:cpu:nanoseconds"]);
    let labels = [("host_name", "a"), ("process_pid", "7"), ("service_name", "shop"), ("team", "core")];
    let labels = [("__name__", "process_cpu")].into_iter().chain(labels);
    assert!(labels.eq(push.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))), "{:?}", push.labels);
    assert_eq!(values([&push.file]), values([&*offered]));
    let (profile, d) = (&push.file.profiles[0], &push.file.dictionary);
    assert_eq!(
        (profile.time_unix_nanos, profile.duration_nanos, profile.kind.period),
        (offered.profiles[0].time_unix_nanos, 10_000_000_000, 10_000_000)
    );
    for sample in &profile.samples {
        assert_eq!(d.links.get(sample.link), Some(&link));
        let tags: Vec<_> = d.attributes_of(sample.attributes).map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            tags.iter().collect::<HashSet<_>>(),
            ["http_route=/orders".into(), "thread_id=7".into()].iter().collect()
        );
    }
    rig.assert_settled(40, 0, Cause::Rejected);
    assert_eq!((rig.stats(0).delivered, rig.stats(0).last_error), (40, None));
    assert_eq!(rig.stats(0).name, format!("pyroscope {}", peer.url()));
}

/// Check that the four types of the heap arrive in one file, under the names that Go's have, and are stored from the first one on.
#[tokio::test]
async fn the_heap_arrives_as_one_file() {
    let peer = HttpPeer::start([]).await;
    let rig = Rig::to([Pyroscope::new(peer.url())]);
    let offered = heap_profiles(30);
    rig.offer(&Arc::new(offered.clone()));
    rig.settle().await;
    let [push] = Push::all(&peer.requests()).try_into().ok().expect("one request");
    let types = ["alloc_objects:count", "alloc_space:bytes", "inuse_objects:count", "inuse_space:bytes"];
    assert_eq!(push.types(), types.map(|kind| format!("memory:{kind}:space:bytes")));
    assert_eq!(push.labels["__delta__"], "false");
    assert_eq!(values([&push.file]), values([&offered]));
    assert_eq!((rig.heap().exported, rig.heap().lost.total()), (4, 0));
}

/// Check our reading of push.v1 by a body of its own client (the crate `pyroscope` 2.1.5, spinning in one function for two seconds): it
/// says the same in the same way.
#[tokio::test]
async fn its_own_client_says_it_in_the_same_way() {
    let theirs = Push::of(&gunzip(include_bytes!("pyroscope_rs_push.gz")));
    let peer = HttpPeer::start([]).await;
    let rig = Rig::to([Pyroscope::new(peer.url())]);
    rig.offer(&set(10));
    rig.settle().await;
    let ours = Push::of(&peer.requests()[0].message());
    assert_eq!(theirs.types(), ours.types());
    assert_eq!((&*theirs.labels["__name__"], &*theirs.labels["service_name"]), ("process_cpu", "subject"));
    assert_eq!(theirs.labels["__name__"], ours.labels["__name__"]);
    assert_eq!(values([&theirs.file]).keys().collect::<Vec<_>>(), ["profiler_tests::workload::spin_until"]);
    assert_eq!(theirs.file.profiles[0].kind.period, ours.file.profiles[0].kind.period);
    assert_eq!(theirs.id.len(), ours.id.len());
}

/// Check that refusals are final: one request each, its stacks lost as rejected, the server's words kept, the next one not harmed.
#[tokio::test]
async fn what_is_refused_is_not_sent_again() {
    let cases = [
        (connect_error(401, "unauthenticated", "no org id"), "401 Unauthorized: unauthenticated: no org id"),
        (connect_error(400, "invalid_argument", "too old"), "400 Bad Request: invalid_argument: too old"),
        (connect_error(403, "permission_denied", "scope"), "403 Forbidden: permission_denied: scope"),
        (connect_error(500, "internal", "oops"), "500 Internal Server Error: internal: oops"),
        (connect_error(501, "unimplemented", "no"), "501 Not Implemented: unimplemented: no"),
        (Reaction::answer(404, b"page not found"), "404 Not Found: page not found"),
        (Reaction::answer(413, b"too large"), "413 Payload Too Large: too large"),
        (Reaction::answer(422, b"not a profile"), "422 Unprocessable Entity: not a profile"),
        (Reaction::answer(500, b"oops"), "500 Internal Server Error: oops"),
        (Reaction::answer(200, b"<html>log in</html>"), "answered success with what is not push.v1: <html>log in"),
        (
            Reaction::Answer(307, vec![("location", "http://127.0.0.1:1/".into())], Vec::new()),
            "redirected to http://127",
        ),
        (Reaction::Endless, "answered success with what is not push.v1"),
    ];
    for (reaction, expected) in cases {
        let peer = HttpPeer::start([reaction]).await;
        let rig = Rig::to([Pyroscope::new(peer.url())]);
        rig.offer(&set(10));
        rig.settle().await;
        assert!(rig.last_error().contains(expected), "{}", rig.last_error());
        rig.assert_settled(0, 10, Cause::Rejected);
        assert_eq!((peer.requests().len(), rig.stats(0).dropped.count(Cause::Rejected)), (1, 10));

        rig.offer(&set(7));
        rig.settle().await;
        let account = rig.account();
        assert_eq!((account.exported, account.lost.total(), account.pending), (7, 10, 0));
    }
}

/// Check that what may pass is sent again with the same bytes, and so the same id, until it is accepted, and counted once.
#[tokio::test]
async fn what_may_pass_is_sent_again_as_it_was() {
    let cases = [
        connect_error(429, "resource_exhausted", "push rate limit (4.0 MiB) exceeded"),
        connect_error(503, "unavailable", "no healthy instances"),
        connect_error(504, "deadline_exceeded", "slow"),
        connect_error(409, "aborted", "again"),
        connect_error(499, "canceled", "going down"),
        Reaction::answer(429, b""),
        Reaction::answer(502, b"<html>bad gateway</html>"),
        Reaction::answer(503, b""),
        Reaction::answer(504, b""),
        Reaction::Close,
        Reaction::BreakOff,
        Reaction::Hang,
    ];
    for reaction in cases {
        let peer = HttpPeer::start([reaction.clone(), reaction.clone()]).await;
        let timeout = if matches!(reaction, Reaction::Hang) { 500 } else { 10_000 };
        let rig = Rig::to([Pyroscope::new(peer.url()).timeout(Duration::from_millis(timeout))]);
        rig.offer(&set(10));
        rig.offer(&set(5));
        rig.settle().await;
        let requests = peer.requests();
        assert_eq!(requests.len(), 4, "{reaction:?}");
        assert!(requests[..3].iter().all(|request| request.body == requests[0].body), "{reaction:?}");
        let pushes = Push::all(&requests);
        assert_eq!(pushes[0].id, pushes[2].id);
        assert_ne!(pushes[2].id, pushes[3].id, "another profile has another id");
        rig.assert_settled(15, 0, Cause::Rejected);
        assert_eq!((rig.stats(0).requests, rig.stats(0).retried), (4, 2));
    }
}

/// Check that a server that says when is obeyed.
#[tokio::test]
async fn retry_after_is_obeyed() {
    let peer = HttpPeer::start([Reaction::Answer(429, vec![("retry-after", "1".into())], Vec::new())]).await;
    let rig = Rig::to([Pyroscope::new(peer.url())]);
    let start = std::time::Instant::now();
    rig.offer(&set(10));
    rig.settle().await;
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    rig.assert_settled(10, 0, Cause::Rejected);
}

/// Check that each request holds one series, within the bound as a pprof file, although OTLP has the same samples in far less, and that
/// together they hold everything, beside an OTLP endpoint too.
#[tokio::test]
async fn what_is_large_or_mixed_is_divided() {
    let (pyroscope, otlp) = (HttpPeer::start([]).await, HttpPeer::start([]).await);
    let mut limits = limits();
    limits.request_bytes = 40_000;
    let targets = vec![target(Pyroscope::new(pyroscope.url())), target(Otlp::http(otlp.url()))];
    let rig = Rig::start(targets, limits);
    let mut offered = cpu_profile(900, 900);
    let samples = offered.profiles[0].samples.clone();
    // One deep stack under many tags: a stack of OTLP is written once, of pprof each time.
    let leaf = |sample: &Sample| offered.dictionary.stacks.get(sample.stack).unwrap().locations[0];
    let locations = samples[..60].iter().map(leaf).collect();
    let stack = offered.dictionary.stacks.intern(Stack { locations });
    for (number, sample) in (0_i64..).zip(&mut offered.profiles[0].samples) {
        let id = offered.dictionary.attribute("order", number);
        (sample.stack, sample.attributes) = (stack, offered.dictionary.attribute_set([id]));
    }
    assert!(request_bytes(&offered.compacted()) < 40_000);
    rig.offer(&Arc::new(offered.clone()));
    rig.offer(&Arc::new(heap_profiles(20)));
    rig.settle().await;

    let pushes = Push::all(&pyroscope.requests());
    assert!(pushes.iter().all(|push| push.bytes <= 40_000), "{:?}", pushes.iter().map(|push| push.bytes).max());
    let cpu: Vec<_> = pushes.iter().filter(|push| push.labels["__name__"] == "process_cpu").collect();
    assert!(cpu.len() > 1, "{} requests", cpu.len());
    assert_eq!(values(cpu.iter().map(|push| &push.file)), values([&offered]));
    let sent = otlp.requests();
    assert_eq!(sent.len(), pushes.len(), "the parts are the same everywhere");
    let sets: Vec<_> = sent.iter().map(|request| decode(&request.message())).collect();
    assert_eq!(values(&sets[..cpu.len()]), values([&offered]));
    rig.assert_settled(900, 0, Cause::Rejected);
    assert_eq!([0, 1].map(|index| rig.stats(index).delivered), [900, 900]);
}

/// Check that a set of two captures, of which a server might store one and refuse the other, goes in two requests.
#[tokio::test]
async fn captures_go_in_requests_of_their_own() {
    let refusal = connect_error(400, "invalid_argument", "too old");
    let peer = HttpPeer::start([Reaction::answer(200, b""), refusal]).await;
    let rig = Rig::to([Pyroscope::new(peer.url())]);
    let mut both = cpu_profile(10, 10);
    let kind = Kind::heap(&mut both.dictionary, 512)[3];
    let attributes = both.dictionary.attribute_set([]);
    both.profiles.push(Profile { kind, attributes, ..both.profiles[0].clone() });
    rig.offer(&Arc::new(both));
    rig.settle().await;
    let types: Vec<_> = Push::all(&peer.requests()).iter().flat_map(Push::types).collect();
    assert_eq!(types, ["process_cpu:cpu:nanoseconds:cpu:nanoseconds", "memory:inuse_space:bytes:space:bytes"]);
    rig.assert_settled(10, 0, Cause::Rejected);
    assert_eq!((rig.heap().exported, rig.heap().lost.count(Cause::Rejected)), (0, 1));
}

/// Check that the variables that its users know make a destination, beside that of OTLP's.
#[tokio::test]
async fn the_environment_makes_a_destination() {
    let (pyroscope, otlp) = (HttpPeer::start([]).await, HttpPeer::start([]).await);
    let (address, endpoint) = (format!("{}/base/", pyroscope.url()), otlp.url());
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=otlp"),
        ("PYROSCOPE_SERVER_ADDRESS", &*address),
        ("PYROSCOPE_BASIC_AUTH_USER", "1234"),
        ("PYROSCOPE_BASIC_AUTH_PASSWORD", "token"),
        ("PYROSCOPE_TENANT_ID", "shop"),
    ];
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| OsString::from(v));
    let rig = Rig::start(resolve(Vec::new(), &lookup).unwrap(), limits());
    rig.offer(&set(10));
    rig.settle().await;
    let request = pyroscope.requests().remove(0);
    assert_eq!(request.path, "/base/push.v1.PusherService/Push");
    assert_eq!(
        (&request.headers["authorization"], &request.headers["x-scope-orgid"], request.headers.get("x-key")),
        (&"Basic MTIzNDp0b2tlbg==".parse().unwrap(), &"shop".parse().unwrap(), None)
    );
    let headers = otlp.requests().remove(0).headers;
    assert_eq!((headers.get("authorization"), &headers["x-key"]), (None, &"otlp".parse().unwrap()));
    rig.assert_settled(10, 0, Cause::Rejected);
}
