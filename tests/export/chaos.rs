//! Whatever happens, in any order: two destinations of one form, of which each may be down, broken, slow or rude at any time, with and without a spool.
//!
//! At each step the account balances, at the end everything has its verdict, and each receiver has what its destination says that it took. What happens is drawn
//! from a seed, which stands in what a failure says. `TORTURE_SECONDS`, as `make torture` sets it, makes it a hundred seeds.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler::export::{Exporter, Otlp, SpoolSettings, resolve};
use profiler::{DestinationStats, Ledger};
use profiler_proto::loss::{Degraded, Loss};
use profiler_tests::proxy::{Fault, Proxy};
use profiler_tests::receiver::{Answer, Receiver};
use profiler_tests::workload::Random;

use super::rig::{limits, number_of, numbered};

/// How long it may take until all is settled, once all is well.
const PATIENCE: Duration = Duration::from_secs(60);
const STEPS: u64 = 60;

fn seeds() -> u64 {
    if std::env::var_os("TORTURE_SECONDS").is_some() { 100 } else { 8 }
}

/// A receiver behind a proxy.
struct Peer {
    receiver: Receiver,
    proxy: Proxy,
}

impl Peer {
    fn start() -> Self {
        let receiver = Receiver::start().unwrap();
        let proxy = Proxy::start(receiver.address()).unwrap();
        Self { receiver, proxy }
    }

    /// Something happens to it.
    fn suffer(&self, random: &mut Random) {
        let bytes = random.below(400) as usize;
        match random.below(10) {
            0 => self.proxy.close().unwrap(),
            1 | 2 => self.proxy.open().unwrap(),
            3 => self.proxy.break_next([Fault::ResetBeforeBody, Fault::Dribble]),
            4 => self.proxy.break_next([Fault::ResetInBody(bytes)]),
            5 => self.proxy.break_next([Fault::ResetAfterBody, Fault::CutAnswer(bytes)]),
            6 => self.proxy.break_next([Fault::Swallow]),
            7 => self.receiver.answer_next([Answer::Unavailable, Answer::Reject]),
            8 => self.receiver.answer_next([Answer::AcceptBut(1), Answer::Unavailable]),
            _ => self.receiver.answer_next([Answer::Hang]),
        }
    }

    /// The bodies that it took, by number.
    fn accepted(&self) -> BTreeSet<u32> {
        let bodies = self.receiver.bodies().into_iter().filter(|body| body.answer == Answer::Accept);
        bodies.map(|body| number_of(&body.profiles)).collect()
    }
}

/// What runs, and what it is told.
struct Chaos {
    seed: u64,
    random: Random,
    peers: [Peer; 2],
    exporter: Exporter,
    ledger: Arc<Ledger>,
    folder: Option<PathBuf>,
    offered: u64,
}

impl Chaos {
    fn start(seed: u64) -> Self {
        let (random, peers) = (Random::new(seed + 1), [Peer::start(), Peer::start()]);
        let otlp = |peer: &Peer| Otlp::http(peer.proxy.endpoint()).timeout(Duration::from_millis(400)).into();
        let targets = resolve(peers.iter().map(otlp).collect(), &|_| None).unwrap();
        let name = format!("profiler-chaos-{}-{seed}", std::process::id());
        let folder = (!seed.is_multiple_of(4)).then(|| std::env::temp_dir().join(name));
        let mut limits = limits();
        // So small that the oldest goes, or is on disk alone.
        limits.queue_bytes = 1500;
        let ledger = Arc::new(Ledger::default());
        let spool = folder.clone().map(SpoolSettings::new);
        let exporter = Exporter::with_spool(targets, Arc::clone(&ledger), limits, spool).unwrap();
        Self { seed, random, peers, exporter, ledger, folder, offered: 0 }
    }

    async fn step(&mut self) {
        match self.random.below(8) {
            0..3 => self.offer(),
            3..6 => {
                let peer = self.random.below(2) as usize;
                self.peers[peer].suffer(&mut self.random);
            }
            6 if self.seed % 4 == 3 && self.random.below(3) == 0 => {
                // Somebody takes the spool away.
                let _gone = self.folder.as_ref().map(std::fs::remove_dir_all);
            }
            _ => tokio::time::sleep(Duration::from_millis(self.random.below(40))).await,
        }
        let account = self.ledger.account();
        assert!(account.balances(), "seed {}: {account:?}", self.seed);
        for told in self.exporter.destinations() {
            self.assert_balance(&told);
        }
    }

    fn offer(&mut self) {
        self.offered += 1;
        self.ledger.enter(1, 1, 1, &Loss::default(), &Degraded::default());
        self.exporter.offer(Arc::new(numbered(u32::try_from(self.offered).unwrap(), 1)));
    }

    #[track_caller]
    fn assert_balance(&self, told: &DestinationStats) {
        let all = told.delivered + told.queued + told.dropped.total();
        assert_eq!(all, self.offered, "seed {}: {told:?}", self.seed);
    }

    /// All is well from now on: everything gets its verdict.
    async fn settle(&self) {
        for peer in &self.peers {
            peer.proxy.open().unwrap();
            peer.receiver.answer(Answer::Accept);
        }
        let start = Instant::now();
        while self.exporter.destinations().iter().any(|told| told.queued > 0) || self.ledger.account().pending > 0 {
            let spool = self.exporter.spool();
            assert!(
                start.elapsed() < PATIENCE,
                "seed {}: stuck: {:?} {spool:?}",
                self.seed,
                self.exporter.destinations()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What each destination says that it delivered, its receiver took; what it says that it lost, the receiver may have.
    fn assert_arrived(&self) {
        for (peer, told) in self.peers.iter().zip(self.exporter.destinations()) {
            self.assert_balance(&told);
            let (came, lost) = (peer.accepted().len() as u64, told.dropped.total());
            assert!(
                came >= told.delivered && came <= told.delivered + lost,
                "seed {}: {came} came: {told:?}",
                self.seed
            );
        }
        let account = self.ledger.account();
        let exported = self.peers.iter().flat_map(Peer::accepted).collect::<BTreeSet<_>>().len() as u64;
        assert!(account.exported <= exported && account.pending == 0, "seed {}: {account:?}", self.seed);
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        let _removed = self.folder.as_ref().map(std::fs::remove_dir_all);
    }
}

/// Check that every stack has its verdict at each destination, once, whatever happens to the two.
#[tokio::test]
async fn whatever_happens_is_accounted_for() {
    for seed in 0..seeds() {
        let mut chaos = Chaos::start(seed);
        for _ in 0..STEPS {
            chaos.step().await;
        }
        chaos.settle().await;
        chaos.assert_arrived();
        chaos.exporter.shutdown(PATIENCE).await;
    }
}
