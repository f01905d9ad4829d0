//! The `profiler-io` thread: symbolizes, assembles, exports, serves.
//!
//! In: windows from the `profiler` thread, requests from the network. Out: profiles, to the destinations, to the store, to
//! whoever asked for a capture. Runs a current-thread runtime of its own, so it needs none of the host's.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;
use profiler_proto::loss::Cause;
use profiler_proto::resource::Resource;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::message::{Refusal, Task};
use super::source::Handle;
use crate::aggregate::Window;
use crate::assemble::assemble;
use crate::error::Error;
use crate::export::{Destination, Exporter, Limits};
use crate::symbolize::Symbolizer;

/// Tasks that may wait; beyond it the `profiler` thread keeps its windows open.
const QUEUE: usize = 8;

/// The sending end of the thread's queue.
pub(super) struct Tasks(mpsc::Sender<Task>);

impl Tasks {
    /// Whether the next task will be taken; also where the thread has ended, for waiting is of no use then.
    pub(super) fn has_room(&self) -> bool {
        self.0.capacity() > 0 || self.0.is_closed()
    }

    /// Queues a task, or gives it back.
    pub(super) fn try_send(&self, task: Task) -> Result<(), Task> {
        self.0.try_send(task).map_err(mpsc::error::TrySendError::into_inner)
    }
}

/// The thread's queue.
pub(super) fn channel() -> (Tasks, mpsc::Receiver<Task>) {
    let (tasks, inbox) = mpsc::channel(QUEUE);
    (Tasks(tasks), inbox)
}

/// The thread's runtime, made by `start`, which can still say that it cannot be had.
pub(super) fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(|error| {
        Error::environment("make a runtime for export", error, "raise the limit of open files (RLIMIT_NOFILE)")
    })
}

/// The thread's state.
pub(super) struct Io {
    #[cfg(feature = "serve")]
    pub(super) server: Option<crate::serve::Bound>,
    pub(super) destinations: Vec<Destination>,
    pub(super) resource: Resource,
    pub(super) handle: Handle,
}

impl Io {
    /// Runs until it is told to stop, or until the `profiler` thread is gone.
    pub(super) fn run(self, runtime: Runtime, inbox: mpsc::Receiver<Task>) {
        runtime.block_on(self.work(inbox));
        // A look-up of a name may hang in a thread of the runtime's: it is left to end by itself.
        runtime.shutdown_background();
    }

    async fn work(mut self, mut inbox: mpsc::Receiver<Task>) {
        #[cfg(feature = "serve")]
        self.serve();
        let destinations = std::mem::take(&mut self.destinations);
        let exporter = match Exporter::start(destinations, Arc::clone(&self.handle.ledger), Limits::default()) {
            Ok(exporter) => Arc::new(exporter),
            Err(error) => return tracing::error!(%error, "no exporter: every profile is lost"),
        };
        drop(self.handle.exporter.set(Arc::clone(&exporter)));
        let mut symbolizer = Symbolizer::default();
        while let Some(task) = inbox.recv().await {
            match task {
                Task::Export { window } => self.export(&window, &mut symbolizer, &exporter),
                Task::Capture { window, reply } => reply(self.profile(&window, &mut symbolizer).ok_or(Refusal::Off)),
                Task::Flush { deadline, reply } => {
                    let exporter = Arc::clone(&exporter);
                    tokio::spawn(async move {
                        let done = exporter.flush(left(deadline)).await;
                        reply.answer(done);
                    });
                }
                Task::Stop { deadline, reply } => {
                    let done = exporter.shutdown(left(deadline)).await;
                    reply.answer(done);
                    return;
                }
            }
        }
    }

    /// Starts the server; the store that it reads is one more destination.
    #[cfg(feature = "serve")]
    fn serve(&mut self) {
        let Some(server) = self.server.take() else { return };
        let store = Arc::new(crate::serve::Store::default());
        let sink = Arc::clone(&store);
        let add = move |set: &Arc<ProfileSet>| sink.add(Arc::clone(set));
        self.destinations.push(Destination::local("store", Arc::new(add)));
        tokio::spawn(server.run(Arc::new(self.handle.clone()), store));
    }

    fn export(&self, window: &Window, symbolizer: &mut Symbolizer, exporter: &Exporter) {
        let stacks = window.stacks();
        match self.profile(window, symbolizer) {
            Some(set) => exporter.offer(Arc::new(set)),
            None => self.handle.ledger.lost(stacks, Cause::Failed),
        }
    }

    /// The window's profile. Reading debug information goes through code of others: should it panic on a strange file, this
    /// profile is lost and nothing else (unless the host is built to abort on panics).
    fn profile(&self, window: &Window, symbolizer: &mut Symbolizer) -> Option<ProfileSet> {
        let attempt = std::panic::AssertUnwindSafe(|| assemble(window, symbolizer, &self.resource));
        let set = std::panic::catch_unwind(attempt);
        if set.is_err() {
            tracing::error!("symbolizing panicked: one profile is lost; please report this");
            *symbolizer = Symbolizer::default();
        }
        *self.handle.symbols.lock().unwrap_or_else(PoisonError::into_inner) = symbolizer.stats.clone();
        set.ok()
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
