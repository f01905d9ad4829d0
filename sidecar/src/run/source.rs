//! How the main thread reaches the one that samples: to ask for figures, to ask for a capture, to end it.
//!
//! In: requests of the server. Out: commands to the sampling thread; figures that it published. Nothing here blocks.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use profiler::export::Exporter;
use profiler::serve::{CaptureError, CaptureFuture, GoroutineText, Snapshot, Source, Target, TextFuture};
use profiler::{Ledger, Stats};
use profiler_proto::ProfileSet;
use tokio::sync::oneshot;

use super::outside::Outside;
use super::readers::Readers;
use super::{captures, pulls, runtimes, stats};
use crate::assemble::without_samples;
use crate::budget::Judgement;
use crate::capture::Bounds;
use crate::config::Config;
use crate::discover;
use crate::naming;
use crate::naming::Granularity;
use crate::pipeline::{Figures, Interval, Tapped, assembled};
use crate::privilege::Tier;
use crate::receive::Intake;
use crate::target::Process;

/// What the sampling thread is told.
pub(super) enum Command {
    /// Give what is sampled from now on to `tapped`, too.
    Capture { duration: Duration, pid: Option<u32>, tapped: Box<dyn Tapped> },
    /// End.
    Stop,
}

/// A handle on the agent; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    commands: Sender<Command>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) exporter: Arc<OnceLock<Arc<Exporter>>>,
    pub(super) intake: Arc<OnceLock<Arc<Intake>>>,
    pub(super) captures: Arc<captures::Figures>,
    pub(super) pulls: Arc<pulls::Figures>,
    /// CPU time of the main thread that went into profiles of samples, in nanoseconds.
    made_by: Arc<AtomicU64>,
    readers: Readers,
    /// How much of a runtime is read.
    bounds: Bounds,
    /// What is read from outside, and what is pulled.
    pub(super) outside: Arc<Outside>,
    view: Arc<Mutex<View>>,
}

/// What the sampling thread published last.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) tier: Tier,
    pub(super) wanted_hz: u32,
    /// The rate until the first judgement.
    begins_hz: u32,
    pub(super) sampling: bool,
    pub(super) targets: Vec<Arc<discover::Target>>,
    pub(super) figures: Figures,
    /// What became of the stacks of each process.
    pub(super) stacks: BTreeMap<Process, naming::Stats>,
    pub(super) judgement: Option<Judgement>,
}

impl View {
    /// The rate in force.
    pub(super) fn rate_hz(&self) -> u32 {
        self.judgement.map_or(self.begins_hz, |judgement| judgement.rate_hz)
    }
}

impl Handle {
    pub(super) fn new(
        ledger: Arc<Ledger>,
        config: &Config,
        (tier, begins_hz): (Tier, u32),
    ) -> (Self, Receiver<Command>) {
        let (commands, inbox) = channel();
        let (targets, figures, stacks) = (Vec::new(), Figures::default(), BTreeMap::new());
        let (wanted_hz, bounds) = (config.rate_hz, config.runtime_bounds);
        let view = View { tier, wanted_hz, begins_hz, sampling: false, targets, figures, stacks, judgement: None };
        let view = Arc::new(Mutex::new(view));
        let (exporter, intake, captures, pulls, made_by, readers, outside) = Default::default();
        let handle =
            Self { commands, ledger, exporter, intake, captures, pulls, made_by, readers, bounds, outside, view };
        (handle, inbox)
    }

    /// Tells the sampling thread to end.
    pub(super) fn stop(&self) {
        // Where it has ended already there is nobody to tell.
        drop(self.commands.send(Command::Stop));
    }

    pub(super) fn sampling(&self, sampling: bool) {
        self.view().sampling = sampling;
    }

    /// Enters CPU time of the main thread that went into profiles of samples.
    pub(super) fn made_profiles(&self, by: Duration) {
        self.made_by.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// All of it until now.
    pub(super) fn made_by(&self) -> Duration {
        Duration::from_nanos(self.made_by.load(Ordering::Relaxed))
    }

    /// Nobody knows what is used: nothing waits for that.
    pub(super) fn unjudged(&self) {
        self.intake.get().into_iter().for_each(|intake| intake.put_off(false));
    }

    pub(super) fn judged(&self, judgement: Judgement) {
        self.intake.get().into_iter().for_each(|intake| intake.put_off(judgement.puts_off));
        self.view().judgement = Some(judgement);
    }

    pub(super) fn publish(
        &self,
        targets: Vec<Arc<discover::Target>>,
        figures: Figures,
        stacks: BTreeMap<Process, naming::Stats>,
    ) {
        let mut view = self.view();
        (view.targets, view.figures, view.stacks) = (targets, figures, stacks);
    }

    /// The Go programs that are profiled.
    pub(super) fn go_programs(&self) -> Vec<Arc<discover::Target>> {
        let view = self.view();
        let is_go = |target: &&Arc<discover::Target>| matches!(target.kind, discover::Kind::Go(_));
        view.targets.iter().filter(|target| target.profiled.is_ok()).filter(is_go).cloned().collect()
    }

    /// All processes that are known.
    pub(super) fn targets_known(&self) -> Vec<Arc<discover::Target>> {
        self.view().targets.clone()
    }

    /// Whether CPU samples of a process are taken.
    pub(super) fn samples(&self, target: &discover::Target) -> bool {
        self.view().sampling && is_sampled(target)
    }

    /// What is captured where there was no sample.
    fn without_samples(&self, duration: Duration) -> Result<Vec<ProfileSet>, CaptureError> {
        let view = self.view();
        if !view.targets.iter().any(|target| is_sampled(target)) {
            return Err(CaptureError::NoProcess);
        }
        Ok(vec![without_samples(view.rate_hz(), duration)])
    }

    fn view(&self) -> MutexGuard<'_, View> {
        // Fields are replaced whole.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether samples of `pid` are taken.
    fn knows(&self, pid: u32) -> bool {
        self.view().targets.iter().any(|target| target.process.pid() == pid && is_sampled(target))
    }
}

/// Whether CPU time of a process is sampled, where any is.
pub(super) fn is_sampled(target: &discover::Target) -> bool {
    target.profiled.is_ok() && !target.is_below
}

/// A process, as it is told to whoever asks.
pub(super) fn served(target: &discover::Target) -> Target {
    let served = Target::new(target.service.clone(), target.process.pid());
    match target.kind {
        discover::Kind::Go(_) => served.in_language("go"),
        _ => served,
    }
}

/// Who asked for a capture, and may have gone.
struct Asked(oneshot::Sender<Option<Interval>>);

impl Tapped for Asked {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    fn take(self: Box<Self>, interval: Option<Interval>) {
        drop(self.0.send(interval));
    }
}

impl Source for Handle {
    fn targets(&self) -> Vec<Target> {
        let view = self.view();
        let profiled = view.targets.iter().filter(|target| target.profiled.is_ok());
        profiled.map(|target| served(target)).collect()
    }

    fn capture(&self, duration: Duration, pid: Option<u32>) -> CaptureFuture {
        if !self.view().sampling {
            return Box::pin(ready(Err(CaptureError::NotSampled)));
        }
        if pid.is_some_and(|pid| !self.knows(pid)) {
            return Box::pin(ready(Err(CaptureError::NoProcess)));
        }
        let (reply, outcome) = oneshot::channel();
        let handle = self.clone();
        drop(self.commands.send(Command::Capture { duration, pid, tapped: Box::new(Asked(reply)) }));
        Box::pin(async move {
            match outcome.await {
                Ok(Some(interval)) if interval.windows.is_empty() => handle.without_samples(duration),
                Ok(Some(Interval { windows, lost })) => Ok(assembled(&windows, &lost, Granularity::Addresses)),
                Ok(None) => Err(CaptureError::TooMany),
                Err(_) => Err(CaptureError::Off),
            }
        })
    }

    fn heap(&self, first: Option<&'static str>, pid: Option<u32>) -> CaptureFuture {
        runtimes::read(self.readers.clone(), self.view().targets.clone(), (runtimes::Of::Heap(first), self.bounds), pid)
    }

    fn snapshot(&self, of: Snapshot, pid: Option<u32>) -> CaptureFuture {
        match runtimes::Of::snapshot(of) {
            Some(of) => runtimes::read(self.readers.clone(), self.view().targets.clone(), (of, self.bounds), pid),
            None => Box::pin(ready(Err(CaptureError::NoRuntime))),
        }
    }

    fn goroutines(&self, form: GoroutineText, pid: Option<u32>) -> TextFuture {
        runtimes::write(self.readers.clone(), self.view().targets.clone(), (form, self.bounds), pid)
    }

    fn is_sampling(&self) -> bool {
        self.view().sampling
    }

    fn stats(&self) -> Stats {
        let view = self.view().clone();
        stats::stats(self, &view)
    }
}
