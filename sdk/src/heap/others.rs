//! The hooks of others that were there before ours, at this start or at one before.
//!
//! In: the address of what is there at each start. Out: whom to call. Who came behind our first start and calls ours is called by ours behind the
//! next: a circle, in which ours are called once more for the same block, and go on to those that were there before that. So each is called once, in the order
//! in which each found the one before it. Callable from hooks; leaf module.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most that are remembered: the newest.
const MOST: usize = 4;

thread_local! {
    /// The block of which others are being told, for they may call ours, and how many were; 0: none.
    static TELLING: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Their addresses, the newest first; 0: none.
#[derive(Debug)]
pub(super) struct Others([AtomicUsize; MOST]);

impl Others {
    pub(super) const fn none() -> Self {
        Self([const { AtomicUsize::new(0) }; MOST])
    }

    pub(super) fn are_there(&self) -> bool {
        self.0[0].load(Ordering::Acquire) != 0
    }

    /// Somebody's hook was found where ours is to be; 0: nobody's, for whoever was there has taken all of them away.
    pub(super) fn found(&self, hook: usize) {
        let mut all = [0; MOST];
        if hook != 0 {
            let before = self.0.iter().map(|place| place.load(Ordering::Relaxed)).filter(|other| *other != hook);
            all.iter_mut().zip([hook].into_iter().chain(before)).for_each(|(place, other)| *place = other);
        }
        // From behind: a hook on its way calls the newest that it finds.
        self.0.iter().zip(all).rev().for_each(|(place, other)| place.store(other, Ordering::Release));
    }
}

/// Whether others are being told of this block by this thread, and called ours.
pub(super) fn are_being_told(block: usize) -> bool {
    TELLING.get().0 == block
}

/// Calls the next one of the others for this block, if there is one.
pub(super) fn tell(others: &Others, block: usize, call: impl FnOnce(usize)) {
    let outer = TELLING.get();
    let told = if outer.0 == block { outer.1 } else { 0 };
    let Some(next) = others.0.get(told).map(|place| place.load(Ordering::Acquire)).filter(|next| *next != 0) else {
        return;
    };
    TELLING.set((block, told + 1));
    call(next);
    TELLING.set(outer);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whom a hook of ours calls in turn, where each calls ours again.
    fn told(others: &Others) -> Vec<usize> {
        fn go_on(others: &Others, all: &mut Vec<usize>) {
            tell(others, 4096, |other| {
                all.push(other);
                go_on(others, all);
            });
        }
        let mut all = Vec::new();
        go_on(others, &mut all);
        assert!(!are_being_told(4096));
        all
    }

    /// Check that each is told once, the newest first, that who comes again is the newest, and that all are gone where somebody took them away.
    #[test]
    fn each_is_told_once() {
        let others = Others::none();
        assert_eq!((others.are_there(), told(&others)), (false, vec![]));
        [7, 8, 8, 9].iter().for_each(|hook| others.found(*hook));
        assert_eq!(told(&others), [9, 8, 7]);
        others.found(7);
        assert_eq!(told(&others), [7, 9, 8]);
        [1, 2].iter().for_each(|hook| others.found(*hook));
        assert_eq!(told(&others), [2, 1, 7, 9]);
        others.found(0);
        assert_eq!((others.are_there(), told(&others)), (false, vec![]));
    }

    /// Check that a block within the telling of another one is told of from the beginning, and that the outer one goes on behind it.
    #[test]
    fn one_within_another_is_its_own() {
        let others = Others::none();
        [7, 8].iter().for_each(|hook| others.found(*hook));
        let mut all = Vec::new();
        tell(&others, 1, |outer| {
            all.push(outer);
            tell(&others, 2, |inner| all.push(inner));
            tell(&others, 1, |outer| all.push(outer));
        });
        assert_eq!(all, [8, 8, 7]);
    }
}
