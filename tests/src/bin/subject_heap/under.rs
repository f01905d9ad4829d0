//! Which profiler of the heap runs, and how it is used: as its users use it.
//!
//! In: `profiler=none|ours|jemalloc|jemalloc_pprof|bare_hooks`, for ours `rate=` of its CPU samples, which cannot be turned off, `lg=` of its interval
//! where that is not the default, and `url=` that it sends to; for ours and `jemalloc_pprof`, `interval=` between two profiles, in
//! seconds. jemalloc's own is a matter of its options. What `jemalloc_pprof` makes goes nowhere: it has no exporter.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use profiler::export::Otlp;
use profiler::{Config, Profiler};
use profiler_tests::Result;
use profiler_tests::subject::Options;

use super::bare;

/// How long what is left may take to leave on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// The profiler that runs.
pub(crate) enum Under {
    /// None; or jemalloc's own, or hooks that do nothing, which nobody asks for anything.
    Nobody,
    Ours(Profiler),
    JemallocPprof(Dumps),
}

/// A thread that makes a profile again and again; its name is one of those that count as the profiler's own.
pub(crate) struct Dumps {
    end: Sender<()>,
    thread: JoinHandle<Result<u64>>,
}

impl Under {
    /// Starts the one that `options` name.
    pub(crate) fn start(options: &Options) -> Result<Self> {
        let interval = Duration::from_secs_f64(options.value_or("interval", 10.0)?);
        match options.value::<String>("profiler")?.as_str() {
            "none" | "jemalloc" => Ok(Self::Nobody),
            "bare_hooks" => bare::begin().map(|()| Self::Nobody),
            "ours" => Ok(Self::Ours(profiler::start(config(options, interval)?)?)),
            "jemalloc_pprof" => Ok(Self::JemallocPprof(Dumps::begin(interval)?)),
            other => {
                Err(format!("profiler={other:?} is none of none, ours, jemalloc, jemalloc_pprof, bare_hooks").into())
            }
        }
    }

    /// Has the first profile made, in which names and mappings are found that later ones find known.
    pub(crate) fn settle(&self) -> Result<()> {
        match self {
            Self::Nobody => Ok(()),
            Self::Ours(profiler) => match profiler.flush(PATIENCE) {
                true => Ok(()),
                false => Err(format!("not everything was delivered in {PATIENCE:?}").into()),
            },
            Self::JemallocPprof(_) => dump().map(drop),
        }
    }

    /// Blocks that ours has sampled so far.
    pub(crate) fn sampled(&self) -> u64 {
        match self {
            Self::Ours(profiler) => profiler.stats().heap.sampled,
            Self::Nobody | Self::JemallocPprof(_) => 0,
        }
    }

    /// Ours, where that is what a task is about.
    pub(crate) fn ours(&self) -> Result<&Profiler> {
        match self {
            Self::Ours(profiler) => Ok(profiler),
            Self::Nobody | Self::JemallocPprof(_) => Err("this task is for profiler=ours".into()),
        }
    }

    /// Stops it; an error if it did not work.
    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Self::Nobody => Ok(()),
            Self::Ours(profiler) => match profiler.shutdown(PATIENCE) {
                true => Ok(()),
                false => Err(format!("not everything was delivered in {PATIENCE:?}").into()),
            },
            Self::JemallocPprof(Dumps { end, thread }) => {
                drop(end);
                thread.join().map_err(|_| "the thread that dumps panicked")?.map(drop)
            }
        }
    }
}

fn config(options: &Options, interval: Duration) -> Result<Config> {
    let mut config = Config::new("subject").heap(true).interval(interval).rate_hz(options.value_or("rate", 1)?);
    let url: String = options.value_or("url", String::new())?;
    if !url.is_empty() {
        config = config.export(Otlp::grpc(url));
    }
    if let Ok(lg) = options.value::<u32>("lg") {
        config = config.heap_interval(1 << lg);
    }
    Ok(config)
}

impl Dumps {
    fn begin(interval: Duration) -> Result<Self> {
        let (end, ended) = channel::<()>();
        let again = move || {
            let mut dumps = 0;
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                dump()?;
                dumps += 1;
            }
            Ok(dumps)
        };
        Ok(Self { end, thread: std::thread::Builder::new().name("profiler-dumps".into()).spawn(again)? })
    }
}

/// A profile by `jemalloc_pprof`, as its documentation has it.
fn dump() -> Result<Vec<u8>> {
    let control = jemalloc_pprof::PROF_CTL.as_ref().ok_or("jemalloc's profiling is off")?;
    let mut control = control.blocking_lock();
    match control.activated() {
        true => Ok(control.dump_pprof()?),
        false => Err("jemalloc's profiling is not active".into()),
    }
}
