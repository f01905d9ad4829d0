//! The source of the tests: it captures by waiting, two captures at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler::serve::{CaptureError, CaptureFuture, GoroutineText, Snapshot, Source, Target, TextFuture};
use profiler_proto::ProfileSet;

use crate::samples::{heap, now, runtime, set};

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
    /// How many looks at the heap are under way, and the most that were.
    looks: Arc<AtomicUsize>,
    pub(crate) most_looks: Arc<AtomicUsize>,
    /// Whether it stands for the sidecar: beside its own process it profiles one of Go.
    pub(crate) several: AtomicBool,
    /// What it was asked for, as `profile 7`.
    pub(crate) asked: Mutex<Vec<String>>,
    /// How many snapshots were taken: with each, there is more.
    snapshots: Arc<AtomicUsize>,
}

/// The pid of the process of Go.
pub(crate) const GO: u32 = 4_000_001;

impl Waiting {
    fn asked(&self, what: &str, pid: Option<u32>) {
        self.asked.lock().unwrap().push(format!("{what} {pid:?}"));
    }
}

/// `set` of the process `pid` of `service`.
pub(crate) fn of(mut set: ProfileSet, service: &str, pid: u32) -> ProfileSet {
    set.resource.set("service.name", service);
    set.resource.set("process.pid", i64::from(pid));
    set
}

impl Source for Waiting {
    fn targets(&self) -> Vec<Target> {
        let own = Target::new("shop", std::process::id());
        let others = self.several.load(Ordering::Relaxed).then(|| Target::new("inventory", GO).in_language("go"));
        std::iter::once(own).chain(others).collect()
    }

    fn capture(&self, duration: Duration, pid: Option<u32>) -> CaptureFuture {
        self.asked("profile", pid);
        let several = self.several.load(Ordering::Relaxed);
        let (off, running) = (self.off.load(Ordering::Relaxed), Arc::clone(&self.running));
        Box::pin(async move {
            if off {
                return Err(CaptureError::Off);
            }
            let place = Place::take(running).ok_or(CaptureError::TooMany)?;
            tokio::time::sleep(duration).await;
            drop(place);
            let own = set(now(), duration.as_secs(), &[("main;captured", 7, &[])]);
            let go = || of(set(now(), duration.as_secs(), &[("main;captured", 5, &[])]), "inventory", GO);
            if several { Ok(vec![of(own, "shop", std::process::id()), go()]) } else { Ok(vec![own]) }
        })
    }

    fn heap(&self, _first: Option<&'static str>, _: Option<u32>) -> CaptureFuture {
        let (on, kept, kept_at) =
            (self.heap.load(Ordering::Relaxed), Arc::clone(&self.kept), Arc::clone(&self.kept_at));
        let (looks, most_looks) = (Arc::clone(&self.looks), Arc::clone(&self.most_looks));
        Box::pin(async move {
            most_looks.fetch_max(looks.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            // So that others would come in between.
            tokio::time::sleep(Duration::from_millis(10)).await;
            looks.fetch_sub(1, Ordering::Relaxed);
            kept_at.lock().unwrap().push(kept.load(Ordering::Relaxed));
            if on { Ok(vec![heap(now(), 1, &[("main;lives", 1, 1024, &[])])]) } else { Err(CaptureError::NoHeap) }
        })
    }

    fn snapshot(&self, what: Snapshot, pid: Option<u32>) -> CaptureFuture {
        self.asked(&format!("{what:?}"), pid);
        let taken = self.snapshots.fetch_add(1, Ordering::Relaxed) as i64;
        let snapshot = if self.several.load(Ordering::Relaxed) {
            Ok(vec![of(runtime(what, now(), 3 + taken), "inventory", GO)])
        } else {
            Err(CaptureError::NoRuntime)
        };
        Box::pin(std::future::ready(snapshot))
    }

    fn goroutines(&self, form: GoroutineText, pid: Option<u32>) -> TextFuture {
        self.asked(&format!("{form:?}"), pid);
        let of = |(service, pid)| (Target::new(service, pid), format!("goroutines of {service}\n"));
        let texts = if self.several.load(Ordering::Relaxed) {
            Ok(vec![of(("inventory", GO)), of(("other", GO + 1))])
        } else {
            Err(CaptureError::NoRuntime)
        };
        Box::pin(std::future::ready(texts))
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
