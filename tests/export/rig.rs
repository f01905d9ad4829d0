//! An exporter that sends through a proxy to a receiver, with waits short enough for tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler::export::{Exporter, Limits, Otlp, SpoolSettings, resolve};
use profiler::{DestinationStats, Ledger};
use profiler_proto::loss::{Account, Degraded, Loss, STACKS};
use profiler_proto::model::{Function, Kind, Line, Location, Mapping, Profile, ProfileSet, Sample, Scope, Stack};
use profiler_proto::resource::Resource;
use profiler_tests::proxy::Proxy;
use profiler_tests::receiver::{Protocol, Receiver};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) receiver: Receiver,
    pub(crate) proxy: Proxy,
    pub(crate) exporter: Exporter,
    ledger: Arc<Ledger>,
}

/// Limits with retries after milliseconds.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    (limits.retry.initial, limits.retry.max) = (Duration::from_millis(20), Duration::from_millis(50));
    limits
}

impl Rig {
    pub(crate) fn start(protocol: Protocol, timeout: Duration, limits: Limits) -> Self {
        Self::open(protocol, timeout, limits, None)
    }

    /// The same with a spool.
    pub(crate) fn with_spool(protocol: Protocol, limits: Limits, spool: SpoolSettings) -> Self {
        Self::open(protocol, Duration::from_secs(30), limits, Some(spool))
    }

    fn open(protocol: Protocol, timeout: Duration, limits: Limits, spool: Option<SpoolSettings>) -> Self {
        let receiver = Receiver::start().unwrap();
        let proxy = Proxy::start(receiver.address()).unwrap();
        let otlp = match protocol {
            Protocol::Grpc => Otlp::grpc(proxy.endpoint()),
            Protocol::Http => Otlp::http(proxy.endpoint()),
        };
        let targets = resolve(vec![otlp.timeout(timeout).into()], &|_| None).unwrap();
        let ledger = Arc::new(Ledger::default());
        let exporter = Exporter::with_spool(targets, Arc::clone(&ledger), limits, spool).unwrap();
        Self { receiver, proxy, exporter, ledger }
    }

    /// Takes so many stacks, as a sampler would, and offers them.
    pub(crate) fn offer(&self, stacks: u32) {
        self.offer_set(set(stacks), u64::from(stacks));
    }

    /// Takes the stacks of `set`, which are so many, and offers it.
    pub(crate) fn offer_set(&self, set: ProfileSet, stacks: u64) {
        self.ledger.enter(stacks, stacks, stacks, &Loss::default(), &Degraded::default());
        self.exporter.offer(Arc::new(set));
    }

    /// Waits until the disk has so many bodies.
    pub(crate) async fn until_written(&self, bodies: u64) {
        let written = |rig: &Self| rig.exporter.spool().is_some_and(|spool| spool.appended >= bodies);
        self.until("it is written", written).await;
    }

    /// Waits until `condition` holds, which no flush hurries.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        self.until_within(PATIENCE, what, condition).await;
    }

    async fn until_within(&self, patience: Duration, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < patience, "waited in vain until {what}: {:?}", self.exporter);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until everything has its verdict.
    pub(crate) async fn settle(&self) {
        self.until("all is settled", |rig| rig.account().pending == 0).await;
    }

    /// The same, where more is to be waited for than ever elsewhere.
    pub(crate) async fn settle_within(&self, patience: Duration) {
        self.until_within(patience, "all is settled", |rig| rig.account().pending == 0).await;
    }

    /// The ledger as it stands; it must balance.
    pub(crate) fn account(&self) -> Account {
        let account = self.ledger.account();
        assert!(account.balances(), "{account:?}");
        account
    }

    /// What is told of the destination.
    pub(crate) fn stats(&self) -> DestinationStats {
        self.exporter.destinations().remove(0)
    }
}

/// When the first profile begins.
const START: u64 = 1_795_262_400_000_000_000;

/// An on-CPU profile of so many stacks, which has a number.
pub(crate) fn numbered(number: u32, stacks: u32) -> ProfileSet {
    let mut set = set(stacks);
    set.profiles[0].time_unix_nanos += u64::from(number);
    set
}

/// The number of what came.
pub(crate) fn number_of(sets: &[ProfileSet]) -> u32 {
    u32::try_from(sets[0].profiles[0].time_unix_nanos - START).unwrap()
}

/// An on-CPU profile of so many stacks, which no other number has.
fn set(stacks: u32) -> ProfileSet {
    let mut set = ProfileSet {
        resource: Resource::new().with("service.name", "shop"),
        scope: Scope { name: "profiler_sdk".into(), version: "0".into() },
        ..ProfileSet::default()
    };
    let dictionary = &mut set.dictionary;
    let build_id = dictionary.attribute("process.executable.build_id.gnu", "6b2f9c1e");
    let filename = dictionary.strings.intern_str("/usr/bin/shop");
    let attributes = dictionary.attribute_set([build_id]);
    let mapping = Mapping { start: 0x1000, limit: 0x1000_0000, filename, attributes, ..Mapping::default() };
    let mapping = dictionary.mappings.intern(mapping);
    let samples = (0..stacks).map(|index| {
        let name = dictionary.strings.intern_str(&format!("shop::handle::<{index}>"));
        let function = dictionary.functions.intern(Function { name, ..Function::default() });
        let lines = Box::new([Line { function, line: index + 1, column: 0 }]);
        let address = 0x2000 + u64::from(index) * 16;
        let location = dictionary.locations.intern(Location { mapping, address, lines, ..Location::default() });
        let stack = dictionary.stacks.intern(Stack { locations: Box::new([location]) });
        Sample { stack, value: 1, ..Sample::default() }
    });
    let samples = samples.collect();
    let count = set.dictionary.attribute(STACKS, i64::from(stacks));
    let profile = Profile {
        kind: Kind::cpu(&mut set.dictionary, 10_000_000),
        time_unix_nanos: START,
        duration_nanos: 10_000_000_000,
        attributes: set.dictionary.attribute_set([count]),
        samples,
    };
    set.profiles = vec![profile];
    set
}
