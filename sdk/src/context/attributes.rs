//! Tags as they stand in a record: one behind the other, each a key's number, the length of its value, the value.
//!
//! In: numbers and values. Out: bytes, and what they say. Pure. A block never has a key twice.
//!
//! Source: OTEP 4947, "Thread Local Reference Data", `attrs_data`; a record takes at most 640 bytes, 28 of which are its head.

/// Most bytes of all tags in force at once: a tag takes those of its value, and two.
pub const MAX_TAG_BYTES: usize = 612;

/// Tags under construction.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    bytes: [u8; MAX_TAG_BYTES],
    length: usize,
    keys: Keys,
}

/// Which keys are there.
#[derive(Debug, Clone, Copy, Default)]
struct Keys([u64; 4]);

impl Keys {
    fn has(&self, key: u8) -> bool {
        self.0[usize::from(key >> 6)] >> (key & 63) & 1 == 1
    }

    fn add(&mut self, key: u8) {
        self.0[usize::from(key >> 6)] |= 1 << (key & 63);
    }
}

impl Block {
    /// No tags.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; MAX_TAG_BYTES], length: 0, keys: Keys([0; 4]) }
    }

    /// Whether there is room for one more tag, if its value is short.
    pub(crate) fn has_room(&self) -> bool {
        self.length + 2 <= MAX_TAG_BYTES
    }

    /// Adds a tag, unless there is one with this key; `false` if there is no room. A value has at most 255 bytes. One without room is left
    /// empty, so that no other one with its key, which comes later or is further out, can stand for it; where there is no room even for that,
    /// there is none for those.
    pub(crate) fn push(&mut self, key: u8, value: &[u8]) -> bool {
        if self.keys.has(key) {
            return true;
        }
        self.keys.add(key);
        let (end, fits) = write(&mut self.bytes, self.length, key, value);
        self.length = end;
        fits
    }

    /// The bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Writes a tag at `end`, or where there is no room for its value the key alone; where the next one goes, and whether it is whole.
#[inline]
fn write(bytes: &mut [u8; MAX_TAG_BYTES], end: usize, key: u8, value: &[u8]) -> (usize, bool) {
    let whole = u8::try_from(value.len()).ok().zip(bytes.get_mut(end..end + 2 + value.len()));
    if let Some((length, [at_key, at_length, at_value @ ..])) = whole {
        (*at_key, *at_length) = (key, length);
        at_value.copy_from_slice(value);
        return (end + 2 + value.len(), true);
    }
    let Some(bare) = bytes.get_mut(end..end + 2) else { return (end, false) };
    bare.copy_from_slice(&[key, 0]);
    (end + 2, false)
}

/// Writes the tags of `inner`, and those of `outer` whose keys are not in it, behind one another; `inner` goes first, for there may
/// not be room for all. The bytes written, and how many tags of `outer` found no room, which are left empty as by [`Block::push`].
#[inline]
pub(crate) fn merge(inner: &[u8], outer: &[u8], into: &mut [u8; MAX_TAG_BYTES]) -> (usize, u64) {
    let inner = inner.get(..MAX_TAG_BYTES).unwrap_or(inner);
    // Nothing is not worth a call.
    if !inner.is_empty() && !copy_short(inner, into) {
        into[..inner.len()].copy_from_slice(inner);
    }
    let end = inner.len();
    if outer.is_empty() { (end, 0) } else { append(inner, outer, into, end) }
}

/// Copies from 8 to 32 bytes; `false` if there are fewer or more.
#[inline]
pub(crate) fn copy_short(from: &[u8], into: &mut [u8; MAX_TAG_BYTES]) -> bool {
    copy_ends::<8>(from, into) || copy_ends::<16>(from, into)
}

/// Copies from `N` bytes to twice as many, as their beginning and their end, which takes less time than a call; `false` if there are
/// fewer or more.
#[inline]
fn copy_ends<const N: usize>(from: &[u8], into: &mut [u8; MAX_TAG_BYTES]) -> bool {
    let length = from.len();
    if !(N..=2 * N).contains(&length) {
        return false;
    }
    into[..N].copy_from_slice(&from[..N]);
    into[length - N..length].copy_from_slice(&from[length - N..]);
    true
}

/// The second half of [`merge`]: writes the tags of `outer` from `end` on.
#[inline(never)]
fn append(inner: &[u8], outer: &[u8], into: &mut [u8; MAX_TAG_BYTES], mut end: usize) -> (usize, u64) {
    let mut keys = Keys::default();
    pairs(inner).for_each(|(key, _)| keys.add(key));
    let mut left_out = 0;
    for (key, value) in pairs(outer).filter(|(key, _)| !keys.has(*key)) {
        let fits;
        (end, fits) = write(into, end, key, value);
        left_out += u64::from(!fits);
    }
    (end, left_out)
}

/// Keys and values in `bytes`; what is cut off at the end is left out.
pub(crate) fn pairs(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (key, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first()?;
        let (value, rest) = rest.split_at_checked(usize::from(*length))?;
        bytes = rest;
        Some((*key, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(tags: &[(u8, &str)]) -> Block {
        let mut block = Block::new();
        assert!(tags.iter().all(|(key, value)| block.push(*key, value.as_bytes())));
        block
    }

    fn merged(inner: &[(u8, &str)], outer: &[(u8, &str)]) -> Vec<(u8, String)> {
        let mut into = [0; MAX_TAG_BYTES];
        let (length, _) = merge(block(inner).as_bytes(), block(outer).as_bytes(), &mut into);
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        pairs(&into[..length]).map(|(key, value)| (key, text(value))).collect()
    }

    /// Check that inner tags win, that others stay, and that a block keeps the first of equal keys.
    #[test]
    fn inner_tags_win() {
        let tag = |key, value: &str| (key, value.to_owned());
        assert_eq!(merged(&[(1, "a")], &[(1, "b"), (200, ""), (64, "c")]), [tag(1, "a"), tag(200, ""), tag(64, "c")]);
        assert_eq!(merged(&[], &[(3, "x")]), [tag(3, "x")]);
        assert_eq!(merged(&[(5, "first"), (5, "second")], &[]), [tag(5, "first")]);
    }

    /// Check that what has no room is left empty and counted, the inner tags never.
    #[test]
    fn what_has_no_room_is_left_empty() {
        let long = "x".repeat(255);
        let mut into = [0; MAX_TAG_BYTES];
        let (inner, outer) = (block(&[(1, &long), (2, &long)]), block(&[(3, &long), (4, "y")]));
        let (length, left_out) = merge(inner.as_bytes(), outer.as_bytes(), &mut into);
        assert_eq!((length, left_out), (2 * 257 + 2 + 3, 1));
        assert!(!Block::new().push(3, &[b'x'; 256]));
    }

    /// Check that a tag whose value has no room has none, in the place of all others with its key; without room even for that, there is
    /// room for no other.
    #[test]
    fn a_value_without_room_has_its_key_none_the_less() {
        let long = "x".repeat(255);
        let mut full = block(&[(1, &long), (2, &long)]);
        assert!(!full.push(3, &[b'x'; 97]));
        assert!(full.push(3, b"earlier"));
        assert_eq!(pairs(full.as_bytes()).last(), Some((3, &b""[..])));
        assert!(full.push(4, &[b'x'; 94]));
        let mut into = [0; MAX_TAG_BYTES];
        let outer = block(&[(3, "outer")]);
        assert_eq!(merge(full.as_bytes(), outer.as_bytes(), &mut into), (612, 0));
        assert!(!full.push(5, b"") && !full.push(6, b"x"));
    }

    /// Check, byte by byte around the bound, that an outer tag is whole, or there without its value, or where not even two bytes are left not at
    /// all; and that it makes no difference whether it is of the same set or of an outer one.
    #[test]
    fn the_rule_is_one_at_every_byte_of_the_bound() {
        let long = "x".repeat(255);
        for room in 0..=8_usize {
            let filler = "x".repeat(MAX_TAG_BYTES - 2 * 257 - 2 - room);
            let mut full = block(&[(1, &long), (2, &long), (3, &filler)]);
            let (outer, mut into) = (block(&[(4, "abc"), (5, ""), (6, "")]), [0; MAX_TAG_BYTES]);
            let (length, left_out) = merge(full.as_bytes(), outer.as_bytes(), &mut into);
            let fits = [(4, &b"abc"[..]), (5, b""), (6, b"")].map(|(key, value)| full.push(key, value));
            assert_eq!(
                (&into[..length], left_out),
                (full.as_bytes(), fits.iter().filter(|fits| !**fits).count() as u64)
            );
            let outer: Vec<_> = pairs(&into[..length]).skip(3).collect();
            let [whole, bare, no_value]: [(u8, &[u8]); 3] = [(4, b"abc"), (4, b""), (5, b"")];
            let expected = match room {
                0 | 1 => vec![],
                2 | 3 => vec![bare],
                4 => vec![bare, no_value],
                5 | 6 => vec![whole],
                7 | 8 => vec![whole, no_value],
                _ => unreachable!(),
            };
            assert_eq!(outer, expected, "{room} bytes of room");
        }
    }

    /// Check that bytes that are cut off say what is whole.
    #[test]
    fn what_is_cut_off_is_left_out() {
        let block = block(&[(1, "a"), (2, "bc")]);
        let bytes = block.as_bytes();
        let counts: Vec<_> = (0..=bytes.len()).map(|length| pairs(&bytes[..length]).count()).collect();
        assert_eq!(counts, [0, 0, 0, 1, 1, 1, 1, 2]);
    }
}
