//! One destination as the exporter has it: in this process, or behind a queue with a task that delivers.
//!
//! In: sets for local ones, parcels for remote ones. Out: the figures of the destination. What is to be known to add a kind of
//! destination stands here: its form, and what sends it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profiler_proto::ProfileSet;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::answer::Answer;
use super::delivery::{Sender, deliver};
use super::destination::{Deliver, Kind, Target};
use super::files::writer::Writer;
use super::form::Form;
use super::grpc::Grpc;
use super::limits::Limits;
use super::otlp_http::OtlpHttp;
use super::parca;
use super::protocol::Protocol;
use super::pusher::Pusher;
use super::queue::Queue;
use super::retry::Retry;
use super::settings::Settings;
use crate::stats::{Contents, DestinationStats, Kinds};
use crate::watched::watched;

pub(super) enum Outlet {
    Local(Box<Local>),
    Remote(Remote),
}

/// A destination in this process.
pub(super) struct Local {
    deliver: Deliver,
    figures: Mutex<Figures>,
}

struct Figures {
    kinds: Kinds,
    stats: DestinationStats,
}

/// A destination behind a queue.
pub(super) struct Remote {
    /// What it takes.
    pub(super) form: Form,
    pub(super) queue: Arc<Queue>,
    /// Cuts the wait for a retry short.
    pub(super) hurry: Arc<Notify>,
    /// `None` until it begins.
    task: Option<AbortHandle>,
}

impl Outlet {
    /// `name` is the destination's, which no other has. Nothing is sent before [`Outlet::begin`] gets back what sends.
    pub(super) fn open(name: String, destination: Target, limits: Limits) -> (Self, Option<Sender>) {
        let (form, sender) = match destination.kind {
            Kind::Local { deliver, .. } => return (Self::Local(Box::new(Local::new(name, deliver))), None),
            Kind::Files(folder) => (Form::Files, Sender::Files(Writer::new(folder))),
            Kind::Otlp(settings) => (Form::Otlp(settings.compression), sender(*settings)),
            Kind::Pyroscope(settings) => {
                (Form::Pyroscope(settings.labels), Sender::Pyroscope(Pusher::new(settings.http)))
            }
            Kind::Parca(settings, labels) => {
                (Form::Parca(labels), Sender::Grpc(Grpc::new(*settings, parca::acknowledgement)))
            }
        };
        (Self::Remote(Remote::new(name, form, limits)), Some(sender))
    }

    /// Begins to deliver.
    pub(super) fn begin(&mut self, sender: Option<Sender>, retry: Retry, runtime: &Handle) {
        if let (Self::Remote(remote), Some(sender)) = (self, sender) {
            let task = deliver(Arc::clone(&remote.queue), sender, retry, Arc::clone(&remote.hurry));
            remote.task = Some(runtime.spawn(watched(task)).abort_handle());
        }
    }

    pub(super) fn stats(&self) -> DestinationStats {
        match self {
            Self::Local(local) => local.stats(),
            Self::Remote(remote) => remote.queue.stats(),
        }
    }
}

fn sender(settings: Settings) -> Sender {
    match settings.protocol {
        Protocol::Grpc => Sender::Grpc(Grpc::new(settings, Answer::of_success)),
        Protocol::Http => Sender::Http(OtlpHttp::new(settings)),
    }
}

impl Remote {
    fn new(name: String, form: Form, limits: Limits) -> Self {
        let queue = Queue::new(name, (limits.queue_bytes, form.longest()), limits.retry.max_age);
        Self { form, queue: Arc::new(queue), hurry: Arc::default(), task: None }
    }

    /// Sends nothing any more.
    pub(super) fn end(&self) {
        self.task.iter().for_each(AbortHandle::abort);
    }
}

impl Local {
    fn new(name: String, deliver: Deliver) -> Self {
        let stats = DestinationStats { name, ..DestinationStats::default() };
        Self { deliver, figures: Mutex::new(Figures { kinds: Kinds::default(), stats }) }
    }

    /// Hands `set` over.
    pub(super) fn take(&self, set: &Arc<ProfileSet>, contents: &Contents) {
        (self.deliver)(set);
        let mut figures = self.figures();
        figures.stats.delivered = figures.stats.delivered.saturating_add(contents.stacks);
        figures.kinds.offer(contents);
        figures.kinds.export(contents);
    }

    fn stats(&self) -> DestinationStats {
        let figures = self.figures();
        DestinationStats { kinds: figures.kinds.to_vec(), ..figures.stats.clone() }
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        // Plain numbers, changed in steps that cannot panic: what a poisoned lock guards is whole.
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
