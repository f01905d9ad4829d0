//! How many connections there are at once, and which one goes for a new one: the one that has said nothing for longest.
//!
//! In: connections as they come, begin and end to answer, and go. Out: for each a sign that it has to go. So those who only hold a
//! connection open lock nobody out; who is being answered keeps the seat.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The seats of a server.
#[derive(Debug)]
pub(super) struct Seats {
    most: usize,
    taken: Mutex<Taken>,
    /// Told when a seat is free, or one that it is taken from has nothing to do.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    seats: BTreeMap<u64, State>,
    /// Counts what happens, as a clock.
    moment: u64,
}

#[derive(Debug)]
struct State {
    /// Answers under way.
    busy: usize,
    /// When it was last busy.
    since: u64,
    leave: Arc<Notify>,
}

/// A connection's seat; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    number: u64,
    seats: Arc<Seats>,
    leave: Arc<Notify>,
}

/// As long as this is there, the seat is not taken away.
#[derive(Debug)]
pub(super) struct Busy(Arc<Seat>);

impl Seats {
    /// So many seats, all free.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default(), changed: Notify::new() })
    }

    /// A seat for a new connection: a free one, else that of the connection which has been idle longest, else the next that is either.
    pub(super) async fn take(self: &Arc<Self>) -> Arc<Seat> {
        loop {
            let changed = self.changed.notified();
            if let Some(seat) = self.try_take() {
                return seat;
            }
            changed.await;
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Arc<Seat>> {
        let mut taken = self.taken();
        if taken.seats.len() >= self.most {
            let idle = taken.seats.iter().filter(|(_, state)| state.busy == 0);
            let longest = idle.min_by_key(|(_, state)| state.since).map(|(number, _)| *number)?;
            taken.seats.remove(&longest)?.leave.notify_one();
        }
        let (number, leave) = (taken.tick(), Arc::new(Notify::new()));
        taken.seats.insert(number, State { busy: 0, since: number, leave: Arc::clone(&leave) });
        Some(Arc::new(Seat { number, seats: Arc::clone(self), leave }))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Plain numbers: whole even if the lock is poisoned.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }
}

impl Seat {
    /// Ends when the connection has to go.
    pub(super) async fn leave(&self) {
        self.leave.notified().await;
    }

    /// A request is being answered.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.count(|busy| busy + 1);
        Busy(Arc::clone(self))
    }

    fn count(&self, change: impl Fn(usize) -> usize) {
        let mut taken = self.seats.taken();
        let moment = taken.tick();
        if let Some(state) = taken.seats.get_mut(&self.number) {
            (state.busy, state.since) = (change(state.busy), moment);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.count(|busy| busy.saturating_sub(1));
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
        let seats = Seats::new(3);
        let [first, second, third] = [(); 3].map(|()| seats.try_take().unwrap());
        // The first two said something since, the second one is still being answered.
        drop(first.busy());
        let busy = second.busy();
        let fourth = seats.try_take().unwrap();
        assert_eq!([&first, &second, &third].map(|seat| is_told_to_leave(seat)), [false, false, true]);
        let fifth = seats.try_take().unwrap();
        assert_eq!([&first, &second, &fourth].map(|seat| is_told_to_leave(seat)), [true, false, false]);
        let all = [fourth.busy(), fifth.busy()];
        assert!(seats.try_take().is_none(), "all are being answered");
        drop(all);
        drop(busy);
        assert!(seats.try_take().is_some() && is_told_to_leave(&fourth));
    }

    /// Check that a new connection waits for a seat where all are busy, and gets it when one is done.
    #[test]
    fn a_new_one_waits_where_all_are_busy() {
        let seats = Seats::new(1);
        let only = seats.try_take().unwrap();
        let busy = only.busy();
        let mut next = pin!(seats.take());
        let mut context = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending());
        drop(busy);
        let Poll::Ready(seat) = next.as_mut().poll(&mut context) else { panic!("the seat is free") };
        assert!(is_told_to_leave(&only));
        drop((only, seat));
        assert_eq!(seats.taken().seats.len(), 0);
    }
}
