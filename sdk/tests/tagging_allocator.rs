//! An allocator that enters scopes, as one that counts by tag would: also the first scope of a thread allocates.
//!
//! A binary of its own, for its allocator serves the process.

#![cfg(feature = "cpu")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;

use profiler::{Scope, Tags};

/// Tags of all that is allocated; none before they are made.
static TAGS: OnceLock<Tags> = OnceLock::new();

/// The system's allocator, in a scope.
struct Tagging;

// SAFETY: every call goes to `System` unchanged; scopes touch no memory that it gives out.
unsafe impl GlobalAlloc for Tagging {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _scope = TAGS.get().map(Scope::enter);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is also `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let _scope = TAGS.get().map(Scope::enter);
        // SAFETY: `place` comes from `alloc` above, hence from `System`, with the same layout.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Tagging = Tagging;

/// Check that threads begin, work and end with such an allocator, and have their own tags in force.
#[test]
fn an_allocator_may_enter_scopes() {
    TAGS.set(profiler::tags!("allocator" => 1)).unwrap();
    let work = || {
        let _outer = profiler::tag!("outer" => 1);
        let scopes: Vec<_> = (0..100).map(|number| profiler::tag!("number" => number)).collect();
        let inside = format!("{:?}", Tags::current());
        drop(scopes);
        (inside, format!("{:?}", Tags::current()))
    };
    let (inside, outside) = std::thread::spawn(work).join().unwrap();
    for part in [r#""number": "99""#, r#""outer": "1""#] {
        assert!(inside.contains(part), "{inside}");
    }
    assert_eq!(outside, r#"{"outer": "1"}"#);
}
