//! The front of the stage: takes sets of profiles in, hands them to every destination, says what became of them.
//!
//! In: sets of profiles from any thread. Out: requests, split and encoded once, on the queue of each destination; one
//! task per destination on the runtime that the exporter was started on. [`Exporter::offer`] costs the CPU time of
//! encoding and waits for nothing and nobody. With a spool, each body is given to that, too.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use profiler_proto::ProfileSet;
use profiler_proto::loss::Cause;
use profiler_proto::split::split_by;
use tokio::runtime::Handle;

use super::body::Body;
use super::destination::Target;
use super::form::{Draft, Form};
use super::limits::Limits;
use super::outlet::{Outlet, Remote};
use super::parcel::{Fate, Parcel};
use super::spooling::{SpoolSettings, Spooling};
use crate::error::Error;
use crate::stats::{Contents, DestinationStats, Ledger, SpoolStats};

/// How long the disk may take to confirm what was written, when all ends.
const LONGEST_SYNC: Duration = Duration::from_millis(500);

/// Why a spool is of no use.
const NOTHING_IS_SENT: &str = "profiles are sent nowhere, so none wait, and what is in it waits for a destination";

/// Sends sets of profiles to destinations.
///
/// Dropped without [`Exporter::shutdown`], it gives up what still waits.
pub struct Exporter {
    /// In the order of configuration.
    outlets: Vec<Outlet>,
    /// Those of the remote outlets, each once.
    forms: Vec<Form>,
    request_bytes: usize,
    ledger: Arc<Ledger>,
    spooling: Option<Spooling>,
    /// A folder that was set and is not used, for nothing is sent.
    idle_spool: Option<PathBuf>,
}

impl Exporter {
    /// Starts one task per destination on the `tokio` runtime of the caller, whose I/O and time drivers must be on.
    ///
    /// Every stack that is offered must be pending in `ledger`; it is moved to exported or to lost here.
    ///
    /// # Errors
    /// If the caller is not inside a runtime.
    pub fn start(destinations: Vec<Target>, ledger: Arc<Ledger>, limits: Limits) -> Result<Self, Error> {
        Self::with_spool(destinations, ledger, limits, None)
    }

    /// The same, with a folder for what waits: it outlives the process, and comes back from there, also what an earlier process left. Where
    /// the folder cannot be used, that is in the log and in [`Exporter::spool`], and what waits is in memory alone.
    ///
    /// # Errors
    /// If the caller is not inside a runtime.
    pub fn with_spool(
        destinations: Vec<Target>,
        ledger: Arc<Ledger>,
        limits: Limits,
        spool: Option<SpoolSettings>,
    ) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::misuse("Exporter::start", "there is no tokio runtime here", "call it inside the exporting runtime")
        })?;
        let names = unique(destinations.iter().map(Target::name));
        let open = |(name, destination)| Outlet::open(name, destination, limits);
        let (mut outlets, senders): (Vec<Outlet>, Vec<_>) = names.into_iter().zip(destinations).map(open).unzip();
        let mut forms = Vec::new();
        for remote in remotes(&outlets) {
            if !forms.contains(&remote.form) {
                forms.push(remote.form.clone());
            }
        }
        let (spool, idle_spool) = if forms.is_empty() { (None, spool) } else { (spool, None) };
        let idle_spool = idle_spool.map(|settings| settings.folder);
        if let Some(folder) = &idle_spool {
            tracing::warn!(folder = %folder.display(), "the spool is not used: {NOTHING_IS_SENT}");
        }
        let remotes: Vec<&Remote> = remotes(&outlets).collect();
        let spooling = spool.map(|settings| Spooling::start(&runtime, settings, &remotes, &forms));
        drop(remotes);
        for (outlet, sender) in outlets.iter_mut().zip(senders) {
            outlet.begin(sender, limits.retry, &runtime);
        }
        Ok(Self { outlets, forms, request_bytes: limits.request_bytes, ledger, spooling, idle_spool })
    }

    /// Hands `set` to every destination. Never waits; what cannot be taken in is counted as lost.
    #[expect(clippy::needless_pass_by_value, reason = "the set is given away; how often it is shared is our matter")]
    pub fn offer(&self, set: Arc<ProfileSet>) {
        let contents = Contents::of(&set);
        for outlet in &self.outlets {
            if let Outlet::Local(local) = outlet {
                local.take(&set, &contents);
            }
        }
        if !self.forms.is_empty() {
            return self.send(&set);
        }
        self.ledger.offered(&contents);
        match self.outlets.is_empty() {
            false => self.ledger.exported(&contents),
            true => self.ledger.given_up(&contents, Cause::NoDestination),
        }
    }

    /// Splits `set` and queues its parts for all remote destinations.
    fn send(&self, set: &ProfileSet) {
        let write = |part: &ProfileSet| self.forms.iter().map(|form| form.draft(part, self.request_bytes)).collect();
        split_by(set, write, |part, drafts: Option<Vec<Draft>>| {
            let contents = Contents::of(&part);
            self.ledger.offered(&contents);
            match drafts {
                Some(drafts) if contents.profiles() > 0 => self.queue(&part, drafts),
                // No request can hold it; or nothing was sampled: a request would say nothing, and some peers refuse an empty one.
                _ => self.refuse(&part),
            }
        });
    }

    /// Gives up `part`.
    fn refuse(&self, part: &ProfileSet) {
        let fate = self.fate(part);
        self.remotes().for_each(|remote| remote.queue.refuse(&fate, Cause::TooLarge));
    }

    /// Queues `part` for all remote destinations, in one body for those of one form.
    fn queue(&self, part: &ProfileSet, drafts: Vec<Draft>) {
        let fate = self.fate(part);
        for (form, draft) in self.forms.iter().zip(drafts) {
            let queues = self.remotes().filter(|remote| remote.form == *form).map(|remote| &remote.queue);
            match form.body(part, draft) {
                Ok(body) => {
                    let parcel = self.parcel(&fate, form, body);
                    queues.for_each(|queue| queue.push(parcel.clone()));
                }
                Err(error) => {
                    tracing::error!(%error, "a request cannot be encoded");
                    queues.for_each(|queue| queue.refuse(&fate, Cause::TooLarge));
                }
            }
        }
    }

    /// What waits at each destination of `form`.
    fn parcel(&self, fate: &Arc<Fate>, form: &Form, body: Body) -> Parcel {
        let spooling = self.spooling.as_ref();
        let spooled = spooling.and_then(|spooling| spooling.append(form, &body, fate.contents()));
        Parcel { fate: Arc::clone(fate), body, spooled }
    }

    /// A fate for `part` at all remote destinations.
    fn fate(&self, part: &ProfileSet) -> Arc<Fate> {
        Arc::new(Fate::new(Contents::of(part), self.remotes().count(), Arc::clone(&self.ledger)))
    }

    /// Waits until all that was offered before has its verdict at every destination, what waits on disk included.
    ///
    /// `true`: all that waited was accepted by every destination. `false`: `timeout` was over first, or something was given up meanwhile, for
    /// whatever cause; what was given up before the call is not told again. Waits of our own are cut short, so that each destination gets
    /// one more chance; those that a peer asked for are not. To be awaited on the exporting runtime, as is [`Exporter::shutdown`].
    pub async fn flush(&self, timeout: Duration) -> bool {
        let missed = self.missed();
        self.remotes().for_each(|remote| remote.hurry.notify_one());
        // All marks first: what comes while one destination is waited for is not waited for at the next.
        let marks: Vec<_> = self.remotes().map(|remote| (&remote.queue, remote.queue.mark())).collect();
        let flushed = async {
            for (queue, mark) in marks {
                queue.flushed(mark).await;
            }
        };
        tokio::time::timeout(timeout, flushed).await.is_ok() && self.missed() == missed
    }

    /// Flushes, gives up what is left after `timeout`, and ends the tasks. What it answers is what [`Exporter::flush`] would.
    ///
    /// What the spool has by then is not given up: it stays pending, and waits there for the next process. What is offered afterwards is
    /// lost to remote destinations.
    pub async fn shutdown(&self, timeout: Duration) -> bool {
        // The disk needs a moment, too.
        let reserved = if self.spooling.is_some() { LONGEST_SYNC.min(timeout / 4) } else { Duration::ZERO };
        let flushed = self.flush(timeout - reserved).await;
        self.remotes().for_each(Remote::end);
        if let Some(spooling) = &self.spooling
            && !spooling.close(reserved).await
        {
            tracing::warn!("the spool's disk has not confirmed in time what was written last");
        }
        self.close();
        flushed
    }

    /// What there is to say of the spool, if there is one.
    #[must_use]
    pub fn spool(&self) -> Option<SpoolStats> {
        let idle = || {
            let folder = self.idle_spool.as_ref()?.display().to_string();
            Some(SpoolStats { folder, trouble: Some(NOTHING_IS_SENT.to_owned()), ..SpoolStats::default() })
        };
        self.spooling.as_ref().map(Spooling::stats).or_else(idle)
    }

    /// What became of what was offered, per destination in the order of configuration.
    #[must_use]
    pub fn destinations(&self) -> Vec<DestinationStats> {
        self.outlets.iter().map(Outlet::stats).collect()
    }

    /// Gives up all that is here and all that comes, and wakes nobody for it: for when what would wake them is gone.
    pub fn abandon(&self, cause: Cause) {
        self.remotes().for_each(|remote| remote.queue.abandon(cause));
    }

    /// How much was given up until now, at all destinations.
    fn missed(&self) -> u64 {
        self.remotes().map(|remote| remote.queue.missed()).sum()
    }

    fn remotes(&self) -> impl Iterator<Item = &Remote> {
        remotes(&self.outlets)
    }

    fn close(&self) {
        for remote in self.remotes() {
            remote.queue.close();
            remote.end();
        }
        if let Some(spooling) = &self.spooling {
            spooling.end();
            let stacks: u64 = self.remotes().map(|remote| remote.queue.stats().spooled).sum();
            if stacks > 0 {
                tracing::info!(stacks, "left in the spool for the next process");
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

/// The same names, where one comes again with a number behind it: by its name a destination is known in figures and in the spool.
fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut unique: Vec<String> = Vec::new();
    for name in names {
        let candidates = (2..).map(|number| format!("{name} #{number}"));
        let free = std::iter::once(name.clone()).chain(candidates).find(|candidate| !unique.contains(candidate));
        unique.push(free.unwrap_or(name));
    }
    unique
}

fn remotes(outlets: &[Outlet]) -> impl Iterator<Item = &Remote> {
    outlets.iter().filter_map(|outlet| match outlet {
        Outlet::Local(_) => None,
        Outlet::Remote(remote) => Some(remote),
    })
}
