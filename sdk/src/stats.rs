//! What the profiler says about itself: one consistent snapshot, and the ledger ([`Ledger`]) it is taken from.
//!
//! In: the epochs that the `profiler` thread closes, and the fate of what was handed to destinations. Out: `stats()`,
//! `/stats`, the attributes of loss on every profile. Leaf module: `export`, `serve` and the sampler use it.

mod kinds;
mod ledger;

use std::time::Duration;

use profiler_proto::loss::{Account, Degraded, Loss};

pub use self::kinds::KindStats;
#[cfg(feature = "export")]
pub(crate) use self::kinds::{Contents, Kinds, NAMES as KIND_NAMES, kind_of};
pub use self::ledger::Ledger;

/// A snapshot of what the profiler did since it was started.
///
/// Another crate that captures starts from [`Stats::of_ledger`] and sets the fields that it knows, each of which starts at its default;
/// what it has beside them goes into [`Stats::sections`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Whether samples are being taken now.
    pub sampling: bool,
    /// Sampling rate in samples per second of CPU time.
    pub rate_hz: u32,
    /// On-CPU stacks: `taken = exported + pending + Σ lost`.
    pub account: Account,
    /// On-CPU stacks that arrived less than perfect.
    pub degraded: Degraded,
    /// Sum of the weights of the stacks that were taken, in periods.
    pub weight: u64,
    /// Profiles that were handed to export, by kind: `cpu`, `heap`, `goroutine`, `block`, `mutex`, `other`.
    pub kinds: Vec<KindStats>,
    /// The engine in use and why better ones are not.
    pub engine: EngineStats,
    /// One entry per destination, in the order of configuration.
    pub destinations: Vec<DestinationStats>,
    /// What is on disk for destinations, if there is a spool.
    pub spool: Option<SpoolStats>,
    /// What is known of the executable's debug information.
    pub symbols: SymbolStats,
    /// What became of tags.
    pub tags: TagStats,
    /// What is known of spans.
    pub spans: SpanStats,
    /// What became of samples of the heap.
    pub heap: HeapStats,
    /// Whether processes are profiled from outside: what only a profiler within its process knows (`heap`, `spans`, `tags`) is left out of
    /// `/stats` then.
    pub from_outside: bool,
    /// What else there is to say, by name; each is an object at the top level of `/stats`, and a list on the page.
    pub sections: Vec<StatsSection>,
}

impl Stats {
    /// The accounts of `ledger`, taken at one moment; all else at its default.
    #[must_use]
    pub fn of_ledger(ledger: &Ledger) -> Self {
        let entries = *ledger.entries();
        Self {
            account: entries.account,
            degraded: entries.degraded,
            weight: entries.weight,
            kinds: entries.kinds.to_vec(),
            ..Self::default()
        }
    }
}

/// Figures under one name.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct StatsSection {
    /// The name: small letters and `_`, none of those that `/stats` has already.
    pub name: String,
    /// What they are called, each once, in the order in which they are shown.
    pub figures: Vec<(String, Figure)>,
}

impl StatsSection {
    /// A section without figures.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), figures: Vec::new() }
    }

    /// The same with one figure more.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, figure: impl Into<Figure>) -> Self {
        self.figures.push((name.into(), figure.into()));
        self
    }
}

/// One figure of a section.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Figure {
    /// How many.
    Count(u64),
    /// How much.
    Number(f64),
    /// Whether.
    Flag(bool),
    /// What, in words.
    Text(String),
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Figure {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Figure {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<String> for Figure {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Figure {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// What became of samples of the heap, and what the allocator says. `sampled = recorded + lost`, `live = recorded - freed`, once no
/// hook is on its way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    /// Whether samples are being taken now.
    pub on: bool,
    /// Bytes allocated between samples, on average: in force now.
    pub interval_bytes: u64,
    /// Allocations that were sampled: how often jemalloc told of one.
    pub sampled: u64,
    /// Those whose memory is, or was, watched until it is freed.
    pub recorded: u64,
    /// Those of them that were freed, or given up at a start that found hooks of others in the place of its own: `notes` say so.
    pub freed: u64,
    /// Those of them that live.
    pub live: u64,
    /// Frees of sampled memory that jemalloc told of: those of `freed` that were not given up, those that are `unknown`, and those of the few blocks by which a
    /// start learns which frames are the allocator's.
    pub frees: u64,
    /// Frees of sampled memory that was not watched: sampled before the start, or lost.
    pub unknown: u64,
    /// Samples that what lives, or what was allocated, lacks.
    pub lost: HeapLost,
    /// Samples that are shown without stack and tags, for there were too many of those.
    pub without_stack: u64,
    /// Profiles that were to be sent and were not, by cause: making them panicked (`failed`), or the profiler ended before they were made (`shutdown`). What was
    /// allocated in their time is in no other one that is sent.
    pub profiles_lost: Loss,
    /// Bytes that the profiler's own tables take: of what lives, of where it comes from, of what waits for the next profile.
    pub table_bytes: u64,
    /// What the allocator said when it was last asked: for each profile.
    pub allocator: Option<AllocatorStats>,
    /// Where jemalloc has no hooks of samples (5.3.0 and before), and dumps what it counts instead: of the figures above only `live` and
    /// `allocator` are known then, as of the last dump.
    pub dumps: Option<HeapDumps>,
    /// Why there are no samples, and what else is not as it could be.
    pub notes: Vec<String>,
}

/// Profiles of the heap that are jemalloc's own, dumped and read: without tags and spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapDumps {
    /// Dumps that were read.
    pub read: u64,
    /// Dumps that could not be had; `notes` say why the last one was not, until there is another.
    pub failed: u64,
    /// Bytes of the last one.
    pub bytes: u64,
    /// Dumps of which the end was not read, for they were too long: those stacks are shown as one.
    pub cut: u64,
    /// Whether they say what was allocated beside what lives: jemalloc's option `prof_accum`.
    pub accumulated: bool,
}

/// Samples of the heap that are lost, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapLost {
    /// Too many threads allocated at once.
    pub no_scratch: u64,
    /// Known as allocated, but not watched: too many live.
    pub table_full: u64,
    /// Known as allocated, but not watched: there was no memory for it.
    pub no_memory: u64,
}

impl HeapLost {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.no_scratch + self.table_full + self.no_memory
    }
}

/// What the allocator says of its memory, in bytes (jemalloc(3), `stats.*`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocatorStats {
    /// Allocated by the program, without sampled blocks of up to three pages, which are in `active` alone.
    pub allocated: u64,
    /// In pages that hold what is allocated.
    pub active: u64,
    /// The allocator's own.
    pub metadata: u64,
    /// In physical memory, at most.
    pub resident: u64,
    /// Mapped for use.
    pub mapped: u64,
    /// Addresses kept without memory behind them.
    pub retained: u64,
}

/// What is known of the spans that samples link to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanStats {
    /// Whether contexts of `opentelemetry` are seen as they become current.
    pub observed: bool,
    /// Whether a span that samples link to has been current on any thread.
    pub seen: bool,
    /// Why samples may have no links, or others than were asked for.
    pub notes: Vec<String>,
}

/// What became of tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TagStats {
    /// Tags that were left out since the process began: their key was empty, there was no room for them, all keys were
    /// taken, there were too many scopes, or the thread was ending. A tag counts each time: when a set of tags or a span is made,
    /// a scope entered, a span become current.
    pub left_out: u64,
    /// Tags that are there, but not as they were given, since the process began: their key or value was too long and was cut, or had control characters,
    /// for which there are spaces. A tag counts each time a set or a span with it is made.
    pub altered: u64,
    /// Keys that the process has, of 255 at most. A key stays to the end of the process, so keys that are made at run time use them up, for all who come after.
    pub keys: u64,
}

/// The engine that takes the samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// The best one in use: `perf`, `timer`, `process_timer` or `setitimer`; empty while none runs.
    pub name: String,
    /// All that are in use and how many threads each covers by an alarm of their own, best first. The last one covers all
    /// other threads, of which it does not know how many there are.
    pub threads: Vec<(String, usize)>,
    /// The better engines that were refused, for some threads or for all: (name, why). Perf events are not tried, and none of these, at a period that timers
    /// follow, which is one not shorter than the kernel's tick.
    pub refused: Vec<(String, String)>,
    /// What else is not as it could be.
    pub notes: Vec<String>,
}

/// What became of what was handed to one destination, and what that took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DestinationStats {
    /// `otlp-grpc http://collector:4317`, `parca http://parca:7070`, `files /var/profiles`, `store`, …
    pub name: String,
    /// Stacks in bodies that it acknowledged.
    pub delivered: u64,
    /// Stacks that wait for it, in memory or on disk.
    pub queued: u64,
    /// Those of them that only the spool has.
    pub spooled: u64,
    /// Stacks of earlier processes, from the spool, that it acknowledged; `delivered` and `kinds` do not have them.
    pub replayed: u64,
    /// Stacks of earlier processes that it will never get, by cause; `dropped` does not have them.
    pub replay_dropped: Loss,
    /// Stacks that it will never get, by cause.
    pub dropped: Loss,
    /// Profiles by kind: handed to it, acknowledged, waiting, dropped.
    pub kinds: Vec<KindStats>,
    /// Profiles that it said it rejected when it took the rest (OTLP specification, "Partial Success"). All of such a body is dropped, for
    /// it does not say which ones.
    pub rejected_profiles: u64,
    /// Samples that were made ready for it without their tags, for there were too many sets of tags in one request of
    /// Parca's.
    pub untagged_samples: u64,
    /// Requests that came to an end, whatever end.
    pub requests: u64,
    /// Those of them that sent a body again.
    pub retried: u64,
    /// Bytes of bodies, as they are after compression, that were handed to a connection, each time.
    pub sent_bytes: u64,
    /// Bytes of bodies that wait for it.
    pub queued_bytes: u64,
    /// How long all requests took together.
    pub total_latency: Duration,
    /// How long the last request took, from connecting to the end of the answer, or until it failed.
    pub last_latency: Option<Duration>,
    /// The longest that one took.
    pub longest_latency: Option<Duration>,
    /// What it answered last when it did not accept, or accepted with a warning.
    pub last_error: Option<String>,
}

/// What the spool says of its folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpoolStats {
    /// The folder.
    pub folder: String,
    /// Bytes in it, damaged and settled ones too until their segment goes.
    pub bytes: u64,
    /// Segments, which are the files that are removed whole.
    pub segments: usize,
    /// Bodies that this process wrote.
    pub appended: u64,
    /// Bodies with smaller numbers are confirmed by the disk: not even a power cut takes them.
    pub synced_below: u64,
    /// Bodies that were there and of which nothing is known any more, summed over destinations.
    pub missing: u64,
    /// Bytes of earlier processes that hold no whole body: what was being written when one ended, or damage.
    pub unreadable_bytes: u64,
    /// Bodies of earlier processes that no destination takes, for their form, or because another version of this crate wrote them: lost.
    pub untaken: u64,
    /// What is wrong at present: what waits is in memory alone.
    pub trouble: Option<String>,
}

/// What names and lines can be had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SymbolStats {
    /// Whether the executable carries line tables; without, inlined frames and lines are absent. `None`: not looked yet.
    pub lines: Option<bool>,
    /// Addresses that were symbolized.
    pub resolved: u64,
    /// Addresses without a name; they are shown as `file+0xoffset`.
    pub unresolved: u64,
    /// Files whose names cannot be had, and why; sixteen at most, each once.
    pub notes: Vec<String>,
}
