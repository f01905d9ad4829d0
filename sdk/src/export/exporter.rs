//! The front of the stage: takes sets of profiles in, hands them to every destination, says what became of them.
//!
//! In: sets of profiles from any thread. Out: requests, split and encoded once, on the queue of each destination; one
//! task per destination on the runtime that the exporter was started on. [`Exporter::offer`] costs the CPU time of
//! encoding and waits for nothing and nobody.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use profiler_proto::loss::{Cause, stacks_of};
use profiler_proto::split::{Split, split};
use profiler_proto::{ProfileSet, otlp};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::batch::Batch;
use super::delivery::{Sender, deliver};
use super::destination::{Deliver, Destination, Kind};
use super::otlp_grpc::OtlpGrpc;
use super::otlp_http::OtlpHttp;
use super::protocol::{Compression, Protocol};
use super::queue::Queue;
use super::retry::Retry;
use super::settings::Settings;
use crate::error::Error;
use crate::stats::{DestinationStats, Ledger};

/// What exporting may use.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of encoded requests that wait for one destination. Default: 16 MiB.
    pub queue_bytes: usize,
    /// Bytes of one request before compression, as [`profiler_proto::split::request_bytes`] counts them: some backends
    /// copy the dictionary for each profile and store half a request if that grows too large. Default: 2 MB.
    pub request_bytes: usize,
    /// How failed requests are tried again.
    pub retry: Retry,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue_bytes: 16 << 20, request_bytes: 2_000_000, retry: Retry::default() }
    }
}

/// Sends sets of profiles to destinations.
///
/// Dropped without [`Exporter::shutdown`], it gives up what still waits.
pub struct Exporter {
    /// In the order of configuration.
    outlets: Vec<Outlet>,
    /// Of each remote outlet: how its bodies are compressed.
    compressions: Vec<Compression>,
    request_bytes: usize,
    ledger: Arc<Ledger>,
}

enum Outlet {
    Local { name: String, deliver: Deliver, delivered: AtomicU64 },
    Remote { queue: Arc<Queue>, hurry: Arc<Notify>, task: AbortHandle },
}

impl Exporter {
    /// Starts one task per destination on the `tokio` runtime of the caller, whose I/O and time drivers must be on.
    ///
    /// Every stack that is offered must be pending in `ledger`; it is moved to exported or to lost here.
    ///
    /// # Errors
    /// If the caller is not inside a runtime.
    pub fn start(destinations: Vec<Destination>, ledger: Arc<Ledger>, limits: Limits) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::misuse("Exporter::start", "there is no tokio runtime here", "call it inside the exporting runtime")
        })?;
        let compressions = destinations.iter().filter_map(|destination| match &destination.kind {
            Kind::Otlp(settings) => Some(settings.compression),
            Kind::Local { .. } => None,
        });
        let compressions = compressions.collect();
        let outlets = destinations.into_iter().map(|destination| Outlet::open(destination, limits, &runtime)).collect();
        Ok(Self { outlets, compressions, request_bytes: limits.request_bytes, ledger })
    }

    /// Hands `set` to every destination. Never waits; what cannot be taken in is counted as lost.
    #[expect(clippy::needless_pass_by_value, reason = "the set is given away; how often it is shared is our matter")]
    pub fn offer(&self, set: Arc<ProfileSet>) {
        let stacks = stacks_in(&set);
        for outlet in &self.outlets {
            outlet.deliver_locally(&set, stacks);
        }
        match (self.compressions.is_empty(), self.outlets.is_empty()) {
            (false, _) => self.send(&set),
            (true, false) => self.ledger.exported(stacks),
            (true, true) => self.ledger.lost(stacks, Cause::NoDestination),
        }
    }

    /// Splits `set` and queues its parts for all remote destinations.
    fn send(&self, set: &ProfileSet) {
        let Split { parts, too_large } = split(set, self.request_bytes);
        for part in &parts {
            self.enqueue(part);
        }
        self.drop_unsent(too_large.iter().map(stacks_in).sum());
    }

    fn enqueue(&self, part: &ProfileSet) {
        let (request, stacks) = (otlp::encode_compact(part), stacks_in(part));
        if request.resource_profiles.is_empty() {
            // Nothing was sampled: a request would say nothing, and some peers refuse an empty one.
            return self.drop_unsent(stacks);
        }
        match Batch::encode(&request, stacks, &self.compressions, Arc::clone(&self.ledger)) {
            Ok(batch) => {
                let batch = Arc::new(batch);
                self.queues().for_each(|queue| queue.push(Arc::clone(&batch)));
            }
            Err(error) => {
                tracing::error!(%error, "a request cannot be encoded");
                self.drop_unsent(stacks);
            }
        }
    }

    /// Counts `stacks` that no request can hold.
    fn drop_unsent(&self, stacks: u64) {
        if stacks > 0 {
            self.queues().for_each(|queue| queue.count_dropped(stacks, Cause::TooLarge));
            self.ledger.lost(stacks, Cause::TooLarge);
        }
    }

    /// Waits until all that was offered before is accepted or lost; `false` if `timeout` was over first. To be awaited
    /// on the exporting runtime, as is [`Exporter::shutdown`].
    pub async fn flush(&self, timeout: Duration) -> bool {
        let flushed = async {
            for queue in self.queues() {
                queue.flushed().await;
            }
        };
        tokio::time::timeout(timeout, flushed).await.is_ok()
    }

    /// Flushes, gives up what is left after `timeout`, and ends the tasks. Waits for a retry are cut short, so that each
    /// destination gets one more chance. `false` if something was given up for lack of time.
    ///
    /// What is offered afterwards is lost to remote destinations.
    pub async fn shutdown(&self, timeout: Duration) -> bool {
        for outlet in &self.outlets {
            if let Outlet::Remote { hurry, .. } = outlet {
                hurry.notify_one();
            }
        }
        let flushed = self.flush(timeout).await;
        self.close();
        flushed
    }

    /// What became of the stacks, per destination in the order of configuration.
    #[must_use]
    pub fn destinations(&self) -> Vec<DestinationStats> {
        self.outlets.iter().map(Outlet::stats).collect()
    }

    /// Gives up all that is here and all that comes, and wakes nobody for it: for when what would wake them is gone.
    pub fn abandon(&self, cause: Cause) {
        self.queues().for_each(|queue| queue.abandon(cause));
    }

    fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.outlets.iter().filter_map(|outlet| match outlet {
            Outlet::Local { .. } => None,
            Outlet::Remote { queue, .. } => Some(&**queue),
        })
    }

    fn close(&self) {
        for outlet in &self.outlets {
            if let Outlet::Remote { queue, task, .. } = outlet {
                queue.close();
                task.abort();
            }
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("destinations", &self.destinations()).finish_non_exhaustive()
    }
}

impl Outlet {
    fn open(destination: Destination, limits: Limits, runtime: &Handle) -> Self {
        match destination.kind {
            Kind::Local { name, deliver } => Self::Local { name, deliver, delivered: AtomicU64::new(0) },
            Kind::Otlp(settings) => Self::connect(*settings, limits, runtime),
        }
    }

    fn connect(settings: Settings, limits: Limits, runtime: &Handle) -> Self {
        let queue = Arc::new(Queue::new(settings.name(), settings.compression, limits.queue_bytes));
        let sender = match settings.protocol {
            Protocol::Grpc => Sender::Grpc(OtlpGrpc::new(settings)),
            Protocol::Http => Sender::Http(OtlpHttp::new(settings)),
        };
        let hurry = Arc::new(Notify::new());
        let task = deliver(Arc::clone(&queue), sender, limits.retry, Arc::clone(&hurry));
        let task = runtime.spawn(task).abort_handle();
        Self::Remote { queue, hurry, task }
    }

    fn deliver_locally(&self, set: &Arc<ProfileSet>, stacks: u64) {
        if let Self::Local { deliver, delivered, .. } = self {
            deliver(set);
            // A figure on its own: nothing is read on the strength of it.
            delivered.fetch_add(stacks, Ordering::Relaxed);
        }
    }

    fn stats(&self) -> DestinationStats {
        match self {
            Self::Remote { queue, .. } => queue.stats(),
            Self::Local { name, delivered, .. } => DestinationStats {
                name: name.clone(),
                delivered: delivered.load(Ordering::Relaxed),
                ..DestinationStats::default()
            },
        }
    }
}

/// On-CPU stacks that `set` stands for.
fn stacks_in(set: &ProfileSet) -> u64 {
    let on_cpu = set.profiles.iter().filter(|profile| profile.kind.is_cpu(&set.dictionary));
    on_cpu.map(|profile| stacks_of(profile, &set.dictionary)).sum()
}
