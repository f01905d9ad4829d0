//! CPU sampling: signals in, records out, with an account of every one.
//!
//! In: the rate. Out: records, handed to the caller by [`Sampler::drain`], and counts of whole epochs. The parts, in the
//! order of a sample: [`threads`] has an [`engine`] signal each thread, [`handler`] takes its stack with what [`slots`] knows of the
//! thread and with a [`scratch`], writes a [`record`] into the [`ring`], and the `profiler` thread, which owns the
//! [`Sampler`], reads it; [`states`] say which modules it was taken in.

mod action;
pub(crate) mod atomic;
mod bounds;
pub(crate) mod clocks;
mod covered;
mod departed;
mod engine;
mod filter;
mod handed_on;
pub(crate) mod handler;
mod newcomers;
mod origin;
mod phases;
pub(crate) mod pool;
mod process_alarm;
mod progress;
pub(crate) mod record;
mod residence;
pub(crate) mod ring;
mod scratch;
mod shared;
mod shares;
mod slots;
pub(crate) mod stack;
mod stack_bounds;
mod states;
mod tasks;
mod thread_id;
mod threads;
mod untold;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use profiler_proto::loss::{Cause, Loss};

use self::action::Keeper;
use self::filter::{Call, Filter};
use self::handler::on_sigprof;
use self::record::Head;
use self::shared::Shared;
use self::shares::Shares;
use self::states::{States, certain};
use self::thread_id::Candidates;
use self::threads::Threads;
use self::untold::Untold;
use crate::context;
use crate::engine::EngineChoice;
use crate::error::Error;
use crate::stats::EngineStats;
use crate::unwind::memory;
use crate::unwind::modules::Modules;
use crate::unwind::walk::Snapshot;

/// Most words that wait for an epoch whose handlers have not ended; beyond it they stay in the ring.
const MAX_WAITING: usize = 1 << 20;

/// A running sampler; sampling ends when it is dropped. Owned by one thread at a time.
#[derive(Debug)]
pub(crate) struct Sampler {
    shared: &'static Shared,
    threads: Option<Threads>,
    engine: EngineChoice,
    /// What is said of engines while none is in use.
    stopped: EngineStats,
    /// Calls that must not be made.
    filter: Filter,
    /// The epoch that is being closed.
    closing: Option<u8>,
    /// Records read so far, by epoch, each behind its length: they are handed on when their epoch is closed.
    waiting: [Vec<u64>; 2],
    /// Unwinders that were replaced, but may still be read by handlers.
    replaced: Vec<Replaced>,
    closed: u64,
    /// The loaded modules.
    modules: Arc<Modules>,
    states: States,
    buffer: Vec<u64>,
    keeper: Keeper,
    /// Stacks taken in closed epochs.
    taken: u64,
    /// Periods written off when sampling stopped.
    written_off: u64,
    /// What threads left untold then.
    untold: Untold,
}

/// What a sampler leaves to the next one of the process: an epoch that a handler, stopped on its way, has not let end. Its
/// counts and its records belong together.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    closing: Option<u8>,
    waiting: [Vec<u64>; 2],
    states: States,
}

/// An unwinder that was replaced; freed once `free_at` epochs are closed. Invariant: `snapshot` came from a `Box`.
#[derive(Debug)]
struct Replaced {
    free_at: u64,
    snapshot: *mut Snapshot,
}

// SAFETY: a `Snapshot` may be freed by any thread; until then it is only read.
unsafe impl Send for Replaced {}

/// What was counted in one closed epoch. Invariant: `taken == drained + lost.total()`, each counted on its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    pub(crate) taken: u64,
    pub(crate) drained: u64,
    pub(crate) lost: Loss,
}

/// One sample as it comes out.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) head: Head,
    /// As [`crate::context::attributes`] writes them.
    pub(crate) tags: &'a [u8],
    /// Leaf first.
    pub(crate) addresses: &'a [u64],
    /// What the addresses are in, for certain.
    pub(crate) modules: &'a Arc<Modules>,
    pub(crate) thread_name: Option<Arc<str>>,
}

impl Sampler {
    /// Starts sampling at one sample per `period` of CPU time and thread.
    ///
    /// # Errors
    /// When the handler cannot be installed, or no timer can be had.
    pub(crate) fn start(engine: EngineChoice, period: Duration, ring_words: usize) -> Result<Self, Error> {
        residence::pin()?;
        context::address::prepare()?;
        let shared = shared::shared(ring_words)?;
        action::install(on_sigprof)?;
        let filter = Filter::probe();
        if filter.is_deadly(Call::ProcessVmReadv) {
            memory::forbid_reads();
        }
        let candidates = Candidates::here();
        // A thread of its own, for the two must differ; it lives for microseconds.
        std::thread::scope(|scope| {
            let learn = std::thread::Builder::new().spawn_scoped(scope, || shared.id_place.learn(&candidates));
            learn.map(|thread| thread.join().ok())
        })
        .map_err(|error| Error::environment("spawn a thread", error, "raise the limit of threads"))?;
        let snapshot = Box::new(Snapshot::take(&Modules::default()));
        let modules = Arc::clone(&snapshot.modules);
        let Unfinished { closing, waiting, states } = std::mem::take(&mut *shared.unfinished());
        let mut sampler = Self {
            shared,
            threads: None,
            engine,
            stopped: EngineStats::default(),
            filter,
            closing,
            waiting,
            replaced: Vec::new(),
            closed: 0,
            modules,
            states,
            buffer: Vec::with_capacity(ring::MAX_WORDS),
            keeper: Keeper::new(on_sigprof),
            taken: 0,
            written_off: 0,
            untold: Untold::default(),
        };
        sampler.put_in_force(snapshot);
        sampler.resume(period)?;
        Ok(sampler)
    }

    /// Whether `memfd_create` may be tried: no filter ends the process for it.
    pub(crate) fn may_make_memfd(&self) -> bool {
        !self.filter.is_deadly(Call::MemfdCreate)
    }

    /// Sets the alarms. Does nothing while they are set.
    pub(crate) fn resume(&mut self, period: Duration) -> Result<(), Error> {
        if self.threads.is_some() {
            return Ok(());
        }
        action::install(on_sigprof)?;
        self.shared.period_nanos.store(period.as_nanos() as u64, Ordering::Relaxed);
        // Only a resume counts up, and only one sampler runs; 0 means "off", so it is skipped on wrap-around.
        static GENERATION: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        // Release: pairs with the Acquire loads in `handler`; who sees the generation sees period and snapshot.
        self.shared.generation.store(generation, Ordering::Release);
        let untold = std::mem::take(&mut self.untold);
        match Threads::start(self.shared, &self.filter, self.engine, period, untold) {
            Ok(threads) => self.threads = Some(threads),
            Err(error) => {
                self.shared.generation.store(0, Ordering::Release);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Goes on with another period. A sample weighs the period in force when its signal arrives.
    ///
    /// # Errors
    /// When the period asks for other engines, and not even the last one can be had.
    pub(crate) fn set_period(&mut self, period: Duration) -> Result<(), Error> {
        let before = Duration::from_nanos(self.shared.period_nanos.load(Ordering::Relaxed));
        if self.threads.is_some() && engine::wants_perf(self.engine, before) != engine::wants_perf(self.engine, period)
        {
            self.pause();
            self.untold = std::mem::take(&mut self.untold).going_on();
            return self.resume(period);
        }
        self.shared.period_nanos.store(period.as_nanos() as u64, Ordering::Relaxed);
        if let Some(threads) = &mut self.threads {
            threads.set_period(period);
        }
        Ok(())
    }

    /// Takes the alarms away. Signals that are still under way find that no sample is to be taken.
    pub(crate) fn pause(&mut self) {
        // Before the last look: what it finds untold, no signal tells any more.
        self.shared.generation.store(0, Ordering::Release);
        self.stopped = EngineStats { name: String::new(), threads: Vec::new(), ..self.engine() };
        if let Some(threads) = self.threads.take() {
            let (written_off, untold) = threads.end();
            self.written_off += written_off;
            self.untold = untold;
        }
    }

    /// The same for good: what threads left untold counts now or never.
    pub(crate) fn stop(&mut self) {
        self.pause();
        // A thread that runs for an instant now and then is seldom met by a tick: what it used since the last one that did is
        // four milliseconds on average, and by chance some times as much.
        let period = Duration::from_nanos(self.shared.period_nanos.load(Ordering::Relaxed));
        self.written_off += self.untold.blocked(period, 5 * threads::left_to_timer(period));
        self.untold = Untold::default();
    }

    /// Looks after threads: those that came since the last call are covered from now on.
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        let Some(threads) = &mut self.threads else { return false };
        let is_someone_new = threads.tick(now);
        self.keeper.look(now, self.taken);
        is_someone_new
    }

    /// Reads the ring, and closes the epoch if every handler that began in it has ended and all that they wrote has come
    /// out: `see` then gets its records. `None` where that is not so yet: call again soon.
    pub(crate) fn drain(&mut self, see: impl FnMut(&Sample<'_>)) -> Option<Epoch> {
        let closing = *self.closing.get_or_insert_with(|| self.shared.pool.begin_close());
        // Asked before the head is read: what an ended handler wrote then stands below it.
        let over = self.shared.pool.is_over(closing);
        let end = self.shared.ring.head();
        while over || self.waiting.iter().map(Vec::len).sum::<usize>() < MAX_WAITING {
            let waiting = &mut self.waiting;
            let keep = |words: &[u64]| {
                let epoch = Head::split(words).map_or(0, |(head, ..)| head.epoch);
                let waiting = &mut waiting[usize::from(epoch & 1)];
                waiting.push(words.len() as u64);
                waiting.extend_from_slice(words);
            };
            // Up to `end`, which the ring's size bounds; what comes later is for the next call.
            if self.shared.ring.tail() >= end || self.shared.ring.read(&mut self.buffer, keep).is_none() {
                break;
            }
        }
        // A record that a handler of the next epoch has reserved and not yet written stands in the way of those behind it.
        (over && self.shared.ring.tail() >= end).then(|| self.close(closing, see))
    }

    fn close(&mut self, epoch: u8, see: impl FnMut(&Sample<'_>)) -> Epoch {
        self.closing = None;
        self.closed += 1;
        self.free_replaced();
        // Now that every handler of the epoch has ended: a state that still holds is the one that they saw.
        self.refresh_modules();
        self.states.settle();
        let mut counted = self.shared.pool.close(epoch);
        let overrun = counted.lost.count(Cause::Blocked);
        if overrun > 0 {
            tracing::debug!(periods = overrun, "signals came long after they fell due: lost as blocked");
        }
        let waiting = std::mem::take(&mut self.waiting[usize::from(epoch)]);
        let drained = self.hand_on(&waiting, see);
        self.states.end_epoch();
        // One event that is both: the two figures come from the same count.
        let written_off = std::mem::take(&mut self.written_off);
        let written_off = written_off + self.threads.as_mut().map_or(0, Threads::take_written_off);
        self.taken += counted.taken; // before: a signal that never comes is no proof that signals arrive
        counted.taken += written_off;
        counted.lost.add(Cause::Blocked, written_off);
        self.waiting[usize::from(epoch)] = emptied(waiting);
        Epoch { taken: counted.taken, drained, lost: counted.lost }
    }

    /// Hands on the records of an epoch that is closed; how many.
    fn hand_on(&mut self, waiting: &[u64], mut see: impl FnMut(&Sample<'_>)) -> u64 {
        let mut shares = Shares::new(self.shared.period_nanos.load(Ordering::Relaxed));
        if let Some(threads) = &self.threads {
            records(waiting).for_each(|(head, ..)| shares.count(&head, threads));
        }
        let (mut drained, mut tags) = (0, Vec::new());
        for (mut head, tag_words, addresses) in records(waiting) {
            drained += 1;
            let modules = self.states.of(head.modules).unwrap_or(&self.modules);
            let addresses = certain(&mut head, addresses, modules);
            let mut thread_name = None;
            if let Some(threads) = &mut self.threads {
                shares.add(&mut head, threads);
                thread_name = threads.name(head.tid);
            }
            tags.clear();
            tag_words.iter().for_each(|word| tags.extend_from_slice(&word.to_ne_bytes()));
            tags.truncate(head.context.tag_bytes.into());
            see(&Sample { head, tags: &tags, addresses, modules, thread_name });
        }
        drained
    }

    /// The modules that are loaded, as of the last epoch that was closed.
    pub(crate) fn modules(&self) -> &Arc<Modules> {
        &self.modules
    }

    /// The engine in use, and what better ones were refused; while none is in use, what was said of the last.
    pub(crate) fn engine(&self) -> EngineStats {
        let Some(threads) = &self.threads else { return self.stopped.clone() };
        let in_use = threads.engines();
        EngineStats {
            name: in_use.first().map(|(name, _)| (*name).to_owned()).unwrap_or_default(),
            threads: in_use.into_iter().map(|(name, threads)| (name.to_owned(), threads)).collect(),
            refused: threads.refused().to_vec(),
            notes: threads
                .notes()
                .iter()
                .cloned()
                .chain(self.keeper.notes().iter().map(|note| (*note).to_owned()))
                .collect(),
        }
    }

    fn refresh_modules(&mut self) {
        if Modules::changes_now() != self.modules.changes {
            let snapshot = Box::new(Snapshot::take(&self.modules));
            self.modules = Arc::clone(&snapshot.modules);
            self.put_in_force(snapshot);
        }
    }

    fn put_in_force(&mut self, snapshot: Box<Snapshot>) {
        self.states.put_in_force(&snapshot);
        // SeqCst: pairs with the load in `handler::sample`. The epoch that is open now may be under way to its close, in
        // which case handlers of the next one may have loaded the old pointer too: it goes after both.
        let old = self.shared.snapshot.swap(Box::into_raw(snapshot), Ordering::SeqCst);
        if !old.is_null() {
            self.replaced.push(Replaced { free_at: self.closed + 2, snapshot: old });
        }
    }

    fn free_replaced(&mut self) {
        for replaced in self.replaced.extract_if(.., |replaced| replaced.free_at <= self.closed) {
            // SAFETY: the pointer came from `Box::into_raw`, was taken out of use by `put_in_force`, and every handler
            //         that could have loaded it has ended with its epoch. It is freed once: it left the list.
            drop(unsafe { Box::from_raw(replaced.snapshot) });
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // A handler may still be running with an unwinder that was replaced: those are left to it, and leak.
        self.pause();
        let (waiting, states) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.states));
        *self.shared.unfinished() = Unfinished { closing: self.closing, waiting, states };
    }
}

/// The same memory for the next records, but what a burst needed.
fn emptied(mut words: Vec<u64>) -> Vec<u64> {
    words.clear();
    words.shrink_to(ring::DEFAULT_WORDS / 8);
    words
}

/// The records in `words`, each behind its length.
fn records(mut words: &[u64]) -> impl Iterator<Item = (Head, &[u64], &[u64])> {
    std::iter::from_fn(move || {
        let (length, rest) = words.split_first()?;
        let (record, rest) = rest.split_at_checked(*length as usize)?;
        words = rest;
        Head::split(record)
    })
}
