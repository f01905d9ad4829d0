//! Tags of the running thread: interned sets, and the scopes that put them in force.
//!
//! In: `tag!`, `tags!`, `with_tags` in the user's code. Out: the id of the set in force, in the thread's record, and
//! [`table`], by which the assembling side gets from an id to keys and values. A scope costs a look-up when it is
//! entered and two stores when it is left.
//!
//! Bounds: a key is at most [`MAX_KEY`] bytes, a value [`MAX_VALUE`], a set [`MAX_TAGS`] tags, and there are at most
//! [`MAX_SETS`] sets; what is longer is cut, what is more is left out, and sets beyond the bound share one that says so.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt::{self, Display, Write};
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use super::{replace_tag_set, tag_set};

/// Longest key in bytes; a longer one is cut.
pub const MAX_KEY: usize = 64;
/// Longest value in bytes; a longer one is cut.
pub const MAX_VALUE: usize = 256;
/// Most tags in force at once; further ones are left out.
pub const MAX_TAGS: usize = 32;
/// Most distinct sets in a process; further ones become one set, `profiler.tags = overflow`.
pub const MAX_SETS: usize = 16_384;
/// Most bytes that all sets take; beyond it, what is new becomes that one set, too.
const MAX_BYTES: usize = 16 << 20;

/// A set of tags, built once and put in force as often as needed; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tags {
    /// Sorted by key; keys are unique.
    pairs: Arc<[(Box<str>, Box<str>)]>,
}

impl Tags {
    /// A set of these tags; where a key stands twice, the last one holds. Use [`tags!`](crate::tags!) instead.
    ///
    /// Control characters in keys and values become spaces; a tag with an empty key is left out.
    pub fn new<'a>(tags: impl IntoIterator<Item = (&'a str, &'a dyn Display)>) -> Self {
        let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (key, value) in tags {
            let mut text = String::new();
            // A value that fails to show itself is what it showed until then.
            let (Ok(()) | Err(fmt::Error)) = write!(text, "{value}");
            let (key, value) = (normalized(key, MAX_KEY), normalized(&text, MAX_VALUE));
            if !key.is_empty() {
                insert(&mut pairs, key, value);
            }
        }
        Self { pairs: pairs.into() }
    }
}

/// Puts one tag of a sorted set in its place.
fn insert(pairs: &mut Vec<(Box<str>, Box<str>)>, key: Box<str>, value: Box<str>) {
    match pairs.binary_search_by(|(known, _)| known.cmp(&key)) {
        Ok(position) => pairs[position].1 = value,
        Err(position) if pairs.len() < MAX_TAGS => pairs.insert(position, (key, value)),
        Err(_) => {}
    }
}

/// `text` cut to `limit` bytes at a character's edge, control characters replaced.
fn normalized(text: &str, limit: usize) -> Box<str> {
    let cut = &text[..text.floor_char_boundary(limit)];
    if cut.contains(char::is_control) { cut.replace(char::is_control, " ").into() } else { cut.into() }
}

/// Keeps tags in force on this thread until it is dropped. Made by [`tag!`](crate::tag!) and [`Scope::enter`].
///
/// Scopes end in the reverse order of their beginning, as local variables do; one that outlives an outer one leaves its
/// tags behind. It cannot be sent to another thread, and must not be held across an `.await`: the tags would stay with the thread
/// while the task moves on.
#[derive(Debug)]
#[must_use = "the tags hold until this guard is dropped; bind it to a name such as `_scope`"]
pub struct Scope {
    outer: u32,
    // A scope belongs to its thread: it restores that thread's record.
    thread: PhantomData<*const ()>,
}

impl Scope {
    /// Puts `tags` in force on this thread, on top of those that are; where a key stands in both, `tags` hold.
    pub fn enter(tags: &Tags) -> Self {
        let outer = tag_set();
        replace_tag_set(TABLE.id_of(outer, tags));
        Self { outer, thread: PhantomData }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        replace_tag_set(self.outer);
    }
}

/// Runs `work` with `tags` in force on this thread.
pub fn with_tags<R>(tags: impl Borrow<Tags>, work: impl FnOnce() -> R) -> R {
    let _scope = Scope::enter(tags.borrow());
    work()
}

/// A set of tags: `tags!("endpoint" => "/orders", "method" => method)`. Values are anything that is `Display`.
#[macro_export]
macro_rules! tags {
    ($($key:expr => $value:expr),* $(,)?) => {
        $crate::Tags::new([$(($key, &$value as &dyn ::std::fmt::Display)),*])
    };
}

/// Puts tags in force on this thread until the guard is dropped:
/// `let _scope = profiler::tag!("endpoint" => "/orders");`. See [`Scope`] for what it must not cross.
#[macro_export]
macro_rules! tag {
    ($($key:expr => $value:expr),+ $(,)?) => {
        $crate::Scope::enter(&$crate::tags!($($key => $value),+))
    };
}

/// The tags of a set as the assembling side sees them.
pub(crate) type TagPairs = Arc<[(Box<str>, Box<str>)]>;

/// All sets of this process, by id. Id 0 is the empty set, id 1 the one of the overflow.
pub(crate) struct Table {
    /// What the lock guards are maps that are changed one whole entry at a time: also a poisoned one guards what is whole.
    sets: RwLock<Sets>,
    /// The process that made it.
    pid: u32,
}

#[derive(Default)]
struct Sets {
    by_id: Vec<TagPairs>,
    ids: HashMap<TagPairs, u32>,
    /// (set in force, tags entered) → set in force then.
    entered: HashMap<(u32, TagPairs), u32>,
    /// What all of it takes, about.
    bytes: usize,
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

/// The table of this process.
pub(crate) fn table() -> &'static Table {
    &TABLE
}

/// The set that stands for all beyond the bound.
pub(crate) const OVERFLOW: u32 = 1;

impl Table {
    fn new() -> Self {
        let mut sets = Sets::default();
        sets.intern(Arc::from([]));
        sets.intern(Arc::from([("profiler.tags".into(), "overflow".into())]));
        Self { sets: RwLock::new(sets), pid: std::process::id() }
    }

    /// The id of the set that holds when `tags` are entered under `outer`.
    fn id_of(&self, outer: u32, tags: &Tags) -> u32 {
        let key = (outer, Arc::clone(&tags.pairs));
        let Some(sets) = self.read() else { return OVERFLOW };
        match sets.entered.get(&key) {
            Some(known) => *known,
            None if sets.bytes >= MAX_BYTES => OVERFLOW,
            None => {
                drop(sets);
                self.write().map_or(OVERFLOW, |mut sets| sets.merge(key))
            }
        }
    }

    fn read(&self) -> Option<RwLockReadGuard<'_, Sets>> {
        match self.sets.try_read() {
            Ok(sets) => Some(sets),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if self.is_inherited() => None,
            Err(TryLockError::WouldBlock) => Some(self.sets.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn write(&self) -> Option<RwLockWriteGuard<'_, Sets>> {
        match self.sets.try_write() {
            Ok(sets) => Some(sets),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if self.is_inherited() => None,
            Err(TryLockError::WouldBlock) => Some(self.sets.write().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Whether this is the copy of a forked child, whose lock may be held by a thread that does not exist there.
    fn is_inherited(&self) -> bool {
        self.pid != std::process::id()
    }

    /// The tags of a set.
    pub(crate) fn pairs(&self, id: u32) -> Option<TagPairs> {
        self.read()?.by_id.get(id as usize).cloned()
    }
}

impl Sets {
    fn merge(&mut self, key: (u32, TagPairs)) -> u32 {
        if self.bytes >= MAX_BYTES {
            return OVERFLOW;
        }
        self.bytes += size_of(&key.1);
        let mut pairs = self.by_id.get(key.0 as usize).map(|outer| outer.to_vec()).unwrap_or_default();
        for (name, value) in key.1.iter().cloned() {
            insert(&mut pairs, name, value);
        }
        let id = self.intern(pairs.into());
        self.entered.insert(key, id);
        id
    }

    fn intern(&mut self, pairs: TagPairs) -> u32 {
        if let Some(id) = self.ids.get(&pairs) {
            return *id;
        }
        if self.by_id.len() >= MAX_SETS {
            return OVERFLOW;
        }
        self.bytes += size_of(&pairs);
        let id = self.by_id.len() as u32;
        self.by_id.push(Arc::clone(&pairs));
        self.ids.insert(pairs, id);
        id
    }
}

/// What an entry of the tables takes, about: its texts, their places, the entries of the maps.
fn size_of(pairs: &TagPairs) -> usize {
    pairs.iter().map(|(key, value)| key.len() + value.len() + 48).sum::<usize>() + 96
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_force() -> Vec<(String, String)> {
        let pairs = table().pairs(tag_set()).unwrap();
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    /// Check that scopes merge, that the inner one wins, and that leaving restores what was.
    #[test]
    fn scopes_nest() {
        let _outer = crate::tag!("endpoint" => "/orders", "method" => "GET");
        {
            let _inner = crate::tag!("method" => "POST", "user" => 7);
            assert_eq!(in_force(), [pair("endpoint", "/orders"), pair("method", "POST"), pair("user", "7")]);
        }
        assert_eq!(in_force(), [pair("endpoint", "/orders"), pair("method", "GET")]);
        let doubled = with_tags(crate::tags!("user" => 8), || in_force().len());
        assert_eq!((doubled, in_force().len()), (3, 2));
    }

    /// Check that a panic restores the outer tags.
    #[test]
    fn a_panic_leaves_its_scope() {
        let caught = std::panic::catch_unwind(|| with_tags(crate::tags!("a" => 1), || panic!("expected by the test")));
        assert!(caught.is_err());
        assert_eq!(in_force(), []);
    }

    /// Check that empty keys, control characters and long texts follow the written rules.
    #[test]
    fn odd_texts_are_normalized() {
        let long = "é".repeat(1000);
        let tags = crate::tags!("" => 1, "a\nb" => "c\td", "long" => long);
        assert_eq!(tags.pairs[0], ("a b".into(), "c d".into()));
        assert_eq!((tags.pairs.len(), tags.pairs[1].1.len()), (2, MAX_VALUE));
        let many: Vec<String> = (0..1000).map(|n| format!("key{n:04}")).collect();
        assert_eq!(Tags::new(many.iter().map(|key| (key.as_str(), &1 as &dyn Display))).pairs.len(), MAX_TAGS);
    }

    /// Check that large sets are bounded by what they take.
    #[test]
    fn large_sets_are_bounded_in_bytes() {
        let table = Table::new();
        let value = "x".repeat(MAX_VALUE);
        let enter = |n: usize| {
            let texts: Vec<String> = (0..MAX_TAGS).map(|tag| format!("{tag} {n} {value}")).collect();
            table.id_of(0, &Tags::new(texts.iter().map(|text| (&text[..2], text as &dyn Display))))
        };
        assert!((0..5000).any(|n| enter(n) == OVERFLOW));
        assert!(table.read().unwrap().bytes < MAX_BYTES + (1 << 16));
    }

    /// Check that sets beyond the bound share the one of the overflow.
    #[test]
    fn sets_are_bounded() {
        let table = Table::new();
        let ids: Vec<u32> = (0..MAX_SETS + 10).map(|n| table.id_of(0, &crate::tags!("id" => n))).collect();
        assert_eq!(ids.last(), Some(&OVERFLOW));
        assert_eq!(ids.iter().filter(|id| **id == OVERFLOW).count(), 12);
    }
}
