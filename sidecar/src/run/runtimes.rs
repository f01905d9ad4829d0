//! What Go's runtimes keep, read when it is asked for.
//!
//! In: the processes that are profiled. Out: a set for each Go process that keeps what was asked for, by pid. Reading can take a second where there is
//! much, and for ever where a process wants it to, so it is done by [`Readers`].

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use profiler::serve::{CaptureError, CaptureFuture, Snapshot};
use profiler_proto::ProfileSet;
use profiler_proto::model::Contention;
use tokio::task::JoinSet;

use crate::capture::profile::{Builder, Window};
use crate::capture::{Bounds, Source};
use crate::discover::{Kind, Target};
use crate::error::Error;

use super::readers::Readers;

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

/// Reads it of those of `targets` that are profiled and Go programs, within `bounds`; of `pid` alone, where that is given.
pub(super) fn read(
    readers: Readers,
    targets: Vec<Arc<Target>>,
    (of, bounds): (Of, Bounds),
    pid: Option<u32>,
) -> CaptureFuture {
    Box::pin(async move {
        let asked = |target: &Arc<Target>| target.profiled.is_ok() && pid.is_none_or(|pid| pid == target.process.pid());
        let targets: Vec<Arc<Target>> = targets.into_iter().filter(asked).collect();
        if targets.is_empty() && pid.is_some() {
            return Err(CaptureError::NoProcess);
        }
        let mut reads = JoinSet::new();
        for target in targets.into_iter().filter(|target| matches!(target.kind, Kind::Go(_))) {
            let readers = readers.clone();
            reads.spawn(async move { Some((target.process.pid(), read_one(&readers, target, of, bounds).await?)) });
        }
        let mut sets: Vec<(u32, ProfileSet)> = reads.join_all().await.into_iter().flatten().collect();
        sets.sort_by_key(|(pid, _)| *pid);
        if sets.is_empty() { Err(of.nothing()) } else { Ok(sets.into_iter().map(|(_, set)| set).collect()) }
    })
}

async fn read_one(readers: &Readers, target: Arc<Target>, of: Of, bounds: Bounds) -> Option<ProfileSet> {
    let process = target.process;
    let why = match readers.ask(process, move || try_read(&target, of, bounds)).await {
        Ok(Ok(set)) => return Some(set).filter(|set| !set.profiles.is_empty()),
        Ok(Err(error)) => error.to_string(),
        Err(no_answer) => no_answer.to_string(),
    };
    tracing::debug!(pid = process.pid(), "a runtime is not read: {why}");
    None
}

fn try_read(target: &Target, of: Of, bounds: Bounds) -> Result<ProfileSet, Error> {
    let source = Source::find(target.process.pid())?;
    let now = UNIX_EPOCH.elapsed().map_or(1, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    let window = Window { start_unix_nanos: now, duration_nanos: 1 };
    let mut builder = Builder::new(&source, target.resource.clone());
    match of {
        Of::Heap => builder.heap(&mut source.heap(bounds)?, window),
        Of::Goroutines => _ = builder.goroutines(&source.goroutines(bounds)?, window),
        Of::Contention(kind) => builder.contention(&source.contention(kind, bounds)?, window),
    }
    Ok(builder.finish())
}
