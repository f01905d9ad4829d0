//! What Go's runtimes keep, read when it is asked for.
//!
//! In: the processes that are profiled. Out: a set for each Go process that keeps what was asked for, by pid. Reading can take a second where there is
//! much, and for ever where a process wants it to, so it is done by [`Readers`], for one process after the other. All that is given has [`MOST_BYTES`] at most.

use std::sync::Arc;

use profiler::serve::{CaptureError, CaptureFuture, Snapshot};
use profiler_proto::model::Contention;
use profiler_proto::{ProfileSet, pprof};

use crate::capture::profile::{Builder, Window};
use crate::capture::{Bounds, Source};
use crate::clock::unix_nanos;
use crate::discover::{Kind, Target};
use crate::error::Error;

use super::readers::Readers;

/// Bytes that the sets of an answer may have together, beyond the first: with what joins them, half of the agent's own bound of memory.
const MOST_BYTES: usize = 32 << 20;

/// What to read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    /// The heap, of which this sample type is shown first where it is not the usual one.
    Heap(Option<&'static str>),
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
        let mut targets: Vec<_> = targets.into_iter().filter(|target| matches!(target.kind, Kind::Go(_))).collect();
        targets.sort_by_key(|target| target.process.pid());
        let mut all = Gathered::default();
        for target in targets {
            if let Some(set) = read_one(&readers, target, of, bounds).await {
                all.add(set)?;
            }
        }
        if all.sets.is_empty() { Err(CaptureError::NoRuntime) } else { Ok(all.sets) }
    })
}

/// The sets of an answer.
#[derive(Default)]
struct Gathered {
    sets: Vec<ProfileSet>,
    bytes: usize,
}

impl Gathered {
    /// Adds one; where it is not alone, within the bound.
    fn add(&mut self, set: ProfileSet) -> Result<(), CaptureError> {
        self.bytes += set.memory_bytes();
        if self.bytes > MOST_BYTES && !self.sets.is_empty() {
            return Err(CaptureError::TooMuch);
        }
        self.sets.push(set);
        Ok(())
    }
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
    // The process that was asked for, by its start: its number may be another one's by now.
    let source = Source::of(target.process, Source::program_of(target.process, |_| None)?)?;
    let window = Window::moment(unix_nanos());
    let mut builder = Builder::new(&source, target.resource.clone());
    // What the program has off, and has nothing of, is no profile: its state says so.
    let is_off = match of {
        Of::Heap(_) => {
            let mut heap = source.heap(bounds)?;
            let is_off = heap.records.is_empty() && heap.state.is_off();
            builder.heap(&mut heap, window);
            is_off
        }
        Of::Goroutines => {
            builder.goroutines(&source.goroutines(bounds)?, window);
            false
        }
        Of::Contention(kind) => {
            let contention = source.contention(kind, bounds)?;
            builder.contention(&contention, window);
            contention.records.is_empty() && contention.rate == 0
        }
    };
    if is_off {
        return Ok(ProfileSet::default());
    }
    let mut set = builder.finish();
    if let Of::Heap(Some(first)) = of {
        pprof::show_first(&mut set, first);
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use profiler_proto::model::{LocationId, Profile, Sample, Stack};

    use super::*;
    use crate::target::Process;

    /// Check that another process that has the number by now is not taken for the one that was asked for.
    #[test]
    fn a_number_that_was_given_to_another_process_is_not_read() {
        let own = Process::find(std::process::id()).unwrap();
        let ended = Process::new(own.pid(), own.start_time() - 1);
        let target = Target::bare(ended, Kind::Go("go1.24.0".into()));
        for of in [Of::Heap(None), Of::Goroutines, Of::Contention(Contention::Block)] {
            let why = try_read(&target, of, Bounds::default()).unwrap_err().to_string();
            assert!(why.contains("is gone"), "{why}");
        }
    }

    /// A set of so many samples, each with a stack of its own, one frame deep.
    fn set(samples: u32) -> ProfileSet {
        let mut set = ProfileSet::default();
        let sample = |number: u32| {
            let locations = vec![LocationId::ZERO; 1 + number as usize % 64];
            let stack = set.dictionary.stacks.intern(Stack { locations: locations.into() });
            Sample { stack, value: 1, ..Sample::default() }
        };
        let samples = (0..samples).map(sample).collect();
        set.profiles.push(Profile { samples, ..Profile::default() });
        set
    }

    /// Check that one process may have any amount, and that all together may not: then whoever asks is told to ask for one.
    #[test]
    fn all_together_have_a_bound_and_one_alone_has_none() {
        let (large, small) = (set(2_000_000), set(10));
        assert!(large.memory_bytes() > MOST_BYTES && small.memory_bytes() < 10_000);
        let mut all = Gathered::default();
        assert_eq!(all.add(large.clone()), Ok(()));
        assert_eq!(all.add(small.clone()), Err(CaptureError::TooMuch));
        let mut all = Gathered::default();
        assert!((0..100).all(|_| all.add(small.clone()).is_ok()));
        assert_eq!((all.add(large), all.sets.len()), (Err(CaptureError::TooMuch), 100));
    }
}
