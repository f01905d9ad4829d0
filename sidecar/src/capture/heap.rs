//! The heap as the runtime's own profile tells it: one record for each stack and size of object, unsampled.
//!
//! In: `runtime.mbuckets` and the rate. Out: [`Heap`]: the figures as of the last garbage collection (`memRecord.active`, what
//! `runtime.MemProfile` reports), all of the same one ([`super::moment`]), and a state where there is nothing to tell and why.
//!
//! Sources: runtime/mprof.go (`memRecord`, `memProfileInternal`), runtime/pprof/protomem.go (`scaleHeapSample`).

use std::sync::Arc;

use crate::go::layouts::figures::collections;
use crate::go::layouts::{Cycle, Layout, bucket};
use crate::target::Fault;

use super::buckets::{Bucket, List, Walk};
use super::memory::{Memory, words};
use super::moment::{Moment, Published};
use super::variables::{Code, Variables};
use super::work::Work;

/// What is known of the heap.
#[derive(Debug, Clone, PartialEq)]
pub struct Heap {
    /// Whether there is something to tell.
    pub state: State,
    /// `runtime.MemProfileRate`: bytes from one sample to the next, on average.
    pub rate: u64,
    /// A record for each stack and size.
    pub records: Vec<Record>,
    /// What became of the runtime's list.
    pub walk: Walk,
    /// Records that were written while they were read: more frees than allocations, taken as nothing in use, or bytes that are not those of the
    /// objects, which are taken.
    pub torn: u64,
    /// Whether records may be of more than one collection: these ended faster than the records could be read, each time.
    pub mixed: bool,
}

/// Why a heap has the records that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As of the last garbage collection.
    Collected,
    /// No garbage collection has counted a sample yet: all allocations so far, as `runtime.MemProfile` then reports. Some of them fall out again once one has.
    NoCollection,
    /// Garbage was collected, and not one allocation was sampled: the whole list was read, and nothing is in it.
    Unsampled,
    /// `MemProfileRate` is 0, which the program set.
    Off,
    /// The linker left heap profiling out, as nothing in the program reads heap profiles: `MemProfileRate` is 0 from the start.
    Unlinked,
}

impl State {
    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_off(self) -> bool {
        matches!(self, Self::Off | Self::Unlinked)
    }

    /// What a person is told, with what to do; nothing where nothing is amiss.
    #[must_use]
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::Collected => None,
            Self::NoCollection => {
                Some("no garbage collection has counted any yet: these are all allocations since the start")
            }
            Self::Unsampled => Some(
                "not one allocation was sampled yet: one is for each runtime.MemProfileRate bytes, on average; \
                 GODEBUG=profstackdepth=0 keeps it so, and block and mutex profiles empty, too",
            ),
            Self::Off => Some(
                "heap profiling is off: runtime.MemProfileRate is 0, by a line of the program or by \
                 GODEBUG=memprofilerate=0; without that one allocation in 512 KiB is sampled",
            ),
            Self::Unlinked => Some(
                "heap profiling is not in the program: nothing in it reads heap profiles, so the linker left it out; \
                 `import _ \"net/http/pprof\"`, or a call of pprof.Lookup or pprof.WriteHeapProfile, keeps it in, \
                 and pprof.Do or pprof.StartCPUProfile does not",
            ),
        }
    }
}

/// The figures of one stack and size of object, as they were sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Which one it is: the address of its bucket, the same as long as the program runs.
    pub at: u64,
    /// Logical return addresses: one for each function, inlined ones too.
    pub stack: Arc<[u64]>,
    /// Bytes of each object.
    pub size: u64,
    /// Sampled allocations.
    pub allocated: Amount,
    /// Those of them that are in use.
    pub in_use: Amount,
}

/// Objects and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// How many.
    pub objects: i64,
    /// How large together.
    pub bytes: i64,
}

impl Amount {
    /// What was allocated, where so much was sampled: each sample divided by its probability, `1 - exp(-size / rate)`.
    ///
    /// Source: runtime/pprof/protomem.go, `scaleHeapSample`.
    #[must_use]
    pub fn unsampled(self, rate: u64) -> Self {
        if self.objects == 0 || self.bytes == 0 {
            return Self::default();
        }
        if rate <= 1 {
            return self;
        }
        let average = self.bytes as f64 / self.objects as f64;
        let scale = 1.0 / (1.0 - (-average / rate as f64).exp());
        let scaled = |value: i64| (value as f64 * scale) as i64;
        Self { objects: scaled(self.objects), bytes: scaled(self.bytes) }
    }
}

/// Reads the heap's records, `most` of them at most; none where the variables were not found.
///
/// # Errors
/// When the process is gone, or does not let us.
pub fn heap<M: Memory>(
    memory: &M,
    code: &impl Code,
    variables: &Variables,
    layout: &Layout,
    most: usize,
) -> Result<Option<Heap>, Fault> {
    let (Some(head), Some(rate)) = (variables.buckets, variables.memory_rate) else { return Ok(None) };
    let Some(rate) = memory.word(rate)? else { return Ok(None) };
    // An `int`, of which the runtime takes what is below 0 for 0.
    let rate = u64::try_from(rate as i64).unwrap_or(0);
    let list = List { head, end: 0, kind: bucket::MEMORY, record: 4 * layout.cycle.size(), most };
    // All that is read of it, again and again, has one bound.
    let work = Work::for_buckets(most);
    let read = |state| {
        let mut heap = Heap { state, rate, records: Vec::new(), walk: Walk::default(), torn: 0, mixed: false };
        heap.walk = list.walk(memory, code, &work, |bucket| heap.add(bucket, layout.cycle))?;
        Ok(heap)
    };
    let published = Published { list, first: 0, shape: layout.cycle, lock: variables.publishing };
    let mut heap: Heap = at_once(memory, code, (published, &work), || read(State::Collected))?;
    // Where nothing is published yet, all is counted: few records have come together by then, which are read once more.
    // Of records that were not asked for nothing is known.
    let is_left_out = heap.walk.taken == 0 && heap.walk.beyond + heap.walk.over_work > 0;
    // Those that were read may merely have nothing, where others were not read.
    let is_partial = !heap.walk.is_whole() && has_collected(memory, variables)?;
    if !is_left_out && !is_partial && heap.records.iter().all(Record::is_empty) {
        // One at a time: there is room for one.
        drop(heap);
        heap = read(State::NoCollection)?;
        let is_published = published.has_any(memory, &heap.records, &work)?;
        if work.is_spent() {
            // It cannot be told what it is as of.
            heap.mixed = true;
        } else if is_published {
            // The first collection was published meanwhile: this is of before and of after.
            drop(heap);
            heap = at_once(memory, code, (published, &work), || read(State::Collected))?;
        } else if has_collected(memory, variables)? {
            let is_empty = heap.records.iter().all(Record::is_empty);
            heap.state = match (is_empty, heap.walk.is_whole()) {
                (false, _) => State::NoCollection,
                (true, true) => State::Unsampled,
                (true, false) => State::Collected,
            };
        }
    }
    if rate == 0 {
        heap.state = off(code);
        // What was allocated before a program turned it off may have been sampled, and is its own. Where the linker did, it is what the runtime had on its way to `main`.
        if heap.state == State::Unlinked {
            heap = Heap { records: Vec::new(), walk: Walk::default(), torn: 0, mixed: false, ..heap };
        }
    }
    Ok(Some(heap))
}

/// What is published, all of it by one collection, if these leave time to read it.
fn at_once(
    memory: &impl Memory,
    code: &impl Code,
    (published, work): (Published, &Work),
    read: impl Fn() -> Result<Heap, Fault>,
) -> Result<Heap, Fault> {
    let mut walks = 0;
    loop {
        let first = memory.word(published.list.head)?.unwrap_or(0);
        let mut heap = read()?;
        walks += 1;
        if heap.records.iter().all(Record::is_empty) {
            return Ok(heap);
        }
        let moment = Published { first, ..published }.settle(memory, code, &mut heap.records, work)?;
        if moment != Moment::Outgrown || walks == WALKS {
            heap.mixed = moment != Moment::Found;
            heap.torn = if heap.mixed { heap.torn } else { 0 };
            return Ok(heap);
        }
    }
}

/// How often the list is walked where it outgrows what was read of it.
const WALKS: usize = 3;

/// Whether garbage was collected, as far as that is known.
fn has_collected(memory: &impl Memory, variables: &Variables) -> Result<bool, Fault> {
    let Some(at) = variables.collections else { return Ok(false) };
    let count = memory.word(at.wrapping_add(collections::COUNT as u64))?.unwrap_or(0);
    Ok(count & u64::from(u32::MAX) > 0)
}

/// Who turned it off. The linker does where this function, by version, is not in the program: of runtime/pprof, what leads to the table of profiles keeps it in
/// (`Lookup`, `Profiles`, `NewProfile`), and `WriteHeapProfile`.
///
/// Source: cmd/link/internal/ld/data.go and lib.go, `runtime.disableMemoryProfiling`.
fn off(code: &impl Code) -> State {
    let is_linked = ["runtime.memProfileInternal", "runtime.MemProfile"].iter().any(|name| code.extent(name).is_some());
    if is_linked { State::Off } else { State::Unlinked }
}

impl Heap {
    /// Adds what a bucket says, if it can be.
    fn add(&mut self, bucket: Bucket, shape: Cycle) -> bool {
        let cycles = Cycles::of(shape, bucket.size, &bucket.record);
        let counts = if self.state == State::Collected { cycles.active } else { cycles.all };
        let (Some(allocated), Some(in_use)) = (counts.allocated(bucket.size), counts.in_use(bucket.size)) else {
            return false;
        };
        self.torn += u64::from(counts.is_torn(bucket.size));
        self.records.push(Record { at: bucket.at, stack: bucket.stack, size: bucket.size, allocated, in_use });
        true
    }
}

impl Record {
    /// Whether nothing was counted.
    fn is_empty(&self) -> bool {
        self.allocated == Amount::default() && self.in_use == Amount::default()
    }
}

/// The four `memRecordCycle`s of a record: what is published, and with it what will be.
struct Cycles {
    active: Counts,
    all: Counts,
}

impl Cycles {
    fn of(shape: Cycle, size: u64, record: &[u8]) -> Self {
        let mut cycles = record.chunks_exact(shape.size()).map(|cycle| Counts::of(shape, size, cycle));
        let active = cycles.next().unwrap_or_default();
        Self { active, all: cycles.fold(active, Counts::plus) }
    }
}

/// `memRecordCycle`, with the bytes that newer versions do not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    allocs: u64,
    frees: u64,
    alloc_bytes: u64,
    free_bytes: u64,
}

impl Counts {
    /// What the first cycle in `bytes` has, of objects of this size.
    pub(super) fn of(shape: Cycle, size: u64, bytes: &[u8]) -> Self {
        match (shape, &words(bytes.get(..shape.size()).unwrap_or_default())[..]) {
            (Cycle::Counted, &[allocs, frees, alloc_bytes, free_bytes]) => {
                Self { allocs, frees, alloc_bytes, free_bytes }
            }
            (Cycle::Derived, &[allocs, frees]) => {
                let bytes = |count: u64| count.wrapping_mul(size);
                Self { allocs, frees, alloc_bytes: bytes(allocs), free_bytes: bytes(frees) }
            }
            _ => Self::default(),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            allocs: self.allocs.wrapping_add(other.allocs),
            frees: self.frees.wrapping_add(other.frees),
            alloc_bytes: self.alloc_bytes.wrapping_add(other.alloc_bytes),
            free_bytes: self.free_bytes.wrapping_add(other.free_bytes),
        }
    }

    /// Whether it was written meanwhile: a bucket is of objects of one size, so its bytes are that many.
    pub(super) fn is_torn(self, size: u64) -> bool {
        let bytes = |count: u64| count.wrapping_mul(size);
        self.frees > self.allocs || (self.alloc_bytes, self.free_bytes) != (bytes(self.allocs), bytes(self.frees))
    }

    /// None where nobody can have allocated as much.
    pub(super) fn allocated(self, size: u64) -> Option<Amount> {
        amount(self.allocs, size, ALLOCATED)
    }

    /// None where there are not as many addresses.
    pub(super) fn in_use(self, size: u64) -> Option<Amount> {
        amount(self.allocs.saturating_sub(self.frees), size, ADDRESSES)
    }
}

/// Addresses that a heap can have (`heapAddrBits`, runtime/malloc.go).
const ADDRESSES: u64 = 1 << 48;
/// Bytes that no program allocates in its life: a gigabyte each second for thirty years.
const ALLOCATED: u64 = 1 << 60;

fn amount(count: u64, size: u64, most: u64) -> Option<Amount> {
    let bytes = count.checked_mul(size).filter(|bytes| count.max(*bytes) <= most)?;
    Some(Amount { objects: count as i64, bytes: bytes as i64 })
}
