//! The source of the tests: it captures by waiting, two captures at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler::serve::{CaptureError, CaptureFuture, Source, Target};

use crate::samples::{heap, now, set};

/// A source that takes as long as it is told to, at most two captures at once.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) off: AtomicBool,
    /// Whether it samples the heap.
    pub(crate) heap: AtomicBool,
    pub(crate) running: Arc<AtomicUsize>,
    /// How many have the heap's figures kept, and how many had at each profile of it.
    kept: Arc<AtomicUsize>,
    pub(crate) kept_at: Arc<Mutex<Vec<usize>>>,
}

impl Source for Waiting {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new("shop", std::process::id())]
    }

    fn capture(&self, duration: Duration, _: Option<u32>) -> CaptureFuture {
        let (off, running) = (self.off.load(Ordering::Relaxed), Arc::clone(&self.running));
        Box::pin(async move {
            if off {
                return Err(CaptureError::Off);
            }
            let place = Place::take(running).ok_or(CaptureError::TooMany)?;
            tokio::time::sleep(duration).await;
            drop(place);
            Ok(vec![set(now(), duration.as_secs(), &[("main;captured", 7, &[])])])
        })
    }

    fn heap(&self, _first: Option<&'static str>, _: Option<u32>) -> CaptureFuture {
        let (on, kept, kept_at) =
            (self.heap.load(Ordering::Relaxed), Arc::clone(&self.kept), Arc::clone(&self.kept_at));
        Box::pin(async move {
            kept_at.lock().unwrap().push(kept.load(Ordering::Relaxed));
            if on { Ok(vec![heap(now(), 1, &[("main;lives", 1, 1024, &[])])]) } else { Err(CaptureError::NoHeap) }
        })
    }

    fn keep_heap(&self) -> Box<dyn Send> {
        Box::new(Place::take(Arc::clone(&self.kept)))
    }

    fn stats(&self) -> profiler::Stats {
        let mut stats = profiler::Stats::default();
        stats.sampling = !self.off.load(Ordering::Relaxed);
        stats.rate_hz = 100;
        stats.heap.on = self.heap.load(Ordering::Relaxed);
        stats.heap.interval_bytes = 1 << 19;
        stats.account.enter(10, 10, &profiler_proto::loss::Loss::default());
        stats.account.exported(4);
        stats
    }
}

/// One of two places, given back when what took it ends or is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(running: Arc<AtomicUsize>) -> Option<Self> {
        running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < 2).then_some(n + 1)).ok()?;
        Some(Self(running))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
