//! CPU sampling: signals in, records out, with an account of every one.
//!
//! In: the rate. Out: records, handed to the caller by [`Sampler::drain`], and counts of whole epochs. The parts, in the
//! order of a sample: [`thread_timers`] signals a thread, [`handler`] takes its stack with what [`slots`] knows of the
//! thread and with a [`scratch`], writes a [`record`] into the [`ring`], and the `profiler` thread, which owns the
//! [`Sampler`], reads it.

pub(crate) mod handler;
pub(crate) mod record;
pub(crate) mod ring;
mod scratch;
mod slots;
mod stack;
mod thread_id;
mod thread_timers;
mod timer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use profiler_proto::loss::Loss;

use self::handler::Shared;
use self::record::Head;
use self::thread_id::Candidates;
use self::thread_timers::ThreadTimers;
use crate::error::Error;
use crate::stats::EngineStats;
use crate::unwind::cfi::Snapshot;
use crate::unwind::modules::Modules;

/// Most words that wait for an epoch whose handlers have not ended; beyond it they stay in the ring.
const MAX_WAITING: usize = 1 << 20;

/// A running sampler; sampling ends when it is dropped. Owned by one thread at a time.
#[derive(Debug)]
pub(crate) struct Sampler {
    shared: &'static Shared,
    timers: Option<ThreadTimers>,
    /// The epoch that is being closed.
    closing: Option<u8>,
    /// Records read so far, by epoch, each behind its length: they are handed on when their epoch is closed.
    waiting: [Vec<u64>; 2],
    /// Unwinders that were replaced, but may still be read by handlers.
    replaced: Vec<Replaced>,
    closed: u64,
    modules: Arc<Modules>,
    buffer: Vec<u64>,
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

impl Sampler {
    /// Starts sampling at one sample per `period` of CPU time.
    ///
    /// # Errors
    /// When the handler cannot be installed, or no timer can be had.
    pub(crate) fn start(period: Duration, ring_words: usize) -> Result<Self, Error> {
        let shared = handler::shared(ring_words)?;
        handler::install()?;
        let candidates = Candidates::here();
        // A thread of its own, for the two must differ; it lives for microseconds.
        std::thread::scope(|scope| {
            let settle = std::thread::Builder::new().spawn_scoped(scope, || candidates.settle(shared));
            settle.map(|thread| thread.join().ok())
        })
        .map_err(|error| Error::environment("spawn a thread", error, "raise the limit of threads"))?;
        let snapshot = Box::new(Snapshot::take());
        let modules = Arc::clone(&snapshot.modules);
        let mut sampler = Self {
            shared,
            timers: None,
            closing: None,
            waiting: Default::default(),
            replaced: Vec::new(),
            closed: 0,
            modules,
            buffer: Vec::with_capacity(ring::MAX_WORDS),
        };
        sampler.put_in_force(snapshot);
        sampler.resume(period)?;
        Ok(sampler)
    }

    /// Starts the timers. Does nothing while they run.
    pub(crate) fn resume(&mut self, period: Duration) -> Result<(), Error> {
        if self.timers.is_some() {
            return Ok(());
        }
        self.shared.period_nanos.store(period.as_nanos() as u64, Ordering::Relaxed);
        // Only a resume counts up, and only one sampler runs; 0 means "off", so it is skipped on wrap-around.
        static GENERATION: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        // Release: pairs with the Acquire loads in `handler`; who sees the generation sees period and snapshot.
        self.shared.generation.store(generation, Ordering::Release);
        let timers = ThreadTimers::start(self.shared, period);
        match timers {
            Ok(timers) => self.timers = Some(timers),
            Err(error) => {
                self.shared.generation.store(0, Ordering::Release);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stops the timers. Signals that are still under way find that no sample is to be taken.
    pub(crate) fn pause(&mut self) {
        self.timers = None;
        self.shared.generation.store(0, Ordering::Release);
    }

    /// Looks after threads and modules: what came since the last call is covered from now on.
    pub(crate) fn tick(&mut self, now: Instant) {
        if let Some(timers) = &mut self.timers {
            timers.tick(now);
        }
        self.refresh_modules();
    }

    /// Reads the ring, and closes the epoch if every handler that began in it has ended and all that they wrote has come
    /// out: `see` then gets its records. `None` where that is not so yet: call again soon.
    pub(crate) fn drain(&mut self, see: impl FnMut(&Head, &[u64])) -> Option<Epoch> {
        let closing = *self.closing.get_or_insert_with(|| self.shared.pool.begin_close());
        // Asked before the head is read: what an ended handler wrote then stands below it.
        let over = self.shared.pool.is_over(closing);
        let end = self.shared.ring.head();
        while over || self.waiting.iter().map(Vec::len).sum::<usize>() < MAX_WAITING {
            let waiting = &mut self.waiting;
            let keep = |words: &[u64]| {
                let epoch = Head::split(words).map_or(0, |(head, _)| head.epoch);
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

    fn close(&mut self, epoch: u8, mut see: impl FnMut(&Head, &[u64])) -> Epoch {
        self.closing = None;
        self.closed += 1;
        self.free_replaced();
        let counted = self.shared.pool.close(epoch);
        let mut drained = 0;
        let mut words = self.waiting[usize::from(epoch)].as_slice();
        while let Some((record, rest)) = words.split_first().and_then(|(n, rest)| rest.split_at_checked(*n as usize)) {
            if let Some((head, addresses)) = Head::split(record) {
                drained += 1;
                see(&head, addresses);
            }
            words = rest;
        }
        self.waiting[usize::from(epoch)].clear();
        Epoch { taken: counted.taken, drained, lost: counted.lost }
    }

    /// The modules that addresses of the records handed on last are in.
    pub(crate) fn modules(&self) -> &Arc<Modules> {
        &self.modules
    }

    /// The engine in use, and what better ones were refused.
    pub(crate) fn engine(&self) -> EngineStats {
        match &self.timers {
            Some(timers) => EngineStats { name: timers.name().to_owned(), refused: timers.refused.clone() },
            None => EngineStats::default(),
        }
    }

    fn refresh_modules(&mut self) {
        if Modules::changes_now() != self.modules.changes {
            let snapshot = Box::new(Snapshot::take());
            self.modules = Arc::clone(&snapshot.modules);
            self.put_in_force(snapshot);
        }
    }

    fn put_in_force(&mut self, snapshot: Box<Snapshot>) {
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
    }
}
