//! Who was there before us, where one place in the process holds one address: a handler of a signal, a hook of the allocator.
//!
//! In: the address that is found there at each start. Out: whom to call. Who came behind our first start and calls ours is called by ours behind
//! the next: a circle, in which ours is called once more for the same event, and goes on to those that were there before that. So each is
//! called once, in the order in which each found the one before it. Callable from hooks and signal handlers; leaf module.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Most that are remembered: the newest.
const MOST: usize = 4;

/// Their addresses, the newest first; 0: none.
#[derive(Debug)]
pub(crate) struct Others([AtomicUsize; MOST]);

impl Others {
    pub(crate) const fn none() -> Self {
        Self([const { AtomicUsize::new(0) }; MOST])
    }

    pub(crate) fn are_there(&self) -> bool {
        self.0[0].load(Ordering::Acquire) != 0
    }

    /// The one to call when so many have been called for the same event; `None`: nobody is left.
    pub(crate) fn behind(&self, called: usize) -> Option<usize> {
        // Acquire: pairs with the Release stores in `found`.
        self.0.get(called).map(|place| place.load(Ordering::Acquire)).filter(|other| *other != 0)
    }

    /// Somebody's was found where ours is to be; 0: nobody's, for whoever was there has taken all of them away.
    pub(crate) fn found(&self, other: usize) {
        let mut all = [0; MOST];
        if other != 0 {
            let before = self.0.iter().map(|place| place.load(Ordering::Relaxed)).filter(|known| *known != other);
            all.iter_mut().zip([other].into_iter().chain(before)).for_each(|(place, other)| *place = other);
        }
        // From behind: a call on its way goes to the newest that it finds.
        self.0.iter().zip(all).rev().for_each(|(place, other)| place.store(other, Ordering::Release));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(others: &Others) -> Vec<usize> {
        (0..).map_while(|called| others.behind(called)).collect()
    }

    /// Check that the newest comes first, also one that comes again, that the oldest are forgotten, and that all are gone where
    /// somebody took them away.
    #[test]
    fn the_newest_is_first() {
        let others = Others::none();
        assert_eq!((others.are_there(), all(&others)), (false, vec![]));
        [7, 8, 8, 9].iter().for_each(|other| others.found(*other));
        assert_eq!((others.are_there(), all(&others)), (true, vec![9, 8, 7]));
        others.found(7);
        assert_eq!(all(&others), [7, 9, 8]);
        [1, 2].iter().for_each(|other| others.found(*other));
        assert_eq!(all(&others), [2, 1, 7, 9]);
        others.found(0);
        assert_eq!((others.are_there(), all(&others)), (false, vec![]));
    }
}
