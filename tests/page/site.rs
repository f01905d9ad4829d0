//! A server of profiles, and the profile that most tests look at.
//!
//! In: folded stacks with weights and tags. Out: the address of the real server with them in its store.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profiler::proto::loss::STACKS;
use profiler::proto::model::{Function, Id, Kind, Line, Link, Location, Mapping, Stack};
use profiler::proto::{Profile, ProfileSet, Sample};
use profiler::serve::{CaptureError, CaptureFuture, Server, Source, Store, Target};
use profiler::{EngineStats, Stats};

/// 100 Hz.
const PERIOD: i64 = 10_000_000;

/// Bytes between samples of the heap.
const INTERVAL: i64 = 512 << 10;

/// One line of a profile: stack from the root, samples, tags.
pub(crate) type Row = (&'static str, i64, Tags);
/// Keys with values.
pub(crate) type Tags = &'static [(&'static str, &'static str)];
/// The same as [`Row`] with a stack of any names.
pub(crate) type Sampled = (Vec<String>, i64, Tags);

const ORDERS: Tags = &[("endpoint", "/orders"), ("method", "POST")];
const SEARCH: Tags = &[("endpoint", "/search"), ("method", "GET")];
const REPORT: Tags = &[("endpoint", "/report"), ("method", "GET")];

/// 1,000 samples of a shop: `shop::orders::price` is hot, `shop::report::walk` calls itself.
pub(crate) const SHOP: &[Row] = &[
    ("std::start;tokio::runtime::run;shop::orders::create;shop::orders::price", 400, ORDERS),
    ("std::start;tokio::runtime::run;shop::orders::create;shop::orders::sort;core::slice::sort", 100, ORDERS),
    ("std::start;tokio::runtime::run;shop::search::run;shop::search::score", 250, SEARCH),
    ("std::start;tokio::runtime::run;shop::search::run;serde_json::ser::to_vec", 50, SEARCH),
    ("std::start;tokio::runtime::run;shop::report::build;shop::report::walk;shop::report::walk", 100, REPORT),
    ("std::start;tokio::runtime::run;shop::report::build;flate2::compress", 95, REPORT),
    ("std::start;tokio::runtime::park", 5, &[]),
];

/// A server that answers until the test process ends.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    store: Arc<Store>,
    shop: Arc<Shop>,
}

/// Stands for the sampler: says of itself what a test wants.
struct Shop {
    stats: Mutex<Stats>,
    targets: Mutex<Vec<Target>>,
}

impl Source for Shop {
    fn targets(&self) -> Vec<Target> {
        self.targets.lock().unwrap().clone()
    }

    fn capture(&self, _: Duration, _: Option<u32>) -> CaptureFuture {
        Box::pin(std::future::ready(Err(CaptureError::Off)))
    }

    fn stats(&self) -> Stats {
        self.stats.lock().unwrap().clone()
    }
}

impl Site {
    /// A server with an empty store, whose sampler runs and has lost nothing.
    pub(crate) fn empty() -> Self {
        let mut stats = Stats::default();
        (stats.sampling, stats.rate_hz, stats.symbols.lines) = (true, 100, Some(true));
        stats.engine = {
            let mut engine = EngineStats::default();
            engine.name = "timer".into();
            engine
        };
        let targets = vec![Target::new("shop", 4711).in_language("rust")];
        let shop = Arc::new(Shop { stats: Mutex::new(stats), targets: Mutex::new(targets) });
        let store = Arc::new(Store::default());
        let bound = Server::bind("127.0.0.1:0").unwrap();
        let address = bound.local_addr();
        let run = bound.run(Arc::clone(&shop) as Arc<dyn Source>, Arc::clone(&store));
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run);
        });
        Self { address, store, shop }
    }

    /// A server that holds `rows`.
    pub(crate) fn with(rows: &[Row]) -> Self {
        let site = Self::empty();
        site.add(rows);
        site
    }

    /// Ten more seconds of profile, just over.
    pub(crate) fn add(&self, rows: &[Row]) {
        let rows =
            rows.iter().map(|(path, weight, tags)| (path.split(';').map(str::to_owned).collect(), *weight, *tags));
        self.add_stacks(rows.collect());
    }

    /// The same from stacks of any names.
    pub(crate) fn add_stacks(&self, rows: Vec<Sampled>) {
        self.store.add(Arc::new(profile_of(rows)));
    }

    /// A heap of which so many bytes are in use, as it was so many seconds ago: in blocks of 1 KiB, of which twice as many were
    /// allocated in the ten seconds before; one sample in 512 KiB.
    pub(crate) fn add_heap(&self, ago: u64, rows: &[Row]) {
        let rows =
            rows.iter().map(|(path, weight, tags)| (path.split(';').map(str::to_owned).collect(), *weight, *tags));
        self.store.add(Arc::new(heap_of(profile_of(rows.collect()), ago)));
        self.says(|stats| (stats.heap.on, stats.heap.interval_bytes) = (true, INTERVAL as u64));
    }

    /// Ten seconds, just over, of the process `pid` of `service`, as the sidecar has it; the first row ran in the trace [`TRACE`].
    pub(crate) fn add_process(&self, service: &str, pid: u32, language: &str, rows: &[Row]) {
        let rows =
            rows.iter().map(|(path, weight, tags)| (path.split(';').map(str::to_owned).collect(), *weight, *tags));
        let mut set = of(profile_of(rows.collect()), service, pid, language);
        let link = Link { trace_id: TRACE, span_id: [7; 8] };
        set.profiles[0].samples[0].link = set.dictionary.links.intern(link);
        self.store.add(Arc::new(set));
        let target = Target::new(service, pid).in_language(language);
        let mut targets = self.shop.targets.lock().unwrap();
        targets.retain(|known| (&*known.service, known.pid) != (service, pid));
        targets.push(target);
    }

    /// A process is not profiled any more.
    pub(crate) fn forgets(&self, service: &str, pid: u32) {
        self.shop.targets.lock().unwrap().retain(|known| (&*known.service, known.pid) != (service, pid));
    }

    /// The goroutines of the process `pid` of `service`, as they were so many seconds ago.
    pub(crate) fn add_goroutines(&self, service: &str, pid: u32, ago: u64, rows: &[Row]) {
        let rows =
            rows.iter().map(|(path, weight, tags)| (path.split(';').map(str::to_owned).collect(), *weight, *tags));
        let mut set = of(profile_of(rows.collect()), service, pid, "go");
        set.profiles[0].kind = Kind::goroutine(&mut set.dictionary);
        set.profiles[0].time_unix_nanos -= ago * 1_000_000_000;
        self.store.add(Arc::new(set));
    }

    /// Changes what the sampler says of itself.
    pub(crate) fn says(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.shop.stats.lock().unwrap());
    }
}

/// `set` of a process.
fn of(mut set: ProfileSet, service: &str, pid: u32, language: &str) -> ProfileSet {
    set.resource.set("service.name", service);
    set.resource.set("process.pid", i64::from(pid));
    set.resource.set("process.runtime.name", language);
    set
}

/// The trace that two processes work for.
pub(crate) const TRACE: [u8; 16] = [0xab; 16];

fn heap_of(mut set: ProfileSet, ago: u64) -> ProfileSet {
    let figures = [("jemalloc.allocated", 200_i64 << 20), ("jemalloc.resident", 300 << 20)];
    let figures = figures.map(|(key, value)| set.dictionary.attribute(key, value));
    let (attributes, kinds) = (set.dictionary.attribute_set(figures), Kind::heap(&mut set.dictionary, INTERVAL));
    let mut rows = set.profiles.remove(0);
    (rows.attributes, rows.time_unix_nanos) = (attributes, rows.time_unix_nanos - ago * 1_000_000_000);
    set.profiles.extend(kinds.into_iter().zip([(2, 1024), (2, 1), (1, 1024), (1, 1)]).map(|(kind, (times, size))| {
        let mut profile = Profile { kind, ..rows.clone() };
        profile.samples.iter_mut().for_each(|sample| sample.value = times * sample.value / size);
        profile
    }));
    set
}

fn source_of(name: &str) -> &'static str {
    match name.split(['.', ':']).next() {
        Some("shop") => "src/shop.rs",
        Some("main") if name.contains('.') => "/app/main.go",
        Some("runtime") => "/usr/local/go/src/runtime/proc.go",
        _ => "",
    }
}

fn profile_of(rows: Vec<Sampled>) -> ProfileSet {
    let mut set = ProfileSet::default();
    let dictionary = &mut set.dictionary;
    let filename = dictionary.strings.intern_str("/usr/bin/shop");
    let mapping = Mapping { start: 0x1000, limit: 0x1000_0000, filename, ..Mapping::default() };
    let mapping = dictionary.mappings.intern(mapping);
    set.resource.set("process.executable.path", "/usr/bin/shop");
    let stacks = rows.iter().map(|(_, weight, _)| weight).sum::<i64>();
    let attribute = dictionary.attribute(STACKS, stacks);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut profile = Profile {
        kind: Kind::cpu(dictionary, PERIOD),
        time_unix_nanos: (now - Duration::from_secs(10)).as_nanos() as u64,
        duration_nanos: 10_000_000_000,
        attributes: dictionary.attribute_set([attribute]),
        ..Profile::default()
    };
    for (path, value, tags) in rows {
        let locations = path.iter().rev().map(|name| {
            let function = Function {
                name: dictionary.strings.intern_str(name),
                filename: dictionary.strings.intern_str(source_of(name)),
                ..Function::default()
            };
            let function = dictionary.functions.intern(function);
            let address = 0x1000 + 16 * u64::from(function.index());
            let lines = vec![Line { function, line: 42, column: 0 }].into();
            dictionary.locations.intern(Location { mapping, address, lines, ..Location::default() })
        });
        let locations = locations.collect();
        let stack = dictionary.stacks.intern(Stack { locations });
        let tags: Vec<_> = tags.iter().map(|(key, value)| dictionary.attribute(key, *value)).collect();
        let attributes = dictionary.attribute_set(tags);
        profile.samples.push(Sample { stack, attributes, value, ..Sample::default() });
    }
    set.profiles.push(profile);
    set
}
