//! A capture from its beginning to its end.
//!
//! In: [`Options`]. Out: the file and the table. Sampling runs on the main thread; nothing is in the file that was not sampled between the
//! beginning and the end.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler::Ledger;
use profiler_proto::ProfileSet;
use profiler_proto::loss::{Cause, Degraded, Loss};
use rustix::process::{Pid, Signal, kill_process};

use super::command::Held;
use super::lost::{flaws_text, lost_since, lost_text};
use super::output::joined;
use super::subject::{can_be_sampled, process_of, why_none};
use super::top::table;
use super::windows::Windows;
use super::{Options, Subject};
use crate::budget::Usage;
use crate::capture::lacking::counted;
use crate::config::Filter;
use crate::error::Error;
use crate::hangup::ignores_hangup;
use crate::pipeline::{self, Family, Interval, Pipeline};
use crate::privilege::{self, Privilege};
use crate::spare;
use crate::target::Process;

/// Longest that records wait.
const TURN: Duration = Duration::from_millis(100);
/// Most memory that a recording of thousands of processes takes, in bytes; what is sampled beyond is lost.
const MEMORY: u64 = 512 << 20;
/// How long a window is: in so short a time all distinct stacks find room.
const WINDOW: Duration = Duration::from_secs(2);
/// How long a command that is told to end may take until that is said.
const MOMENT: Duration = Duration::from_millis(500);
/// So many functions stand in the table.
const MOST_ROWS: usize = 20;

/// Records, and writes the file.
///
/// # Errors
/// The process is not there, the command cannot be started, nothing can be sampled, the file cannot be written.
pub fn main(options: &Options) -> Result<(), Error> {
    // Before any work: a file that cannot be written is told at once.
    options.output.check()?;
    Privilege::current()?.missing().iter().for_each(|missing| tracing::warn!("{missing}"));
    let ledger = Arc::<Ledger>::default();
    let (sampled, process, held) = begin(options)?;
    let mut pipeline = Pipeline::open(sampled, Arc::clone(&ledger), true)?;
    privilege::drop_setup()?;
    let stopped = interrupted()?;
    // What was sampled until now was not of the capture. A command begins behind that: its first samples are.
    pipeline.catch_up();
    drop(pipeline.end());
    if let Subject::Process(_) = options.subject {
        can_be_sampled(&pipeline, process)?;
    }
    let before = ledger.account().lost;
    let child = held.map(Held::release).transpose()?;
    let now = Instant::now();
    let mut recording = Recording {
        options,
        process,
        child,
        ended: None,
        stopped: &stopped,
        begun: now,
        next_window: now + WINDOW,
        windows: Windows::default(),
        samples: 0,
        progress: Progress::new(),
        ledger: &ledger,
    };
    recording.run(&mut pipeline);
    let Recording { windows, samples, begun, ended, child, .. } = recording;
    let counted = (samples, &lost_since(&before, &ledger.account().lost), &windows.degraded());
    // What was lost says why by itself. Where there can be no sample, a file that is there stays.
    let why = (samples == 0 && counted.1.total() == 0).then(|| why_none(&pipeline, process)).transpose()?;
    finish(options, windows.sets(), counted, begun.elapsed())?;
    if let Some(status) = ended.filter(|status| !status.success()) {
        // The file is written: a closed terminal is no failure.
        drop(writeln!(io::stderr(), "the command failed: {status}"));
    }
    if let Some(pid) = child.and_then(outlives) {
        drop(writeln!(io::stderr(), "the command was told to end (SIGTERM), and goes on: process {pid}"));
    }
    if let Some(why) = why {
        tracing::warn!("nothing was sampled: {why}");
    }
    Ok(())
}

/// The number of a command that has not ended a moment later.
fn outlives(mut child: Child) -> Option<u32> {
    let until = Instant::now() + MOMENT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= until {
            return Some(child.id());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Whom to sample, and the command that waits to be let go.
fn begin(options: &Options) -> Result<(pipeline::Options, Process, Option<Held>), Error> {
    let sampled = |filter, family| pipeline::Options {
        rate_hz: options.rate_hz,
        kernel: options.kernel,
        filter,
        family,
        profile_sdk: true,
        processors: options.processors,
    };
    match &options.subject {
        Subject::Process(pid) => {
            let process = process_of(*pid)?;
            Ok((sampled(Filter { pids: vec![*pid], ..Filter::default() }, None), process, None))
        }
        Subject::Command(command) => {
            let held = Held::start(command)?;
            let process = process_of(held.child.id())?;
            Ok((sampled(Filter::default(), Some(Family::of(process.pid()))), process, Some(held)))
        }
    }
}

struct Recording<'a> {
    options: &'a Options,
    process: Process,
    child: Option<Child>,
    /// How it ended, by itself.
    ended: Option<ExitStatus>,
    stopped: &'a AtomicBool,
    begun: Instant,
    next_window: Instant,
    windows: Windows,
    /// In the windows that ended.
    samples: u64,
    progress: Progress,
    ledger: &'a Ledger,
}

impl Recording<'_> {
    /// Samples until the time is over, the process has ended, or Ctrl-C.
    fn run(&mut self, pipeline: &mut Pipeline) {
        let before = pipeline.figures().sampled;
        while !self.is_over() {
            let left = self.options.duration.map_or(TURN, |duration| duration.saturating_sub(self.begun.elapsed()));
            pipeline.turn(TURN.min(left));
            if Instant::now() >= self.next_window {
                self.next_window = Instant::now() + WINDOW;
                // What was lost where nothing was sampled is told with the next windows.
                pipeline.end_of_profiles().into_iter().for_each(|interval| self.add(interval));
            }
            self.progress.show(self.begun.elapsed(), self.options.duration, pipeline.figures().sampled - before);
        }
        // What was sampled last is in the ring.
        pipeline.stop();
        self.end_command();
        self.add(pipeline.end());
        self.progress.clear();
    }

    fn add(&mut self, interval: Interval) {
        if Usage::read().is_ok_and(|usage| usage.resident > MEMORY) {
            self.ledger.lost(interval.stacks(), Cause::AggregateFull);
            let mut lost = interval.lost;
            interval.windows.iter().for_each(|(window, _)| lost.merge(&window.lost()));
            lost.add(Cause::AggregateFull, interval.stacks());
            return self.windows.lose(&lost);
        }
        self.samples = self.samples.saturating_add(interval.stacks());
        self.windows.add(interval);
    }

    /// Ends a command that outlives its recording, as SIGTERM does.
    fn end_command(&mut self) {
        let Some(child) = &mut self.child else { return };
        if let (Ok(None), Some(pid)) = (child.try_wait(), i32::try_from(child.id()).ok().and_then(Pid::from_raw))
            && let Err(error) = kill_process(pid, Signal::TERM)
        {
            tracing::warn!(%error, "the command goes on");
        }
    }

    fn is_over(&mut self) -> bool {
        let ended = match &mut self.child {
            // An error says that nobody can wait for it: it is gone, too.
            Some(child) => {
                let waited = child.try_wait();
                self.ended = waited.as_ref().ok().copied().flatten();
                !matches!(waited, Ok(None))
            }
            None => !self.process.is_alive(),
        };
        let late = self.options.duration.is_some_and(|duration| self.begun.elapsed() >= duration);
        ended || late || self.stopped.load(Ordering::Relaxed)
    }
}

/// Writes the file, says what is in it.
fn finish(
    options: &Options,
    sets: Vec<ProfileSet>,
    (samples, lost, degraded): (u64, &Loss, &Degraded),
    took: Duration,
) -> Result<(), Error> {
    let processes = match sets.len() {
        1 => "one process".to_owned(),
        several => format!("{several} processes"),
    };
    let set = joined(sets, options.rate_hz, took);
    let size = options.output.write(&set, "samples")?;
    let text = format!(
        "{}\n{} of {processes} in {:.1} s at {} Hz, {}; {size} bytes in {}\n{}",
        table(&set, MOST_ROWS),
        counted(samples, "samples"),
        took.as_secs_f64(),
        options.rate_hz,
        lost_text(lost),
        options.output.name(),
        flaws_text(degraded),
    );
    // The file is written: a closed terminal is no failure.
    drop(io::stderr().write_all(text.as_bytes()));
    Ok(())
}

/// A flag that Ctrl-C, SIGTERM, SIGQUIT and, unless it is ignored (`nohup`), SIGHUP set.
///
/// A second one ends the program, as without us.
///
/// # Errors
/// When there are too few files left to open.
pub fn interrupted() -> Result<Arc<AtomicBool>, Error> {
    spare::files("signals")?;
    let flag = Arc::<AtomicBool>::default();
    let set = Arc::clone(&flag);
    let watch = move || {
        // It samples nothing.
        let _ = privilege::drop_clock();
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut interrupt), Ok(mut terminate), Ok(mut quit)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::quit()))
            else {
                return;
            };
            let mut hangup = if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() };
            let mut is_asked = false;
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = quit.recv() => {}
                    Some(()) = async { hangup.as_mut()?.recv().await } => {
                        // A terminal that goes away may say so twice, and be followed by SIGTERM: nobody insists.
                        set.store(true, Ordering::Relaxed);
                        continue;
                    }
                }
                set.store(true, Ordering::Relaxed);
                if std::mem::replace(&mut is_asked, true) {
                    std::process::exit(130);
                }
            }
        });
    };
    if let Err(error) = std::thread::Builder::new().name("signals".into()).spawn(watch) {
        tracing::warn!(%error, "Ctrl-C ends without a file");
    }
    Ok(flag)
}

/// A line on a terminal that says how far it is.
struct Progress {
    on: bool,
    shown: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Self { on: io::stderr().is_terminal(), shown: None }
    }

    fn show(&mut self, elapsed: Duration, of: Option<Duration>, samples: u64) {
        if !self.on || self.shown.is_some_and(|shown| shown.elapsed() < Duration::from_millis(250)) {
            return;
        }
        self.shown = Some(Instant::now());
        let of = of.map_or_else(|| "until Ctrl-C".to_owned(), |of| format!("of {:.0} s", of.as_secs_f64()));
        drop(write!(io::stderr(), "\r{:6.1} s {of}, {samples} samples ", elapsed.as_secs_f64()));
    }

    fn clear(&mut self) {
        if self.shown.is_some() {
            drop(write!(io::stderr(), "\r{:60}\r", ""));
        }
    }
}
