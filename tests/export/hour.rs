//! A backend that is gone for an hour, in intervals made short: what is offered each ten seconds comes at once, what would be 55 minutes is a
//! second or two. No figure depends on how fast the machine is: what was captured has arrived, waits, or is lost by its cause, and each is counted
//! where it happens.

use std::time::{Duration, Instant};

use profiler::export::SpoolSettings;
use profiler_proto::loss::{Account, Cause};
use profiler_tests::receiver::Protocol;

use super::rig::{Rig, limits, number_of, numbered};

const PROTOCOLS: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

/// Windows of ten seconds in an hour.
const WINDOWS: u32 = 360;

/// Stacks of a window.
const STACKS: u32 = 10;

fn offer(rig: &Rig, windows: std::ops::RangeInclusive<u32>) {
    windows.for_each(|window| rig.offer_set(numbered(window, STACKS), STACKS.into()));
}

/// The windows that arrived, in order, each once.
fn arrived(rig: &Rig) -> Vec<u32> {
    let windows: Vec<u32> = rig.receiver.bodies().iter().map(|body| number_of(&body.profiles)).collect();
    assert!(windows.is_sorted_by(|a, b| a < b), "each once, in order: {windows:?}");
    windows
}

/// Checks that each window of so many has arrived, or is lost by this cause, as the receiver, the ledger and the destination count it.
fn assert_exact(rig: &Rig, windows: u32, cause: Cause) -> Account {
    let (account, stats, all) = (rig.account(), rig.stats(), u64::from(windows * STACKS));
    let received = rig.receiver.unique().stacks;
    assert_eq!(account.exported, received, "{account:?}");
    assert_eq!((account.taken, received + account.lost.count(cause)), (all, all), "{account:?}");
    assert_eq!((account.pending, account.lost.total()), (0, account.lost.count(cause)), "{account:?}");
    assert_eq!((stats.delivered, stats.dropped, stats.queued), (received, account.lost, 0), "{stats:?}");
    account
}

/// Check that of an hour without a backend memory keeps the newest, as many as it has room for, and loses the oldest, by name.
#[tokio::test]
async fn an_hour_without_a_backend_costs_what_there_is_no_room_for() {
    for protocol in PROTOCOLS {
        let mut limits = limits();
        limits.queue_bytes = 20_000;
        let rig = Rig::start(protocol, Duration::from_secs(30), limits);
        rig.proxy.close().unwrap();
        offer(&rig, 1..=WINDOWS);
        rig.until("it was tried", |rig| rig.stats().retried > 0).await;
        let (before, stats) = (rig.account(), rig.stats());
        assert!(before.pending > 0 && before.lost.total() > 0 && stats.queued_bytes <= 20_000, "{before:?} {stats:?}");
        assert_eq!((stats.sent_bytes, before.lost.count(Cause::QueueFull)), (0, before.lost.total()));
        rig.proxy.open().unwrap();
        rig.settle().await;
        let account = assert_exact(&rig, WINDOWS, Cause::QueueFull);
        assert_eq!(account.lost, before.lost, "nothing more is lost once it is back");
        let kept = u32::try_from(account.exported).unwrap() / STACKS;
        assert_eq!(arrived(&rig), (WINDOWS - kept + 1..=WINDOWS).collect::<Vec<_>>(), "the newest, in order");
    }
}

/// Check that what waited for longer than peers take is lost by name, and what is younger arrives.
#[tokio::test]
async fn an_hour_without_a_backend_costs_what_is_too_old() {
    for protocol in PROTOCOLS {
        let mut limits = limits();
        limits.retry.max_age = Duration::from_secs(1);
        let rig = Rig::start(protocol, Duration::from_secs(30), limits);
        rig.proxy.close().unwrap();
        let start = Instant::now();
        let mut offered = 0;
        while offered < WINDOWS || start.elapsed() < Duration::from_millis(1200) {
            offered += 1;
            offer(&rig, offered..=offered);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        rig.until("the oldest are too old", |rig| rig.account().lost.total() > 0).await;
        rig.proxy.open().unwrap();
        offered += 1;
        offer(&rig, offered..=offered);
        rig.settle().await;
        let account = assert_exact(&rig, offered, Cause::TooOld);
        let kept = u32::try_from(account.exported).unwrap() / STACKS;
        assert!(account.lost.total() > 0);
        // Some more grow too old while what piled up goes out, at its pace.
        assert_eq!(arrived(&rig).len(), kept as usize);
    }
}

/// Check that with a spool an hour without a backend costs nothing, however little room there is in memory.
#[tokio::test]
async fn with_a_spool_an_hour_without_a_backend_costs_nothing() {
    let folder = std::env::temp_dir().join(format!("profiler-hour-{}", std::process::id()));
    let mut limits = limits();
    // Room for all but some: those come back from the disk at four a second.
    limits.queue_bytes = 120_000;
    let rig = Rig::with_spool(Protocol::Http, limits, SpoolSettings::new(&folder));
    rig.proxy.close().unwrap();
    let mut offered = 0;
    while rig.stats().spooled < u64::from(20 * STACKS) {
        offered += 1;
        offer(&rig, offered..=offered);
        rig.until_written(offered.into()).await;
        assert!(offered < 4 * WINDOWS, "nothing is left to the disk: {:?}", rig.stats());
    }
    assert!(offered >= WINDOWS / 2, "{offered} windows");
    let (account, stats) = (rig.account(), rig.stats());
    assert_eq!((account.pending, account.lost.total()), (u64::from(offered * STACKS), 0), "{account:?}");
    assert!(stats.queued == account.pending && stats.queued_bytes <= 120_000, "{stats:?}");
    rig.proxy.open().unwrap();
    rig.settle().await;
    assert_eq!(assert_exact(&rig, offered, Cause::SpoolFull).lost.total(), 0);
    let mut windows: Vec<u32> = rig.receiver.bodies().iter().map(|body| number_of(&body.profiles)).collect();
    windows.sort_unstable();
    assert_eq!(windows, (1..=offered).collect::<Vec<_>>(), "each once");
    let _removed = std::fs::remove_dir_all(folder);
}
