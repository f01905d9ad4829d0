//! Through a real OpenTelemetry Collector: nothing is lost or changed in meaning, and what it answers is understood.
//!
//! The Collector (`go/collector`) stands between the profiler and the receiver, without a queue but where it says otherwise: an
//! acknowledgement means that the receiver took it.

use std::time::Duration;

use profiler_proto::ProfileSet;
use profiler_proto::validate::{Finding, Rule};
use profiler_tests::collector::{Collector, Hop};
use profiler_tests::receiver::{Answer, Body, Protocol, Receiver, list};
use profiler_tests::tally::{Tally, objects_in_use};
use profiler_tests::workload::PARTS;
use serde_json::Value;
use tokio::net::TcpSocket;
use tonic::Code;

use crate::account::account;
use crate::heap::heap;
use crate::scenario::{LIMIT, command, half_turn, number, result, sending_to};

/// What the Collector itself makes of a body that kept every rule: over gRPC the first attribute, which is none, gets an empty value;
/// over HTTP keys and texts of the resource become references, too.
#[track_caller]
fn assert_changed_by_the_collector_alone(receiver: &Receiver, hop: Hop) {
    let is_known = |finding: &Finding| match finding.rule {
        Rule::ZeroElement => finding.path == "dictionary.attribute_table[0]",
        Rule::StringReference => hop == Hop::Http && finding.path.contains("].resource.attributes["),
        _ => false,
    };
    let findings: Vec<_> = receiver.findings().into_iter().filter(|finding| !is_known(finding)).collect();
    assert!(findings.is_empty(), "{hop:?}:{}", list(&findings));
    receiver.allow([Rule::ZeroElement, Rule::StringReference]);
}

/// What came and was answered like this.
fn profiles(receiver: &Receiver, answer: Answer) -> Vec<ProfileSet> {
    let bodies = receiver.bodies().into_iter().filter(|body| body.answer == answer);
    bodies.flat_map(|body| body.profiles).collect()
}

/// Has a program send the same to a receiver, and through a Collector to another one; what it said.
fn send_twice(protocol: &str, compression: &str, direct: &Receiver, collector: &Collector) -> Value {
    let by_way = collector.endpoint(if protocol == "grpc" { Protocol::Grpc } else { Protocol::Http });
    let options = [
        format!("directly={}", direct.endpoint()),
        format!("by_way={by_way}"),
        format!("protocol={protocol}"),
        format!("compression={compression}"),
        "seconds=2".to_owned(),
    ];
    let _turn = half_turn();
    result(&mut heap("sent", &options.each_ref().map(String::as_str)))
}

/// Checks that both got the same, all of it.
#[track_caller]
fn assert_whole(protocol: &str, compression: &str, hop: Hop) {
    let (direct, passed) = (Receiver::start().unwrap(), Receiver::start().unwrap());
    let collector = Collector::start(hop, &passed.endpoint()).unwrap();
    let outcome = send_twice(protocol, compression, &direct, &collector);
    let of = |path: &str| number(&outcome, path);
    assert_eq!((&outcome["flushed"], of("/stats/lost_total"), of("/stats/pending")), (&true.into(), 0, 0), "{outcome}");
    let expected = profiles(&direct, Answer::Accept);
    let sets = |bodies: &[Body]| bodies.iter().map(|body| body.profiles.len()).sum::<usize>();
    assert!(passed.wait(LIMIT, |bodies| sets(bodies) == expected.len()), "{} arrived", sets(&passed.bodies()));

    let (taken, tally) = (of("/stats/taken"), passed.accepted());
    assert_eq!((of("/stats/exported"), of("/stats/destinations/1/delivered")), (taken, taken), "{outcome}");
    assert_eq!(tally.stacks, taken, "{outcome}");
    assert_same(&tally, &direct.accepted());
    // All else too: whole stacks, places, mappings, times, who was profiled, the heap.
    assert!(profiles(&passed, Answer::Accept) == expected, "the profiles are not the same");
    assert!(expected.iter().any(|set| !objects_in_use(set).is_empty()), "there is no heap in them: {outcome}");
    let [sent, came] = [&direct, &passed].map(|receiver| receiver.bodies().len());
    assert!(if hop == Hop::Batched { came < sent } else { came == sent }, "{came} bodies of {sent}");
    assert_changed_by_the_collector_alone(&passed, hop);
}

/// Checks totals, and that there is something in each of them.
#[track_caller]
fn assert_same(tally: &Tally, expected: &Tally) {
    assert_eq!((tally.weight, tally.nanos), (expected.weight, expected.nanos));
    assert_eq!(tally.by_function, expected.by_function);
    assert_eq!(tally.by_tag, expected.by_tag);
    assert_eq!(tally.by_link, expected.by_link);
    for part in PARTS {
        assert!(tally.tagged("endpoint", part.tag) > 0 && tally.below(part.function) > 0, "{:?}", tally.by_tag);
    }
    assert!(tally.by_link.len() > 10, "too few spans to say anything");
}

/// Check that profiles of the CPU and of the heap come through a Collector as they were, over gRPC and over HTTP, compressed and not.
#[test]
fn what_goes_through_arrives_as_it_was() {
    for (protocol, compression, hop) in [
        ("grpc", "gzip", Hop::Grpc),
        ("grpc", "none", Hop::Http),
        ("http", "gzip", Hop::Http),
        ("http", "none", Hop::Grpc),
    ] {
        assert_whole(protocol, compression, hop);
    }
}

/// Check the same where the Collector makes one request of many, and one dictionary of theirs.
#[test]
fn what_is_batched_arrives_as_it_was() {
    assert_whole("grpc", "gzip", Hop::Batched);
}

/// Runs the scenario `account` through `collector`.
fn sent(collector: &Collector, protocol: Protocol, options: &[&str]) -> Value {
    account(sending_to(&mut command("account", options), &collector.endpoint(protocol), protocol))
}

/// What the Collector answers, over one protocol: how the profiler tells of it, and whether the same may be sent again.
type Told = (&'static str, bool);

/// Checks what becomes of profiles where the next hop says no, over gRPC and over HTTP: what may be sent again is, and arrives; all else is
/// lost as `rejected`, having been sent once.
#[track_caller]
fn assert_answered(hop: Hop, refusal: Answer, grpc: Told, http: Told) {
    for (protocol, (said, again)) in [(Protocol::Grpc, grpc), (Protocol::Http, http)] {
        let receiver = Receiver::start().unwrap();
        let collector = Collector::start(hop, &receiver.endpoint()).unwrap();
        match again {
            true => receiver.answer_next([refusal]),
            false => receiver.answer(refusal),
        }
        let outcome = sent(&collector, protocol, &["seconds=1"]);
        assert_changed_by_the_collector_alone(&receiver, hop);
        let of = |path: &str| number(&outcome, path);
        let error = outcome.pointer("/stats/destinations/0/last_error").and_then(Value::as_str).unwrap_or_default();
        assert!(error.starts_with(said), "{refusal:?} of {hop:?} is not {said:?} over {protocol:?}: {outcome}");
        assert_eq!((of("/stats/pending"), of("/stats/exported")), (0, receiver.accepted().stacks), "{outcome}");
        let refused = profiles(&receiver, refusal);
        if again {
            assert_eq!((of("/stats/lost_total"), refused.len()), (0, 1), "{outcome}");
        } else {
            assert_eq!((of("/stats/exported"), of("/stats/lost/rejected")), (0, of("/stats/taken")), "{outcome}");
            assert_eq!(Tally::of(&refused).stacks, of("/stats/taken"), "{outcome}");
        }
    }
}

/// Check what becomes of profiles for each answer of a next hop over HTTP.
#[test]
fn answers_of_a_next_hop_over_http_are_understood() {
    let answered = |status, grpc, http| assert_answered(Hop::Http, Answer::Status(status, Code::Unknown), grpc, http);
    answered(503, ("UNAVAILABLE: ", true), ("503 ", true));
    answered(429, ("RESOURCE_EXHAUSTED: ", false), ("429 ", true));
    answered(400, ("INVALID_ARGUMENT: ", false), ("400 ", false));
    answered(413, ("UNKNOWN: ", false), ("500 ", false));
    answered(500, ("UNKNOWN: ", false), ("500 ", false));
}

/// Check what becomes of profiles for each answer of a next hop over gRPC.
#[test]
fn answers_of_a_next_hop_over_grpc_are_understood() {
    let answered = |code, grpc, http| assert_answered(Hop::Grpc, Answer::Status(500, code), grpc, http);
    answered(Code::Unavailable, ("UNAVAILABLE: ", true), ("503 ", true));
    answered(Code::ResourceExhausted, ("RESOURCE_EXHAUSTED: ", false), ("429 ", true));
    answered(Code::InvalidArgument, ("INVALID_ARGUMENT: ", false), ("400 ", false));
    answered(Code::Internal, ("INTERNAL: ", false), ("500 ", false));
}

/// Check that with nobody behind the Collector nothing counts as exported, and nothing is lost before its time is over.
#[test]
fn a_next_hop_that_is_not_there_gets_nothing() {
    // Bound and not listening: refuses who connects, and nobody else gets its port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let endpoint = format!("http://{}", socket.local_addr().unwrap());
    let refused = |protocol, hop, said: &str| {
        let collector = Collector::start(hop, &endpoint).unwrap();
        let outcome = sent(&collector, protocol, &["seconds=1", "flush=10"]);
        let of = |path: &str| number(&outcome, path);
        assert_eq!((of("/stats/exported"), of("/stats/lost_total")), (0, 0), "{outcome}");
        let error = outcome.pointer("/stats/destinations/0/last_error").and_then(Value::as_str);
        assert!(error.is_some_and(|error| error.starts_with(said)), "{said:?}: {outcome}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| refused(Protocol::Grpc, Hop::Grpc, "UNAVAILABLE: "));
        refused(Protocol::Http, Hop::Http, "503 ");
    });
}

/// Check that a Collector that is killed with a request in its hands loses nothing: it had not acknowledged it.
#[test]
fn a_collector_that_is_killed_loses_nothing() {
    for (protocol, hop) in [(Protocol::Grpc, Hop::Grpc), (Protocol::Http, Hop::Http)] {
        let receiver = Receiver::start().unwrap();
        let mut collector = Collector::start(hop, &receiver.endpoint()).unwrap();
        receiver.answer_next([Answer::Accept, Answer::Hang, Answer::Accept, Answer::Hang]);
        let outcome = std::thread::scope(|scope| {
            let endpoint = collector.endpoint(protocol);
            let running =
                scope.spawn(move || account(sending_to(&mut command("account", &["seconds=4"]), &endpoint, protocol)));
            for times in 1..=2 {
                let hangs = |bodies: &[Body]| bodies.iter().filter(|body| body.answer == Answer::Hang).count() == times;
                assert!(receiver.wait(LIMIT, hangs), "the receiver was asked too little");
                collector.kill();
                std::thread::sleep(Duration::from_millis(300));
                collector.restart().unwrap();
            }
            running.join().unwrap()
        });
        assert_changed_by_the_collector_alone(&receiver, hop);
        let of = |path: &str| number(&outcome, path);
        assert_eq!((of("/stats/lost_total"), of("/stats/pending")), (0, 0), "{protocol:?}: {outcome}");
        assert_eq!(of("/stats/exported"), receiver.accepted().stacks, "{protocol:?}: {outcome}");
        let (hung, accepted) = (profiles(&receiver, Answer::Hang), profiles(&receiver, Answer::Accept));
        assert!(hung.len() == 2 && hung.iter().all(|set| accepted.contains(set)), "it did not come again: {outcome}");
    }
}

/// Check that a partial success behind the Collector counts as exported: it does not pass on what it is told there.
#[test]
fn a_partial_success_behind_the_collector_is_not_told() {
    for (protocol, hop) in [(Protocol::Grpc, Hop::Grpc), (Protocol::Http, Hop::Http)] {
        let receiver = Receiver::start().unwrap();
        receiver.answer(Answer::AcceptBut(1));
        let collector = Collector::start(hop, &receiver.endpoint()).unwrap();
        let outcome = sent(&collector, protocol, &["seconds=1"]);
        assert_changed_by_the_collector_alone(&receiver, hop);
        assert_eq!(number(&outcome, "/stats/exported"), number(&outcome, "/stats/taken"), "{outcome}");
    }
}
