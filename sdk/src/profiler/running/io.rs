//! The `profiler-io` thread: symbolizes, assembles, exports, serves.
//!
//! In: windows from the `profiler` thread, requests from the network. Out: profiles, to the destinations, to the store, to
//! whoever asked for a capture. Runs a current-thread runtime of its own, so it needs none of the host's.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
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
use crate::assemble::{Granularity, assemble};
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
                // As above; what was sampled is in the account as what nobody takes.
                Task::Export { window } if !sends => self.handle.ledger.lost(window.stacks(), Cause::NoDestination),
                Task::Export { window } => self.export(&window, &mut symbolizer, &exporter).await,
                Task::Capture { window, reply } => {
                    let set = self.profile(&window, &mut symbolizer, Granularity::Addresses).await;
                    reply.answer(set.ok_or(Refusal::Off));
                }
                Task::ExportHeap => {
                    self.export_heap(sends, &mut symbolizer, &exporter).await;
                }
                Task::Heap { asked, reply } => {
                    reply.answer(self.heap_profile(&asked, &mut symbolizer).await.ok_or(Refusal::NoHeap));
                }
                Task::SetHeapInterval { lg_interval, reply } => {
                    // As for a profile: where the time to stop was over, the heap is the next profiler's.
                    let heap = self.handle.heap().filter(|heap| heap.is_last());
                    let set = heap.map_or(Ok(()), |heap| heap.set_lg_interval(lg_interval));
                    if let Err(error) = &set {
                        tracing::warn!(%error, "the heap is sampled at the interval that was in force");
                    }
                    reply.answer(set);
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
        match self.profile(window, symbolizer, Granularity::Lines).await {
            Some(set) => exporter.offer(Arc::new(set)),
            None => self.handle.ledger.lost(stacks, Cause::Failed),
        }
    }

    /// Sends what was allocated since the last time, and what lives; where nobody gets it, no names are looked up.
    async fn export_heap(&self, sends: bool, symbolizer: &mut Symbolizer, exporter: &Exporter) {
        let Some(heap) = self.handle.heap() else { return };
        // Where the time to stop was over, this thread goes on beside that of the next profiler, whose heap it is then.
        let is_wanted = sends && heap.is_last();
        if !sends && heap.is_last() {
            heap.skip();
        }
        let asked = HeapAsked { since: Since::LastProfile, began: None, first: None };
        let window = is_wanted.then(|| self.heap_window(&asked)).flatten();
        self.export_heap_window(window, symbolizer, exporter).await;
    }

    /// Sends a profile that is due, unless it is given up before it is made.
    async fn export_heap_window(&self, window: Option<HeapWindow>, symbolizer: &mut Symbolizer, exporter: &Exporter) {
        let set = match &window {
            Some(window) => self.named_heap(window, symbolizer, Granularity::Lines).await,
            None => Some(ProfileSet::default()),
        };
        match set {
            _ if !self.handle.heap_profile_is_made() => {}
            Some(set) if set.profiles.is_empty() => {}
            Some(set) => exporter.offer(Arc::new(set)),
            None => self.handle.lose_heap_profile(Cause::Failed),
        }
    }

    /// The window's profile.
    async fn profile(
        &self,
        window: &Window,
        symbolizer: &mut Symbolizer,
        granularity: Granularity,
    ) -> Option<ProfileSet> {
        let learn = async |symbolizer: &mut Symbolizer| symbolizer.learn(&window.places()).await;
        let make = |symbolizer: &Symbolizer| assemble(window, symbolizer, &self.resource, granularity);
        self.with_symbols(symbolizer, learn, make).await
    }

    /// The heap's profiles as they are asked for; `None` where there are none.
    async fn heap_profile(&self, asked: &HeapAsked, symbolizer: &mut Symbolizer) -> Option<ProfileSet> {
        self.named_heap(&self.heap_window(asked)?, symbolizer, Granularity::Addresses).await
    }

    #[cfg(feature = "heap")]
    fn heap_window(&self, asked: &HeapAsked) -> Option<HeapWindow> {
        let window = self.handle.heap()?.window(&asked.since, asked.began, asked.first);
        let mut window = window.inspect_err(|error| tracing::warn!(%error, "no profile of the heap")).ok()?;
        window.stats.profiles_lost = self.handle.heap_profiles_lost();
        Some(window)
    }

    #[cfg(not(feature = "heap"))]
    fn heap_window(&self, asked: &HeapAsked) -> Option<HeapWindow> {
        self.handle.heap().map(|heap| heap.window(&asked.since, asked.began, asked.first))
    }

    /// The window's profiles.
    #[cfg(feature = "heap")]
    async fn named_heap(
        &self,
        window: &HeapWindow,
        symbolizer: &mut Symbolizer,
        granularity: Granularity,
    ) -> Option<ProfileSet> {
        let learn = async |symbolizer: &mut Symbolizer| symbolizer.learn(&window.places()).await;
        let make =
            |symbolizer: &Symbolizer| crate::assemble::assemble_heap(window, symbolizer, &self.resource, granularity);
        self.with_symbols(symbolizer, learn, make).await
    }

    #[cfg(not(feature = "heap"))]
    #[expect(clippy::unused_async, reason = "as the other one, which waits")]
    async fn named_heap(&self, window: &HeapWindow, _: &mut Symbolizer, _: Granularity) -> Option<ProfileSet> {
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
mod tests;
