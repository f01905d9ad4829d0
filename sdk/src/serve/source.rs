//! What the server asks of whoever captures: the SDK's sampler or the sidecar.
//!
//! In: requests of the HTTP side, on the runtime of the `profiler-io` thread. Out: profiles and figures. An
//! implementation must not block that thread.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use profiler_proto::ProfileSet;

use crate::stats::Stats;

/// Whoever captures profiles.
pub trait Source: Send + Sync + 'static {
    /// The processes that are profiled; the SDK has exactly one, its own.
    fn targets(&self) -> Vec<Target>;

    /// Captures on-CPU samples from now on for `duration`, beside whatever else runs.
    ///
    /// # Errors
    /// [`CaptureError`], when sampling is off or too many captures run already.
    fn capture(&self, duration: Duration) -> CaptureFuture;

    /// The heap: what was allocated since the start, and what lives now. `first`: the type that viewers of pprof show first,
    /// where it is not memory in use.
    ///
    /// # Errors
    /// [`CaptureError`], where there are no heap profiles.
    fn heap(&self, _first: Option<&'static str>) -> CaptureFuture {
        Box::pin(std::future::ready(Err(CaptureError::NoHeap)))
    }

    /// Until what is returned is dropped, what was allocated at a stack stays at that stack, so that two profiles of the heap can be
    /// subtracted.
    fn keep_heap(&self) -> Box<dyn Send> {
        Box::new(())
    }

    /// One consistent snapshot.
    fn stats(&self) -> Stats;
}

/// The outcome of a capture, later.
pub type CaptureFuture = Pin<Box<dyn Future<Output = Result<ProfileSet, CaptureError>> + Send>>;

/// A process that is profiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `service.name`.
    pub service: String,
    /// Process id as the capturing side sees it.
    pub pid: u32,
}

/// Why a capture was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// More captures run than are allowed at once.
    #[error("too many captures at once; try again when one has ended")]
    TooMany,
    /// The profiler is paused or has ended.
    #[error("sampling is off; resume it first")]
    Off,
    /// The heap of this program is not profiled.
    #[error("there are no heap profiles; /stats says why, at heap.notes")]
    NoHeap,
}
