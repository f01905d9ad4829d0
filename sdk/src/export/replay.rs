//! What comes back from disk for one destination: at which times, and in which order.
//!
//! In: the destination's place in the spool, what came of the last attempt. Out: the record whose turn it is, as a body to be sent: the same
//! one until it has its verdict. Beside live data it is sent no faster than a peer takes what piled up.

use std::time::{Duration, Instant, SystemTime};

use super::body::Body;
use super::form::compression_of;
use super::pace::RATE;
use super::shelf::{Replayed, Shelf};

/// Between two records.
const BETWEEN: Duration = Duration::from_millis(250);
/// Until it is looked again where nothing was, and something may come: memory has let something go, or the disk does not answer.
const IDLE: Duration = Duration::from_secs(1);
/// Until it is looked again where nothing was, time and again: a folder may come back with what was in it.
const LONGEST_IDLE: Duration = Duration::from_secs(64);

/// The records of one destination.
#[derive(Debug)]
pub(super) struct Replay {
    /// When the next one may be sent.
    due: Instant,
    /// For how long it is left alone if nothing is there.
    idle: Duration,
    /// The one that has no verdict yet.
    in_hand: Option<Returned>,
}

/// A record that is to be sent.
#[derive(Debug, Clone)]
pub(super) struct Returned {
    pub(super) record: Replayed,
    pub(super) body: Body,
    /// Whether the peer took something else since it failed with this for the first time: then it is this that it cannot take.
    pub(super) others_pass: bool,
}

impl Replay {
    pub(super) fn new(now: Instant) -> Self {
        Self { due: now, idle: IDLE, in_hand: None }
    }

    /// When it is looked for a record.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// The record whose turn it is; `more` says that one must be there.
    pub(super) async fn next(&mut self, shelf: &Shelf, more: bool) -> Option<Returned> {
        if self.in_hand.is_none() {
            // What the disk has to say is said by the spool itself.
            let returned = shelf.read().await.ok().flatten().and_then(Returned::new);
            // What went for room since it was read is told as lost.
            self.in_hand = returned.filter(|returned| returned.record.receipt.take());
        }
        self.idle = match (&self.in_hand, more) {
            (None, false) => (self.idle * 2).min(LONGEST_IDLE),
            _ => IDLE,
        };
        if self.in_hand.is_none() {
            self.due = Instant::now() + self.idle;
        }
        self.in_hand.clone()
    }

    /// Memory has let something go: it is not left alone for long.
    pub(super) fn look_soon(&mut self) {
        self.due = self.due.min(Instant::now() + IDLE);
    }

    /// The record in hand has its verdict.
    pub(super) fn settled(&mut self) {
        let bytes = self.in_hand.take().map_or(0, |returned| returned.body.uncompressed);
        self.due = Instant::now() + BETWEEN.max(Duration::from_secs_f64(bytes as f64 / RATE));
    }

    /// The record in hand was too old to be sent.
    pub(super) fn passed_over(&mut self) {
        self.in_hand = None;
    }

    /// The peer took something else.
    pub(super) fn others_pass(&mut self) {
        if let Some(returned) = &mut self.in_hand {
            returned.others_pass = true;
        }
    }
}

impl Returned {
    fn new(record: Replayed) -> Option<Self> {
        let [uncompressed, samples, untagged] = record.manifest.sizes();
        let compression = compression_of(record.receipt.form);
        let body = Body::again(&record.body, compression, uncompressed, samples)?.without_tags(untagged);
        Some(Self { record: Replayed { body: bytes::Bytes::new(), ..record }, body, others_pass: false })
    }

    /// By this number it is told from parcels of the queue, which have smaller ones.
    pub(super) fn number(&self) -> u64 {
        1 << 63 | self.record.receipt.number()
    }

    /// Whether it is older than `max_age`.
    pub(super) fn is_older(&self, max_age: Duration) -> bool {
        self.record.manifest.age(SystemTime::now()) > max_age
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::runtime::Handle;

    use super::super::form::Form;
    use super::super::spool::{Bounds, Pace, Spool};
    use super::*;

    /// Check that an empty folder is asked ever more seldom, once a minute in the end, and soon again where memory has let something go.
    #[tokio::test]
    async fn an_empty_folder_is_left_alone() {
        let path = std::env::temp_dir().join(format!("profiler-replay-{}", std::process::id()));
        let how = (Bounds::default(), Pace::default());
        let spool = Arc::new(Spool::start(&Handle::current(), path.clone(), how, Vec::new(), Box::new(|_| {})));
        let shelf = Shelf::new(spool, 0, 1, &Form::Files, &[]);
        let mut replay = Replay::new(Instant::now());
        let mut wait = async |more| {
            assert!(replay.next(&shelf, more).await.is_none());
            let wait = replay.due().duration_since(Instant::now());
            replay.look_soon();
            assert!(replay.due() <= Instant::now() + IDLE);
            wait.as_secs_f64().round()
        };
        let mut waits = Vec::new();
        for more in [false, false, false, false, false, false, false, true, false] {
            waits.push(wait(more).await);
        }
        assert_eq!(waits, [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 1.0, 2.0]);
        let _removed = std::fs::remove_dir_all(path);
    }
}
