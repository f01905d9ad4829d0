//! What the server asks of whoever captures: the SDK's sampler or the sidecar.
//!
//! In: requests of the HTTP side, on the runtime of the `profiler-io` thread. Out: profiles and figures. An
//! implementation must not block that thread.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use profiler_proto::ProfileSet;

use crate::stats::Stats;

/// Whoever captures profiles: of its own process (the SDK), or of many from outside (the sidecar).
///
/// What is captured comes as one set for each process, with its [`Resource`](profiler_proto::model::resource::Resource): `process.pid` and `service.name` in it say
/// whose it is. Whoever serves them joins them, and labels the samples with `pid` and `service`. Where `pid` is given, only that process is
/// asked for; one that is not known is [`CaptureError::NoProcess`].
pub trait Source: Send + Sync + 'static {
    /// The processes that are profiled; the SDK has exactly one, its own.
    fn targets(&self) -> Vec<Target>;

    /// Captures on-CPU samples from now on for `duration`, beside whatever else runs.
    ///
    /// # Errors
    /// [`CaptureError`], when sampling is off or too many captures run already.
    fn capture(&self, duration: Duration, pid: Option<u32>) -> CaptureFuture;

    /// The heap: what was allocated since the start, and what lives now. `first`: the type that viewers of pprof show first,
    /// where it is not memory in use.
    ///
    /// # Errors
    /// [`CaptureError`], where there are no heap profiles.
    fn heap(&self, _first: Option<&'static str>, _pid: Option<u32>) -> CaptureFuture {
        Box::pin(std::future::ready(Err(CaptureError::NoHeap)))
    }

    /// What else is known of the processes as they are now: the goroutines that there are, or what was waited for since the start.
    ///
    /// # Errors
    /// [`CaptureError`], where there is no such profile.
    fn snapshot(&self, _of: Snapshot, _pid: Option<u32>) -> CaptureFuture {
        Box::pin(std::future::ready(Err(CaptureError::NoRuntime)))
    }

    /// The goroutines that there are as text.
    ///
    /// # Errors
    /// [`CaptureError`], where there are none.
    fn goroutines(&self, _form: GoroutineText, _pid: Option<u32>) -> TextFuture {
        Box::pin(std::future::ready(Err(CaptureError::NoRuntime)))
    }

    /// Until what is returned is dropped, what was allocated at a stack stays at that stack, so that two profiles of the heap can be
    /// subtracted.
    fn keep_heap(&self) -> Box<dyn Send> {
        Box::new(())
    }

    /// One consistent snapshot.
    fn stats(&self) -> Stats;

    /// Whether samples are taken, as [`Stats::sampling`] says: asked by whoever watches over the process, often, and perhaps by others.
    fn is_sampling(&self) -> bool {
        self.stats().sampling
    }
}

/// The outcome of a capture, later: one set for each process.
pub type CaptureFuture = Pin<Box<dyn Future<Output = Result<Vec<ProfileSet>, CaptureError>> + Send>>;

/// Text, later: one for each process, which says whose it is and ends with a line.
pub type TextFuture = Pin<Box<dyn Future<Output = Result<Vec<(Target, String)>, CaptureError>> + Send>>;

/// How goroutines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GoroutineText {
    /// Equal ones together, as Go's `debug=1`.
    Grouped,
    /// Each by itself, as a panic writes it and Go's `debug=2`.
    Each,
}

/// What a runtime keeps of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Snapshot {
    /// Goroutines by stack ([`Kind::goroutine`](profiler_proto::model::Kind::goroutine)).
    Goroutine,
    /// What goroutines waited for since the start ([`Kind::contention`](profiler_proto::model::Kind::contention)).
    Block,
    /// What others waited for since the start, locks being held.
    Mutex,
}

/// A process that is profiled. Made by [`Target::new`]; other crates cannot name all fields, for there may be more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Target {
    /// `service.name`.
    pub service: String,
    /// Process id as the capturing side sees it.
    pub pid: u32,
    /// What it is written in, as `process.runtime.name` or `telemetry.sdk.language` says: `go`, `rust`; `None` where that is not known.
    pub language: Option<String>,
}

impl Target {
    /// The process `pid`, which is an instance of `service`.
    #[must_use]
    pub fn new(service: impl Into<String>, pid: u32) -> Self {
        Self { service: service.into(), pid, language: None }
    }

    /// The same, written in `language`.
    #[must_use]
    pub fn in_language(self, language: impl Into<String>) -> Self {
        Self { language: Some(language.into()), ..self }
    }
}

/// Why a capture was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// More captures run than are allowed at once.
    #[error("too many captures at once, or other profiles wait to be made; try again in a moment")]
    TooMany,
    /// The profiles of all processes together would take more memory than there is for them.
    #[error("all processes together have more than is kept at once; ask for one of them, by pid=N")]
    TooMuch,
    /// The profiler is paused or has ended.
    #[error("sampling is off; resume it first")]
    Off,
    /// Nothing here samples CPU time, for as long as the program runs.
    #[error("CPU time is not sampled here; the sidecar's log says why, and `profiler-sidecar doctor` what to do")]
    NotSampled,
    /// The heap of this program is not profiled.
    #[error("there are no heap profiles; /stats says why, at heap.notes")]
    NoHeap,
    /// No process has a runtime that keeps this.
    #[error(
        "none of these processes has such a profile: Go programs have, where it is on and their runtime can be read; the sidecar's /stats says at go_PID why one has none"
    )]
    NoRuntime,
    /// The process that was asked for is not profiled, or is gone.
    #[error("no process of this name or pid is profiled; /stats and the page list those that are")]
    NoProcess,
}
