//! What waits on disk: it outlives memory and the exporter, comes back in order, and every stack of it is counted once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use profiler::export::{Compression, Limits, Otlp, Pyroscope, SpoolSettings, Target};
use profiler_proto::loss::Cause;
use tokio::sync::Notify;

use super::http_peer::{HttpPeer, Reaction, free_address};
use super::profiles::{set, stacks};
use super::rig::{PATIENCE, Rig, limits, target};

/// A folder of a test, removed when it is dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("profiler-export-spool-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn spool(&self) -> SpoolSettings {
        SpoolSettings::new(&self.0)
    }

    /// The segments, oldest first.
    fn segments(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut segments: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|end| end == "segment")).collect();
        segments.sort();
        segments
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// An endpoint of OTLP over HTTP.
fn otlp(url: &str) -> Target {
    target(Otlp::http(url).timeout(Duration::from_secs(30)))
}

/// Limits that let one or two small bodies wait in memory.
fn narrow() -> Limits {
    with_queue(800)
}

fn with_queue(bytes: usize) -> Limits {
    let mut limits = limits();
    limits.queue_bytes = bytes;
    limits
}

/// The stacks of the bodies that arrived, in order.
fn arrived(peer: &HttpPeer) -> Vec<u64> {
    peer.requests().iter().map(|request| stacks(&request.message())).collect()
}

/// Waits until the disk has so many bodies.
async fn until_written(rig: &Rig, bodies: u64) {
    rig.until("all is on disk", |rig| rig.exporter.spool().is_some_and(|spool| spool.appended >= bodies)).await;
}

/// Leaves bodies of so many stacks in the spool at `place`, for a destination that is away at `url`.
async fn leave(place: &Place, url: &str, bodies: &[u32]) {
    let rig = Rig::with_spool(vec![otlp(url)], limits(), place.spool());
    bodies.iter().for_each(|stacks| rig.offer(&set(*stacks)));
    until_written(&rig, bodies.len() as u64).await;
    assert!(!rig.exporter.shutdown(Duration::from_secs(1)).await);
    let (account, all) = (rig.account(), bodies.iter().map(|stacks| u64::from(*stacks)).sum());
    assert_eq!((account.pending, account.exported, account.lost.total()), (all, 0, 0), "{account:?}");
}

/// Check that what an exporter could not send is sent by the next one, in order and once, and is no part of its account.
#[tokio::test]
async fn what_one_exporter_leaves_the_next_one_sends() {
    let place = Place::new();
    let (_port, address) = free_address();
    let url = format!("http://{address}");
    leave(&place, &url, &[10, 20, 30]).await;

    let peer = HttpPeer::start_at(address, []).await;
    let rig = Rig::with_spool(vec![otlp(&url)], limits(), place.spool());
    rig.until("it comes back", |rig| rig.stats(0).replayed == 60).await;
    rig.offer(&set(7));
    rig.until("what is new arrives", |rig| rig.account().exported == 7).await;
    assert_eq!(arrived(&peer), [10, 20, 30, 7]);
    let (account, stats) = (rig.account(), rig.stats(0));
    assert_eq!((account.taken, account.exported, account.pending, account.lost.total()), (7, 7, 0, 0));
    assert_eq!((stats.delivered, stats.queued, stats.replayed, stats.kinds[0].offered), (7, 0, 60, 1));
    assert!(rig.exporter.shutdown(Duration::from_secs(30)).await);
    drop(rig);

    let rig = Rig::with_spool(vec![otlp(&url)], limits(), place.spool());
    rig.offer(&set(8));
    rig.until("what is new arrives", |rig| rig.account().exported == 8).await;
    rig.until("nothing is left", |rig| rig.exporter.spool().is_some_and(|spool| spool.segments == 0)).await;
    assert_eq!((arrived(&peer).len(), rig.stats(0).replayed), (5, 0));
}

/// Check that what there is no room for in memory is not lost but waits on disk, and arrives in order and once, beside what is new.
#[tokio::test]
async fn what_memory_has_no_room_for_waits_on_disk() {
    let place = Place::new();
    let (_port, address) = free_address();
    let rig = Rig::with_spool(vec![otlp(&format!("http://{address}"))], narrow(), place.spool());
    for number in 1..=10 {
        rig.offer(&set(number));
        until_written(&rig, u64::from(number)).await;
    }
    let (account, stats) = (rig.account(), rig.stats(0));
    assert_eq!((account.pending, account.lost.total(), stats.queued), (55, 0, 55), "{stats:?}");
    assert!(stats.spooled >= 40 && stats.queued_bytes <= 800, "{stats:?}");
    let peer = HttpPeer::start_at(address, []).await;
    rig.until("all has arrived", |rig| rig.account().exported == 55).await;
    let arrived = arrived(&peer);
    let (late, early): (Vec<u64>, Vec<u64>) =
        arrived.iter().partition(|stacks| **stacks <= 9 && arrived[0] != **stacks);
    assert!(late.is_sorted() && early.is_sorted() && arrived.len() == 10, "{arrived:?}");
    let stats = rig.stats(0);
    assert_eq!((stats.delivered, stats.spooled, stats.queued, stats.replayed), (55, 0, 0, 0));
    assert!(stats.kinds[0].balances() && stats.kinds[0].exported == 10, "{stats:?}");
}

/// Check that the bound on disk holds, and that what goes for it is lost by its own cause.
#[tokio::test]
async fn what_the_folder_has_no_room_for_is_lost_by_name() {
    let place = Place::new();
    let (_port, address) = free_address();
    let bytes = 16 << 10;
    let rig = Rig::with_spool(vec![otlp(&format!("http://{address}"))], with_queue(1500), place.spool().bytes(bytes));
    for number in 1..=60 {
        rig.offer(&set(20));
        until_written(&rig, number).await;
    }
    rig.until("some is lost", |rig| rig.stats(0).dropped.total() > 0).await;
    let (account, spool) = (rig.account(), rig.exporter.spool().unwrap());
    assert_eq!(account.lost.count(Cause::SpoolFull), account.lost.total(), "{account:?}");
    assert!(account.pending > 0 && account.lost.total() > 0 && spool.bytes <= bytes, "{account:?} {spool:?}");
    let peer = HttpPeer::start_at(address, []).await;
    rig.until("all is settled", |rig| rig.stats(0).queued == 0).await;
    let account = rig.account();
    assert_eq!(arrived(&peer).iter().sum::<u64>(), account.exported);
    assert_eq!((account.exported + account.lost.count(Cause::SpoolFull), account.pending), (1200, 0), "{account:?}");
}

/// Flips a byte in the body of the record that is first in a segment.
fn damage(segment: &Path) {
    let mut bytes = std::fs::read(segment).unwrap();
    // Behind the preamble and the longest header.
    bytes[20 + 22 + 100] ^= 1;
    std::fs::write(segment, bytes).unwrap();
}

/// Check that a damaged body is not sent, and that it is lost by its own cause: of this exporter in the account, of an earlier one beside it.
#[tokio::test]
async fn what_is_damaged_is_lost_by_name() {
    let place = Place::new();
    let (_port, address) = free_address();
    let url = format!("http://{address}");
    leave(&place, &url, &[10, 20]).await;
    damage(&place.segments()[0]);
    let rig = Rig::with_spool(vec![otlp(&url)], narrow(), place.spool());
    for number in 1..=3 {
        rig.offer(&set(number));
        until_written(&rig, u64::from(number)).await;
    }
    rig.until("memory has forgotten the first", |rig| rig.stats(0).spooled > 0).await;
    damage(&place.segments()[1]);
    let peer = HttpPeer::start_at(address, []).await;
    rig.until("all is settled", |rig| rig.account().pending == 0 && rig.stats(0).replayed == 20).await;
    let (account, stats) = (rig.account(), rig.stats(0));
    assert_eq!((account.exported, account.lost.count(Cause::SpoolDamaged), account.lost.total()), (5, 1, 1));
    assert_eq!((stats.replay_dropped.count(Cause::SpoolDamaged), stats.replay_dropped.total()), (10, 10));
    let mut arrived = arrived(&peer);
    arrived.sort_unstable();
    assert_eq!(arrived, [2, 3, 20]);
}

/// Check that what the folder loses as a whole, for somebody removed it, is lost by name, and that all goes on in a new one.
#[tokio::test]
async fn what_goes_with_the_folder_is_lost_by_name() {
    let place = Place::new();
    let (_port, address) = free_address();
    let rig = Rig::with_spool(vec![otlp(&format!("http://{address}"))], narrow(), place.spool());
    for number in 1..=3 {
        rig.offer(&set(10));
        until_written(&rig, number).await;
    }
    rig.until("memory has forgotten some", |rig| rig.stats(0).spooled > 0).await;
    std::fs::remove_dir_all(&place.0).unwrap();
    rig.offer(&set(10));
    rig.until("it is lost", |rig| rig.account().lost.total() > 0).await;
    let peer = HttpPeer::start_at(address, []).await;
    rig.until("all is settled", |rig| rig.account().pending == 0).await;
    let account = rig.account();
    assert_eq!(arrived(&peer).iter().sum::<u64>(), account.exported);
    let by_name = account.lost.count(Cause::SpoolDamaged)
        + account.lost.count(Cause::QueueFull)
        + account.lost.count(Cause::SpoolFull);
    assert_eq!((by_name, account.exported + by_name), (account.lost.total(), 40), "{account:?}");
}

/// Check the same of a destination that has left to the disk what another one beside it still has in memory; that one loses nothing.
#[tokio::test]
async fn what_goes_with_the_folder_is_lost_to_whom_has_it_there_alone() {
    let place = Place::new();
    let slow = HttpPeer::start([Reaction::Hang]).await;
    let throttles = HttpPeer::start(vec![Reaction::answer(429, b"rate limit"); 10_000]).await;
    let destinations = [&slow, &throttles].map(|peer| target(Otlp::http(peer.url()).timeout(2 * PATIENCE)));
    let rig = Rig::with_spool(destinations.into(), limits(), place.spool());
    [10, 20, 30].iter().for_each(|stacks| rig.offer(&set(*stacks)));
    rig.until("one has all on disk alone", |rig| rig.stats(1).spooled == 60).await;
    std::fs::remove_dir_all(&place.0).unwrap();
    rig.offer(&set(7));
    // One may be in hand.
    rig.until("it is lost", |rig| rig.stats(1).dropped.count(Cause::SpoolDamaged) >= 30).await;
    assert_eq!((rig.stats(0).dropped.total(), rig.stats(0).queued), (0, 67));
}

/// Check that a folder that cannot be had keeps nothing from its start, is said with its name, and that all goes on from memory.
#[tokio::test]
async fn a_folder_that_cannot_be_had_is_said() {
    let place = Place::new();
    let folder = place.0.join("file").join("spool");
    std::fs::write(place.0.join("file"), "in the way").unwrap();
    let peer = HttpPeer::start([]).await;
    let rig = Rig::with_spool(vec![otlp(&peer.url())], narrow(), SpoolSettings::new(&folder));
    let trouble = |rig: &Rig| rig.exporter.spool().and_then(|spool| spool.trouble);
    rig.until("it is said", |rig| trouble(rig).is_some_and(|why| why.contains(folder.to_str().unwrap()))).await;
    rig.offer(&set(10));
    rig.settle().await;
    rig.assert_settled(10, 0, Cause::QueueFull);
    drop(peer);
    (0..5).for_each(|_| rig.offer(&set(10)));
    assert!(rig.account().lost.count(Cause::QueueFull) > 0, "memory is bounded as without a spool");
}

/// Check that one refused for good is settled, counted by name, and holds up nothing behind it; and that one that is to come later does not
/// come twice.
#[tokio::test]
async fn verdicts_on_what_comes_back_are_final() {
    let place = Place::new();
    let (_port, address) = free_address();
    let url = format!("http://{address}");
    leave(&place, &url, &[10, 20, 30]).await;
    let script = [(400, &b"no"[..]), (503, b"later"), (200, b"")].map(|(status, body)| Reaction::answer(status, body));
    let peer = HttpPeer::start_at(address, script).await;
    let rig = Rig::with_spool(vec![otlp(&url)], limits(), place.spool());
    rig.until("all has its verdict", |rig| rig.stats(0).replayed == 50).await;
    let stats = rig.stats(0);
    assert_eq!((stats.replay_dropped.count(Cause::Rejected), stats.replay_dropped.total()), (10, 10));
    assert_eq!((arrived(&peer), stats.requests, stats.retried), (vec![10, 20, 20, 30], 4, 1));
    assert_eq!((rig.account().taken, rig.account().lost.total()), (0, 0));
    assert!(rig.exporter.shutdown(Duration::from_secs(30)).await);
}

/// Check that a peer that is reached and takes nothing for longer than an attempt has time loses nothing that is on disk.
#[tokio::test]
async fn a_peer_that_takes_nothing_for_long_costs_nothing() {
    let place = Place::new();
    let peer = HttpPeer::start((0..12).map(|_| Reaction::answer(503, b"not yet"))).await;
    let mut limits = limits();
    limits.retry.budget = Duration::from_millis(10);
    let rig = Rig::with_spool(vec![otlp(&peer.url())], limits, place.spool());
    rig.offer(&set(10));
    until_written(&rig, 1).await;
    rig.until("it has arrived", |rig| rig.account().exported == 10).await;
    rig.assert_settled(10, 0, Cause::Unreachable);
    assert!(peer.requests().len() == 13 && rig.stats(0).retried > 0);
}

/// Check that each destination gets from disk what is its own: two that take other forms, one of them by other labels.
#[tokio::test]
async fn destinations_get_their_own() {
    let place = Place::new();
    let ports = [free_address(), free_address(), free_address(), free_address()];
    let urls = ports.each_ref().map(|(_, address)| format!("http://{address}"));
    let destinations = || {
        vec![
            otlp(&urls[0]),
            target(Otlp::http(&urls[1]).compression(Compression::None)),
            target(Pyroscope::new(&urls[2]).label("region", "eu")),
            target(Pyroscope::new(&urls[3]).label("region", "us")),
        ]
    };
    let rig = Rig::with_spool(destinations(), limits(), place.spool());
    rig.offer(&set(10));
    until_written(&rig, 4).await;
    assert!(!rig.exporter.shutdown(Duration::from_secs(1)).await);
    assert_eq!((rig.account().pending, rig.account().lost.total()), (10, 0));
    drop(rig);
    // As a kill leaves it that comes before it is known whose is what.
    std::fs::remove_file(place.0.join("settled")).unwrap();
    let mut peers = Vec::new();
    for (_, address) in &ports {
        peers.push(HttpPeer::start_at(*address, []).await);
    }
    let rig = Rig::with_spool(destinations(), limits(), place.spool());
    rig.until("each has its own", |rig| (0..4).all(|index| rig.stats(index).replayed == 10)).await;
    rig.until("all is settled", |rig| rig.exporter.spool().is_some_and(|spool| spool.segments == 0)).await;
    let requests: Vec<_> = peers.iter().map(HttpPeer::requests).collect();
    assert!(
        requests.iter().all(|requests| requests.len() == 1),
        "{:?}",
        requests.iter().map(Vec::len).collect::<Vec<_>>()
    );
    assert_eq!(
        (
            requests[0][0].headers.contains_key("content-encoding"),
            requests[1][0].headers.contains_key("content-encoding")
        ),
        (true, false)
    );
    assert_eq!((stacks(&requests[0][0].message()), stacks(&requests[1][0].message())), (10, 10));
    let has = |index: usize, text: &[u8]| requests[index][0].message().windows(2).any(|bytes| bytes == text);
    assert_eq!([has(2, b"eu"), has(3, b"us")], [true; 2]);
}

/// Check that two destinations of one name are told apart, in figures as on disk.
#[tokio::test]
async fn destinations_of_one_name_are_told_apart() {
    let peer = HttpPeer::start([]).await;
    let rig = Rig::start(vec![otlp(&peer.url()), otlp(&peer.url()), otlp(&peer.url())], limits());
    let names: Vec<_> = rig.exporter.destinations().into_iter().map(|stats| stats.name).collect();
    let name = format!("otlp-http {}/v1development/profiles", peer.url());
    assert_eq!(names, [name.clone(), format!("{name} #2"), format!("{name} #3")]);
}

/// Check that a peer that throttles without saying until when loses nothing that is on disk, neither of this exporter nor of an earlier one.
#[tokio::test]
async fn a_peer_that_throttles_loses_nothing_that_is_on_disk() {
    let place = Place::new();
    let (_port, address) = free_address();
    let url = format!("http://{address}");
    leave(&place, &url, &[10]).await;
    let rig = Rig::with_spool(vec![otlp(&url)], limits(), place.spool());
    rig.offer(&set(20));
    until_written(&rig, 1).await;
    let peer = HttpPeer::start_at(address, vec![Reaction::answer(429, b"rate limit"); 12]).await;
    rig.until("all has arrived", |rig| rig.account().exported == 20 && rig.stats(0).replayed == 10).await;
    let stats = rig.stats(0);
    assert_eq!((rig.account().lost.total(), stats.dropped.total(), stats.replay_dropped.total()), (0, 0, 0));
    assert_eq!(peer.requests().len(), 14);
}

/// Offers sets of 20 stacks, more than so many until now, until the segment `first` has gone for room; how many there are then.
async fn offer_until_gone(rig: &Rig, first: &Path, mut offered: u64) -> u64 {
    while first.exists() {
        rig.offer(&set(20));
        offered += 1;
        until_written(rig, offered).await;
    }
    offered
}

/// Check that what goes for room on disk while it is being sent counts once, as what becomes of it: of an earlier exporter.
#[tokio::test]
async fn what_goes_for_room_while_it_is_sent_counts_once() {
    let place = Place::new();
    let (_port, address) = free_address();
    let url = format!("http://{address}");
    leave(&place, &url, &[10]).await;
    let may_answer = Arc::new(Notify::new());
    let peer = HttpPeer::start_at(address, [Reaction::Hold(Arc::clone(&may_answer))]).await;
    let target = target(Otlp::http(&url).timeout(2 * PATIENCE));
    let rig = Rig::with_spool(vec![target], with_queue(1500), place.spool().bytes(16 << 10));
    rig.until("it is being sent", |_| peer.requests().len() == 1).await;
    let offered = offer_until_gone(&rig, &place.segments()[0], 0).await;
    may_answer.notify_one();
    rig.until("all has its verdict", |rig| rig.stats(0).queued == 0 && rig.stats(0).replayed > 0).await;
    let (account, stats) = (rig.account(), rig.stats(0));
    assert_eq!((stats.replayed, stats.replay_dropped.total()), (10, 0), "{stats:?}");
    let unique: u64 = arrived(&peer).iter().sum();
    assert_eq!((account.exported + 10, account.exported + account.lost.total()), (unique, 20 * offered), "{account:?}");
}

/// Check the same of one of this exporter's own, which is in its account: exported, for the peer took it, and not lost as well.
#[tokio::test]
async fn one_of_ours_that_goes_for_room_while_it_is_sent_counts_once() {
    let place = Place::new();
    let (_port, address) = free_address();
    let target = target(Otlp::http(format!("http://{address}")).timeout(2 * PATIENCE));
    let rig = Rig::with_spool(vec![target], with_queue(1500), place.spool().bytes(16 << 10));
    let mut offered = 0;
    while rig.stats(0).spooled == 0 {
        rig.offer(&set(20));
        offered += 1;
        until_written(&rig, offered).await;
    }
    let in_memory = offered - rig.stats(0).spooled / 20;
    let may_answer = Arc::new(Notify::new());
    let live = (0..in_memory).map(|_| Reaction::answer(200, b""));
    let peer = HttpPeer::start_at(address, live.chain([Reaction::Hold(Arc::clone(&may_answer))])).await;
    rig.until("what is on disk alone is being sent", |_| peer.requests().len() as u64 == in_memory + 1).await;
    let offered = offer_until_gone(&rig, &place.segments()[0], offered).await;
    let before = rig.account().exported;
    may_answer.notify_one();
    rig.until("all has its verdict", |rig| rig.stats(0).queued == 0).await;
    let (account, unique) = (rig.account(), arrived(&peer).iter().sum::<u64>());
    assert_eq!((before, account.exported, account.pending), (20 * in_memory, unique, 0), "{account:?}");
    assert_eq!(account.exported + account.lost.total(), 20 * offered, "{account:?}");
    assert_eq!((rig.stats(0).delivered, rig.stats(0).replayed), (unique, 0));
}

/// Gives the record that is first in a segment the manifest of another version.
fn of_another_version(segment: &Path) {
    let mut bytes = std::fs::read(segment).unwrap();
    let (header, counts) = (20, 20 + 22);
    bytes[counts] += 1;
    let end = counts + usize::from(bytes[header + 21]);
    let checksum = crc32fast::hash(&bytes[header + 4..end]);
    bytes[header..header + 4].copy_from_slice(&checksum.to_le_bytes());
    std::fs::write(segment, bytes).unwrap();
}

/// Check that what another version wrote, of which it is not known what it counts, is told.
#[tokio::test]
async fn what_another_version_wrote_is_told() {
    let place = Place::new();
    let (_port, address) = free_address();
    let url = format!("http://{address}");
    leave(&place, &url, &[10, 20]).await;
    of_another_version(&place.segments()[0]);
    let peer = HttpPeer::start_at(address, []).await;
    let rig = Rig::with_spool(vec![otlp(&url)], limits(), place.spool());
    rig.until("what can be read arrives", |rig| rig.stats(0).replayed == 20).await;
    rig.until("nothing is left", |rig| rig.exporter.spool().is_some_and(|spool| spool.segments == 0)).await;
    assert_eq!((rig.exporter.spool().unwrap().untaken, arrived(&peer)), (1, vec![20]));
}

/// Check that flush waits for what is on disk alone, and is true when that has arrived, too.
#[tokio::test]
async fn flush_waits_for_what_is_on_disk() {
    let place = Place::new();
    let (_port, address) = free_address();
    let rig = Rig::with_spool(vec![otlp(&format!("http://{address}"))], narrow(), place.spool());
    for number in 1..=4 {
        rig.offer(&set(number));
        until_written(&rig, u64::from(number)).await;
    }
    assert!(rig.stats(0).spooled > 0);
    assert!(!rig.exporter.flush(Duration::from_millis(10)).await, "it has not arrived");
    let peer = HttpPeer::start_at(address, []).await;
    assert!(rig.exporter.flush(Duration::from_secs(60)).await);
    assert_eq!((rig.account().exported, arrived(&peer).iter().sum::<u64>()), (10, 10));
}

/// Check that a spool beside no destination, or a local one alone, is not made, and that the figures say why.
#[tokio::test]
async fn a_spool_without_a_destination_says_so() {
    let folder = std::env::temp_dir().join(format!("profiler-idle-spool-{}", std::process::id()));
    for destinations in [vec![], vec![Target::local("store", Arc::new(|_: &Arc<_>| {}))]] {
        let rig = Rig::with_spool(destinations, limits(), SpoolSettings::new(&folder));
        rig.offer(&set(10));
        let stats = rig.exporter.spool().unwrap();
        assert_eq!((stats.folder.as_str(), stats.appended), (folder.to_str().unwrap(), 0));
        assert!(stats.trouble.unwrap().contains("sent nowhere") && !folder.exists());
    }
}
