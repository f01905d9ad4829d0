//! What handlers and the `profiler` thread share.
//!
//! In: the size of the ring, at the first start. Out: one [`Shared`] for the life of the process, which handlers find by a pointer. It
//! is made by the thread that starts; what a handler calls here neither allocates nor locks.

use std::collections::TryReserveError;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Unfinished;
use super::newcomers::Newcomers;
use super::pool::Pool;
use super::ring::Ring;
use super::scratch::{self, Work};
use super::slots::Slots;
use super::thread_id::IdPlace;
use crate::error::Error;
use crate::fork;
use crate::unwind::walk::Snapshot;

/// What handlers and the `profiler` thread share. One per process, made by the first `start` and never freed, for a late
/// signal may come at any time. A forked child gets one of its own: in its copy of the parent's, handlers that ran while
/// it was made would never end.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ring: Ring,
    pub(crate) pool: Pool<Work>,
    pub(crate) slots: Slots,
    /// The unwinder in force; handlers read it while they hold a scratch.
    pub(crate) snapshot: AtomicPtr<Snapshot>,
    /// Counts starts and resumes; 0 while no sample is to be taken.
    pub(crate) generation: AtomicU32,
    /// Nanoseconds of CPU time between samples; each slot has its own, which follows when its alarm is set.
    pub(crate) period_nanos: AtomicU64,
    /// The first thread of this process.
    pub(super) pid: u32,
    /// This process, as [`fork::this_process`] says it.
    process: u64,
    /// Processors of the machine: its threads may run on other ones than the one that starts.
    pub(super) processors: u64,
    /// Threads without an alarm of their own that used CPU.
    pub(crate) newcomers: Newcomers,
    /// Nanoseconds of CPU time that signals of the process-wide alarm stood for, on threads without one of their own.
    pub(crate) process_told: AtomicU64,
    /// Signals of `setitimer` are ours.
    pub(crate) interval_timer: AtomicBool,
    /// Where a thread finds its id.
    pub(crate) id_place: IdPlace,
    /// What the last sampler left; never touched by a handler.
    unfinished: Mutex<Unfinished>,
}

impl Shared {
    pub(crate) fn new(ring_words: usize) -> Result<Self, Error> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let no_memory = |error: TryReserveError| {
            let what = "allocate the ring of samples (4 MiB) and the table of threads";
            Error::environment(what, io::Error::new(io::ErrorKind::OutOfMemory, error), "raise the memory limit")
        };
        Ok(Self {
            ring: Ring::new(ring_words).map_err(no_memory)?,
            pool: scratch::pool(processors)?,
            slots: Slots::new().map_err(no_memory)?,
            snapshot: AtomicPtr::new(std::ptr::null_mut()),
            generation: AtomicU32::new(0),
            period_nanos: AtomicU64::new(0),
            pid: std::process::id(),
            process: fork::this_process(),
            // SAFETY: sysconf(3) with a number only; −1, where it does not know, is none of them.
            processors: u64::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(0).max(1),
            newcomers: Newcomers::new(),
            process_told: AtomicU64::new(0),
            interval_timer: AtomicBool::new(false),
            unfinished: Mutex::default(),
            id_place: IdPlace::default(),
        })
    }

    /// What the last sampler left to the next. Not callable from a signal handler.
    pub(crate) fn unfinished(&self) -> MutexGuard<'_, Unfinished> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation, and the nanoseconds between its samples; `None` while none is to be taken.
    pub(super) fn in_force(&self) -> Option<(u32, u64)> {
        // Acquire: pairs with the Release store in `Sampler::resume`; who sees the generation sees period and snapshot.
        let generation = self.generation.load(Ordering::Acquire);
        (generation != 0).then(|| (generation, self.period_nanos.load(Ordering::Relaxed)))
    }

    /// The value by which the process-wide timer's signals are known: an address that is no slot's.
    pub(crate) fn process_marker(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

/// What handlers and the `profiler` thread of this process share, made on the first call with a ring of `ring_words`. Only
/// one thread at a time calls this: the one that has the claim to start.
///
/// # Errors
/// When there is no memory for it.
pub(crate) fn shared(ring_words: usize) -> Result<&'static Shared, Error> {
    match made() {
        Some(shared) if shared.process == fork::this_process() => Ok(shared),
        _ => {
            let shared = Box::leak(Box::new(Shared::new(ring_words)?));
            // Release: pairs with the Acquire load in `made`.
            SHARED.store(shared, Ordering::Release);
            Ok(shared)
        }
    }
}

/// What was made last, here or in the parent of this process.
pub(super) fn made() -> Option<&'static Shared> {
    // SAFETY: null, or from a Box that is never freed. Acquire: pairs with the Release store in `shared`.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}
