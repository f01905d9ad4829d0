//! The `profiler-io` thread: symbolizes, assembles, exports, serves.
//!
//! In: windows from the `profiler` thread, requests from the network. Out: profiles, to the destinations, to the store, to
//! whoever asked for a capture. Runs a current-thread runtime of its own, so it needs none of the host's.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;
use profiler_proto::loss::Cause;
use profiler_proto::resource::Resource;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::mark::Mark;
use super::message::{HeapAsked, Refusal, Task};
use super::source::Handle;
use crate::aggregate::Window;
use crate::assemble::assemble;
use crate::error::Error;
use crate::export::{Exporter, Limits, SpoolSettings, Target};
use crate::heap::{HeapWindow, Since};
use crate::symbolize::{Folders, Symbolizer};
use crate::watched::{look_with, watched};

/// Tasks that may wait; beyond it the `profiler` thread keeps its windows open.
const QUEUE: usize = 8;

/// The sending end of the thread's queue. Whatever is sent wakes the thread by writing to a descriptor of its runtime.
pub(super) struct Tasks {
    /// `None` only while it is dropped.
    sender: Option<mpsc::Sender<Task>>,
    mark: Arc<Mark>,
}

impl Tasks {
    /// Whether the next task will be taken; also where the thread has ended, for waiting is of no use then.
    pub(super) fn has_room(&self) -> bool {
        self.sender.as_ref().is_none_or(|sender| sender.capacity() > 0 || sender.is_closed())
    }

    /// Queues a task, or gives it back.
    pub(super) fn try_send(&self, task: Task) -> Result<(), Task> {
        match &self.sender {
            Some(sender) if !self.mark.is_gone() => {
                sender.try_send(task).map_err(mpsc::error::TrySendError::into_inner)
            }
            _ => Err(task),
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        if self.mark.is_gone() {
            std::mem::forget(self.sender.take());
        }
    }
}

/// The thread's queue.
pub(super) fn channel(mark: &Arc<Mark>) -> (Tasks, mpsc::Receiver<Task>) {
    let (tasks, inbox) = mpsc::channel(QUEUE);
    (Tasks { sender: Some(tasks), mark: Arc::clone(mark) }, inbox)
}

/// The thread's runtime, made by `start`, which can still say that it cannot be had. It asks the mark before it waits and
/// before it goes on: everything it does in between is on descriptors.
pub(super) fn runtime(mark: &Arc<Mark>) -> Result<Runtime, Error> {
    let (before, after) = (Arc::clone(mark), Arc::clone(mark));
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.on_thread_park(move || before.stop_if_gone()).on_thread_unpark(move || after.stop_if_gone());
    builder.on_thread_start(crate::heap::leave_out_this_thread).thread_name("profiler-wait");
    builder.enable_io().enable_time().build().map_err(no_descriptor("make a runtime for export"))
}

/// What is said where a descriptor cannot be had.
pub(super) fn no_descriptor(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::environment(what, error, "raise the limit of open files (RLIMIT_NOFILE)")
}

/// The thread's state.
pub(super) struct Io {
    #[cfg(feature = "serve")]
    pub(super) server: Option<crate::serve::Bound>,
    /// Whether profiles are kept for the host's own server.
    #[cfg(feature = "serve")]
    pub(super) serves_within: bool,
    #[cfg(all(feature = "serve", feature = "tower"))]
    pub(super) security: crate::serve::Security,
    #[cfg(all(feature = "serve", feature = "tower"))]
    pub(super) opened: Option<crate::serve::Opened>,
    pub(super) destinations: Vec<Target>,
    pub(super) limits: Limits,
    pub(super) spool: Option<SpoolSettings>,
    pub(super) resource: Resource,
    /// Where to look for debug information; `None`: addresses get no names.
    pub(super) folders: Option<Folders>,
    pub(super) handle: Handle,
}

impl Io {
    /// Runs until it is told to stop, or until the `profiler` thread is gone.
    pub(super) fn run(self, runtime: Runtime, inbox: mpsc::Receiver<Task>) {
        let mark = Arc::clone(&self.handle.mark);
        let mut work = pin!(self.work(inbox));
        // Between two parts of this work, and between tasks, the runtime looks at its descriptors without parking: so is the mark looked at behind
        // each. What the work itself has open is closed only while the mark is there, also where it went between that look and
        // what follows it, upon which the runtime panics.
        let look = Arc::clone(&mark);
        look_with(move || look.stop_if_gone());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(poll_fn(|context| {
                mark.stop_if_gone();
                let poll = work.as_mut().poll(context);
                mark.stop_if_gone();
                poll
            }));
        }));
        mark.stop_if_gone();
        if ended.is_err() {
            tracing::error!("the thread that exports has panicked: nothing leaves any more");
        }
        // A look-up of a name may hang in a thread of the runtime's: it is left to end by itself.
        runtime.shutdown_background();
    }

    async fn work(mut self, mut inbox: mpsc::Receiver<Task>) {
        #[cfg(feature = "serve")]
        self.serve();
        let sends = !self.destinations.is_empty();
        let destinations = std::mem::take(&mut self.destinations);
        let (ledger, spool) = (Arc::clone(&self.handle.ledger), self.spool.take());
        let exporter = match Exporter::with_spool(destinations, ledger, self.limits, spool) {
            Ok(exporter) => Arc::new(exporter),
            Err(error) => return tracing::error!(%error, "no exporter: every profile is lost"),
        };
        drop(self.handle.exporter.set(Arc::clone(&exporter)));
        let mut symbolizer = Symbolizer::new(self.folders.take());
        while let Some(task) = inbox.recv().await {
            match task {
                // Names take long to find where there are many: not for nobody.
                Task::Capture { reply, .. } | Task::Heap { reply, .. } if !reply.is_awaited() => {}
                Task::Export { window } => self.export(&window, &mut symbolizer, &exporter).await,
                Task::Capture { window, reply } => {
                    reply.answer(self.profile(&window, &mut symbolizer).await.ok_or(Refusal::Off));
                }
                Task::ExportHeap => {
                    self.export_heap(sends, &mut symbolizer, &exporter).await;
                }
                Task::Heap { asked, reply } => {
                    reply.answer(self.heap_profile(&asked, &mut symbolizer).await.ok_or(Refusal::NoHeap));
                }
                Task::SetHeapInterval { lg_interval, reply } => {
                    let heap = self.handle.heap();
                    reply.answer(heap.map_or(Ok(()), |heap| heap.set_lg_interval(lg_interval)));
                }
                Task::Flush { deadline, reply } => {
                    let exporter = Arc::clone(&exporter);
                    tokio::spawn(watched(async move {
                        let done = exporter.flush(left(deadline)).await;
                        reply.answer(done);
                    }));
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
        if self.server.is_none() && !self.serves_within {
            return;
        }
        let store = Arc::new(crate::serve::Store::default());
        let sink = Arc::clone(&store);
        let add = move |set: &Arc<ProfileSet>| sink.add(Arc::clone(set));
        self.destinations.push(Target::local("store", Arc::new(add)));
        let source: Arc<dyn crate::serve::Source> = Arc::new(self.handle.clone());
        #[cfg(feature = "tower")]
        self.open(&source, &store);
        if let Some(server) = self.server.take() {
            tokio::spawn(watched(server.run(source, store)));
        }
    }

    /// Has the host's own server answer, too.
    #[cfg(all(feature = "serve", feature = "tower"))]
    fn open(&mut self, source: &Arc<dyn crate::serve::Source>, store: &Arc<crate::serve::Store>) {
        let mark = Arc::clone(&self.handle.mark);
        let is_ours = move || !mark.is_gone();
        match crate::serve::open(Arc::clone(source), Arc::clone(store), &self.security, is_ours) {
            Ok(opened) => self.opened = Some(opened),
            Err(error) => tracing::error!(%error, "profiles are not served within the host's server"),
        }
    }

    async fn export(&self, window: &Window, symbolizer: &mut Symbolizer, exporter: &Exporter) {
        let stacks = window.stacks();
        match self.profile(window, symbolizer).await {
            Some(set) => exporter.offer(Arc::new(set)),
            None => self.handle.ledger.lost(stacks, Cause::Failed),
        }
    }

    /// Sends what was allocated since the last time, and what lives; where nobody gets it, no names are looked up.
    async fn export_heap(&self, sends: bool, symbolizer: &mut Symbolizer, exporter: &Exporter) {
        // Where the time to stop was over, this thread goes on beside that of the next profiler.
        let Some(heap) = self.handle.heap().filter(|heap| heap.is_last()) else { return };
        if !sends {
            return heap.skip();
        }
        let asked = HeapAsked { since: Since::LastProfile, began: None, first: None };
        if let Some(window) = self.heap_window(&asked) {
            self.export_heap_window(&window, symbolizer, exporter).await;
        }
    }

    async fn export_heap_window(&self, window: &HeapWindow, symbolizer: &mut Symbolizer, exporter: &Exporter) {
        match self.named_heap(window, symbolizer).await {
            Some(set) if set.profiles.is_empty() => {}
            Some(set) => exporter.offer(Arc::new(set)),
            None => {
                self.handle.heap_profiles_lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The window's profile.
    async fn profile(&self, window: &Window, symbolizer: &mut Symbolizer) -> Option<ProfileSet> {
        let learn = async |symbolizer: &mut Symbolizer| symbolizer.learn(&window.places()).await;
        self.with_symbols(symbolizer, learn, |symbolizer| assemble(window, symbolizer, &self.resource)).await
    }

    /// The heap's profiles as they are asked for; `None` where there are none.
    async fn heap_profile(&self, asked: &HeapAsked, symbolizer: &mut Symbolizer) -> Option<ProfileSet> {
        self.named_heap(&self.heap_window(asked)?, symbolizer).await
    }

    #[cfg(feature = "heap")]
    fn heap_window(&self, asked: &HeapAsked) -> Option<HeapWindow> {
        let window = self.handle.heap()?.window(&asked.since, asked.began, asked.first);
        let mut window = window.inspect_err(|error| tracing::warn!(%error, "no profile of the heap")).ok()?;
        window.stats.profiles_lost = self.handle.heap_profiles_lost.load(Ordering::Relaxed);
        Some(window)
    }

    #[cfg(not(feature = "heap"))]
    fn heap_window(&self, asked: &HeapAsked) -> Option<HeapWindow> {
        self.handle.heap().map(|heap| heap.window(&asked.since, asked.began, asked.first))
    }

    /// The window's profiles.
    #[cfg(feature = "heap")]
    async fn named_heap(&self, window: &HeapWindow, symbolizer: &mut Symbolizer) -> Option<ProfileSet> {
        let learn = async |symbolizer: &mut Symbolizer| symbolizer.learn(&window.places()).await;
        let make = |symbolizer: &Symbolizer| crate::assemble::assemble_heap(window, symbolizer, &self.resource);
        self.with_symbols(symbolizer, learn, make).await
    }

    #[cfg(not(feature = "heap"))]
    #[expect(clippy::unused_async, reason = "as the other one, which waits")]
    async fn named_heap(&self, window: &HeapWindow, _symbolizer: &mut Symbolizer) -> Option<ProfileSet> {
        match *window {}
    }

    /// What is made of the symbols once they are learned. Symbolizing lets requests through between its slices. It reads strange files
    /// with code of others: should that panic, this profile has numbers where it would have names (unless the host is built to abort on
    /// panics), for what was allocated meanwhile, or sampled, is in no other one.
    async fn with_symbols(
        &self,
        symbolizer: &mut Symbolizer,
        learn: impl AsyncFnOnce(&mut Symbolizer),
        make: impl Fn(&Symbolizer) -> ProfileSet,
    ) -> Option<ProfileSet> {
        if caught(learn(symbolizer)).await.is_none() {
            tracing::error!("symbolizing panicked: one profile has no names; please report this");
            symbolizer.reset();
        }
        let made = catch_unwind(AssertUnwindSafe(|| make(symbolizer))).ok();
        if made.is_none() {
            tracing::error!("making a profile panicked: it is lost; please report this");
            symbolizer.reset();
        }
        *self.handle.symbols.lock().unwrap_or_else(PoisonError::into_inner) = symbolizer.stats.clone();
        made
    }
}

/// What comes of `work`; `None` where it panics.
async fn caught<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = Box::pin(work);
    poll_fn(|context| {
        let poll = AssertUnwindSafe(|| work.as_mut().poll(context));
        catch_unwind(poll).map_or(Poll::Ready(None), |poll| poll.map(Some))
    })
    .await
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

    /// The thread's state, without destinations.
    fn io(server: Option<crate::serve::Bound>, mark: &Arc<Mark>) -> Io {
        let settings = Config::new("a").resolve(&|_| None).unwrap();
        let (commands, _mailbox) = std::sync::mpsc::channel();
        let handle = Handle::new(commands, &settings, Arc::clone(mark));
        let (folders, resource) = (Some(Folders::new(&|_| None)), settings.resource);
        Io {
            server,
            serves_within: false,
            #[cfg(feature = "tower")]
            security: settings.security,
            #[cfg(feature = "tower")]
            opened: None,
            destinations: Vec::new(),
            limits: settings.limits,
            spool: None,
            resource,
            folders,
            handle,
        }
    }

    /// Check that the thread stops behind a task in the time of which the host closed the descriptors: before it looks at them, which it does without
    /// waiting, and so without asking, while there is more to do.
    #[test]
    fn the_thread_stops_behind_a_task_in_which_descriptors_went() {
        let mark = Arc::new(Mark::set().unwrap());
        let (goes_on, went_on) = std::sync::mpsc::channel();
        let ours = Arc::clone(&mark);
        std::thread::spawn(move || {
            let (runtime, looked) = (runtime(&ours).unwrap(), Arc::clone(&ours));
            look_with(move || looked.stop_if_gone());
            runtime.block_on(async {
                let (before, goes_on) = (goes_on.clone(), goes_on);
                tokio::spawn(watched(async move {
                    before.send("a task").unwrap();
                    ours.lose();
                }));
                while goes_on.send("another turn").is_ok() {
                    tokio::task::yield_now().await;
                }
            });
        });
        let [long, short] = [Duration::from_secs(60), Duration::from_millis(200)];
        let told = [long, long, short].map(|wait| went_on.recv_timeout(wait).ok());
        assert_eq!(told, [Some("another turn"), Some("a task"), None]);
    }

    /// Check that a profile of which the names cannot be looked up, for who reads the files panics, is made without them, and that the next one has them.
    #[test]
    fn a_profile_outlives_its_names() {
        let mark = Arc::new(Mark::set().unwrap());
        let io = io(None, &mark);
        let mut symbolizer = Symbolizer::new(Some(Folders::new(&|_| None)));
        let window = large_window();
        let named = |set: &ProfileSet| {
            let functions = set.dictionary.functions.iter();
            functions.filter(|function| set.dictionary.strings.text(function.name).contains("::")).count()
        };
        let [without, with] = [true, false].map(|panics| {
            let learn = async |symbolizer: &mut Symbolizer| {
                symbolizer.learn(&window.places()).await;
                assert!(!panics, "as a reader of strange files may");
            };
            let make = |symbolizer: &Symbolizer| assemble(&window, symbolizer, &io.resource);
            runtime(&mark).unwrap().block_on(io.with_symbols(&mut symbolizer, learn, make)).unwrap()
        });
        let samples = |set: &ProfileSet| set.profiles[0].samples.iter().map(|sample| sample.value).sum::<i64>();
        assert_eq!((samples(&without), named(&without)), (samples(&with), 0));
        assert!(samples(&with) > 1000 && named(&with) > 100, "{} {}", samples(&with), named(&with));
    }

    /// Check that a profile of the heap is counted that is lost as it is made, and none that is not.
    #[cfg(feature = "heap")]
    #[test]
    fn a_profile_of_the_heap_that_is_lost_is_counted() {
        let window = |rows| HeapWindow {
            started_at: SystemTime::now(),
            duration: Duration::from_secs(1),
            interval: 1,
            sites: Vec::new(),
            rows,
            without_span: 0,
            is_part: true,
            knows_allocated: true,
            eras: Vec::new(),
            first: None,
            stats: crate::stats::HeapStats::default(),
        };
        let mark = Arc::new(Mark::set().unwrap());
        let io = io(None, &mark);
        let mut symbolizer = Symbolizer::new(None);
        // Of a site that is not there: who looks for it panics.
        let panics = window(vec![crate::heap::Row { site: 1, ..Default::default() }]);
        let lost = [panics, window(Vec::new())].map(|window| {
            runtime(&mark).unwrap().block_on(async {
                let exporter = Exporter::start(Vec::new(), Arc::clone(&io.handle.ledger), Limits::default()).unwrap();
                io.export_heap_window(&window, &mut symbolizer, &exporter).await;
            });
            io.handle.stats().heap.profiles_lost
        });
        assert_eq!(lost, [1, 1]);
    }

    /// A window with addresses all over this program.
    fn large_window() -> Box<Window> {
        let modules = Arc::new(Modules::read(&Modules::default()));
        let code = modules.iter().find(|module| module.is_executable()).unwrap().code.clone();
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        let step = (code.end - code.start) as usize / 4000;
        for address in code.step_by(step) {
            let head = Head { weight: 1, period: 10_000_000, ..Head::default() };
            let sample = Sample { head, tags: &[], addresses: &[address], modules: &modules, thread_name: None };
            aggregate.add(&sample).unwrap();
        }
        Box::new(aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10)))
    }

    /// Check that queues are as large as they were set to be: in one without room nothing waits.
    #[test]
    fn queues_are_as_large_as_they_were_set() {
        let mark = Arc::new(Mark::set().unwrap());
        let mut io = io(None, &mark);
        let endpoint = crate::export::Otlp::http("http://127.0.0.1:1").into();
        io.destinations = crate::export::resolve(vec![endpoint], &|_| None).unwrap();
        io.limits.queue_bytes = 1;
        let (handle, window) = (io.handle.clone(), large_window());
        let stacks = window.stacks();
        handle.ledger.enter(stacks, stacks, stacks, &window.lost, &window.degraded);
        let (tasks, inbox) = channel(&mark);
        let (reply, _answer) = Reply::new();
        assert!(tasks.try_send(Task::Export { window }).is_ok());
        assert!(tasks.try_send(Task::Stop { deadline: Instant::now(), reply }).is_ok());
        runtime(&mark).unwrap().block_on(io.work(inbox));
        let account = handle.stats().account;
        assert_eq!((account.lost.count(Cause::QueueFull), account.pending), (stacks, 0), "{account:?}");
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
        let mark = Arc::new(Mark::set().unwrap());
        let server = crate::serve::Server::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr();
        let io = io(Some(server), &mark);
        let (tasks, inbox) = channel(&mark);
        assert!(tasks.try_send(Task::Export { window: large_window() }).is_ok());
        runtime(&mark).unwrap().block_on(async {
            let client = async {
                let during = get_stats(address).await;
                let (reply, _answer) = Reply::new();
                let deadline = Instant::now() + Duration::from_secs(60);
                assert!(tasks.try_send(Task::Flush { deadline, reply }).is_ok());
                // The queue is empty again once the window is done.
                while tasks.sender.as_ref().unwrap().capacity() < QUEUE {
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
