//! What waits for one destination: parcels in order, bounded in bytes and in age, the oldest out first.
//!
//! In: parcels from any thread ([`Queue::push`] never waits), attempts and verdicts from the one task that delivers. Out: the parcel
//! whose turn it is, figures for `stats()`, and how far everything is settled, for flush. Every parcel that was pushed
//! gets exactly one verdict: accepted, or given up with its cause. Where there is a spool, what there is no room or no time for here
//! is released to it instead, and gets its verdict when it comes back or is lost there ([`backlog`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use profiler_proto::loss::Cause;
use tokio::sync::{Notify, watch};

use self::backlog::{InHand, Mail, Released};
use super::parcel::{Fate, Parcel, Spooled};
use super::shelf::Shelf;
use crate::stats::{DestinationStats, Kinds};

mod backlog;

pub(super) use self::backlog::Lost;

/// The queue of one destination.
#[derive(Debug)]
pub(super) struct Queue {
    /// Bound of [`State::bytes`].
    capacity: usize,
    /// A single body up to this length is taken in beyond it, or it could never be sent.
    longest: usize,
    /// Nothing is sent that has waited for longer.
    max_age: Duration,
    state: Mutex<State>,
    /// Something to send has come.
    arrived: Notify,
    /// Every parcel with a number below this has its verdict.
    settled: watch::Sender<u64>,
    /// The place of the destination in the spool, if there is one.
    shelf: OnceLock<Shelf>,
    /// What the spool said to be lost: told by its thread, which must neither wait for this queue nor wake anybody.
    mail: Mail,
}

#[derive(Debug)]
struct State {
    /// Oldest first. Invariant: numbers ascend, `bytes` is the sum of the bodies' lengths.
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The first entry is on the wire and cannot be dropped for room.
    sending: bool,
    closed: bool,
    /// The number of the next parcel.
    next: u64,
    /// Bytes before compression of all that was pushed.
    came: u64,
    /// The parcel that was sent last.
    sent: Option<u64>,
    /// What only the spool has, by number of this process.
    released: BTreeMap<u64, Released>,
    /// What came back from there and is being sent.
    in_hand: Option<InHand>,
    /// Parcels that were given up, and what could not be made one, unless it was empty.
    missed: u64,
    kinds: Kinds,
    stats: DestinationStats,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    pushed: Instant,
    /// Whether it was sent and not answered: it may have arrived.
    unanswered: bool,
    parcel: Parcel,
}

/// What one attempt to send a parcel took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// The parcel's number.
    pub(super) number: u64,
    /// From connecting to the end of the answer, or until it failed.
    pub(super) latency: Duration,
    /// Bytes of bodies that were handed to a connection until now, in all attempts.
    pub(super) sent_bytes: u64,
}

impl Queue {
    /// An empty queue for the destination called `name`, with room for bodies of `capacity` bytes that wait for `max_age`; for a single body
    /// of `longest` bytes even where `capacity` is less.
    pub(super) fn new(name: String, (capacity, longest): (usize, usize), max_age: Duration) -> Self {
        let state = State {
            entries: VecDeque::new(),
            bytes: 0,
            sending: false,
            closed: false,
            next: 0,
            came: 0,
            sent: None,
            released: BTreeMap::new(),
            in_hand: None,
            missed: 0,
            kinds: Kinds::default(),
            stats: DestinationStats { name, ..DestinationStats::default() },
        };
        Self {
            capacity,
            longest,
            max_age,
            state: Mutex::new(state),
            arrived: Notify::new(),
            settled: watch::Sender::new(0),
            shelf: OnceLock::new(),
            mail: Mail::default(),
        }
    }

    /// Takes `parcel` in, dropping the oldest if there is no room. Never waits.
    pub(super) fn push(&self, parcel: Parcel) {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.bytes += parcel.body.len();
        state.came += parcel.body.uncompressed as u64;
        state.stats.untagged_samples += parcel.body.untagged as u64;
        state.kinds.offer(parcel.fate.contents());
        state.entries.push_back(Entry { number, pushed: Instant::now(), unanswered: false, parcel });
        if state.closed {
            state.give_up_at(0, Cause::Shutdown, self.shelf.get());
        }
        let oldest_droppable = usize::from(state.sending);
        while state.bytes > self.capacity && state.entries.len() > oldest_droppable {
            if state.entries.len() == 1 && state.bytes <= self.longest {
                break;
            }
            state.let_go_at(oldest_droppable, Cause::QueueFull, self.shelf.get());
        }
        self.publish(&state);
        self.arrived.notify_one();
    }

    /// Gives up, for this destination, what cannot be made a parcel.
    pub(super) fn refuse(&self, fate: &Fate, cause: Cause) {
        let mut state = self.state();
        state.kinds.offer(fate.contents());
        state.give_up(fate, cause);
    }

    /// The oldest parcel with its number, as soon as there is one; what is too old is given up first. It stays here, safe from being dropped for room, until
    /// [`Queue::accepted`], [`Queue::given_up`] or [`Queue::put_back`].
    pub(super) async fn next(&self) -> (u64, Parcel) {
        loop {
            if let Some(front) = self.begin(Instant::now()) {
                return front;
            }
            self.arrived.notified().await;
        }
    }

    fn begin(&self, now: Instant) -> Option<(u64, Parcel)> {
        let mut state = self.state();
        while state.entries.front().is_some_and(|entry| entry.age(now) > self.max_age) {
            match self.shelf.get().filter(|shelf| shelf.is_ageless()) {
                None => state.give_up_at(0, Cause::TooOld, self.shelf.get()),
                shelf => state.let_go_at(0, Cause::TooOld, shelf),
            }
        }
        self.publish(&state);
        let front = state.entries.front().map(|entry| (entry.number, entry.parcel.clone()));
        state.sending = front.is_some();
        front
    }

    /// An attempt to send the first parcel has ended; what it came to is said next.
    pub(super) fn attempted(&self, attempt: Attempt) {
        let mut state = self.state();
        let again = state.sent.replace(attempt.number) == Some(attempt.number);
        let stats = &mut state.stats;
        stats.requests += 1;
        stats.retried += u64::from(again);
        stats.sent_bytes = attempt.sent_bytes;
        stats.total_latency += attempt.latency;
        stats.last_latency = Some(attempt.latency);
        stats.longest_latency = stats.longest_latency.max(Some(attempt.latency));
    }

    /// The parcel being sent was acknowledged, perhaps with a warning.
    pub(super) fn accepted(&self, number: u64, warning: Option<String>) {
        let mut state = self.state();
        state.sending = false;
        if let Some(fate) = state.take_front(number, self.shelf.get()) {
            state.stats.delivered = state.stats.delivered.saturating_add(fate.contents().stacks);
            state.kinds.export(fate.contents());
            state.stats.last_error = warning.or(state.stats.last_error.take());
            fate.accepted();
        }
        self.publish(&state);
    }

    /// The parcel being sent will not be sent again.
    pub(super) fn given_up(&self, number: u64, cause: Cause, why: String) {
        let mut state = self.state();
        state.sending = false;
        state.stats.last_error = Some(why);
        if let Some(fate) = state.take_front(number, self.shelf.get()) {
            state.give_up(&fate, cause);
        }
        self.publish(&state);
    }

    /// The parcel being sent has had its time, or all the tries that memory has for it: it is given up, unless the spool has it.
    pub(super) fn out_of_time(&self, number: u64, cause: Cause, why: String) {
        let mut state = self.state();
        state.sending = false;
        state.stats.last_error = Some(why);
        if let Some(entry) = state.entries.front_mut().filter(|entry| entry.number == number) {
            entry.unanswered |= cause == Cause::Unanswered;
            state.let_go_at(0, cause, self.shelf.get());
        }
        self.publish(&state);
    }

    /// The peer said that it rejected so many of the profiles of a parcel.
    pub(super) fn count_rejected(&self, profiles: u64) {
        self.state().stats.rejected_profiles += profiles;
    }

    /// The parcel being sent waits for another attempt; in the meantime it may be dropped for room, as the oldest.
    pub(super) fn put_back(&self, number: u64, unanswered: bool, why: String) {
        let mut state = self.state();
        state.sending = false;
        state.stats.last_error = Some(why);
        if let Some(entry) = state.entries.front_mut().filter(|entry| entry.number == number) {
            entry.unanswered |= unanswered;
        }
    }

    /// Bytes before compression of all that was pushed until now; `None` when nothing waits.
    pub(super) fn backlog(&self) -> Option<u64> {
        let state = self.state();
        (!state.entries.is_empty()).then_some(state.came)
    }

    /// Gives up all that is here and all that comes: shutdown's time is over. What the spool has stays pending, and waits there for the
    /// next process.
    pub(super) fn close(&self) {
        self.read_mail();
        let mut state = self.state();
        state.let_go_of_hand(Cause::SpoolFull);
        state.close(Cause::Shutdown, self.shelf.get());
        self.publish(&state);
    }

    /// Gives up all that is here and all that comes, and tells nobody who waits.
    pub(super) fn abandon(&self, cause: Cause) {
        self.state().close(cause, self.shelf.get());
    }

    /// The name of the destination.
    pub(super) fn name(&self) -> String {
        self.state().stats.name.clone()
    }

    /// The number up to which parcels were pushed until now.
    pub(super) fn mark(&self) -> u64 {
        self.state().next
    }

    /// How many parcels were given up until now.
    pub(super) fn missed(&self) -> u64 {
        self.state().missed
    }

    /// Waits until all that was pushed before `mark` has its verdict.
    pub(super) async fn flushed(&self, mark: u64) {
        // The sender lives as long as this queue: the wait ends by the value alone.
        let _ = self.settled.subscribe().wait_for(|settled| *settled >= mark).await;
    }

    /// The figures as they stand.
    pub(super) fn stats(&self) -> DestinationStats {
        self.read_mail();
        let state = self.state();
        let in_memory =
            state.entries.iter().map(|entry| entry.parcel.fate.contents().stacks).fold(0, u64::saturating_add);
        let spooled = state.released.values().map(Released::stacks).fold(0, u64::saturating_add);
        DestinationStats {
            queued: in_memory.saturating_add(spooled),
            spooled,
            queued_bytes: state.bytes as u64,
            kinds: state.kinds.to_vec(),
            ..state.stats.clone()
        }
    }

    /// Announces how far everything is settled. Under the lock, so that whoever sees it also sees the ledger settled.
    fn publish(&self, state: &State) {
        let oldest = state.entries.front().map_or(state.next, |entry| entry.number);
        let unsettled = state.released.values().map(Released::number).fold(oldest, u64::min);
        self.settled.send_if_modified(|settled| std::mem::replace(settled, unsettled) != unsettled);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing below the lock panics half-way: what a poisoned lock guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close(&mut self, cause: Cause, shelf: Option<&Shelf>) {
        self.closed = true;
        while !self.entries.is_empty() {
            self.let_go_at(0, cause, shelf);
        }
    }

    /// Leaves an entry to the spool if that has it, else gives it up.
    fn let_go_at(&mut self, index: usize, cause: Cause, shelf: Option<&Shelf>) {
        match shelf.filter(|_| self.entries.get(index).is_some_and(|entry| entry.parcel.is_kept())) {
            Some(shelf) => self.release_at(index, shelf),
            None => self.give_up_at(index, cause, shelf),
        }
    }

    fn give_up_at(&mut self, index: usize, cause: Cause, shelf: Option<&Shelf>) {
        if let Some(Entry { parcel, unanswered, .. }) = self.entries.remove(index) {
            self.bytes -= parcel.body.len();
            settle(parcel.spooled, shelf);
            self.give_up(&parcel.fate, or_unanswered(cause, unanswered));
        }
    }

    fn give_up(&mut self, fate: &Fate, cause: Cause) {
        self.missed += u64::from(fate.contents().profiles() > 0);
        self.stats.dropped.add(cause, fate.contents().stacks);
        self.kinds.lose(fate.contents(), cause);
        fate.given_up(cause);
    }

    fn take_front(&mut self, number: u64, shelf: Option<&Shelf>) -> Option<Arc<Fate>> {
        let Entry { parcel, .. } = self.entries.pop_front_if(|entry| entry.number == number)?;
        self.bytes -= parcel.body.len();
        settle(parcel.spooled, shelf);
        Some(parcel.fate)
    }
}

/// Why what goes for room or for its age is lost: where it was sent and not answered, it may have arrived.
fn or_unanswered(cause: Cause, unanswered: bool) -> Cause {
    match cause {
        Cause::QueueFull | Cause::TooOld | Cause::SpoolFull | Cause::SpoolDamaged if unanswered => Cause::Unanswered,
        cause => cause,
    }
}

impl Entry {
    /// How long it waits, and what is in it was waited for.
    fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.pushed).saturating_add(self.parcel.body.lasted)
    }
}

/// The destination needs what the spool has of it no more.
fn settle(spooled: Option<Spooled>, shelf: Option<&Shelf>) {
    if let (Some(spooled), Some(shelf)) = (spooled, shelf) {
        shelf.settle(spooled.receipt);
    }
}

#[cfg(test)]
mod tests;
