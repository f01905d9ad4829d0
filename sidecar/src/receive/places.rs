//! How many connections there are at once, and which one goes for a new one: the one that has been idle longest.
//!
//! In: connections as they come, have requests, and go. Out: for each a sign that it has to go. So those who only hold a connection open,
//! by pings or by nothing, lock nobody out; who has a request under way stays, which takes a bounded time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

/// The places of a receiver.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
    /// Told when there may be a place.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    places: BTreeMap<u64, State>,
    next: u64,
}

#[derive(Debug)]
struct State {
    /// Requests under way.
    requests: usize,
    /// When the last one ended, or the connection came.
    since: Instant,
    leave: Arc<Notify>,
}

/// A connection's place; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    places: Arc<Places>,
    leave: Arc<Notify>,
}

/// As long as this is there, a request is under way and the place is not taken away.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Place>);

impl Places {
    /// So many places, all free.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default(), changed: Notify::new() })
    }

    /// A place for a new connection: a free one, else that of the connection which has been idle longest, else the next that is either.
    pub(super) async fn take(self: &Arc<Self>) -> Arc<Place> {
        loop {
            let changed = self.changed.notified();
            if let Some(place) = self.try_take() {
                return place;
            }
            changed.await;
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Arc<Place>> {
        let mut taken = self.taken();
        if taken.places.len() >= self.most {
            let idle = taken.places.iter().filter(|(_, state)| state.requests == 0);
            let (goes, _) = idle.min_by_key(|(_, state)| state.since)?;
            let goes = *goes;
            taken.places.remove(&goes)?.leave.notify_one();
        }
        let (number, leave) = (taken.next, Arc::new(Notify::new()));
        taken.next += 1;
        taken.places.insert(number, State { requests: 0, since: Instant::now(), leave: Arc::clone(&leave) });
        Some(Arc::new(Place { number, places: Arc::clone(self), leave }))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Plain numbers: whole even if the lock is poisoned.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Ends when the connection has to go for another one.
    pub(super) async fn leave(&self) {
        self.leave.notified().await;
    }

    /// Ends when the connection has had no request for `time`.
    pub(super) async fn idle(&self, time: Duration) {
        loop {
            let now = Instant::now();
            let until = match self.places.taken().places.get(&self.number) {
                Some(State { requests: 0, since, .. }) => *since + time,
                _ => now + time,
            };
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// A request is under way.
    pub(super) fn request(self: &Arc<Self>) -> UnderWay {
        self.change(|state| state.requests += 1);
        UnderWay(Arc::clone(self))
    }

    /// Changes its state, unless the place is another's by now.
    fn change(&self, change: impl FnOnce(&mut State)) {
        if let Some(state) = self.places.taken().places.get_mut(&self.number) {
            change(state);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.requests = state.requests.saturating_sub(1);
            state.since = Instant::now();
        });
        self.0.places.changed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().places.remove(&self.number);
        self.places.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_told_to_leave(place: &Place) -> bool {
        pin!(place.leave()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Check that the one that has been idle longest goes for a new one, that one with a request stays, and that a new one waits where all have one.
    #[test]
    fn the_longest_idle_goes() {
        let places = Places::new(3);
        let [first, second, third] = [(); 3].map(|()| places.try_take().unwrap());
        drop(first.request());
        let busy = second.request();
        let fourth = places.try_take().unwrap();
        assert_eq!([&first, &second, &third].map(|place| is_told_to_leave(place)), [false, false, true]);
        let fifth = places.try_take().unwrap();
        assert_eq!([&first, &second, &fourth].map(|place| is_told_to_leave(place)), [true, false, false]);
        let _all = [fourth.request(), fifth.request()];
        let mut next = pin!(places.take());
        let mut context = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending());
        drop(busy);
        assert!(matches!(next.as_mut().poll(&mut context), Poll::Ready(_)) && is_told_to_leave(&second));
    }
}
