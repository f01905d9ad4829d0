//! An exporter with a ledger of its own, and limits short enough for tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler::export::{Destination, Exporter, Limits, SpoolSettings, Target, resolve};
use profiler::{DestinationStats, KindStats, Ledger};
use profiler_proto::ProfileSet;
use profiler_proto::loss::{Account, Cause, Degraded, Loss, stacks_of};

/// Longer than anything here takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The exporter under test.
pub(crate) struct Rig {
    pub(crate) exporter: Exporter,
    pub(crate) ledger: Arc<Ledger>,
}

/// This destination, without an environment.
pub(crate) fn target(destination: impl Into<Destination>) -> Target {
    resolve(vec![destination.into()], &|_| None).expect("a good destination").remove(0)
}

/// Limits with retries after milliseconds.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.retry.initial = Duration::from_millis(20);
    limits.retry.max = Duration::from_millis(50);
    limits
}

impl Rig {
    /// An exporter to these destinations, without an environment.
    pub(crate) fn to(destinations: impl IntoIterator<Item = impl Into<Destination>>) -> Self {
        Self::start(destinations.into_iter().map(target).collect(), limits())
    }

    /// An exporter to these destinations.
    pub(crate) fn start(destinations: Vec<Target>, limits: Limits) -> Self {
        let ledger = Arc::new(Ledger::default());
        let exporter = Exporter::start(destinations, Arc::clone(&ledger), limits).expect("inside a runtime");
        Self { exporter, ledger }
    }

    /// The same with a spool.
    pub(crate) fn with_spool(destinations: Vec<Target>, limits: Limits, spool: SpoolSettings) -> Self {
        let ledger = Arc::new(Ledger::default());
        let exporter = Exporter::with_spool(destinations, Arc::clone(&ledger), limits, Some(spool));
        Self { exporter: exporter.expect("inside a runtime"), ledger }
    }

    /// Takes the stacks of `set`, as a sampler would, and offers it.
    pub(crate) fn offer(&self, set: &Arc<ProfileSet>) {
        let stacks = set.profiles.iter().map(|profile| stacks_of(profile, &set.dictionary)).sum();
        self.ledger.enter(stacks, stacks, stacks, &Loss::default(), &Degraded::default());
        self.exporter.offer(Arc::clone(set));
    }

    /// Waits until everything has its verdict, whatever that is; whether all was accepted.
    pub(crate) async fn settle(&self) -> bool {
        let accepted = self.exporter.flush(PATIENCE).await;
        assert!(self.exporter.destinations().iter().all(|stats| stats.queued == 0), "not settled: {:?}", self.exporter);
        accepted
    }

    /// Waits until `condition` holds: no test depends on how fast the machine is.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < PATIENCE, "waited in vain until {what}: {:?}", self.exporter);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the first destination has failed, and gives the reason.
    pub(crate) async fn failure(&self) -> String {
        self.until("an attempt fails", |rig| rig.stats(0).last_error.is_some()).await;
        self.last_error()
    }

    /// The ledger as it stands; it must balance.
    pub(crate) fn account(&self) -> Account {
        let account = self.ledger.account();
        assert!(account.balances(), "{account:?}");
        account
    }

    /// Checks the ledger: all settled, so many exported, so many lost, and all of those to `cause`.
    pub(crate) fn assert_settled(&self, exported: u64, lost: u64, cause: Cause) {
        let account = self.account();
        assert_eq!((account.pending, account.exported, account.lost.total()), (0, exported, lost), "{account:?}");
        assert_eq!(account.lost.count(cause), lost, "{account:?}");
    }

    /// The figures of the profiles of the heap in the ledger, and at the first destination if there is one; they must agree and balance.
    pub(crate) fn heap(&self) -> KindStats {
        let heap = |kinds: Vec<KindStats>| kinds.into_iter().find(|kind| kind.name == "heap").unwrap();
        let in_all = heap(self.ledger.kinds());
        if let Some(first) = self.exporter.destinations().into_iter().next() {
            assert_eq!(heap(first.kinds), in_all);
        }
        assert!(in_all.balances(), "{in_all:?}");
        in_all
    }

    /// The figures of one destination.
    pub(crate) fn stats(&self, index: usize) -> DestinationStats {
        self.exporter.destinations().swap_remove(index)
    }

    /// What the first destination said last when it did not accept.
    pub(crate) fn last_error(&self) -> String {
        self.stats(0).last_error.unwrap_or_default()
    }
}
