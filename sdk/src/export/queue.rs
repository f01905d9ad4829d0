//! What waits for one destination: batches in order, bounded in bytes, the oldest out first.
//!
//! In: batches from any thread ([`Queue::push`] never waits), verdicts from the one task that delivers. Out: the batch
//! whose turn it is, figures for `stats()`, and how far everything is settled, for flush. Every batch that was pushed
//! gets exactly one verdict from here: accepted, or given up with its cause.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profiler_proto::loss::Cause;
use tokio::sync::{Notify, watch};

use super::batch::Batch;
use super::protocol::Compression;
use crate::stats::DestinationStats;

/// The queue of one destination.
#[derive(Debug)]
pub(super) struct Queue {
    /// The form of a batch that waits here; its size counts.
    compression: Compression,
    /// Bound of [`State::bytes`].
    capacity: usize,
    state: Mutex<State>,
    /// Something to send has come.
    arrived: Notify,
    /// Every batch with a number below this has its verdict.
    settled: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    /// Oldest first. Invariant: numbers ascend, `bytes` is the sum of the entries' sizes.
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The first entry is on the wire and cannot be dropped for room.
    sending: bool,
    closed: bool,
    /// The number of the next batch.
    next: u64,
    stats: DestinationStats,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    bytes: usize,
    batch: Arc<Batch>,
}

impl Queue {
    /// An empty queue for the destination called `name`.
    pub(super) fn new(name: String, compression: Compression, capacity: usize) -> Self {
        let stats = DestinationStats { name, ..DestinationStats::default() };
        let state = State { entries: VecDeque::new(), bytes: 0, sending: false, closed: false, next: 0, stats };
        let settled = watch::Sender::new(0);
        Self { compression, capacity, state: Mutex::new(state), arrived: Notify::new(), settled }
    }

    /// Takes `batch` in, dropping the oldest if there is no room. Never waits.
    pub(super) fn push(&self, batch: Arc<Batch>) {
        let mut state = self.state();
        let bytes = batch.body(self.compression).len();
        let number = state.next;
        state.next += 1;
        state.bytes += bytes;
        state.entries.push_back(Entry { number, bytes, batch });
        if state.closed {
            state.give_up_at(0, Cause::Shutdown);
        }
        let oldest_droppable = usize::from(state.sending);
        while state.bytes > self.capacity && state.entries.len() > oldest_droppable {
            state.give_up_at(oldest_droppable, Cause::QueueFull);
        }
        self.publish(&state);
        self.arrived.notify_one();
    }

    /// The oldest batch with its number, as soon as there is one. It stays here, safe from being dropped for room, until
    /// [`Queue::accepted`], [`Queue::given_up`] or [`Queue::put_back`].
    pub(super) async fn next(&self) -> (u64, Arc<Batch>) {
        loop {
            if let Some(front) = self.begin() {
                return front;
            }
            self.arrived.notified().await;
        }
    }

    fn begin(&self) -> Option<(u64, Arc<Batch>)> {
        let mut state = self.state();
        let front = state.entries.front().map(|entry| (entry.number, Arc::clone(&entry.batch)));
        state.sending = front.is_some();
        front
    }

    /// The batch being sent was acknowledged, perhaps with a warning.
    pub(super) fn accepted(&self, number: u64, warning: Option<String>) {
        let mut state = self.state();
        state.sending = false;
        if let Some(entry) = state.take_front(number) {
            state.stats.delivered += entry.batch.stacks();
            state.stats.last_error = warning.or(state.stats.last_error.take());
            entry.batch.accepted();
        }
        self.publish(&state);
    }

    /// The batch being sent will not be sent again.
    pub(super) fn given_up(&self, number: u64, cause: Cause, why: String) {
        let mut state = self.state();
        state.sending = false;
        state.stats.last_error = Some(why);
        if state.entries.front().is_some_and(|entry| entry.number == number) {
            state.give_up_at(0, cause);
        }
        self.publish(&state);
    }

    /// The batch being sent waits for another attempt; in the meantime it may be dropped for room, as the oldest.
    pub(super) fn put_back(&self, why: String) {
        let mut state = self.state();
        state.sending = false;
        state.stats.last_error = Some(why);
    }

    /// Gives up all that is here and all that comes: shutdown's time is over.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.close(Cause::Shutdown);
        self.publish(&state);
    }

    /// Gives up all that is here and all that comes, and tells nobody who waits.
    pub(super) fn abandon(&self, cause: Cause) {
        self.state().close(cause);
    }

    /// Waits until all that was pushed before this call has its verdict.
    pub(super) async fn flushed(&self) {
        let mark = self.state().next;
        // The sender lives as long as this queue: the wait ends by the value alone.
        let _ = self.settled.subscribe().wait_for(|settled| *settled >= mark).await;
    }

    /// The figures as they stand.
    pub(super) fn stats(&self) -> DestinationStats {
        let state = self.state();
        let queued = state.entries.iter().map(|entry| entry.batch.stacks()).sum();
        DestinationStats { queued, ..state.stats.clone() }
    }

    /// Counts `stacks` that this destination lost before they could be queued.
    pub(super) fn count_dropped(&self, stacks: u64, cause: Cause) {
        self.state().stats.dropped.add(cause, stacks);
    }

    /// Announces how far everything is settled. Under the lock, so that whoever sees it also sees the ledger settled.
    fn publish(&self, state: &State) {
        let unsettled = state.entries.front().map_or(state.next, |entry| entry.number);
        self.settled.send_if_modified(|settled| std::mem::replace(settled, unsettled) != unsettled);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing below the lock panics half-way: what a poisoned lock guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close(&mut self, cause: Cause) {
        self.closed = true;
        while !self.entries.is_empty() {
            self.give_up_at(0, cause);
        }
    }

    fn give_up_at(&mut self, index: usize, cause: Cause) {
        if let Some(entry) = self.entries.remove(index) {
            self.bytes -= entry.bytes;
            self.stats.dropped.add(cause, entry.batch.stacks());
            entry.batch.given_up(cause);
        }
    }

    fn take_front(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.pop_front_if(|entry| entry.number == number)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::{batch, ledger};
    use super::*;
    use crate::stats::Ledger;

    /// A queue with room for two batches of 100 bytes, and the ledger of 60 stacks that they come from.
    fn queue() -> (Queue, Arc<Ledger>) {
        (Queue::new("test".into(), Compression::None, 250), ledger(60))
    }

    fn push(queue: &Queue, stacks: u64, bytes: usize, ledger: &Arc<Ledger>) {
        queue.push(Arc::new(batch(stacks, bytes, 1, ledger)));
    }

    /// Check that a full queue drops the oldest, counts it, and stays within its bound.
    #[test]
    fn a_full_queue_drops_the_oldest() {
        let (queue, ledger) = queue();
        for stacks in [10, 20, 30] {
            push(&queue, stacks, 100, &ledger);
        }
        assert!(queue.state().bytes <= 250);
        assert_eq!(queue.stats().queued, 50);
        assert_eq!(queue.stats().dropped.count(Cause::QueueFull), 10);
        assert_eq!(ledger.account().lost.count(Cause::QueueFull), 10);
        assert_eq!(queue.begin().map(|(number, batch)| (number, batch.stacks())), Some((1, 20)));
    }

    /// Check that what is on the wire is not dropped for room, and is again the oldest once it waits for a retry.
    #[test]
    fn what_is_being_sent_is_not_dropped_for_room() {
        let (queue, ledger) = queue();
        push(&queue, 10, 100, &ledger);
        let (number, _) = queue.begin().unwrap();
        push(&queue, 20, 100, &ledger);
        push(&queue, 25, 100, &ledger);
        assert_eq!((queue.stats().queued, ledger.account().lost.total()), (35, 20));
        queue.put_back("busy".into());
        push(&queue, 5, 100, &ledger);
        assert_eq!((queue.stats().queued, ledger.account().lost.total()), (30, 30));
        queue.accepted(number, None);
        assert_eq!(queue.stats().delivered, 0, "the verdict on a dropped batch came too late to count");
        assert!(ledger.account().balances());
    }

    /// Check that a batch larger than the whole queue is dropped at once and harms nothing else.
    #[test]
    fn a_batch_larger_than_the_queue_is_dropped() {
        let (queue, ledger) = queue();
        push(&queue, 60, 1000, &ledger);
        assert_eq!((queue.stats().queued, queue.state().bytes), (0, 0));
        assert_eq!(ledger.account().lost.count(Cause::QueueFull), 60);
    }

    /// Check that closing gives up what waits, what is on the wire and what comes later, as lost to shutdown.
    #[test]
    fn closing_settles_everything() {
        let (queue, ledger) = queue();
        push(&queue, 10, 100, &ledger);
        push(&queue, 20, 100, &ledger);
        let (number, _) = queue.begin().unwrap();
        queue.close();
        push(&queue, 30, 100, &ledger);
        queue.accepted(number, None);
        let account = ledger.account();
        assert_eq!((account.pending, account.exported, account.lost.count(Cause::Shutdown)), (0, 0, 60));
        assert_eq!(*queue.settled.borrow(), 3);
    }

    /// Check that flush waits for what was pushed before it, the one on the wire included, and for nothing later.
    #[test]
    fn flush_waits_for_what_came_before() {
        let (queue, ledger) = queue();
        push(&queue, 10, 100, &ledger);
        let (number, _) = queue.begin().unwrap();
        let settled = queue.settled.subscribe();
        assert_eq!((queue.state().next, *settled.borrow()), (1, 0));
        push(&queue, 10, 100, &ledger);
        queue.accepted(number, None);
        assert_eq!(*settled.borrow(), 1);
    }
}
