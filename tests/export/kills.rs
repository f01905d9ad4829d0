//! Kills: of the process that sends, in the midst of anything, of the server it sends to, and of a real Collector between the two.
//!
//! What a sender had on disk when it was killed arrives, whoever is started next in its folder; more than once comes only what was sent
//! before a kill. `TORTURE_SECONDS`, as `make torture` sets it, makes it a hundred kills of each.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler::Ledger;
use profiler::export::{Exporter, Otlp, SpoolSettings, resolve};
use profiler_proto::loss::{Degraded, Loss};
use profiler_proto::validate::Rule;
use profiler_tests::collector::{Collector, Hop};
use profiler_tests::proxy::Fault;
use profiler_tests::receiver::{Protocol, Receiver};

use super::rig::{Rig, limits, number_of, numbered};

/// Tell a child where its folder is, where it sends to, and the number of its first body.
const FOLDER: &str = "PROFILER_TEST_SPOOL";
const ENDPOINT: &str = "PROFILER_TEST_ENDPOINT";
const FIRST: &str = "PROFILER_TEST_FIRST";

/// Longer than all that is left takes, at four bodies a second, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(600);

fn kills() -> u64 {
    if std::env::var_os("TORTURE_SECONDS").is_some() { 100 } else { 25 }
}

/// A random number below `bound`.
fn random(bound: u64) -> u64 {
    RandomState::new().hash_one(0_u8) % bound
}

/// A folder of a test, removed when it is dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("profiler-kills-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn spool(&self) -> SpoolSettings {
        SpoolSettings::new(&self.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// How often each body came.
fn counts(receiver: &Receiver) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    for body in receiver.bodies() {
        *counts.entry(number_of(&body.profiles)).or_default() += 1;
    }
    counts
}

/// Check that what a killed sender had written comes from the next one, over many kills in one folder.
#[tokio::test]
async fn a_killed_sender_loses_nothing_that_is_on_disk() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return send_until_killed(SpoolSettings::new(folder)).await;
    }
    let place = Place::new("sender");
    let receiver = Receiver::start().unwrap();
    let mut written = BTreeMap::new();
    for kill in 0..kills() {
        let first = u32::try_from(kill).unwrap() * 1000;
        for number in written_until_killed(&place.0, &receiver.endpoint(), first) {
            written.insert(number, kill);
        }
    }
    assert!(written.len() as u64 >= kills(), "only {} bodies were written", written.len());
    let (exporter, ledger) = sender(&receiver.endpoint(), place.spool());
    let start = Instant::now();
    while written.keys().any(|number| !counts(&receiver).contains_key(number)) {
        assert!(start.elapsed() < PATIENCE, "something has not come: {exporter:?} {:?}", exporter.spool());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (number, count) in counts(&receiver) {
        // Each life since it was made may have sent it once, and so may the last, which nobody kills.
        let most = kills() - u64::from(number / 1000) + 1;
        assert!(count <= most, "body {number} came {count} times");
    }
    assert_eq!(ledger.account().taken, 0);
    assert_eq!(exporter.spool().unwrap().missing, 0);
    exporter.shutdown(PATIENCE).await;
}

/// An exporter with a spool, and its ledger.
fn sender(endpoint: &str, spool: SpoolSettings) -> (Exporter, Arc<Ledger>) {
    let ledger = Arc::new(Ledger::default());
    let targets = resolve(vec![Otlp::http(endpoint).timeout(Duration::from_secs(60)).into()], &|_| None).unwrap();
    (Exporter::with_spool(targets, Arc::clone(&ledger), limits(), Some(spool)).unwrap(), ledger)
}

/// The child: offers bodies, each when the one before is on disk, and says which ones are.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
async fn send_until_killed(spool: SpoolSettings) {
    let (exporter, ledger) = sender(&std::env::var(ENDPOINT).unwrap(), spool);
    let first: u32 = std::env::var(FIRST).unwrap().parse().unwrap();
    for count in 1.. {
        ledger.enter(1, 1, 1, &Loss::default(), &Degraded::default());
        exporter.offer(Arc::new(numbered(first + count, 1)));
        while exporter.spool().is_none_or(|spool| spool.appended < u64::from(count)) {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        println!("written {}", first + count);
        tokio::time::sleep(Duration::from_micros(random(2000))).await;
    }
}

/// What a child says to have written, which is killed in the midst of the next, the one after that, or a little later.
fn written_until_killed(folder: &Path, endpoint: &str, first: u32) -> Vec<u32> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::a_killed_sender_loses_nothing_that_is_on_disk", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(ENDPOINT, endpoint)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    // Behind what the test harness says, without a line's end.
    let number = |line: String| line.rsplit_once("written ").and_then(|(_, number)| number.parse().ok());
    let mut written: Vec<u32> = lines.by_ref().filter_map(number).take(1 + random(5) as usize).collect();
    std::thread::sleep(Duration::from_micros(random(4000)));
    child.kill().unwrap();
    child.wait().unwrap();
    written.extend(lines.filter_map(number));
    written
}

/// Check that a server that ends and is started again, over and over, under requests and between them, costs nothing and gets in order what
/// memory had no room for.
#[tokio::test]
async fn a_killed_receiver_costs_nothing() {
    const FAULTS: [Fault; 4] =
        [Fault::ResetBeforeBody, Fault::ResetInBody(30), Fault::ResetAfterBody, Fault::CutAnswer(20)];
    let place = Place::new("receiver");
    let mut limits = limits();
    limits.queue_bytes = 1500;
    let rig = Rig::with_spool(Protocol::Http, limits, place.spool());
    let (mut offered, mut failed) = (0, 0);
    for _ in 0..kills() {
        for _ in 0..random(4) {
            offered += 1;
            rig.offer_set(numbered(offered, 1), 1);
            rig.until_written(u64::from(offered)).await;
        }
        match random(3) {
            0 => {
                failed += 1;
                rig.proxy.break_next([FAULTS[random(4) as usize]]);
            }
            _ => tokio::time::sleep(Duration::from_micros(random(3000))).await,
        }
        rig.proxy.close().unwrap();
        for _ in 0..random(4) {
            offered += 1;
            rig.offer_set(numbered(offered, 1), 1);
            rig.until_written(u64::from(offered)).await;
        }
        rig.proxy.open().unwrap();
    }
    rig.settle_within(PATIENCE).await;
    let (account, counts) = (rig.account(), counts(&rig.receiver));
    assert_eq!((account.exported, account.lost.total()), (u64::from(offered), 0), "{account:?}");
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), (1..=offered).collect::<Vec<_>>());
    // Once more comes what had arrived when the server ended, and was not answered.
    let again: u64 = counts.values().map(|count| count - 1).sum();
    assert!(again <= kills() + failed, "{again} bodies came again: {counts:?}");
    assert_eq!(rig.stats().replayed, 0);
}

/// Check the same of a real Collector, which is killed in the midst of anything and started again: it acknowledges what the next hop took.
#[tokio::test]
async fn a_killed_collector_costs_nothing() {
    let place = Place::new("collector");
    let receiver = Receiver::start().unwrap();
    // Those are the Collector's own, see `suite/collector.rs`.
    receiver.allow([Rule::ZeroElement, Rule::StringReference]);
    let mut collector = Collector::start(Hop::Grpc, &receiver.endpoint()).unwrap();
    let (exporter, ledger) = sender(&collector.endpoint(Protocol::Http), place.spool());
    let mut offered = 0;
    for _ in 0..kills() {
        offer_some(&exporter, &ledger, &mut offered).await;
        tokio::time::sleep(Duration::from_micros(random(5000))).await;
        collector.kill();
        offer_some(&exporter, &ledger, &mut offered).await;
        let restarted = tokio::task::spawn_blocking(move || collector.restart().map(|()| collector));
        collector = restarted.await.unwrap().unwrap();
    }
    let start = Instant::now();
    while ledger.account().pending > 0 {
        assert!(start.elapsed() < PATIENCE, "something has not come: {exporter:?} {:?}", exporter.spool());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (account, counts) = (ledger.account(), counts(&receiver));
    assert_eq!((account.exported, account.lost.total()), (u64::from(offered), 0), "{account:?}");
    assert!(u64::from(offered) > kills(), "{offered}");
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), (1..=offered).collect::<Vec<_>>());
    // Once more comes what the next hop had taken when the Collector was killed, and what was on its way to it.
    let again: u64 = counts.values().map(|count| count - 1).sum();
    assert!(again <= 2 * kills(), "{again} bodies came again: {counts:?}");
    exporter.shutdown(PATIENCE).await;
}

/// Offers up to three bodies, each when the one before is on disk.
async fn offer_some(exporter: &Exporter, ledger: &Ledger, offered: &mut u32) {
    for _ in 0..random(4) {
        *offered += 1;
        ledger.enter(1, 1, 1, &Loss::default(), &Degraded::default());
        exporter.offer(Arc::new(numbered(*offered, 1)));
        while exporter.spool().is_none_or(|spool| spool.appended < u64::from(*offered)) {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }
}
