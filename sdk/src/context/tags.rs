//! Tags of the running thread: sets of them, and the scopes that put them in force.
//!
//! In: `tag!`, `tags!`, `with_tags` in the user's code. Out: their bytes, in the thread's record. A scope costs a copy of these
//! when it is entered and a store when it is left, and touches nothing that another thread touches.
//!
//! Bounds: a key has at most [`MAX_KEY`] bytes, a value [`MAX_VALUE`], all tags in force [`MAX_TAG_BYTES`], and there are at most
//! [`MAX_KEYS`] keys in a process and 256 scopes on a thread. What is longer is cut, what is more is left out, and counted.

use std::borrow::Borrow;
use std::borrow::Cow;
use std::fmt::{self, Debug, Display, Write};
use std::marker::PhantomData;
use std::sync::Arc;

use super::attributes::{Block, pairs};
use super::{counts, enter, keys, leave, tags_in_force};

/// Longest key in bytes; a longer one is cut.
pub const MAX_KEY: usize = 64;
/// Longest value in bytes; a longer one is cut.
pub const MAX_VALUE: usize = 255;

/// A set of tags, built once and put in force as often as needed; cheap to clone.
#[derive(Clone)]
pub struct Tags(Kept);

/// Where the bytes of a set are, as `attributes` writes them. `replaces`: in force, they stand in the place of all others; beside the bytes, where a
/// set takes no more room for it.
#[derive(Clone)]
enum Kept {
    /// With all its owners; they go with the last one.
    Shared { bytes: Arc<[u8]>, replaces: bool },
    /// There to the end of the process: nobody counts who has it.
    Fixed { bytes: &'static [u8], replaces: bool },
}

impl Default for Tags {
    /// None.
    fn default() -> Self {
        Self::of_bytes(&[], false)
    }
}

impl Tags {
    /// A set of these tags; where a key stands twice, the last one holds. Use [`tags!`](crate::tags!) instead.
    ///
    /// Control characters in keys and values become spaces. A tag with an empty key is left out, as is a value for which there is no
    /// room; [`TagStats::left_out`](crate::TagStats::left_out) counts them.
    pub fn new<'a>(tags: impl IntoIterator<Item = (&'a str, &'a dyn Display), IntoIter: DoubleEndedIterator>) -> Self {
        Self::of_bytes(block(tags).as_bytes(), false)
    }

    fn of_bytes(bytes: &[u8], replaces: bool) -> Self {
        Self(match bytes {
            [] => Kept::Fixed { bytes: &[], replaces },
            bytes => Kept::Shared { bytes: bytes.into(), replaces },
        })
    }

    /// The same set for any number of owners, none of whom writes anything.
    #[cfg(feature = "macros")]
    pub(super) fn fixed(&'static self) -> Self {
        Self(Kept::Fixed { bytes: self.as_bytes(), replaces: self.replaces() })
    }

    /// The tags that are in force on this thread, to put them in force elsewhere: on another thread, or for a task. There they stand in the
    /// place of all that are in force: who waits for a job of `rayon` runs other jobs meanwhile, which have nothing to do with its tags.
    #[must_use]
    pub fn current() -> Self {
        tags_in_force(|bytes| Self::of_bytes(bytes, true))
    }

    /// The value of `key`, as samples show it: cut at [`MAX_VALUE`] bytes.
    ///
    /// ```
    /// let tags = profiler::tags!("endpoint" => "/orders", "attempt" => 2);
    /// assert_eq!(tags.get("attempt").as_deref(), Some("2"));
    /// assert_eq!(tags.get("method"), None);
    /// ```
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Keys and values, each key once, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        pairs(self.as_bytes()).filter_map(|(key, value)| Some((keys::text(key)?, String::from_utf8_lossy(value))))
    }

    /// Its tags, as they stand in a record.
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Kept::Shared { bytes, .. } => bytes,
            Kept::Fixed { bytes, .. } => bytes,
        }
    }

    #[inline]
    fn replaces(&self) -> bool {
        match self.0 {
            Kept::Shared { replaces, .. } | Kept::Fixed { replaces, .. } => replaces,
        }
    }

    /// Whether they are one set, built once.
    #[cfg(all(test, feature = "tower"))]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        !self.is_empty() && std::ptr::eq(self.as_bytes(), other.as_bytes())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl Debug for Tags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(texts(self.as_bytes())).finish()
    }
}

/// The tags in `bytes`.
pub(crate) fn texts(bytes: &[u8]) -> impl Iterator<Item = (&'static str, String)> {
    pairs(bytes).filter_map(|(key, value)| Some((keys::text(key)?, String::from_utf8_lossy(value).into_owned())))
}

/// Builds a set without a place of its own.
fn block<'a>(tags: impl IntoIterator<Item = (&'a str, &'a dyn Display), IntoIter: DoubleEndedIterator>) -> Block {
    let mut block = Block::new();
    let mut left_out = 0;
    // A block keeps the first of equal keys, and the last one shall hold.
    for (key, value) in tags.into_iter().rev() {
        left_out += u64::from(!push(&mut block, key, value));
    }
    counts::leave_out(left_out);
    block
}

/// Adds a tag by the rules, unless there is one with its key; `false` if it is left out.
pub(super) fn push(block: &mut Block, key: &str, value: &dyn Display) -> bool {
    // Asked first: a key has its number for the life of the process.
    if !block.has_room() {
        return false;
    }
    let mut text = Text::new();
    // A value that fails to show itself is what it showed until then.
    let (Ok(()) | Err(fmt::Error)) = write!(text, "{value}");
    let Some((key, as_given)) = number(key) else { return false };
    let fits = block.push(key, text.as_bytes());
    if fits && (text.is_altered || !as_given) {
        counts::alter();
    }
    fits
}

/// Gives keys their numbers, so that they have them also where all are taken later.
#[cfg(any(feature = "opentelemetry-sdk", feature = "tower", feature = "tracing-layer"))]
pub(super) fn reserve(keys: &[&str]) {
    for key in keys {
        number(key);
    }
}

/// The number of a key, by the rules, and whether it is the key as it was given.
fn number(key: &str) -> Option<(u8, bool)> {
    let cut = &key[..key.floor_char_boundary(MAX_KEY)];
    match cut {
        "" => None,
        odd if odd.contains(char::is_control) => {
            let mut text = Text::new();
            text.write_str(odd).ok()?;
            Some((keys::number(str::from_utf8(text.as_bytes()).ok()?)?, false))
        }
        plain => Some((keys::number(plain)?, plain.len() == key.len())),
    }
}

/// A value while it is written: cut at [`MAX_VALUE`], without control characters.
struct Text {
    bytes: [u8; MAX_VALUE],
    length: usize,
    is_cut: bool,
    /// It is not what was written: cut, or with spaces for control characters.
    is_altered: bool,
}

impl Text {
    fn new() -> Self {
        Self { bytes: [0; MAX_VALUE], length: 0, is_cut: false, is_altered: false }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// As much of what comes next as there is room for; behind a cut, nothing.
    fn cut<'a>(&mut self, text: &'a str) -> &'a str {
        let room = if self.is_cut { 0 } else { MAX_VALUE - self.length };
        let fits = text.floor_char_boundary(room);
        self.is_cut |= fits < text.len();
        self.is_altered |= self.is_cut;
        &text[..fits]
    }

    fn push(&mut self, fitting: &str) {
        self.bytes[self.length..self.length + fitting.len()].copy_from_slice(fitting.as_bytes());
        self.length += fitting.len();
    }
}

impl Write for Text {
    /// Never an error, for values may rely on it, as `format!` gives none. What is megabytes long is not looked at to its end.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let text = self.cut(text);
        // A short look, for nearly all texts: the control characters are below 0x20, 0x7f, and 0xc2 0x80 to 0xc2 0x9f.
        if !text.bytes().any(|byte| byte < 0x20 || byte == 0x7f || byte == 0xc2) {
            self.push(text);
            return Ok(());
        }
        // A space is no longer than what it stands for.
        for part in text.split_inclusive(char::is_control) {
            match part.char_indices().next_back() {
                Some((at, last)) if last.is_control() => {
                    self.push(&part[..at]);
                    self.push(" ");
                    self.is_altered = true;
                }
                _ => self.push(part),
            }
        }
        Ok(())
    }
}

/// Keeps tags in force on this thread until it is dropped. Made by [`tag!`](crate::tag!) and [`Scope::enter`].
///
/// Scopes may end in any order: each takes with it what it brought. A scope cannot be sent to another thread, and must not be held
/// across an `.await`: the tags would stay with the thread while the task moves on. Use [`FutureExt::with_tags`](crate::FutureExt::with_tags)
/// there.
///
/// A thread keeps the tags of 256 scopes at once. Within further ones samples carry `profiler.tags=overflow` instead of all tags.
///
/// Neither a scope nor anything else that enters tags may be used by a signal handler of the program: it may come in the middle of a change, and
/// the first scope of a thread allocates.
///
/// ```compile_fail,E0277
/// let scope = profiler::tag!("endpoint" => "/orders");
/// std::thread::spawn(move || drop(scope)); // a scope belongs to its thread
/// ```
#[derive(Debug)]
#[must_use = "the tags hold until this guard is dropped; bind it to a name such as `_scope`"]
pub struct Scope {
    /// `None`: it could not be entered.
    number: Option<u32>,
    // A scope belongs to its thread: it changes that thread's record.
    thread: PhantomData<*const ()>,
}

impl Scope {
    /// Puts `tags` in force on this thread, on top of those that are; where a key stands in both, `tags` hold. (Those that [`Tags::current`]
    /// took elsewhere hold alone.)
    #[inline]
    pub fn enter(tags: impl Borrow<Tags>) -> Self {
        let scope = {
            let tags = tags.borrow();
            Self { number: enter(tags.as_bytes(), tags.replaces()), thread: PhantomData }
        };
        // Here: if that panics, the scope is left. At the end of the function it would stay.
        drop(tags);
        scope
    }

    /// The same for tags that are built for this alone. Use [`tag!`](crate::tag!) instead.
    pub fn of<'a>(tags: impl IntoIterator<Item = (&'a str, &'a dyn Display), IntoIter: DoubleEndedIterator>) -> Self {
        Self { number: enter(block(tags).as_bytes(), false), thread: PhantomData }
    }

    /// One that was not entered.
    #[cfg(feature = "macros")]
    pub(super) fn refused() -> Self {
        Self { number: None, thread: PhantomData }
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        if let Some(number) = self.number {
            leave(number);
        }
    }
}

/// Runs `work` with `tags` in force on this thread.
pub fn with_tags<R>(tags: impl Borrow<Tags>, work: impl FnOnce() -> R) -> R {
    let _scope = Scope::enter(tags);
    work()
}

/// A set of tags: `tags!("endpoint" => "/orders", "method" => method)`. Values are anything that is `Display`.
#[macro_export]
macro_rules! tags {
    ($($key:expr => $value:expr),* $(,)?) => {
        $crate::Tags::new([$(($key, &$value as &dyn ::std::fmt::Display)),*])
    };
    ($($other:tt)*) => {
        ::core::compile_error!("write tags as `tags!(\"endpoint\" => \"/orders\", \"method\" => method)`")
    };
}

/// Puts tags in force on this thread until the guard is dropped:
/// `let _scope = profiler::tag!("endpoint" => "/orders");`. See [`Scope`] for what it must not cross. `let _ = profiler::tag!(…)` keeps no
/// guard, so these tags end at once.
#[macro_export]
macro_rules! tag {
    ($($key:expr => $value:expr),+ $(,)?) => {
        $crate::Scope::of([$(($key, &$value as &dyn ::std::fmt::Display)),+])
    };
    ($($other:tt)*) => {
        ::core::compile_error!("write tags as `tag!(\"endpoint\" => \"/orders\", \"method\" => method)`")
    };
}

#[cfg(test)]
mod tests;
