//! `top`: where a process spends its time on processors, again and again; of a Go program with what its runtime counts.
//!
//! In: a pid. Out: a table on standard output; on a terminal a new one in its place each interval until Ctrl-C, else one alone. Where CPU is not sampled,
//! that is said, and of a Go program heap and goroutines are shown instead. Main thread; another one waits for Ctrl-C.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler::Ledger;
use profiler_proto::loss::Loss;

use crate::capture::lacking::counted;
use crate::capture::{Bounds, RuntimeFigures, Source};
use crate::config::Filter;
use crate::error::Error;
use crate::naming::Granularity;
use crate::pipeline::{self, Pipeline, assembled};
use crate::privilege;
use crate::record::{
    Output, can_be_sampled, hottest, interrupted, joined, lost_since, lost_text, process_of, why_none,
};
use crate::target::Process;

use super::arguments::TopArguments;
use super::{built, goroutines, heap};
use crate::plain::plain;
use crate::text::{bytes, nanos};

/// Longest that records wait, and Ctrl-C.
const TURN: Duration = Duration::from_millis(100);
/// To the upper left corner, and away with what stands behind the text.
const REDRAW: (&str, &str) = ("\x1b[H\x1b[2J", "\n(Ctrl-C ends it)");

/// Does `top`.
///
/// # Errors
/// When there is no such process, or nothing can be known of it.
pub fn top(asked: &TopArguments) -> Result<(), Error> {
    let process = process_of(asked.which.pid())?;
    // Before any work: a file that cannot be written is told at once.
    asked.output.as_ref().map_or(Ok(()), Output::check)?;
    let (source, ledger) = (runtime_of(process), Arc::<Ledger>::default());
    let opened = Pipeline::open(options(asked), Arc::clone(&ledger), true);
    // Before anything is named: the thread for that stays, with what it has by then.
    privilege::drop_setup()?;
    let opened = opened.and_then(|mut pipeline| {
        pipeline.catch_up();
        can_be_sampled(&pipeline, process).map(|()| pipeline)
    });
    let cpu = match opened {
        Err(why) if !matches!(source, Some(Ok(_))) || asked.output.is_some() => return Err(why),
        cpu => cpu,
    };
    let mut top = Top { asked, process, cpu, source, ledger, lost: Loss::default(), stopped: interrupted()? };
    let is_terminal = io::stdout().is_terminal() && asked.output.is_none();
    loop {
        let (text, is_last) = top.next()?;
        let (before, behind) = if is_terminal { REDRAW } else { ("", "") };
        if asked.output.as_ref().is_some_and(Output::is_standard) {
            // Where standard error is closed there is nobody to tell.
            drop(writeln!(io::stderr(), "{}", text.trim_end()));
            return Ok(());
        }
        match writeln!(io::stdout(), "{before}{}{behind}", text.trim_end()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(Error::new("standard output", error.to_string(), "give it a place to write to")),
            Ok(()) if !is_terminal || is_last => return Ok(()),
            Ok(()) => {}
        }
    }
}

fn options(asked: &TopArguments) -> pipeline::Options {
    let filter = Filter { pids: vec![asked.which.pid()], ..Filter::default() };
    let (rate_hz, kernel) = (asked.rate_hz, !asked.no_kernel);
    pipeline::Options { rate_hz, kernel, filter, family: None, profile_sdk: true, processors: false }
}

struct Top<'a> {
    asked: &'a TopArguments,
    process: Process,
    /// What samples it, or why nothing does.
    cpu: Result<Pipeline, Error>,
    /// Its runtime, where it is a Go program that can be read; else, why it cannot, if it is one.
    source: Option<Result<Source, Error>>,
    ledger: Arc<Ledger>,
    /// Lost before the interval.
    lost: Loss,
    stopped: Arc<AtomicBool>,
}

impl Top<'_> {
    /// What is to be said of the next interval, at its end; and whether it is the last one.
    fn next(&mut self) -> Result<(String, bool), Error> {
        let took = self.wait();
        if self.source.as_ref().is_some_and(|source| source.as_ref().is_ok_and(|source| !source.is_same())) {
            self.source = runtime_of(self.process);
        }
        let mut text = format!("process {}", self.asked.which.pid());
        // Writing to a `String` cannot fail, here and below.
        match &self.source {
            Some(Ok(source)) => match runtime(source) {
                Ok(runtime) => text += &runtime,
                Err(why) => _ = writeln!(text, "\nits runtime is not read: {}", plain(&why.to_string())),
            },
            Some(Err(why)) => _ = writeln!(text, "\nits runtime is not read: {}", plain(&why.to_string())),
            None => text += &program_of(self.process),
        }
        match (&mut self.cpu, &self.source) {
            (Ok(pipeline), _) => {
                text += &on_processors(pipeline, self.process, self.asked, took, (&self.lost, &self.ledger))?;
            }
            (Err(why), Some(Ok(source))) => {
                // The last time, the process may have ended.
                let shown = in_memory(source, self.asked.rows).unwrap_or_else(|why| plain(&why.to_string()));
                _ = writeln!(text, "CPU is not sampled: {}\n\n{shown}", plain(&why.to_string()));
            }
            (Err(why), _) => _ = writeln!(text, "CPU is not sampled: {}", plain(&why.to_string())),
        }
        // Asked once, for what is said and for whether that is all: a process that ends behind this is told of by the next table.
        let has_ended = !self.process.is_alive();
        if has_ended {
            text += "the process has ended\n";
        }
        Ok((text, has_ended || self.stopped.load(Ordering::Relaxed)))
    }

    /// Waits for an interval, and samples; how long it was.
    fn wait(&mut self) -> Duration {
        let begun = Instant::now();
        if let Ok(pipeline) = &mut self.cpu {
            // What was sampled since is of no interval.
            pipeline.catch_up();
            drop(pipeline.end());
            self.lost = self.ledger.account().lost;
        }
        while begun.elapsed() < self.asked.interval && !self.is_over() {
            let turn = TURN.min(self.asked.interval.saturating_sub(begun.elapsed()));
            match &mut self.cpu {
                Ok(pipeline) => pipeline.turn(turn),
                Err(_) => std::thread::sleep(turn),
            }
        }
        begun.elapsed()
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || !self.process.is_alive()
    }
}

/// Go's runtime in what the process runs now, or why it cannot be read; none of another program.
fn runtime_of(process: Process) -> Option<Result<Source, Error>> {
    let program = Source::program_of(process, |_| None).ok()?;
    Some(Source::of(process, program))
}

/// What it runs, behind its number; nothing where that cannot be told.
fn program_of(process: Process) -> String {
    let path = process.files().and_then(|files| files.exe_path());
    path.map_or_else(|_| "\n".to_owned(), |(path, _)| format!(" ({})\n", plain(&path.to_string_lossy())))
}

/// The table of functions, or what was written instead.
fn on_processors(
    pipeline: &mut Pipeline,
    process: Process,
    asked: &TopArguments,
    took: Duration,
    (before, ledger): (&Loss, &Ledger),
) -> Result<String, Error> {
    pipeline.catch_up();
    let interval = pipeline.end();
    let stacks = interval.stacks();
    let lost = lost_text(&lost_since(before, &ledger.account().lost));
    let (sets, seconds) = (assembled(&interval.windows, &interval.lost, Granularity::Lines), took.as_secs_f64());
    let mut text = format!("{stacks} samples within {seconds:.1} s at {} Hz, {lost}", asked.rate_hz);
    // Where there can be none, not even a file says so.
    let why = if stacks == 0 { format!(": {}", why_none(pipeline, process)?) } else { String::new() };
    if let Some(file) = &asked.output {
        let size = file.write(&joined(sets, asked.rate_hz, took), "samples")?;
        return Ok(format!("{text}{why}; {size} bytes in {}\n", file.name()));
    }
    if stacks == 0 {
        return Ok(format!("{text}{why}\n"));
    }
    // One process has one window, or one for each program that it ran.
    for set in &sets {
        _ = write!(text, "\n\n{}", hottest(set, asked.rows));
    }
    Ok(text)
}

/// What the runtime counts, in two lines.
fn runtime(source: &Source) -> Result<String, Error> {
    let (path, version) = (source.code().path.to_string_lossy(), &source.loaded().program().version().text);
    let figures = source.figures()?;
    let RuntimeFigures { threads, processors, live, used, collections, paused, .. } = figures;
    let goal = figures.goal.map_or_else(|| "none".to_owned(), signed);
    let limit = figures.limit.map_or_else(String::new, |limit| format!(", limit {}", signed(limit)));
    let last = figures.last_pause.map_or_else(String::new, |last| format!(", the last one {}", of_time(last)));
    Ok(format!(
        " ({}, {}): {threads} threads, GOMAXPROCS {processors}\nheap: {} live, goal {goal}; memory: {}{limit}; {collections} collections, paused {}{last}\n",
        plain(&path),
        plain(version),
        signed(live),
        signed(used),
        of_time(paused),
    ))
}

/// Heap by function, goroutines by state.
fn in_memory(source: &Source, rows: usize) -> Result<String, Error> {
    let mut captured = source.heap(Bounds::default())?;
    let set = built(source, |builder, window| builder.heap(&mut captured, window));
    let all = source.goroutines(Bounds::default())?;
    let states = goroutines::by_state(source, &all);
    let mut text = counted(states.iter().map(|(_, count)| count).sum(), "goroutines");
    for (place, (state, count)) in states.iter().enumerate() {
        _ = write!(text, "{} {count} {state}", if place == 0 { ":" } else { "," });
    }
    Ok(format!("{text}\n{}\n{}", all.lacking(), heap::text(source, &captured, &set, rows)))
}

fn signed(value: u64) -> String {
    bytes(i64::try_from(value).unwrap_or(i64::MAX))
}

fn of_time(value: u64) -> String {
    nanos(i64::try_from(value).unwrap_or(i64::MAX))
}
