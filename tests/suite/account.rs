//! The account: `taken = exported + pending + Σ lost`, to the sample, whatever happens on the way.
//!
//! `exported` is compared with what the receiver decoded, which counts on its own; the ring is made too small on purpose.

use std::process::Command;

use profiler_tests::receiver::{Answer, Protocol, Receiver};
use profiler_tests::tally::Tally;
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::scenario::{assert_lawful, command, half_turn, number, result, sending};

/// What holds in every state: no snapshot out of balance, and the last one in balance with nothing pending.
#[track_caller]
fn assert_balanced(outcome: &Value) {
    let of = |path: &str| number(outcome, path);
    assert!(of("/snapshots") > 100, "{outcome}");
    assert_eq!(of("/wrong"), 0, "{outcome}");
    assert_eq!(of("/stats/taken"), of("/stats/exported") + of("/stats/pending") + of("/stats/lost_total"), "{outcome}");
    assert!(of("/stats/taken") > 300, "too few stacks to say anything: {outcome}");
}

/// Runs the scenario, and checks that its account balances.
pub(crate) fn account(command: &mut Command) -> Value {
    let _turn = half_turn();
    let outcome = result(command);
    assert_balanced(&outcome);
    outcome
}

/// Check that with a ring far too small every stack is exported or counted as lost, and that what the receiver decoded is
/// what is counted as exported.
#[test]
fn a_small_ring_loses_what_it_says() {
    let receiver = Receiver::start().unwrap();
    let options = ["seconds=4", "ring_words=1024"];
    let outcome = account(sending(&mut command("account", &options), &receiver, Protocol::Grpc));
    assert_lawful(&receiver);
    let tally = receiver.accepted();
    assert!(number(&outcome, "/stats/lost/ring_full") > 0, "the ring was never full: {outcome}");
    assert_eq!(number(&outcome, "/stats/pending"), 0, "{outcome}");
    assert_eq!(number(&outcome, "/stats/exported"), tally.stacks, "{outcome}");
    let lost = tally.counts.get("profiler.lost.ring_full").copied().unwrap_or(0);
    assert_eq!(u64::try_from(lost).unwrap(), number(&outcome, "/stats/lost/ring_full"), "losses travel with profiles");
}

/// Check that with an ordinary ring nothing is lost, over HTTP too.
#[test]
fn an_ordinary_ring_loses_nothing() {
    let receiver = Receiver::start().unwrap();
    let outcome = account(sending(&mut command("account", &["seconds=4"]), &receiver, Protocol::Http));
    assert_lawful(&receiver);
    assert_eq!((number(&outcome, "/stats/lost_total"), number(&outcome, "/stats/pending")), (0, 0), "{outcome}");
    assert_eq!(number(&outcome, "/stats/exported"), receiver.accepted().stacks, "{outcome}");
}

/// Check that stacks in bodies that the receiver refuses for good are lost as `rejected`, and that no body is sent again.
#[test]
fn a_rejecting_receiver_is_a_counted_loss() {
    let receiver = Receiver::start().unwrap();
    receiver.answer_next([Answer::Accept, Answer::Accept]);
    receiver.answer(Answer::Reject);
    let outcome = account(sending(&mut command("account", &["seconds=3"]), &receiver, Protocol::Grpc));
    assert_lawful(&receiver);
    let (accepted, all) = (receiver.accepted().stacks, stacks(&receiver));
    assert_eq!(number(&outcome, "/stats/exported"), accepted, "{outcome}");
    assert_eq!(number(&outcome, "/stats/lost/rejected"), all - accepted, "{outcome}");
    assert_eq!(number(&outcome, "/stats/taken"), all, "{outcome}");
}

/// Check that a partial success counts as a loss, over gRPC and over HTTP, and that nothing of it is sent again.
#[test]
fn a_partial_success_is_a_counted_loss() {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let receiver = Receiver::start().unwrap();
        receiver.answer_next([Answer::Accept, Answer::AcceptBut(1)]);
        let outcome = account(sending(&mut command("account", &["seconds=3"]), &receiver, protocol));
        assert_lawful(&receiver);
        let (accepted, all) = (receiver.accepted().stacks, stacks(&receiver));
        assert!(accepted < all, "{protocol:?}: nothing was rejected");
        assert_eq!(number(&outcome, "/stats/exported"), accepted, "{protocol:?}: {outcome}");
        assert_eq!(number(&outcome, "/stats/lost/rejected"), all - accepted, "{protocol:?}: {outcome}");
        assert_eq!(number(&outcome, "/stats/taken"), all, "{protocol:?}: {outcome}");
    }
}

/// Check that a receiver that is away for a while costs nothing: what it refused for now comes again.
#[test]
fn an_unavailable_receiver_is_tried_again() {
    let receiver = Receiver::start().unwrap();
    receiver.answer_next([Answer::Unavailable, Answer::Accept, Answer::Unavailable]);
    let outcome = account(sending(&mut command("account", &["seconds=3"]), &receiver, Protocol::Http));
    assert_lawful(&receiver);
    assert_eq!(number(&outcome, "/stats/lost_total"), 0, "{outcome}");
    assert_eq!(number(&outcome, "/stats/exported"), receiver.accepted().stacks, "{outcome}");
    let refused = receiver.bodies().iter().filter(|body| body.answer == Answer::Unavailable).count();
    assert_eq!(refused, 2);
}

/// Check that with nobody at the endpoint the account balances and nothing counts as exported.
#[test]
fn an_unreachable_receiver_gets_nothing() {
    // Bound and not listening: refuses who connects, and nobody else gets its port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let endpoint = format!("http://{}", socket.local_addr().unwrap());
    let mut command = command("account", &["seconds=3", "flush=10"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let outcome = account(&mut command);
    assert_eq!(number(&outcome, "/stats/exported"), 0, "{outcome}");
    let error = outcome.pointer("/stats/destinations/0/last_error").and_then(Value::as_str);
    assert!(error.is_some_and(|error| !error.is_empty()), "why it is not delivered is not said: {outcome}");
}

/// The stacks of everything that came, refused or not.
fn stacks(receiver: &Receiver) -> u64 {
    Tally::of(receiver.bodies().iter().flat_map(|body| &body.profiles)).stacks
}
