//! An allocator that enters scopes, as one that counts by tag would: sets made before, tags made there, and functions with tags. Also the first
//! scope of a thread allocates, as does each key and each set the first time.
//!
//! A binary of its own, for its allocator serves the process.

#![cfg(feature = "macros")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use profiler::{Scope, Tags};

/// Tags of all that is allocated; none before they are made.
static TAGS: OnceLock<Tags> = OnceLock::new();

/// What the allocator does.
static HOW: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = 0;
const ENTERS_SETS: u8 = 1;
const MAKES_TAGS: u8 = 2;
const CALLS_TAGGED: u8 = 3;

/// The system's allocator, in a scope.
struct Tagging;

impl Tagging {
    fn within<R>(work: impl FnOnce() -> R) -> R {
        match HOW.load(Ordering::Relaxed) {
            ENTERS_SETS => {
                let _scope = TAGS.get().map(Scope::enter);
                work()
            }
            MAKES_TAGS => {
                let _scope = profiler::tag!("allocator\n" => 2);
                work()
            }
            CALLS_TAGGED => tagged(work),
            _ => work(),
        }
    }
}

#[profiler::tagged(made_once = 3)]
fn tagged<R>(work: impl FnOnce() -> R) -> R {
    work()
}

// SAFETY: every call goes to `System` unchanged; scopes touch no memory that it gives out.
unsafe impl GlobalAlloc for Tagging {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is also `System`'s.
        Self::within(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: `place` comes from `alloc` above, hence from `System`, with the same layout.
        Self::within(|| unsafe { System.dealloc(place, layout) });
    }
}

#[global_allocator]
static ALLOCATOR: Tagging = Tagging;

/// The tags in force within a hundred scopes, and within one.
fn work() -> (String, String) {
    let _outer = profiler::tag!("outer" => 1);
    let scopes: Vec<_> = (0..100).map(|number| profiler::tag!("number" => number)).collect();
    let inside = format!("{:?}", Tags::current());
    drop(scopes);
    (inside, format!("{:?}", Tags::current()))
}

/// Check that threads begin, work and end with such an allocator, and have their own tags in force, whatever it does; and that neither the first tag with
/// a key nor the first call of a function with tags, which allocate, comes back to itself through the allocator.
#[test]
fn an_allocator_may_enter_scopes() {
    TAGS.set(profiler::tags!("allocator" => 1)).unwrap();
    for how in [ENTERS_SETS, MAKES_TAGS, CALLS_TAGGED] {
        let (sender, outcome) = mpsc::channel();
        // Also the channel, and the thread itself.
        HOW.store(how, Ordering::Relaxed);
        std::thread::spawn(move || sender.send(work()));
        let outcome = outcome.recv_timeout(Duration::from_secs(60));
        HOW.store(NOTHING, Ordering::Relaxed);
        let (inside, outside) = outcome.unwrap_or_else(|error| panic!("{how}: {error}"));
        for part in [r#""number": "99""#, r#""outer": "1""#] {
            assert!(inside.contains(part), "{how}: {inside}");
        }
        assert_eq!(outside, r#"{"outer": "1"}"#, "{how}");
    }
    // What the allocator brings is in force in it, once it is made: here by calling what it calls.
    assert_eq!(tagged(|| format!("{:?}", Tags::current())), r#"{"made_once": "3"}"#);
}
