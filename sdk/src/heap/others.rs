//! The hooks of others that were there before ours, each of which is told of a block once.
//!
//! In: a block of which ours has been told, or is told once more, by another one's hook. Out: the call of the next older one. Callable from hooks.

use std::cell::Cell;

use crate::others::Others;

thread_local! {
    /// The block of which others are being told, for they may call ours, and how many were; 0: none.
    static TELLING: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Whether others are being told of this block by this thread, and called ours.
pub(super) fn are_being_told(block: usize) -> bool {
    TELLING.get().0 == block
}

/// Calls the next one of the others for this block, if there is one.
pub(super) fn tell(others: &Others, block: usize, call: impl FnOnce(usize)) {
    let outer = TELLING.get();
    let told = if outer.0 == block { outer.1 } else { 0 };
    let Some(next) = others.behind(told) else { return };
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

    /// Check that each is told once, the newest first.
    #[test]
    fn each_is_told_once() {
        let others = Others::none();
        assert!(told(&others).is_empty());
        [7, 8, 8, 9].iter().for_each(|hook| others.found(*hook));
        assert_eq!(told(&others), [9, 8, 7]);
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
