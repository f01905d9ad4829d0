//! What each fault costs: nothing, while the peer comes back, and a counted loss where it does not.
//!
//! `captured = received once + lost(by cause)`, where the receiver counts what it decoded and the ledger what became of what was offered.

use std::time::Duration;

use profiler_proto::loss::Cause;
use profiler_tests::proxy::Fault;
use profiler_tests::receiver::{Answer, Protocol};

use super::rig::{Rig, limits};

/// A fault that connections meet with, and what comes of it.
struct Row {
    fault: Fault,
    /// Whether the attempt fails that meets with it.
    breaks: bool,
    /// Whether the body has arrived although the attempt failed: it comes once more then.
    arrives: bool,
}

/// What happens to a connection.
const ROWS: [Row; 7] = [
    Row { fault: Fault::Dribble, breaks: false, arrives: true },
    Row { fault: Fault::SlowAccept(Duration::from_millis(200)), breaks: false, arrives: true },
    Row { fault: Fault::Swallow, breaks: true, arrives: false },
    Row { fault: Fault::ResetBeforeBody, breaks: true, arrives: false },
    Row { fault: Fault::ResetInBody(30), breaks: true, arrives: false },
    Row { fault: Fault::ResetAfterBody, breaks: true, arrives: true },
    Row { fault: Fault::CutAnswer(20), breaks: true, arrives: true },
];

const PROTOCOLS: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

/// Offers of stacks, all different, so that bodies are told apart.
const OFFERED: [u32; 3] = [10, 20, 30];
const CAPTURED: u64 = 60;

fn offer(rig: &Rig) {
    OFFERED.into_iter().for_each(|stacks| rig.offer(stacks));
}

/// Checks that everything arrived and is known to have, and how many bodies came more than once.
fn assert_delivered(rig: &Rig, again: usize, row: &str) {
    let account = rig.account();
    assert_eq!((account.exported, account.lost.total(), account.pending), (CAPTURED, 0, 0), "{row}: {account:?}");
    assert_eq!(rig.receiver.unique().stacks, CAPTURED, "{row}");
    assert_eq!(rig.receiver.bodies().len(), OFFERED.len() + again, "{row}");
}

/// Check that no fault of two connections costs a stack, and that a body comes once more exactly where it had arrived unanswered.
#[tokio::test]
async fn a_broken_connection_costs_nothing() {
    for protocol in PROTOCOLS {
        for Row { fault, breaks, arrives } in ROWS {
            let row = format!("{protocol:?}, {fault:?}");
            // Short only where an attempt must time out: a slow machine must not fail the others.
            let timeout = Duration::from_secs(if fault == Fault::Swallow { 4 } else { 30 });
            let rig = Rig::start(protocol, timeout, limits());
            rig.proxy.break_next([fault; 2]);
            offer(&rig);
            rig.settle().await;
            let (failed, stats) = (if breaks { 2 } else { 0 }, rig.stats());
            assert_delivered(&rig, if arrives { failed } else { 0 }, &row);
            assert_eq!((stats.requests, stats.retried), (3 + failed as u64, failed as u64), "{row}");
            assert_eq!((rig.proxy.connections(), stats.last_error.is_some()), (1 + failed, breaks), "{row}");
        }
    }
}

/// Check that a host that refuses, and one that says nothing at all, costs nothing once it is back, and that nothing is sent to it twice.
#[tokio::test]
async fn a_host_that_is_away_costs_nothing() {
    for protocol in PROTOCOLS {
        for walled in [false, true] {
            let rig = Rig::start(protocol, Duration::from_secs(if walled { 4 } else { 30 }), limits());
            if walled { rig.proxy.wall() } else { rig.proxy.close() }.unwrap();
            offer(&rig);
            rig.until("it was tried again", |rig| rig.stats().retried > 0).await;
            assert_eq!((rig.account().pending, rig.stats().sent_bytes), (CAPTURED, 0));
            let why = rig.stats().last_error.unwrap();
            assert_eq!(why.contains("within"), walled, "{why}");
            rig.proxy.open().unwrap();
            rig.settle().await;
            assert_delivered(&rig, 0, &format!("{protocol:?}, walled: {walled}"));
        }
    }
}

/// Check that a server that ends under a request, and is started again, costs nothing: what it had not answered comes once more.
#[tokio::test]
async fn a_restarted_server_costs_nothing() {
    for protocol in PROTOCOLS {
        let rig = Rig::start(protocol, Duration::from_secs(30), limits());
        rig.receiver.answer_next([Answer::Accept, Answer::Hang]);
        offer(&rig);
        rig.until("a request hangs", |rig| rig.receiver.bodies().len() == 2).await;
        rig.proxy.close().unwrap();
        rig.until("it is refused", |rig| rig.stats().last_error.is_some_and(|why| why.contains("refused"))).await;
        rig.proxy.open().unwrap();
        rig.settle().await;
        assert_delivered(&rig, 1, &format!("{protocol:?}"));
    }
}

/// Check that what arrived each time and was never answered is lost as unanswered alone: what the receiver has of it is that.
#[tokio::test]
async fn what_is_never_answered_is_told_apart() {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let mut limits = limits();
        limits.retry.budget = Duration::from_millis(100);
        let rig = Rig::start(protocol, Duration::from_secs(30), limits);
        offer(&rig);
        rig.settle().await;
        rig.proxy.close().unwrap();
        rig.proxy.open().unwrap();
        rig.proxy.break_next([Fault::ResetAfterBody; 1000]);
        rig.offer(40);
        rig.settle().await;
        let account = rig.account();
        assert_eq!((account.exported, account.lost.count(Cause::Unanswered), account.lost.total()), (CAPTURED, 40, 40));
        assert_eq!(rig.receiver.unique().stacks, account.exported + account.lost.count(Cause::Unanswered));
    }
}
