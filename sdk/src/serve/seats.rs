//! How many connections there are at once, and which one goes for a new one: the one that has asked for nothing for longest.
//!
//! In: connections as they come, begin to be answered, have their answer written, and go. Out: for each a sign that it has to go. So those
//! who only hold a connection open, by pings or by nothing, lock nobody out; who is being answered keeps the seat, also while the answer is on
//! its way. Only where all are busy, those go who have not read their answer within [`SLOW`]. How much waits to be read is bounded over all of
//! them. A server whose answers are short need say nothing of them: [`Answering`] alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// For so long an answer may be on its way before its seat can be taken away.
const SLOW: Duration = Duration::from_secs(10);
/// How often whoever waits for a seat looks for those that have become slow.
const LOOK: Duration = Duration::from_secs(1);

/// The seats of a server.
#[derive(Debug)]
pub struct Seats {
    most: usize,
    /// Bytes of answers that may wait to be read, over all.
    most_unread: usize,
    taken: Mutex<Taken>,
    /// Told when a seat is free, or one that it is taken from has nothing to do.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    seats: BTreeMap<u64, State>,
    /// Number of the next seat.
    next: u64,
}

#[derive(Debug)]
struct State {
    /// Answers being made.
    answering: usize,
    /// Bytes of answers on their way, and since when.
    unread: Option<(usize, Instant)>,
    /// When it was last busy, or came.
    since: Instant,
    leave: Arc<Notify>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.answering == 0 && self.unread.is_none()
    }

    /// Since when its client could have read what it waits for no longer; `None` while that is being made.
    fn slow_at(&self, now: Instant) -> Option<Instant> {
        let (_, since) = self.unread.filter(|_| self.answering == 0)?;
        Some(since).filter(|since| now.saturating_duration_since(*since) >= SLOW)
    }
}

/// A connection's seat; free again when this is dropped.
#[derive(Debug)]
pub struct Seat {
    number: u64,
    seats: Arc<Seats>,
    leave: Arc<Notify>,
}

/// As long as this is there, an answer is being made and the seat is not taken away. Behind it, the answer is on its way until
/// [`Seat::written`].
#[derive(Debug)]
pub struct Answering(Arc<Seat>);

impl Seats {
    /// So many seats, all free, and so many bytes that may wait to be read.
    #[must_use]
    pub fn new(most: usize, most_unread: usize) -> Arc<Self> {
        Arc::new(Self { most, most_unread, taken: Mutex::default(), changed: Notify::new() })
    }

    /// A seat for a new connection: a free one, else that of the connection which has been idle longest, else of the one that has been reading for
    /// longest, else the next that is either.
    pub async fn take(self: &Arc<Self>) -> Arc<Seat> {
        loop {
            let changed = self.changed.notified();
            if let Some(seat) = self.try_take(Instant::now()) {
                return seat;
            }
            // Either way there may be one now.
            drop(timeout(LOOK, changed).await);
        }
    }

    pub(super) fn try_take(self: &Arc<Self>, now: Instant) -> Option<Arc<Seat>> {
        let mut taken = self.taken();
        if taken.seats.len() >= self.most {
            let goes = taken.longest_idle().or_else(|| taken.slowest(now))?;
            taken.seats.remove(&goes)?.leave.notify_one();
        }
        let (number, leave) = (taken.next, Arc::new(Notify::new()));
        taken.next += 1;
        let since = Instant::now();
        taken.seats.insert(number, State { answering: 0, unread: None, since, leave: Arc::clone(&leave) });
        Some(Arc::new(Seat { number, seats: Arc::clone(self), leave }))
    }

    /// Whether a connection has nothing to do.
    #[cfg(test)]
    pub(super) fn has_idle(&self) -> bool {
        self.taken().longest_idle().is_some()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Plain numbers: whole even if the lock is poisoned.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn longest_idle(&self) -> Option<u64> {
        let idle = self.seats.iter().filter(|(_, state)| state.is_idle());
        idle.min_by_key(|(_, state)| state.since).map(|(number, _)| *number)
    }

    fn slowest(&self, now: Instant) -> Option<u64> {
        let slow = self.seats.iter().filter_map(|(number, state)| Some((state.slow_at(now)?, *number)));
        slow.min().map(|(_, number)| number)
    }

    /// Whether `bytes` more may wait to be read, perhaps in the place of what is read slowly. One answer alone always may.
    fn make_room(&mut self, bytes: usize, most: usize, now: Instant) -> bool {
        loop {
            let unread: usize = self.seats.values().filter_map(|state| state.unread).map(|(bytes, _)| bytes).sum();
            if unread == 0 || unread.saturating_add(bytes) <= most {
                return true;
            }
            let Some(gone) = self.slowest(now).and_then(|number| self.seats.remove(&number)) else { return false };
            gone.leave.notify_one();
        }
    }
}

impl Seat {
    /// Ends when the connection has to go.
    pub async fn leave(&self) {
        self.leave.notified().await;
    }

    /// Ends when the connection has had nothing to do for `time`.
    pub async fn idle(&self, time: Duration) {
        loop {
            let idle = match self.seats.taken().seats.get(&self.number) {
                Some(state) if state.is_idle() => state.since.elapsed(),
                _ => Duration::ZERO,
            };
            if idle >= time {
                return;
            }
            sleep(time - idle).await;
        }
    }

    /// A request is being answered.
    #[must_use]
    pub fn answering(self: &Arc<Self>) -> Answering {
        self.change(|state| {
            state.answering += 1;
            true
        });
        Answering(Arc::clone(self))
    }

    /// All that was to be sent is sent.
    pub fn written(&self) {
        let is_changed = self.change(|state| {
            // Of an answer whose body is still to come, only the head is; and mostly nothing was.
            let is_changed = state.answering == 0 && state.unread.is_some();
            state.unread = state.unread.filter(|_| !is_changed);
            is_changed
        });
        if is_changed {
            self.seats.changed.notify_one();
        }
    }

    /// Changes its state, unless the seat is another's by now, and says whether.
    fn change(&self, change: impl FnOnce(&mut State) -> bool) -> bool {
        self.seats.taken().seats.get_mut(&self.number).is_some_and(|state| {
            let is_changed = change(state);
            state.since = if is_changed { Instant::now() } else { state.since };
            is_changed
        })
    }
}

impl Answering {
    /// Its answer has so many bytes, which are on their way from now on, whenever this is dropped. `false` if too many wait to be read already,
    /// and none of them for long: then there has to be a short one.
    pub fn answers(&self, bytes: usize, now: Instant) -> bool {
        let mut taken = self.0.seats.taken();
        let has_room = taken.make_room(bytes, self.0.seats.most_unread, now);
        if let Some(state) = taken.seats.get_mut(&self.0.number) {
            let (before, since) = state.unread.unwrap_or((0, now));
            state.unread = Some((if has_room { before.saturating_add(bytes) } else { before }, since));
        }
        has_room
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.answering = state.answering.saturating_sub(1);
            true
        });
        self.0.seats.changed.notify_one();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken().seats.remove(&self.number);
        self.seats.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_told_to_leave(seat: &Seat) -> bool {
        pin!(seat.leave()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Check that the one that has been idle longest goes for a new one, and that one that is being answered stays.
    #[test]
    fn the_longest_idle_goes() {
        let (seats, now) = (Seats::new(3, usize::MAX), Instant::now());
        let [first, second, third] = [(); 3].map(|()| seats.try_take(now).unwrap());
        // The first two said something since, the second one is still being answered.
        drop(first.answering());
        let busy = second.answering();
        let fourth = seats.try_take(now).unwrap();
        assert_eq!([&first, &second, &third].map(|seat| is_told_to_leave(seat)), [false, false, true]);
        let fifth = seats.try_take(now).unwrap();
        assert_eq!([&first, &second, &fourth].map(|seat| is_told_to_leave(seat)), [true, false, false]);
        let all = [fourth.answering(), fifth.answering()];
        assert!(seats.try_take(now).is_none(), "all are being answered");
        drop(all);
        drop(busy);
        assert!(seats.try_take(now).is_some() && is_told_to_leave(&fourth));
    }

    /// Check that a new connection waits for a seat where all are busy, and gets it when one is done.
    #[test]
    fn a_new_one_waits_where_all_are_busy() {
        let seats = Seats::new(1, usize::MAX);
        let now = Instant::now();
        let only = seats.try_take(now).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let busy = only.answering();
        let mut next = pin!(seats.take());
        let mut context = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending());
        drop(busy);
        let Poll::Ready(seat) = next.as_mut().poll(&mut context) else { panic!("the seat is free") };
        assert!(is_told_to_leave(&only));
        drop((only, seat));
        assert_eq!(seats.taken().seats.len(), 0);
    }

    /// Check that a seat whose answer is on its way is taken only where all others are busy and it has been so for long, the longest first,
    /// and that it is idle when all is written.
    #[test]
    fn an_answer_on_its_way_keeps_the_seat() {
        let (seats, start) = (Seats::new(2, usize::MAX), Instant::now());
        let [first, second] = [(); 2].map(|()| seats.try_take(start).unwrap());
        for (seat, began) in [(&first, start), (&second, start + Duration::from_secs(1))] {
            let answering = seat.answering();
            assert!(answering.answers(100, began));
            // The head alone is no answer.
            seat.written();
        }
        assert!(seats.try_take(start + Duration::from_secs(9)).is_none());
        let third = seats.try_take(start + Duration::from_secs(10)).unwrap();
        assert_eq!([&first, &second].map(|seat| is_told_to_leave(seat)), [true, false]);
        assert!(third.answering().answers(1, start));
        second.written();
        assert!(seats.try_take(start).is_some() && is_told_to_leave(&second) && !is_told_to_leave(&third));
    }

    /// Check that no more bytes wait to be read than may, that slow readers go for others, and that a single answer has no bound.
    #[test]
    fn what_waits_to_be_read_is_bounded() {
        let (seats, start) = (Seats::new(8, 100), Instant::now());
        let [first, second, third] = [(); 3].map(|()| seats.try_take(start).unwrap());
        assert!(first.answering().answers(1000, start));
        first.written();
        assert!(first.answering().answers(60, start));
        assert!(!second.answering().answers(41, start) && second.answering().answers(40, start));
        second.written();
        assert!(second.answering().answers(40, start), "what is written waits no more");
        let later = start + SLOW;
        assert!(third.answering().answers(50, later));
        assert_eq!([&first, &second, &third].map(|seat| is_told_to_leave(seat)), [true, false, false]);
    }
}
