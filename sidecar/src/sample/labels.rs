//! Keys with their values, all in one piece of memory: a sample is made a hundred times a second on each processor, and each piece costs a call for it.
//!
//! In: pairs of bytes, as a process has them. Out: the same, in their order. Pure.

/// Pairs of bytes: the length of each, then itself.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Labels {
    bytes: Vec<u8>,
    count: usize,
}

/// Bytes of a length.
const LENGTH: usize = size_of::<u32>();

impl Labels {
    /// None, with room for so many bytes of them.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), count: 0 }
    }

    /// Adds a pair, each part shorter than 4 GiB: those of a record have 256 bytes at most.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        if let (Ok(key_length), Ok(value_length)) = (u32::try_from(key.len()), u32::try_from(value.len())) {
            self.bytes.reserve(2 * LENGTH + key.len() + value.len());
            self.bytes.extend(key_length.to_ne_bytes());
            self.bytes.extend(key);
            self.bytes.extend(value_length.to_ne_bytes());
            self.bytes.extend(value);
            self.count += 1;
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || Some((next(&mut rest)?, next(&mut rest)?)))
    }
}

/// Takes bytes with their length before them off what is left.
fn next<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<LENGTH>()?;
    let (taken, behind) = behind.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
    *rest = behind;
    Some(taken)
}

impl std::fmt::Debug for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(key, value)| (key.escape_ascii().to_string(), value.escape_ascii().to_string())))
            .finish()
    }
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut labels = Self::default();
        pairs.into_iter().for_each(|(key, value)| labels.push(key.as_ref(), value.as_ref()));
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that pairs come out as they went in, in their order, empty ones and such as look like a length too.
    #[test]
    fn pairs_come_out_as_they_went_in() {
        let pairs: [(&[u8], &[u8]); 4] =
            [(b"key", b"value"), (b"", b""), (&[0, 0, 0, 9], &[7; 300]), (b"key", b"again")];
        let labels: Labels = pairs.into_iter().collect();
        assert_eq!((labels.iter().collect::<Vec<_>>(), labels.len()), (pairs.to_vec(), 4));
        assert_eq!(format!("{:?}", Labels::from_iter([("a\n", "b")])), r#"{"a\\n": "b"}"#);
        assert!(Labels::default().is_empty() && Labels::with_room(9) == Labels::default());
    }
}
