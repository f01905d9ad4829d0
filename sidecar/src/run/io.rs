//! The main thread: assembles, exports, keeps, serves, receives.
//!
//! In: intervals of the sampling thread, sets of the one that captures, requests of the network, signals. Out: profiles, to destinations, to the store, to whoever asked. A
//! current-thread runtime; nothing here waits but for descriptors and time.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use profiler::export::{Exporter, Limits, MetricsTarget, SpoolSettings, Target};
use profiler::serve::{self, Store};
use profiler::{DestinationStats, KindStats};
use profiler_proto::ProfileSet;
use profiler_proto::loss::{Cause, Degraded, Loss, stacks_of};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::metrics;
use super::pulls::{Pulls, Sink};
use super::source::Handle;
use crate::clock::thread_cpu;
use crate::config::of_sdk;
use crate::error::Error;
use crate::hangup::ignores_hangup;
use crate::naming::Granularity;
use crate::pipeline::{Interval, assembled};
use crate::receive::{self, Bounds, Intake};
use crate::spare;

/// Intervals that may wait; beyond it the sampling thread keeps its windows open.
const QUEUE: usize = 4;
/// Threads for work that can wait: reading runtimes, names of hosts.
const MOST_READERS: usize = 3;
/// Time for the sampling thread to end its windows.
const LAST_WINDOW: Duration = Duration::from_secs(5);
/// Time for what there is to go out at the end.
const FLUSH: Duration = Duration::from_secs(2);

/// What the main thread is given to do.
pub(super) enum Task {
    /// Assemble and export the windows.
    Export(Interval),
}

/// The sending end of its queue.
pub(super) struct Tasks(mpsc::Sender<Task>);

impl Tasks {
    /// Whether the next task will be taken; also where nobody takes any more, for waiting is of no use then.
    pub(super) fn has_room(&self) -> bool {
        self.0.capacity() > 0 || self.0.is_closed()
    }

    /// Queues a task; what is not taken is entered as lost.
    pub(super) fn send(&self, task: Task, handle: &Handle) {
        if let Err(refused) = self.0.try_send(task) {
            lost(refused.into_inner(), handle);
        }
    }

    /// The same of the last one, for which there is room as soon as others before it were taken.
    pub(super) fn send_last(&self, task: Task, handle: &Handle) {
        if let Err(refused) = self.0.blocking_send(task) {
            lost(refused.0, handle);
        }
    }
}

fn lost(task: Task, handle: &Handle) {
    let Task::Export(interval) = task;
    handle.ledger.lost(interval.stacks(), Cause::Shutdown);
}

/// The queue.
pub(super) fn channel() -> (Tasks, mpsc::Receiver<Task>) {
    let (tasks, inbox) = mpsc::channel(QUEUE);
    (Tasks(tasks), inbox)
}

/// What the thread waits with.
pub(super) struct Waiting {
    runtime: tokio::runtime::Runtime,
    signals: Signals,
}

impl Waiting {
    /// From now on a signal that is to end the agent does so as soon as [`Io::run`] is there: without a handler, one that came during set-up would end the agent without a word,
    /// and as process 1 of a container have no effect (pid_namespaces(7)). No thread begins.
    pub(super) fn begin() -> Result<Self, Error> {
        const FILES: &str = "raise the limit of open files (RLIMIT_NOFILE)";
        spare::files("the agent's runtime")?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().max_blocking_threads(MOST_READERS).build();
        let runtime = runtime.map_err(|error| Error::new("the agent's runtime", error.to_string(), FILES))?;
        let signals = {
            let _inside = runtime.enter();
            Signals::heard().map_err(|error| Error::new("signals", error.to_string(), FILES))?
        };
        Ok(Self { runtime, signals })
    }
}

/// The signals that end the agent.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    /// `None`: who started it wants it to outlive its terminal.
    hangup: Option<Signal>,
}

impl Signals {
    fn heard() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }
}

/// The thread's state.
pub(super) struct Io {
    pub(super) served: Option<serve::Bound>,
    pub(super) received: Option<receive::Bound>,
    /// Whether the end of standard input is the agent's.
    pub(super) until_eof: bool,
    /// Sets of what Go's runtimes keep; closed where they are not captured.
    pub(super) captured: mpsc::Receiver<ProfileSet>,
    /// Who is asked for profiles.
    pub(super) pulls: Pulls,
    /// Who gets figures of runtimes as metrics, and how often there are new ones.
    pub(super) metrics: (Vec<MetricsTarget>, Option<Duration>),
    /// Bytes that the agent may have, of which the store gets a part.
    pub(super) memory: u64,
    pub(super) queue_bytes: Option<usize>,
    pub(super) spool: Option<SpoolSettings>,
    pub(super) handle: Handle,
}

impl Io {
    /// Runs until a signal, then until all has gone out or the time for it is over.
    pub(super) fn run(
        self,
        waiting: Waiting,
        destinations: Vec<Target>,
        inbox: mpsc::Receiver<Task>,
    ) -> Result<(), Error> {
        let Waiting { runtime, signals } = waiting;
        // Set-up has taken its own.
        spare::files("the agent's runtime")?;
        let handle = self.handle.clone();
        let ran = runtime.block_on(self.work(signals, destinations, inbox));
        handle.stop();
        // A look-up of a name may hang in a thread of the runtime's: it is left to end by itself.
        runtime.shutdown_background();
        ran
    }

    async fn work(
        mut self,
        signals: Signals,
        mut destinations: Vec<Target>,
        mut inbox: mpsc::Receiver<Task>,
    ) -> Result<(), Error> {
        let stop = stopped(signals, self.until_eof);
        let found = self.found_at();
        let named: Vec<String> = destinations.iter().map(|destination| destination.name().to_string()).collect();
        let is_served = self.served.is_some();
        self.serve(&mut destinations);
        match &*named {
            [] if is_served => tracing::info!("no destination is set: profiles are on the page alone"),
            [] => tracing::warn!("no destination is set and no page is served: profiles go nowhere"),
            named => named.iter().for_each(|name| tracing::info!("profiles go to {name}")),
        }
        let exporter = Arc::new(self.exporter(destinations)?);
        drop(self.handle.exporter.set(Arc::clone(&exporter)));
        self.receive(&exporter);
        self.pulls.start(&take_in(&exporter, &self.handle));
        if let (peers, Some(every)) = std::mem::take(&mut self.metrics) {
            metrics::start(peers, every, &self.handle.captures);
        }
        say(&found);
        tokio::pin!(stop);
        let (mut is_ending, late) = (false, tokio::time::sleep(Duration::MAX));
        tokio::pin!(late);
        loop {
            tokio::select! {
                task = inbox.recv() => match task {
                    Some(Task::Export(interval)) => export(interval, &exporter, &self.handle).await,
                    // The sampling thread has ended, as it was told to, or by a panic: what is here goes out.
                    None => break,
                },
                Some(set) = self.captured.recv() => exporter.offer(Arc::new(set)),
                () = &mut stop, if !is_ending => {
                    tracing::info!("told to stop: the last profiles go out");
                    is_ending = true;
                    late.as_mut().reset(tokio::time::Instant::now() + LAST_WINDOW);
                    self.handle.stop();
                }
                () = &mut late, if is_ending => {
                    tracing::warn!("the last windows do not come: a process that is sampled gives no answer");
                    break;
                }
            }
        }
        if !exporter.shutdown(FLUSH).await {
            let lacks = lacking(&exporter.destinations());
            tracing::warn!("not all profiles went out within {FLUSH:?}; since the start: {}", lacks.join("; "));
        }
        Ok(())
    }

    /// Where it is found, for whoever started it.
    fn found_at(&self) -> String {
        let served = self.served.iter().map(|server| format!("profiles {}/\n", server.url()));
        let received = self.received.iter().map(|receiver| format!("receives http://{}\n", receiver.local_addr()));
        served.chain(received).chain(["ready\n".to_owned()]).collect()
    }

    /// Starts the server; the store that it reads is one more destination.
    fn serve(&mut self, destinations: &mut Vec<Target>) {
        let Some(server) = self.served.take() else { return };
        tracing::info!("page, /debug/pprof/ and /stats: {}", server.url());
        let bytes = usize::try_from(self.memory / 4).unwrap_or(usize::MAX).min(Store::MAX_BYTES);
        let store = Arc::new(Store::new(Store::WINDOW, bytes));
        let sink = Arc::clone(&store);
        let add = move |set: &Arc<ProfileSet>| sink.add(Arc::clone(set));
        destinations.push(Target::local("store", Arc::new(add)));
        tokio::spawn(server.run(Arc::new(self.handle.clone()), store));
    }

    fn exporter(&mut self, destinations: Vec<Target>) -> Result<Exporter, Error> {
        let mut limits = Limits::default();
        limits.queue_bytes = self.queue_bytes.unwrap_or(limits.queue_bytes);
        let (ledger, spool) = (Arc::clone(&self.handle.ledger), self.spool.take());
        Exporter::with_spool(destinations, ledger, limits, spool).map_err(of_sdk)
    }

    /// Starts the receiver, whose sets go the way of our own.
    fn receive(&mut self, exporter: &Arc<Exporter>) {
        let Some(receiver) = self.received.take() else { return };
        tracing::info!("OTLP profiles are taken at {}, by gRPC and HTTP", receiver.local_addr());
        let sink = take_in(exporter, &self.handle);
        let bounds = Bounds::default();
        let intake = Arc::new(Intake::new(Box::new(move |set| sink(set)), bounds.content));
        drop(self.handle.intake.set(Arc::clone(&intake)));
        tokio::spawn(receiver.run(intake, bounds));
    }
}

/// What has sets that others made go the way of our own, entered into the account.
fn take_in(exporter: &Arc<Exporter>, handle: &Handle) -> Arc<Sink> {
    let (exporter, ledger) = (Arc::clone(exporter), Arc::clone(&handle.ledger));
    Arc::new(move |set: ProfileSet| {
        let of_cpu = set.profiles.iter().filter(|profile| profile.kind.is_cpu(&set.dictionary));
        let stacks: u64 = of_cpu.map(|profile| stacks_of(profile, &set.dictionary)).sum();
        ledger.enter(stacks, stacks, stacks, &Loss::default(), &Degraded::default());
        exporter.offer(Arc::new(set));
    })
}

/// Assembles and exports; between two sets others get their turn, whose CPU time is not this one's.
async fn export(interval: Interval, exporter: &Exporter, handle: &Handle) {
    let mut begun = thread_cpu();
    for set in assembled(&interval.windows, &interval.lost, Granularity::Lines) {
        exporter.offer(Arc::new(set));
        handle.made_profiles(thread_cpu().saturating_sub(begun));
        tokio::task::yield_now().await;
        begun = thread_cpu();
    }
}

/// What each destination has and has not, of those that have not got all.
fn lacking(destinations: &[DestinationStats]) -> Vec<String> {
    let lacks = |stats: &DestinationStats| {
        let sum = |of: fn(&KindStats) -> u64| stats.kinds.iter().map(of).sum::<u64>();
        let (got, kept, lost) = (sum(|kind| kind.exported), sum(|kind| kind.pending), sum(|kind| kind.lost.total()));
        let why = stats.last_error.as_ref().map(|error| format!(", which said last: {error}")).unwrap_or_default();
        let name = &stats.name;
        (kept + lost > 0)
            .then(|| format!("{got} profiles delivered, {lost} lost, {kept} kept for the next start, to {name}{why}"))
    };
    destinations.iter().filter_map(lacks).collect()
}

/// Standard output may be closed: then nobody wants to know.
fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    drop(output.write_all(text.as_bytes()).and_then(|()| output.flush()));
}

/// Waits until standard input is closed, as it is when whoever holds its other end dies.
async fn end_of_input() {
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    // A thread that nobody joins: a read cannot be called off. What it drops is the message.
    let reader = move || {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        drop(ended);
    };
    match std::thread::Builder::new().name("input".into()).spawn(reader) {
        Ok(_) => drop(end.await),
        Err(error) => {
            tracing::warn!(%error, "the end of standard input is not noticed: no thread can be had");
            std::future::pending::<()>().await;
        }
    }
}

/// Ends with the first SIGTERM, SIGINT or SIGQUIT, with its terminal (SIGHUP) unless that is ignored (`nohup`), and, if it is to, with standard input.
async fn stopped(mut signals: Signals, until_eof: bool) {
    tokio::select! {
        _ = signals.terminate.recv() => {}
        _ = signals.interrupt.recv() => {}
        _ = signals.quit.recv() => {}
        Some(()) = async { signals.hangup.as_mut()?.recv().await } => {}
        () = end_of_input(), if until_eof => {}
    }
}
