//! The tags that one place in a program always has: built when the place is first reached, there for the life of the process.
//!
//! In: how to build them, from what `#[tagged]` writes. Out: a scope, or the set for work that is still to come. No lock: a child that was forked
//! at any moment can use what its parent had, and an allocator with such a place goes without its tags while they are built, for that allocates.

use std::cell::Cell;

use super::counts::leave_out;
use super::keys;
use super::nested;
use super::set_once::SetOnce;
use super::tags::{Scope, Tags};

/// For the macros of this crate, not for use. Empty until the tags are built.
#[derive(Debug)]
pub struct FixedTags(SetOnce<Tags>);

thread_local! {
    /// This thread builds a set.
    static BUILDS: Cell<bool> = const { Cell::new(false) };
}

impl FixedTags {
    /// Not built yet.
    #[expect(clippy::new_without_default, reason = "for statics")]
    #[must_use]
    pub const fn new() -> Self {
        Self(SetOnce::empty())
    }

    /// Puts them in force on this thread; there are `count` of them, and `build` says which, the first time.
    #[inline]
    pub fn enter(&'static self, count: u64, build: impl FnOnce() -> Tags) -> Scope {
        self.get(build).map_or_else(|| refused(count), Scope::enter)
    }

    /// The same for what is polled later.
    #[inline]
    pub fn tags(&'static self, count: u64, build: impl FnOnce() -> Tags) -> Tags {
        let none = || {
            leave_out(count);
            Tags::default()
        };
        self.get(build).map_or_else(none, Tags::fixed)
    }

    #[inline]
    fn get(&'static self, build: impl FnOnce() -> Tags) -> Option<&'static Tags> {
        self.0.get().or_else(|| self.build(build))
    }

    /// Builds them; `None` within the building of others, and within the adding of a key, when a set could not have keys of its own and would be
    /// kept without them.
    #[cold]
    fn build(&'static self, build: impl FnOnce() -> Tags) -> Option<&'static Tags> {
        if keys::is_adding() {
            return None;
        }
        nested::once(&BUILDS, || self.0.set(build()))
    }
}

/// A scope without its tags.
#[cold]
fn refused(count: u64) -> Scope {
    leave_out(count);
    Scope::refused()
}

#[cfg(test)]
mod tests {
    use super::super::counts::left_out_here;
    use super::*;

    /// Check that what is entered while a set is built, as by an allocator, goes without its tags, and that each of them is counted.
    #[test]
    fn what_is_entered_meanwhile_goes_without_its_tags() {
        static OUTER: FixedTags = FixedTags::new();
        static INNER: FixedTags = FixedTags::new();
        let before = left_out_here();
        let _outer = OUTER.enter(1, || {
            drop(INNER.enter(3, || panic!("built within another one")));
            assert_eq!(left_out_here(), before + 3);
            crate::tags!("built" => "outer")
        });
        assert_eq!((Tags::current().get("built").as_deref(), left_out_here()), (Some("outer"), before + 3));
    }

    /// Check that the set for what is polled later is built once, is one set for all, and is none, counted, where it cannot be built.
    #[test]
    fn what_is_polled_later_has_one_set() {
        static LATER: FixedTags = FixedTags::new();
        let before = left_out_here();
        let refused = keys::while_adding(|| LATER.tags(2, || panic!("built while a key is added")));
        assert_eq!((refused.map(|tags| tags.is_empty()), left_out_here()), (Some(true), before + 2));
        let first = LATER.tags(1, || crate::tags!("fixed.later" => "once"));
        let second = LATER.tags(1, || panic!("built again"));
        assert!(std::ptr::eq(first.as_bytes(), second.clone().as_bytes()));
        let _scope = Scope::enter(&second);
        assert_eq!((Tags::current().get("fixed.later").as_deref(), left_out_here()), (Some("once"), before + 2));
    }

    /// Check that what is first entered while the thread adds a key, as by an allocator, goes without its tags then, which are counted, and has all of
    /// them later.
    #[test]
    fn what_is_first_entered_while_a_key_is_added_is_built_later() {
        static LATER: FixedTags = FixedTags::new();
        let enter = || LATER.enter(2, || crate::tags!("fixed.first" => 1, "fixed.second" => 2));
        let before = left_out_here();
        keys::while_adding(|| drop(enter()));
        assert_eq!(left_out_here(), before + 2);
        let _scope = enter();
        let of = |key| Tags::current().get(key).map(|value| value.to_string());
        assert_eq!((of("fixed.first").as_deref(), of("fixed.second").as_deref()), (Some("1"), Some("2")));
        assert_eq!(left_out_here(), before + 2);
    }
}
