//! The spool as the exporter has it: every body goes there when it goes to the queues.
//!
//! In: settings, bodies. Out: receipts, the places of destinations ([`Shelf`]), figures; what the spool loses, to the queue of the destination
//! that lost it. Any thread; nothing here waits for the disk but [`Spooling::close`].

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use profiler_proto::loss::Cause;
use tokio::runtime::Handle;

use super::body::Body;
use super::form::Form;
use super::manifest::Manifest;
use super::outlet::Remote;
use super::parcel::Spooled;
use super::queue::{Lost, Queue};
use super::shelf::Shelf;
use super::spool::{Bounds, Figures, Gone, Pace, Spool, Taker, Why};
use crate::stats::{Contents, SpoolStats};

/// A folder for what waits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpoolSettings {
    /// The folder, which is made if there is none. Each process has its own.
    pub folder: PathBuf,
    /// Bytes that it may hold: beyond them the oldest is lost, and counted (`spool_full`). Default: 256 MiB.
    pub bytes: u64,
}

impl SpoolSettings {
    /// This folder with the default bound.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), bytes: Bounds::default().folder }
    }

    /// The same with another bound.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }
}

/// A spool and its folder.
#[derive(Debug)]
pub(super) struct Spooling {
    spool: Arc<Spool>,
    folder: String,
    /// This process, by a random number: what is read again may be of another one.
    run: u64,
    /// Bodies given to the spool.
    given: AtomicU64,
    /// For each form, the destinations that take the same from disk and are not to get it.
    others: Vec<(Form, Vec<usize>)>,
}

impl Spooling {
    /// Opens the folder for `remotes`, which take `forms`, and gives each its place. On a thread of `runtime` that may block.
    pub(super) fn start(runtime: &Handle, settings: SpoolSettings, remotes: &[&Remote], forms: &[Form]) -> Self {
        let queues: Vec<Weak<Queue>> = remotes.iter().map(|remote| Arc::downgrade(&remote.queue)).collect();
        let takers = remotes.iter().map(|remote| {
            let (name, forms) = (remote.queue.name(), remote.form.taken());
            Taker { name, forms, reads: |counts| Manifest::decode(counts).is_some() }
        });
        let folder = settings.folder.display().to_string();
        // What goes for room goes by segments: never all of it at once.
        let segment = Bounds::default().segment.min(settings.bytes / 8);
        let bounds = Bounds { folder: settings.bytes, segment };
        let lose = Box::new(move |gone: Gone<'_>| lose(&queues, gone));
        let (how, takers) = ((bounds, Pace::default()), takers.collect());
        let spool = Arc::new(Spool::start(runtime, settings.folder, how, takers, lose));
        let run = RandomState::new().hash_one(std::process::id());
        for (index, remote) in remotes.iter().enumerate() {
            remote.queue.put_on(Shelf::new(Arc::clone(&spool), index, run, &remote.form, forms));
        }
        let others = |form: &Form| {
            let takes = |other: &Form| other != form && other.taken().contains(&form.number());
            let others = remotes.iter().enumerate().filter(|(_, remote)| takes(&remote.form));
            (form.clone(), others.map(|(index, _)| index).collect())
        };
        let others = forms.iter().map(others).collect();
        Self { spool, folder, run, given: AtomicU64::new(0), others }
    }

    /// Gives `body`, which is of `form`, to the disk; `None` if that is too far behind.
    pub(super) fn append(&self, form: &Form, body: &Body, contents: &Contents) -> Option<Spooled> {
        let serial = self.given.fetch_add(1, Ordering::Relaxed);
        let manifest = Manifest::of(body, (self.run, serial), form.key(), *contents);
        // What is wrong with the disk is said by the spool itself.
        let receipt = self.spool.append(form.number(), manifest.encode(), body.message()).ok()?;
        let others = self.others.iter().filter(|(of, _)| of == form).flat_map(|(_, others)| others);
        others.for_each(|other| self.spool.settle(*other, Arc::clone(&receipt)));
        Some(Spooled { serial, receipt })
    }

    pub(super) fn stats(&self) -> SpoolStats {
        let figures = self.spool.figures();
        let Figures { bytes, segments, appended, synced_below, missing, unreadable_bytes, untaken, trouble } = figures;
        let folder = self.folder.clone();
        SpoolStats { folder, bytes, segments, appended, synced_below, missing, unreadable_bytes, untaken, trouble }
    }

    /// Nothing comes any more.
    pub(super) fn end(&self) {
        self.spool.end();
    }

    /// The same; whether the disk has confirmed everything within `timeout`.
    pub(super) async fn close(&self, timeout: Duration) -> bool {
        self.spool.close(timeout).await
    }
}

/// Tells the queue of a destination what it has lost.
fn lose(queues: &[Weak<Queue>], gone: Gone<'_>) {
    let cause = match gone.why {
        Why::Full => Cause::SpoolFull,
        Why::Damaged => Cause::SpoolDamaged,
    };
    let lost = match gone.counts {
        Some(counts) => Manifest::decode(counts).map(Lost::Record),
        None => Some(Lost::Numbers(gone.numbers)),
    };
    if let (Some(queue), Some(lost)) = (queues.get(gone.destination).and_then(Weak::upgrade), lost) {
        queue.post(lost, cause);
    }
}
