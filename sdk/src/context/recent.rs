//! The sets of tags that a thread has built lately for requests: most requests have those of one before them.
//!
//! In: keys and values. Out: the set, built where it is not at hand. A thread's own, so that nothing is written that others read, but for
//! the count of a set's owners; bounded in number and bytes, for values may come from the network.

use std::cell::RefCell;
use std::fmt::Display;
use std::ptr;

use super::hash::hash;
use super::tags::Tags;

/// Sets that a thread keeps. Each has one place by its values: another one there takes it.
const PLACES: usize = 64;
/// Longest values of a set that is kept, in bytes.
const LONGEST: usize = 256;

/// The keys of two tags, or of one where the second is empty. Those of one set are told from those of another by their address.
pub(super) type Keys = [&'static str; 2];

/// A set of tags.
struct Recent {
    keys: &'static Keys,
    values: [Box<str>; 2],
    tags: Tags,
}

thread_local! {
    static RECENT: RefCell<Vec<Option<Recent>>> = const { RefCell::new(Vec::new()) };
}

impl Recent {
    fn is(&self, keys: &'static Keys, values: [&str; 2]) -> bool {
        ptr::eq(self.keys, keys) && *self.values[0] == *values[0] && *self.values[1] == *values[1]
    }
}

/// The set of tags with these keys and values.
pub(super) fn recent(keys: &'static Keys, values: [&str; 2]) -> Tags {
    let place = place(values);
    let known = |places: &RefCell<Vec<Option<Recent>>>| {
        let places = places.try_borrow().ok()?;
        places.get(place)?.as_ref().filter(|known| known.is(keys, values)).map(|known| known.tags.clone())
    };
    // A thread that is ending has none.
    RECENT.try_with(known).ok().flatten().unwrap_or_else(|| built(keys, values, place))
}

/// Builds a set, and keeps it.
#[cold]
fn built(keys: &'static Keys, values: [&str; 2], place: usize) -> Tags {
    let tags = keys.iter().zip(&values).map(|(key, value)| (*key, value as &dyn Display));
    let tags = Tags::new(tags.take(if keys[1].is_empty() { 1 } else { 2 }));
    if values.iter().all(|value| value.len() <= LONGEST) {
        let recent = Recent { keys, values: values.map(Box::from), tags: tags.clone() };
        let keep = |places: &RefCell<Vec<Option<Recent>>>| {
            let Ok(mut places) = places.try_borrow_mut() else { return };
            if places.is_empty() {
                places.resize_with(PLACES, || None);
            }
            places[place] = Some(recent);
        };
        // Where the thread is ending, this one is built for nobody else.
        RECENT.try_with(keep).unwrap_or(());
    }
    tags
}

/// Where a set is kept: texts that are alike in most of their bytes, as routes are, shall not meet.
fn place(values: [&str; 2]) -> usize {
    (hash(values) >> (u64::BITS - PLACES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    static KEYS: Keys = ["endpoint", "method"];
    static OTHERS: Keys = ["rpc.service", "rpc.method"];
    static ONE: Keys = ["method", ""];

    fn text(tags: &Tags) -> String {
        format!("{tags:?}")
    }

    fn kept() -> usize {
        RECENT.with_borrow(|places| places.iter().flatten().count())
    }

    /// Check that a set is built once, that keys and values tell sets apart, and that a second key may be missing.
    #[test]
    fn a_set_is_built_once() {
        let first = recent(&KEYS, ["/orders", "GET"]);
        assert_eq!(format!("{first:?}"), r#"{"method": "GET", "endpoint": "/orders"}"#);
        assert!(first.is_same(&recent(&KEYS, ["/orders", "GET"])));
        let other_keys = recent(&OTHERS, ["/orders", "GET"]);
        assert_eq!(format!("{other_keys:?}"), r#"{"rpc.method": "GET", "rpc.service": "/orders"}"#);
        assert_eq!(text(&recent(&KEYS, ["/orders", "GET"])), text(&first));
        assert_eq!(format!("{:?}", recent(&ONE, ["PUT", ""])), r#"{"method": "PUT"}"#);
        assert_ne!(text(&recent(&KEYS, ["/order", "sGET"])), text(&first));
    }

    /// Check that a thread keeps so many sets and no long ones, and that each is what was asked for all the same.
    #[test]
    fn what_is_kept_is_bounded() {
        let routes: Vec<String> = (0..1000).map(|n| format!("/orders/{n}/items")).collect();
        for _ in 0..2 {
            for route in &routes {
                let built = crate::tags!("endpoint" => route, "method" => "GET");
                assert_eq!(text(&recent(&KEYS, [route, "GET"])), text(&built));
            }
        }
        assert_eq!(kept(), PLACES, "values that differ in few bytes have places of their own");
        std::thread::spawn(|| {
            drop(recent(&KEYS, [&"x".repeat(LONGEST + 1), "GET"]));
            assert_eq!(kept(), 0);
        })
        .join()
        .unwrap();
    }
}
