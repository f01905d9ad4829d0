//! What Go's runtimes keep, read when it is asked for.
//!
//! In: the processes that are profiled. Out: a set for each Go process that keeps what was asked for. Reading can take a second where there is
//! much, so it is done on a thread of its own, of which there are few.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use profiler::serve::{CaptureError, CaptureFuture, Snapshot};
use profiler_proto::ProfileSet;
use profiler_proto::model::Contention;

use crate::capture::profile::{Builder, Window};
use crate::capture::{Bounds, Source};
use crate::discover::{Kind, Target};
use crate::error::Error;

/// What to read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    Heap,
    Goroutines,
    Contention(Contention),
}

impl Of {
    /// What a pull asks for, if it is known here.
    pub(super) fn snapshot(of: Snapshot) -> Option<Self> {
        match of {
            Snapshot::Goroutine => Some(Self::Goroutines),
            Snapshot::Block => Some(Self::Contention(Contention::Block)),
            Snapshot::Mutex => Some(Self::Contention(Contention::Mutex)),
            _ => None,
        }
    }

    /// Why there is nothing, where no process keeps it.
    fn nothing(self) -> CaptureError {
        match self {
            Self::Heap => CaptureError::NoHeap,
            Self::Goroutines | Self::Contention(_) => CaptureError::NoRuntime,
        }
    }
}

/// Reads it of those of `targets` that are Go programs; of `pid` alone, where that is given.
pub(super) fn read(targets: Vec<Arc<Target>>, of: Of, pid: Option<u32>) -> CaptureFuture {
    Box::pin(async move {
        let asked = |target: &Arc<Target>| pid.is_none_or(|pid| pid == target.process.pid());
        let targets: Vec<Arc<Target>> = targets.into_iter().filter(asked).collect();
        if targets.is_empty() && pid.is_some() {
            return Err(CaptureError::NoProcess);
        }
        let read = move || targets.iter().filter_map(|target| read_one(target, of)).collect::<Vec<ProfileSet>>();
        let sets = tokio::task::spawn_blocking(read).await.map_err(|_| CaptureError::Off)?;
        if sets.is_empty() { Err(of.nothing()) } else { Ok(sets) }
    })
}

fn read_one(target: &Target, of: Of) -> Option<ProfileSet> {
    let Kind::Go(_) = target.kind else { return None };
    let pid = target.process.pid();
    let set = try_read(target, of).inspect_err(|error| tracing::debug!(%error, pid, "a runtime is not read"));
    set.ok().filter(|set| !set.profiles.is_empty())
}

fn try_read(target: &Target, of: Of) -> Result<ProfileSet, Error> {
    let source = Source::find(target.process.pid())?;
    let now = UNIX_EPOCH.elapsed().map_or(1, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    let window = Window { start_unix_nanos: now, duration_nanos: 1 };
    let mut builder = Builder::new(&source, target.resource.clone());
    match of {
        Of::Heap => builder.heap(&source.heap(Bounds::default())?, window),
        Of::Goroutines => builder.goroutines(&source.goroutines(Bounds::default())?, window),
        Of::Contention(kind) => builder.contention(&source.contention(kind, Bounds::default())?, window),
    }
    Ok(builder.finish())
}
