//! Many tasks that share few threads, each with a tag and a span of its own and work that names it.
//!
//! In: the `runtime` (tokio with four workers or on one thread, smol, rayon, plain threads), how many `tasks`, and how many
//! `steps` each makes; every step may move it to another thread, cancel something, panic, work elsewhere for it, or have another task work that serves
//! all of them through a channel. Out: the account, and the CPU time that was used.
//! The stack of every sample of the work says whose it is, and whether it is nested, by the functions that it is called through; see `workload::on_path`.
//! The ids of a task's span are its number, too; every fourth task has no span.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use opentelemetry::Context as Spans;
use opentelemetry::trace::{FutureExt as _, SpanContext, TraceContextExt, TraceFlags, TraceState};
use profiler::{Config, FutureExt, Tags, inherit, tag, tags, with_tags};
use profiler_tests::clock::process_cpu;
use profiler_tests::subject::Options;
use profiler_tests::workload::{Random, on_path, spin};
use profiler_tests::{Result, stats};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::FLUSH;
use crate::runtimes::{Boxed, Runtime, run_on, yield_now};

/// Functions that spell a task's number: enough for 1,024 of them.
const BITS: u32 = 10;
/// CPU time of one piece of work.
const PIECE: Duration = Duration::from_micros(15);

/// Runs the tasks to their end.
pub(crate) fn tasks(options: &Options) -> Result<Value> {
    let (tasks, steps) = (options.value::<u64>("tasks")?, options.value::<u32>("steps")?);
    let runtime: String = options.value("runtime")?;
    let profiler = profiler::start(Config::new("tasks").rate_hz(1000).interval(Duration::from_secs(1)))?;
    let began = process_cpu();
    match runtime.as_str() {
        "rayon" => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build()?;
            pool.install(|| {
                // A job may run on a thread that waits within another one: it begins with the tags of where it was made.
                let here = Tags::current();
                (0..tasks).into_par_iter().for_each(|number| with_tags(&here, || parallel(number, steps)));
            });
        }
        "threads" => std::thread::scope(|scope| {
            for first in 0..4 {
                scope.spawn(move || (first..tasks).step_by(4).for_each(|number| serial(number, steps)));
            }
        }),
        futures => run_on(futures, |runtime| all(runtime, tasks, steps))?,
    }
    let engine = profiler.stats().engine.name;
    profiler.pause();
    let used = (process_cpu() - began).as_secs_f64();
    let flushed = profiler.flush(FLUSH);
    Ok(json!({ "flushed": flushed, "cpu_seconds": used, "engine": engine, "stats": stats::to_json(&profiler.stats()) }))
}

/// The work of a task.
fn work(number: u64) {
    spell(number);
}

/// That which is done in a scope of its own; the function behind the number says so.
fn nested_work(number: u64) {
    spell(number | 1 << BITS);
}

#[inline(never)]
fn spell(path: u64) {
    on_path(path, BITS + 1, &mut || spin(PIECE));
}

/// The context of a task with this number.
fn context(number: u64) -> Spans {
    if number.is_multiple_of(4) {
        return Spans::new();
    }
    let (flags, state) = (TraceFlags::SAMPLED, TraceState::default());
    let span = SpanContext::new(u128::from(number).into(), number.into(), flags, false, state);
    Spans::new().with_remote_span_context(span)
}

/// `work` with the tags and the span of here.
fn as_here(work: impl FnOnce() + Send) -> impl FnOnce() + Send {
    let (work, here) = (inherit(work), Spans::current());
    move || {
        let _current = here.attach();
        work();
    }
}

/// Works for a task when it is dropped, as what a task holds may.
struct Held(u64);

impl Drop for Held {
    fn drop(&mut self) {
        work(self.0);
    }
}

/// Whoever does something for the tasks: each has an end of the channel to it.
type Clerks = Arc<[mpsc::Sender<Asked>]>;
/// What a clerk says that it is done by.
type Asked = mpsc::Sender<()>;

async fn all(runtime: Runtime, tasks: u64, steps: u32) {
    let spawn = |number, work: Boxed<()>| {
        (runtime.spawn)(Box::pin(work.with_context(context(number)).with_tags(tags!("task" => number))))
    };
    // With the numbers that the tasks leave.
    let numbers = tasks..1 << BITS;
    let (clerks, asked): (Vec<_>, Vec<_>) = numbers.clone().map(|_| mpsc::channel(4)).unzip();
    let serving: Vec<_> =
        numbers.zip(asked).map(|(number, asked)| spawn(number, Box::pin(clerk(number, asked)))).collect();
    let clerks: Clerks = clerks.into();
    let working = (0..tasks).map(|number| spawn(number, Box::pin(task(runtime, number, steps, Arc::clone(&clerks)))));
    let working: Vec<_> = working.collect();
    drop(clerks);
    for task in working.into_iter().chain(serving) {
        task.await;
    }
}

/// Serves until no task is left, each as it comes, under tags and a span of its own.
async fn clerk(number: u64, mut asked: mpsc::Receiver<Asked>) {
    while let Some(done) = asked.recv().await {
        work(number);
        let (Ok(()) | Err(_)) = done.send(()).await;
        work(number);
    }
}

async fn task(runtime: Runtime, number: u64, steps: u32, clerks: Clerks) {
    let mut random = Random::new(number + 1);
    for _ in 0..steps {
        work(number);
        yield_now().await;
        match random.below(9) {
            0 => {
                let (sender, mut receiver) = mpsc::channel(1);
                let send = async {
                    work(number);
                    let (Ok(()) | Err(_)) = sender.send(()).await;
                };
                tokio::join!(send, async { receiver.recv().await.map_or((), |()| work(number)) });
            }
            1 => {
                let never = async {
                    let _held = Held(number);
                    std::future::pending::<()>().await;
                };
                tokio::select! { () = never => {}, () = yield_now() => work(number) }
            }
            2 => (runtime.spawn)(Box::pin(child(number).with_current_context().with_current_tags())).await,
            3 => (runtime.block)(Box::new(as_here(move || work(number)))).await,
            4 => nested(number),
            5 => {
                let fails = async {
                    let _held = Held(number);
                    yield_now().await;
                    work(number);
                    resume_unwind(Box::new("expected"));
                };
                Caught(pin!(fails.with_context(context(number)))).await;
            }
            6 => {
                let (ends, mut ended) = mpsc::channel(1);
                (runtime.detach)(Box::pin(failing(number, ends).with_current_context().with_current_tags()));
                let (None | Some(())) = ended.recv().await;
                work(number);
            }
            7 => {
                let (done, mut is_done) = mpsc::channel(1);
                let clerk = &clerks[random.below(clerks.len() as u64) as usize];
                let (Ok(()) | Err(_)) = clerk.send(done).await;
                if is_done.recv().await.is_some() {
                    work(number);
                }
            }
            _ => {}
        }
    }
}

async fn child(number: u64) {
    work(number);
    yield_now().await;
    work(number);
}

/// Ends by a panic, that of a whole task; what it holds is dropped by it.
async fn failing(number: u64, _ends: mpsc::Sender<()>) {
    let _held = Held(number);
    yield_now().await;
    let _own = (tag!("nested" => "panic"), context(1).attach());
    resume_unwind(Box::new("expected"));
}

/// Scopes and contexts of the task's own that end in and out of order, and by a panic.
fn nested(number: u64) {
    let outer = (tag!("nested" => "outer"), context(1).attach());
    let inner = (tag!("nested" => "inner", "task" => number), context(number).attach());
    nested_work(number);
    drop(outer);
    nested_work(number);
    drop(inner);
    drop(catch_unwind(|| {
        let _inner = (tag!("nested" => "panic"), context(1).attach());
        resume_unwind(Box::new("expected"));
    }));
    work(number);
}

fn parallel(number: u64, steps: u32) {
    // A key that the jobs do not all have: a thread that waits for one runs others meanwhile.
    let own = if number.is_multiple_of(2) { "even" } else { "odd" };
    // Also for one without a span, which else has that of whoever waits.
    let _current = context(number).attach();
    with_tags(tags!("task" => number, own => number), || {
        for _ in 0..steps {
            rayon::join(as_here(|| work(number)), as_here(|| work(number)));
            let (tags, spans) = (Tags::current(), Spans::current());
            (0..2).into_par_iter().for_each(|_| {
                let _current = spans.clone().attach();
                with_tags(&tags, || work(number));
            });
            nested(number);
        }
    });
}

fn serial(number: u64, steps: u32) {
    let _own = (tag!("task" => number), context(number).attach());
    for _ in 0..steps {
        work(number);
        nested(number);
    }
}

/// The future's end, also by a panic.
struct Caught<F>(F);

impl<F: Future + Unpin> Future for Caught<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(context).is_ready())) {
            Ok(false) => Poll::Pending,
            Ok(true) | Err(_) => Poll::Ready(()),
        }
    }
}
