//! The keys of tags, numbered: in a record, a key is one byte.
//!
//! In: the text of a key, from user code on any thread. Out: its number, and from a number its text. A key keeps its number
//! for the life of the process, so there are few: programs write keys down, and put what varies into values. No lock:
//! a child forked at any moment can use what its parent had.
//!
//! Source: OTEP 4947, `threadlocal.attribute_key_map`: an array of at most 256 texts, which only grows.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::hash::hash;
use super::nested;
use super::set_once::SetOnce;

/// Most keys of a process; tags with further ones are left out.
pub const MAX_KEYS: usize = 255;

/// Number of the key that says what became of the tags themselves.
pub(crate) const OF_TAGS: u8 = 0;
const OF_TAGS_TEXT: &str = "profiler.tags";

/// Every text; places that have none yet follow behind all that do.
static KEYS: [SetOnce<Box<str>>; MAX_KEYS] = [const { SetOnce::empty() }; MAX_KEYS];

/// How many places there are to look a key up: twice as many as there are keys.
const PLACES: usize = 512;

/// The numbers of keys, each at the place of its hash or, where others are, at the next one that was free; 0: free.
static NUMBERS: [AtomicU8; PLACES] = [const { AtomicU8::new(0) }; PLACES];

/// How many keys have a place in [`NUMBERS`]: where all have one, who is not found there is refused at once.
static PLACED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread adds a key.
    static ADDS: Cell<bool> = const { Cell::new(false) };
}

/// The number of a key, which is a new one if need be; `None` when there are no more, and of a new one for an allocator that is called while this
/// thread adds another.
pub(crate) fn number(key: &str) -> Option<u8> {
    if key == OF_TAGS_TEXT {
        return Some(OF_TAGS);
    }
    known(key).or_else(|| {
        // Acquire: pairs with the Release in `add`; who sees that all are placed finds the last one, too, which may not have been there a moment ago.
        if PLACED.load(Ordering::Acquire) == MAX_KEYS { known(key) } else { nested::once(&ADDS, || add(key))? }
    })
}

/// The number of a key that has a place.
#[inline]
fn known(key: &str) -> Option<u8> {
    let mut numbers = places(key).map(|place| place.load(Ordering::Acquire)).take_while(|number| *number != 0);
    numbers.find(|number| text(*number) == Some(key))
}

/// The places of a key in the order in which they are looked at.
#[inline]
fn places(key: &str) -> impl Iterator<Item = &'static AtomicU8> {
    let first = (hash([key]) >> (u64::BITS - PLACES.ilog2())) as usize;
    (first..first + PLACES).map(|place| &NUMBERS[place % PLACES])
}

/// Whether the calling thread adds a key, so that no other new one can have a number there.
#[cfg(feature = "macros")]
pub(super) fn is_adding() -> bool {
    ADDS.get()
}

/// Tests: does `work` as an allocator does that is called while a key is added.
#[cfg(all(test, feature = "macros"))]
pub(super) fn while_adding<R>(work: impl FnOnce() -> R) -> Option<R> {
    nested::once(&ADDS, work)
}

/// The number of a key that had none a moment ago.
#[cold]
fn add(key: &str) -> Option<u8> {
    let is_here = |place: &'static SetOnce<Box<str>>| &**place.get().unwrap_or_else(|| place.set(key.into())) == key;
    let number = KEYS.iter().position(is_here).map(numbered)?;
    // Release: pairs with the Acquire load in `known`; who finds the number finds the text. The same key, added by two threads, has one place: both look at
    // the same ones, and none is ever free again.
    let take = |place: &AtomicU8| place.compare_exchange(0, number, Ordering::Release, Ordering::Relaxed);
    for place in places(key) {
        if take(place).is_ok() {
            PLACED.fetch_add(1, Ordering::Release);
            break;
        }
        if place.load(Ordering::Relaxed) == number {
            break;
        }
    }
    Some(number)
}

/// The number of the key in a place.
fn numbered(place: usize) -> u8 {
    place as u8 + 1
}

/// The text of a key.
pub(crate) fn text(number: u8) -> Option<&'static str> {
    match number.checked_sub(1) {
        None => Some(OF_TAGS_TEXT),
        Some(place) => KEYS.get(usize::from(place))?.get().map(AsRef::as_ref),
    }
}

/// How many keys there are beside number 0: those with the numbers from 1 to this one.
pub(crate) fn count() -> usize {
    KEYS.iter().take_while(|place| place.get().is_some()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a key keeps its number, whoever asks, and that numbers lead back to texts.
    #[test]
    fn a_key_keeps_its_number() {
        let ask = || ["one", "two", "three", "profiler.tags"].map(|key| number(key).unwrap());
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|answer| *answer == ask()), "{answers:?}");
        assert_eq!(ask().map(|number| text(number).unwrap()), ["one", "two", "three", "profiler.tags"]);
        assert_eq!(text(255), None);
    }

    /// Check that keys whose hashes want one place, of which the last ones are there, have a place each.
    #[test]
    fn keys_of_one_place_have_places() {
        let place = |key: &str| std::ptr::from_ref(places(key).next().unwrap());
        let last = std::ptr::from_ref(&NUMBERS[PLACES - 1]);
        let meeting: Vec<String> =
            (0..).map(|number| format!("meets.{number}")).filter(|key| place(key) == last).take(5).collect();
        let numbers: Vec<_> = meeting.iter().map(|key| number(key).unwrap()).collect();
        assert_eq!(meeting.iter().map(|key| known(key).unwrap()).collect::<Vec<_>>(), numbers);
        assert_eq!(numbers.iter().collect::<std::collections::BTreeSet<_>>().len(), 5);
        assert_eq!(known("never asked for"), None);
    }
}
