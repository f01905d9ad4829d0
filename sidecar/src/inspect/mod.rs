//! The commands `heap`, `goroutines` and `contention`: what a Go program's runtime knows, read from outside, for a person or into a file. And `top`, with
//! what it spends its time on. The agent serves goroutines as the same text.
//!
//! In: a pid and what to show. Out: text for standard output, or a file of which the text says what is in it. Of goroutines there may be a hundred megabytes of
//! text, which is written as it is made. The process is not stopped and gets no signal. Main thread.

mod arguments;
mod contention;
pub(crate) mod goroutines;
mod heap;
#[cfg(test)]
mod tests;
mod top;

use std::io::{self, Write};

pub(crate) use arguments::pid;
pub use arguments::{ContentionArguments, GoroutinesArguments, HeapArguments, TopArguments};
pub use top::top;

use profiler_proto::ProfileSet;
use profiler_proto::model::Contention as Kind;
use profiler_proto::resource::Resource;

use crate::capture::lacking::counted;
use crate::capture::profile::{Builder, Window};
use crate::capture::{Bounds, Source};
use crate::clock::unix_nanos;
use crate::error::Error;
use crate::record::Output;
use crate::text::head;

/// What a command says.
#[derive(Debug, Default)]
pub struct Said {
    /// To standard output, behind what was written there already; may be nothing.
    pub shown: String,
    /// To standard error: what keeps a file that was written from being the whole truth; what is shown says it itself.
    pub remarks: String,
}

impl From<String> for Said {
    fn from(shown: String) -> Self {
        Self { shown, ..Self::default() }
    }
}

/// Does `heap`; what to print.
///
/// # Errors
/// When the process cannot be read, or the file not be written, or there can be nothing in it.
pub fn heap(asked: &HeapArguments) -> Result<Said, Error> {
    let source = Source::find(asked.which.pid())?;
    let mut heap = source.heap(Bounds { buckets: asked.max_buckets, ..Bounds::default() })?;
    let set = built(&source, |builder, window| builder.heap(&mut heap, window));
    match &asked.output {
        Some(file) => {
            can_be_filed(&source, &set, heap.state.advice().filter(|_| heap.state.is_off()))?;
            filed(&set, "inuse_space", file, heap::remarks(&heap))
        }
        None => Ok(heap::text(&source, &heap, &set, asked.rows).into()),
    }
}

/// Does `goroutines`: writes to `out`, which is standard output, or a file; what else to print.
///
/// # Errors
/// As [`heap`], and when `out` takes no more, unless nobody reads it.
pub fn goroutines(asked: &GoroutinesArguments, mut out: impl Write) -> Result<Said, Error> {
    let source = Source::find(asked.which.pid())?;
    let bounds = Bounds { goroutines: asked.max_goroutines, ..Bounds::default() };
    let all = source.goroutines(bounds)?;
    if let Some(growth) = asked.growth {
        std::thread::sleep(growth);
        let later = source.goroutines(bounds)?;
        return written(goroutines::growth(&source, (&all, &later), growth, &mut out).and_then(|()| out.flush()));
    }
    match &asked.output {
        Some(file) => {
            let set = built(&source, |builder, window| _ = builder.goroutines(&all, window));
            let remarks = all.lacking();
            // Of very many, with labels, tens of megabytes, which the file takes, too.
            drop(all);
            filed(&set, "goroutine", file, remarks)
        }
        None if asked.each => written(goroutines::each(&source, &all, &mut out).and_then(|()| out.flush())),
        None => written(goroutines::grouped(&source, &all, &mut out).and_then(|()| out.flush())),
    }
}

/// Nothing more is to be said; a reader who has gone (`| head`) is no failure.
fn written(outcome: io::Result<()>) -> Result<Said, Error> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::new("standard output", error.to_string(), "give it a place to write to"))
        }
        _ => Ok(Said::default()),
    }
}

/// Does `contention`; what to print.
///
/// # Errors
/// As [`heap`].
pub fn contention(asked: &ContentionArguments) -> Result<Said, Error> {
    let source = Source::find(asked.which.pid())?;
    let kind = if asked.mutex { Kind::Mutex } else { Kind::Block };
    let contention = source.contention(kind, Bounds { buckets: asked.max_buckets, ..Bounds::default() })?;
    let mut set = built(&source, |builder, window| builder.contention(&contention, window));
    match &asked.output {
        // Go's own files have one period type for both kinds, so that they can be compared.
        Some(file) => {
            can_be_filed(&source, &set, contention.state().filter(|_| contention.rate == 0))?;
            let contentions = set.profiles.first().map(|profile| profile.kind.sample_type);
            set.profiles
                .iter_mut()
                .zip(contentions.into_iter().cycle())
                .for_each(|(profile, of)| profile.kind.period_type = of);
            filed(&set, "delay", file, contention::remarks(&contention))
        }
        None => Ok(contention::text(&source, &contention, &set, asked.rows).into()),
    }
}

/// Refuses to write a file in which there can be nothing: a script would take it for a profile, and it might replace one. `off` says why nothing is recorded.
fn can_be_filed(source: &Source, set: &ProfileSet, off: Option<&str>) -> Result<(), Error> {
    match off {
        Some(why) if set.profiles.iter().all(|profile| profile.samples.is_empty()) => {
            Err(Error::new(head(source), why, "no file was written"))
        }
        _ => Ok(()),
    }
}

/// Writes `set` into a file; what to say of it, with these remarks.
fn filed(set: &ProfileSet, kind: &str, file: &Output, remarks: String) -> Result<Said, Error> {
    let bytes = file.write(set, kind)?;
    let samples = crate::text::profiles(set, kind).map(|profile| profile.samples.len() as u64).sum::<u64>();
    let samples = counted(samples, "stacks");
    let told = format!("{}: {samples}, {bytes} bytes", file.name());
    Ok(match file.is_standard() {
        true => Said { shown: String::new(), remarks: format!("{told}\n{remarks}") },
        false => Said { shown: told, remarks },
    })
}

fn built(source: &Source, fill: impl FnOnce(&mut Builder<'_>, Window)) -> ProfileSet {
    let name =
        source.code().path.file_name().map_or_else(|| "unknown".into(), |name| name.to_string_lossy().into_owned());
    let resource = Resource::new().with("service.name", name).with("process.pid", i64::from(source.process().pid()));
    let mut builder = Builder::new(source, resource);
    fill(&mut builder, Window::moment(unix_nanos()));
    builder.finish()
}
