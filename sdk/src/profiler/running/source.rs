//! How the rest of the process reaches the sampler: to ask for figures, to ask for a capture.
//!
//! In: calls of the guard (any thread) and of the server (`profiler-io`). Out: [`Command`]s to the `profiler` thread, and
//! [`Stats`] put together from the ledger and what each stage published. Nothing here blocks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use profiler_proto::loss::{Cause, Loss};

use super::mark::Mark;
use super::message::Command;
use crate::config::Settings;
use crate::context::{self, keys};
use crate::export::Exporter;
use crate::heap::Heap;
use crate::stats::{EngineStats, HeapStats, Ledger, Stats, SymbolStats, TagStats};

/// A handle on a running profiler; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    commands: Sender<Command>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) engine: Arc<Mutex<EngineStats>>,
    pub(super) symbols: Arc<Mutex<SymbolStats>>,
    pub(super) exporter: Arc<OnceLock<Arc<Exporter>>>,
    #[cfg(feature = "serve")]
    service: Arc<str>,
    pub(super) rate_hz: Arc<AtomicU32>,
    pub(super) mark: Arc<Mark>,
    /// The heap profiler, or why there is none; set once by `start`.
    pub(super) heap: Arc<OnceLock<Result<Heap, String>>>,
    /// Its profiles that were to be sent and were not.
    heap_profiles_lost: Arc<Mutex<Loss>>,
    /// Those that are to be sent and are not made yet.
    heap_profiles_due: Arc<AtomicU32>,
}

impl Handle {
    pub(super) fn new(commands: Sender<Command>, settings: &Settings, mark: Arc<Mark>) -> Self {
        Self {
            commands,
            ledger: Arc::default(),
            engine: Arc::default(),
            symbols: Arc::default(),
            exporter: Arc::default(),
            #[cfg(feature = "serve")]
            service: settings.service.as_str().into(),
            rate_hz: Arc::new(AtomicU32::new(settings.rate_hz)),
            mark,
            heap: Arc::default(),
            heap_profiles_lost: Arc::default(),
            heap_profiles_due: Arc::default(),
        }
    }

    /// Sends a command. Where the thread is gone, so is whoever would answer: the reply's other end sees that.
    pub(super) fn send(&self, command: Command) {
        drop(self.commands.send(command));
    }

    /// One consistent snapshot: the account and what belongs to it come from under one lock.
    pub(super) fn stats(&self) -> Stats {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Stats {
            sampling: !engine.name.is_empty(),
            rate_hz: self.rate_hz.load(Ordering::Relaxed),
            engine,
            destinations: self.exporter.get().map(|exporter| exporter.destinations()).unwrap_or_default(),
            spool: self.exporter.get().and_then(|exporter| exporter.spool()),
            symbols: self.symbols.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            tags: TagStats { left_out: context::left_out(), altered: context::altered(), keys: keys::count() as u64 },
            spans: context::spans::stats(),
            heap: self.heap_stats(),
            ..Stats::of_ledger(&self.ledger)
        }
    }

    fn heap_stats(&self) -> HeapStats {
        let of_sampler = match self.heap.get() {
            Some(Ok(heap)) => heap.stats(),
            Some(Err(why)) => HeapStats { notes: vec![why.clone()], ..HeapStats::default() },
            None => HeapStats::default(),
        };
        HeapStats { profiles_lost: self.heap_profiles_lost(), ..of_sampler }
    }

    /// Profiles of the heap that were to be sent and were not.
    pub(super) fn heap_profiles_lost(&self) -> Loss {
        *self.heap_profiles_lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more of them.
    pub(super) fn lose_heap_profile(&self, cause: Cause) {
        tracing::warn!(
            cause = cause.name(),
            "a profile of the heap is lost: what was allocated in its time is in no other one"
        );
        self.heap_profiles_lost.lock().unwrap_or_else(PoisonError::into_inner).add(cause, 1);
    }

    /// One is to be sent.
    pub(super) fn heap_profile_is_due(&self) {
        self.heap_profiles_due.fetch_add(1, Ordering::Relaxed);
    }

    /// One that was to be sent is made, or is none; `false` where it has been given up meanwhile.
    pub(super) fn heap_profile_is_made(&self) -> bool {
        let one_less = |due: u32| due.checked_sub(1);
        self.heap_profiles_due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Gives up those that are not made yet, which is one loss: whichever comes first would have all that is not in a profile.
    pub(super) fn give_up_heap_profiles(&self, cause: Cause) {
        if self.heap_profiles_due.swap(0, Ordering::Relaxed) > 0 {
            self.lose_heap_profile(cause);
        }
    }

    /// The heap profiler, if there is one.
    pub(super) fn heap(&self) -> Option<&Heap> {
        self.heap.get()?.as_ref().ok()
    }

    /// Has the `profiler` thread make a profile for a request, whose end is the end of what is returned.
    #[cfg(feature = "serve")]
    fn captured(&self, command: impl FnOnce(super::message::CaptureReply) -> Command) -> crate::serve::CaptureFuture {
        use super::message::{CaptureReply, Refusal};
        use crate::serve::CaptureError;

        let (reply, outcome) = tokio::sync::oneshot::channel();
        let reply = Waiting { reply: Some(reply), mark: Arc::clone(&self.mark) };
        let asker = Arc::new(());
        self.send(command(CaptureReply::new(&asker, move |captured| reply.answer(captured))));
        Box::pin(async move {
            // Dropped with this future, when the client goes.
            let _asker = asker;
            match outcome.await {
                Ok(Ok(set)) => Ok(vec![set]),
                Ok(Err(Refusal::TooMany)) => Err(CaptureError::TooMany),
                Ok(Err(Refusal::NoHeap)) => Err(CaptureError::NoHeap),
                // Where the descriptors are closed, so is the connection: nobody hears it.
                Ok(Err(Refusal::Off | Refusal::Closed)) | Err(_) => Err(CaptureError::Off),
            }
        })
    }
}

/// A request that waits for its capture on the runtime of `profiler-io`, which is woken through a descriptor.
#[cfg(feature = "serve")]
struct Waiting {
    reply: Option<tokio::sync::oneshot::Sender<Captured>>,
    mark: Arc<Mark>,
}

#[cfg(feature = "serve")]
type Captured = Result<profiler_proto::ProfileSet, super::message::Refusal>;

#[cfg(feature = "serve")]
impl Waiting {
    fn answer(mut self, captured: Captured) {
        if !self.mark.is_gone() && self.reply.take().is_some_and(|reply| reply.send(captured).is_err()) {
            tracing::debug!("nobody waits for this capture any more");
        }
    }
}

#[cfg(feature = "serve")]
impl Drop for Waiting {
    fn drop(&mut self) {
        if self.mark.is_gone() {
            std::mem::forget(self.reply.take());
        }
    }
}

#[cfg(feature = "serve")]
impl crate::serve::Source for Handle {
    fn targets(&self) -> Vec<crate::serve::Target> {
        vec![crate::serve::Target::new(&*self.service, std::process::id()).in_language("rust")]
    }

    fn capture(&self, duration: std::time::Duration, pid: Option<u32>) -> crate::serve::CaptureFuture {
        if is_other(pid) {
            return no_process();
        }
        self.captured(|reply| Command::Capture { duration, reply })
    }

    fn heap(&self, first: Option<&'static str>, pid: Option<u32>) -> crate::serve::CaptureFuture {
        if is_other(pid) {
            return no_process();
        }
        let asked = Box::new(super::message::HeapAsked::in_all(first));
        self.captured(|reply| Command::Heap { asked, reply })
    }

    fn keep_heap(&self) -> Box<dyn Send> {
        Box::new(Self::heap(self).map(Heap::keep))
    }

    fn stats(&self) -> Stats {
        Self::stats(self)
    }
}

/// Whether a process is asked for that is not this one.
#[cfg(feature = "serve")]
fn is_other(pid: Option<u32>) -> bool {
    pid.is_some_and(|pid| pid != std::process::id())
}

#[cfg(feature = "serve")]
fn no_process() -> crate::serve::CaptureFuture {
    Box::pin(std::future::ready(Err(crate::serve::CaptureError::NoProcess)))
}
