//! The `profiler-io` thread: symbolizes, assembles, exports, serves.
//!
//! In: windows from the `profiler` thread, requests from the network. Out: profiles, to the destinations, to the store, to
//! whoever asked for a capture. Runs a current-thread runtime of its own, so it needs none of the host's.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::task::Poll;
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
use crate::symbolize::{Folders, Symbolizer};

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
    /// Where to look for debug information; `None`: addresses get no names.
    pub(super) folders: Option<Folders>,
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
        let mut symbolizer = Symbolizer::new(self.folders.take());
        while let Some(task) = inbox.recv().await {
            match task {
                Task::Export { window } => self.export(&window, &mut symbolizer, &exporter).await,
                Task::Capture { window, reply } => {
                    reply(self.profile(&window, &mut symbolizer).await.ok_or(Refusal::Off));
                }
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

    async fn export(&self, window: &Window, symbolizer: &mut Symbolizer, exporter: &Exporter) {
        let stacks = window.stacks();
        match self.profile(window, symbolizer).await {
            Some(set) => exporter.offer(Arc::new(set)),
            None => self.handle.ledger.lost(stacks, Cause::Failed),
        }
    }

    /// The window's profile. Symbolizing lets requests through between its slices. It reads strange files with code of
    /// others: should that panic, this profile is lost and nothing else (unless the host is built to abort on panics).
    async fn profile(&self, window: &Window, symbolizer: &mut Symbolizer) -> Option<ProfileSet> {
        let work = async {
            symbolizer.learn(&window.addresses(), &window.modules).await;
            assemble(window, symbolizer, &self.resource)
        };
        let mut work = Box::pin(work);
        let attempt = poll_fn(|context| {
            let poll = AssertUnwindSafe(|| work.as_mut().poll(context));
            catch_unwind(poll).map_or(Poll::Ready(None), |poll| poll.map(Some))
        });
        let set = attempt.await;
        drop(work);
        if set.is_none() {
            tracing::error!("symbolizing panicked: one profile is lost; please report this");
            symbolizer.reset();
        }
        *self.handle.symbols.lock().unwrap_or_else(PoisonError::into_inner) = symbolizer.stats.clone();
        set
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

#[cfg(test)]
#[cfg(feature = "serve")]
mod tests {
    use std::time::SystemTime;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::super::message::Reply;
    use super::*;
    use crate::aggregate::Aggregate;
    use crate::config::Config;
    use crate::cpu::Sample;
    use crate::cpu::record::Head;
    use crate::unwind::modules::Modules;

    /// A window with addresses all over this program.
    fn large_window() -> Box<Window> {
        let modules = Arc::new(Modules::read(&Modules::default()));
        let code = modules.iter().find(|module| module.is_executable()).unwrap().code.clone();
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        let step = (code.end - code.start) as usize / 4000;
        for address in code.step_by(step) {
            let head = Head { weight: 1, period: 10_000_000, ..Head::default() };
            let sample = Sample { head, tags: &[], addresses: &[address], thread_name: None };
            aggregate.add(&sample, &modules).unwrap();
        }
        Box::new(aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10)))
    }

    async fn get_stats(address: std::net::SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// How many addresses were symbolized, as an answer says.
    fn resolved(answer: &str) -> u64 {
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        let stats: serde_json::Value = serde_json::from_str(body).unwrap();
        stats["symbols"]["resolved"].as_u64().unwrap()
    }

    /// Check that `/stats` answers while a large window is being symbolized: the window, asked for first, is not yet in
    /// the answer. Client and server share the thread, so that no scheduler decides.
    #[test]
    fn requests_are_answered_while_a_window_is_symbolized() {
        let settings = Config::new("a").resolve(&|_| None).unwrap();
        let (commands, _mailbox) = std::sync::mpsc::channel();
        let handle = Handle::new(commands, &settings);
        let server = crate::serve::Server::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr();
        let (folders, resource) = (Some(Folders::new(&|_| None)), settings.resource);
        let io = Io { server: Some(server), destinations: Vec::new(), resource, folders, handle };
        let (tasks, inbox) = channel();
        assert!(tasks.try_send(Task::Export { window: large_window() }).is_ok());
        runtime().unwrap().block_on(async {
            let client = async {
                let during = get_stats(address).await;
                let (reply, _answer) = Reply::new();
                let deadline = Instant::now() + Duration::from_secs(60);
                assert!(tasks.try_send(Task::Flush { deadline, reply }).is_ok());
                // The queue is empty again once the window is done.
                while tasks.0.capacity() < QUEUE {
                    tokio::task::yield_now().await;
                }
                let after = get_stats(address).await;
                drop(tasks);
                (during, after)
            };
            let ((), (during, after)) = tokio::join!(io.work(inbox), client);
            assert_eq!(resolved(&during), 0, "{during}");
            assert!(resolved(&after) > 1000, "{after}");
        });
    }
}
