//! The queue by itself: bounds, verdicts, figures.

use super::super::parcel::tests::parcel;
use super::*;
use crate::stats::{KindStats, Ledger};

/// A queue with room for two bodies of 100 bytes, and a ledger for what is pushed.
fn queue() -> (Queue, Arc<Ledger>) {
    (Queue::new("test".into(), (250, 300), Duration::from_secs(3600)), Arc::default())
}

fn push(queue: &Queue, stacks: u64, bytes: usize, ledger: &Arc<Ledger>) {
    queue.push(parcel(stacks, bytes, 1, ledger));
}

/// Check that a full queue drops the oldest, counts it, and stays within its bound.
#[test]
fn a_full_queue_drops_the_oldest() {
    let (queue, ledger) = queue();
    for stacks in [10, 20, 30] {
        push(&queue, stacks, 100, &ledger);
    }
    assert!(queue.state().bytes <= 250);
    assert_eq!(queue.stats().queued, 50);
    assert_eq!(queue.stats().dropped.count(Cause::QueueFull), 10);
    assert_eq!(ledger.account().lost.count(Cause::QueueFull), 10);
    assert_eq!(
        queue.begin(Instant::now()).map(|(number, parcel)| (number, parcel.fate.contents().stacks)),
        Some((1, 20))
    );
}

/// Check that what is on the wire is not dropped for room, and is again the oldest once it waits for a retry.
#[test]
fn what_is_being_sent_is_not_dropped_for_room() {
    let (queue, ledger) = queue();
    push(&queue, 10, 100, &ledger);
    let (number, _) = queue.begin(Instant::now()).unwrap();
    push(&queue, 20, 100, &ledger);
    push(&queue, 25, 100, &ledger);
    assert_eq!((queue.stats().queued, ledger.account().lost.total()), (35, 20));
    queue.put_back(number, false, "busy".into());
    push(&queue, 5, 100, &ledger);
    assert_eq!((queue.stats().queued, ledger.account().lost.total()), (30, 30));
    queue.accepted(number, None);
    assert_eq!(queue.stats().delivered, 0, "the verdict on a dropped parcel came too late to count");
    assert!(ledger.account().balances());
}

/// Check that a parcel larger than the whole queue is dropped at once and harms nothing else.
#[test]
fn a_parcel_larger_than_the_queue_is_dropped() {
    let (queue, ledger) = queue();
    push(&queue, 60, 1000, &ledger);
    assert_eq!((queue.stats().queued, queue.state().bytes), (0, 0));
    assert_eq!(ledger.account().lost.count(Cause::QueueFull), 60);
}

/// Check that what is longer than the queue is taken in where nothing else is, if a request may be as long.
#[test]
fn a_single_long_parcel_is_taken_in() {
    let (queue, ledger) = queue();
    push(&queue, 10, 290, &ledger);
    assert_eq!((queue.stats().queued, ledger.account().lost.total()), (10, 0));
    push(&queue, 20, 100, &ledger);
    assert_eq!((queue.stats().queued, ledger.account().lost.count(Cause::QueueFull)), (20, 10));
}

/// Check that closing gives up what waits, what is on the wire and what comes later, as lost to shutdown.
#[test]
fn closing_settles_everything() {
    let (queue, ledger) = queue();
    push(&queue, 10, 100, &ledger);
    push(&queue, 20, 100, &ledger);
    let (number, _) = queue.begin(Instant::now()).unwrap();
    queue.close();
    push(&queue, 30, 100, &ledger);
    queue.accepted(number, None);
    let account = ledger.account();
    assert_eq!((account.pending, account.exported, account.lost.count(Cause::Shutdown)), (0, 0, 60));
    assert_eq!(*queue.settled.borrow(), 3);
}

/// Check that flush waits for what was pushed before it, the one on the wire included, and for nothing later.
#[test]
fn flush_waits_for_what_came_before() {
    let (queue, ledger) = queue();
    push(&queue, 10, 100, &ledger);
    let (number, _) = queue.begin(Instant::now()).unwrap();
    let settled = queue.settled.subscribe();
    assert_eq!((queue.state().next, *settled.borrow()), (1, 0));
    push(&queue, 10, 100, &ledger);
    queue.accepted(number, None);
    assert_eq!(*settled.borrow(), 1);
}

/// Check that the profiles of each kind are where their stacks are, here and in the ledger, after every step.
#[test]
fn kinds_balance_after_every_step() {
    let (queue, ledger) = queue();
    let columns = |kind: &KindStats| [kind.offered, kind.exported, kind.pending, kind.lost.total()];
    let check = |expected: [u64; 4]| {
        for kinds in [ledger.kinds(), queue.stats().kinds] {
            assert!(kinds.iter().all(KindStats::balances), "{kinds:?}");
            assert_eq!(kinds.iter().map(|kind| kind.name).collect::<Vec<_>>(), crate::stats::KIND_NAMES);
            assert_eq!(
                kinds.iter().map(columns).collect::<Vec<_>>(),
                [expected, expected, [0; 4], [0; 4], [0; 4], [0; 4]]
            );
        }
    };
    push(&queue, 10, 100, &ledger);
    check([1, 0, 1, 0]);
    push(&queue, 10, 100, &ledger);
    push(&queue, 10, 100, &ledger);
    check([3, 0, 2, 1]);
    let (number, _) = queue.begin(Instant::now()).unwrap();
    queue.accepted(number, None);
    check([3, 1, 1, 1]);
    queue.refuse(&parcel(10, 0, 1, &ledger).fate, Cause::TooLarge);
    check([4, 1, 1, 2]);
    let (number, _) = queue.begin(Instant::now()).unwrap();
    queue.given_up(number, Cause::Rejected, "no".into());
    check([4, 1, 0, 3]);
    queue.close();
    push(&queue, 10, 100, &ledger);
    check([5, 1, 0, 4]);
    let heap = queue.stats().kinds[1].lost;
    let causes = [Cause::QueueFull, Cause::TooLarge, Cause::Rejected, Cause::Shutdown];
    assert_eq!(causes.map(|cause| heap.count(cause)), [1; 4]);
}

/// Check that attempts are counted, those again apart, and that the longest latency stays.
#[test]
fn attempts_are_counted() {
    let (queue, ledger) = queue();
    push(&queue, 10, 100, &ledger);
    push(&queue, 10, 100, &ledger);
    assert_eq!((queue.stats().queued_bytes, queue.stats().last_latency), (214, None));
    for (number, milliseconds, sent_bytes) in [(0, 5, 0), (0, 30, 107), (1, 10, 214)] {
        queue.attempted(Attempt { number, latency: Duration::from_millis(milliseconds), sent_bytes });
    }
    let stats = queue.stats();
    assert_eq!((stats.requests, stats.retried, stats.sent_bytes), (3, 1, 214));
    let latencies = [stats.last_latency, stats.longest_latency];
    assert_eq!(latencies, [10, 30].map(|milliseconds| Some(Duration::from_millis(milliseconds))));
}

/// Check that what has waited for too long is given up instead of sent, with its cause, and nothing younger.
#[test]
fn what_is_too_old_is_not_sent() {
    let (queue, ledger) = queue();
    push(&queue, 10, 100, &ledger);
    let pushed = queue.state().entries[0].pushed;
    assert_eq!(queue.begin(pushed + Duration::from_secs(3600)).map(|(number, _)| number), Some(0));
    queue.put_back(0, false, "away".into());
    push(&queue, 20, 100, &ledger);
    queue.state().entries[1].pushed = pushed + Duration::from_secs(60);
    assert_eq!(queue.begin(pushed + Duration::from_secs(3601)).map(|(number, _)| number), Some(1));
    assert_eq!((queue.stats().queued, queue.stats().dropped.count(Cause::TooOld)), (20, 10));
    assert_eq!((ledger.account().lost.count(Cause::TooOld), *queue.settled.borrow()), (10, 1));
}

/// Check that what was sent and not answered is lost as that, whichever bound gives it up: it may have arrived.
#[test]
fn what_may_have_arrived_is_told_whatever_gives_it_up() {
    let (queue, ledger) = queue();
    push(&queue, 10, 100, &ledger);
    let (number, _) = queue.begin(Instant::now()).unwrap();
    queue.put_back(number, true, "no answer".into());
    push(&queue, 20, 100, &ledger);
    push(&queue, 30, 100, &ledger);
    assert_eq!((ledger.account().lost.count(Cause::Unanswered), ledger.account().lost.total()), (10, 10));
    let (number, _) = queue.begin(Instant::now()).unwrap();
    queue.put_back(number, true, "no answer".into());
    queue.put_back(number, false, "busy".into());
    let pushed = queue.state().entries[0].pushed;
    queue.state().entries[1].pushed = pushed;
    assert!(queue.begin(pushed + Duration::from_secs(3601)).is_none());
    let dropped = queue.stats().dropped;
    assert_eq!((dropped.count(Cause::Unanswered), dropped.count(Cause::TooOld)), (30, 30));
}

/// Check that a peer that counts from the begin of a profile is sent nothing that is too old for it by then.
#[test]
fn age_counts_from_where_the_peer_counts() {
    let (queue, ledger) = queue();
    let mut parcel = parcel(10, 100, 1, &ledger);
    parcel.body = parcel.body.lasting(Duration::from_secs(600));
    queue.push(parcel);
    let pushed = queue.state().entries[0].pushed;
    assert_eq!(queue.begin(pushed + Duration::from_secs(3000)).map(|(number, _)| number), Some(0));
    queue.put_back(0, false, "away".into());
    assert!(queue.begin(pushed + Duration::from_secs(3001)).is_none());
    assert_eq!(ledger.account().lost.count(Cause::TooOld), 10);
}
