//! What Go's runtimes keep, read when it is asked for.
//!
//! In: the processes that are profiled. Out: a set for each Go process that keeps what was asked for, or its goroutines as text, by pid. Reading can take a second where there is
//! much, and for ever where a process wants it to, so it is done by [`Readers`], for one process after the other. All that is given has [`MOST_BYTES`] at most.

use std::io::{self, Write};
use std::string::FromUtf8Error;
use std::sync::Arc;

use profiler::serve::{CaptureError, CaptureFuture, GoroutineText, Snapshot, TextFuture};
use profiler_proto::model::Contention;
use profiler_proto::{ProfileSet, pprof};

use crate::capture::profile::{Builder, Window};
use crate::capture::{Awaited, Bounds, Source};
use crate::clock::unix_nanos;
use crate::discover::{Kind, Target};
use crate::error::Error;
use crate::inspect::goroutines;

use super::readers::Readers;
use super::source::served;

/// Bytes that the sets of an answer, or its texts, may have together, beyond the first: with what joins them, half of the agent's own bound of memory.
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
    Box::pin(of_each(readers, targets, pid, move |target, awaited| {
        let set = try_read(target, of, (bounds, awaited))?;
        let bytes = set.memory_bytes();
        Ok(Some((set, bytes)).filter(|(set, _)| !set.profiles.is_empty()))
    }))
}

/// Writes the goroutines of those as text.
pub(super) fn write(
    readers: Readers,
    targets: Vec<Arc<Target>>,
    (form, bounds): (GoroutineText, Bounds),
    pid: Option<u32>,
) -> TextFuture {
    Box::pin(of_each(readers, targets, pid, move |target, awaited| {
        let text = try_write(target, form, (bounds, awaited))?;
        let bytes = text.len();
        Ok(Some(((served(target), text), bytes)))
    }))
}

/// What `read` gives of each Go program, with the bytes of that.
async fn of_each<T: Send + 'static>(
    readers: Readers,
    targets: Vec<Arc<Target>>,
    pid: Option<u32>,
    read: impl Fn(&Target, Awaited) -> Result<Option<(T, usize)>, Error> + Copy + Send + 'static,
) -> Result<Vec<T>, CaptureError> {
    let asked = |target: &Arc<Target>| target.profiled.is_ok() && pid.is_none_or(|pid| pid == target.process.pid());
    let targets: Vec<Arc<Target>> = targets.into_iter().filter(asked).collect();
    if targets.is_empty() && pid.is_some() {
        return Err(CaptureError::NoProcess);
    }
    let mut targets: Vec<_> = targets.into_iter().filter(|target| matches!(target.kind, Kind::Go(_))).collect();
    targets.sort_by_key(|target| target.process.pid());
    let mut all = Gathered::default();
    for target in targets {
        let process = target.process;
        let (_awaiting, awaited) = Awaited::begin();
        let why = match readers.ask(process, move || read(&target, awaited)).await {
            Ok(Ok(None)) => continue,
            Ok(Ok(Some((one, bytes)))) => {
                all.add(one, bytes)?;
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(no_answer) => no_answer.to_string(),
        };
        tracing::debug!(pid = process.pid(), "a runtime is not read: {why}");
    }
    if all.parts.is_empty() { Err(CaptureError::NoRuntime) } else { Ok(all.parts) }
}

/// The parts of an answer, one for each process.
struct Gathered<T> {
    parts: Vec<T>,
    bytes: usize,
}

impl<T> Default for Gathered<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), bytes: 0 }
    }
}

impl<T> Gathered<T> {
    /// Adds one; where it is not alone, within the bound.
    fn add(&mut self, part: T, bytes: usize) -> Result<(), CaptureError> {
        self.bytes += bytes;
        if self.bytes > MOST_BYTES && !self.parts.is_empty() {
            return Err(CaptureError::TooMuch);
        }
        self.parts.push(part);
        Ok(())
    }
}

fn try_read(target: &Target, of: Of, (bounds, awaited): (Bounds, Awaited)) -> Result<ProfileSet, Error> {
    let source = source(target, awaited)?;
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

/// The process that was asked for, by its start: its number may be another one's by now.
fn source(target: &Target, awaited: Awaited) -> Result<Source, Error> {
    let mut source = Source::of(target.process, Source::program_of(target.process, |_| None)?)?;
    source.read_while(awaited);
    Ok(source)
}

fn try_write(target: &Target, form: GoroutineText, (bounds, awaited): (Bounds, Awaited)) -> Result<String, Error> {
    let source = source(target, awaited)?;
    let (all, mut text) = (source.goroutines(bounds)?, Bounded { awaited: source.awaited().clone(), text: Vec::new() });
    let written = match form {
        GoroutineText::Grouped => goroutines::grouped(&source, &all, &mut text),
        _ => goroutines::each(&source, &all, &mut text),
    };
    drop(all);
    Ok(text.finish(written.is_err()))
}

/// Text, up to [`MOST_BYTES`], and as long as it is waited for.
#[derive(Default)]
struct Bounded {
    awaited: Awaited,
    text: Vec<u8>,
}

impl Bounded {
    fn finish(self, is_cut: bool) -> String {
        let lossy = |broken: FromUtf8Error| String::from_utf8_lossy(broken.as_bytes()).into_owned();
        let mut text = String::from_utf8(self.text).unwrap_or_else(lossy);
        if is_cut {
            text += "\n\n(the rest is left out: it is more text than is made at once)\n";
        }
        text
    }
}

impl Write for Bounded {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.awaited.is_over() || self.text.len() + text.len() > MOST_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.text.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
            let why = try_read(&target, of, Default::default()).unwrap_err().to_string();
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
        let add = |all: &mut Gathered<usize>, set: &ProfileSet| all.add(0, set.memory_bytes());
        let mut all = Gathered::default();
        assert_eq!([&large, &small].map(|set| add(&mut all, set)), [Ok(()), Err(CaptureError::TooMuch)]);
        let mut all = Gathered::default();
        assert!((0..100).all(|_| add(&mut all, &small).is_ok()));
        assert_eq!((add(&mut all, &large), all.parts.len()), (Err(CaptureError::TooMuch), 100));
    }

    /// Check that text ends at its bound, and says that there would be more.
    #[test]
    fn text_has_a_bound_and_says_so() {
        let (mut whole, mut cut) = (Bounded::default(), Bounded::default());
        assert!(whole.write_all("é\n".as_bytes()).is_ok());
        assert_eq!(whole.finish(false), "é\n");
        let wrote = (0..).map_while(|_| cut.write_all(&[b'x'; 1 << 20]).ok()).count();
        let text = cut.finish(true);
        assert_eq!(wrote << 20, MOST_BYTES);
        assert!(text.len() < MOST_BYTES + 200 && text.ends_with("made at once)\n"));
    }
}
