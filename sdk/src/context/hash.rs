//! Hashes of short texts that are asked for again and again: keys of tags, routes.
//!
//! In: texts. Out: a number whose upper bits depend on all of them, and on where one ends. Not kept from those who want texts to meet: where
//! that is possible, the places are few. Pure.

/// The hash of `texts`, one after the other.
#[inline]
pub(super) fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    texts.into_iter().fold(0, |hash, text| {
        let bytes = text.as_bytes();
        let (words, _) = bytes[..bytes.len().saturating_sub(1)].as_chunks::<8>();
        let hash = words.iter().map(|word| u64::from_le_bytes(*word)).fold(hash, mix);
        mix(hash, last(bytes) ^ (bytes.len() as u64) << 56)
    })
}

/// All bytes of a text of up to eight, and the last eight of a longer one.
#[inline]
fn last(bytes: &[u8]) -> u64 {
    if let Some(word) = bytes.last_chunk() {
        return u64::from_le_bytes(*word);
    }
    // They overlap where there are fewer than eight.
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last));
    }
    bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// One step of a multiplicative hash: the upper bits depend on all that came in.
///
/// Source: Knuth, "The Art of Computer Programming", vol. 3, §6.4: a factor near 2^64 divided by the golden ratio.
#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each byte of a text, how long it is, and where one ends all count.
    #[test]
    fn all_of_a_text_counts() {
        let text = "/orders/{id}/items/{item}";
        let mut seen: Vec<u64> = (0..=text.len()).map(|length| hash([&text[..length]])).collect();
        for at in 0..text.len() {
            for length in at + 1..=text.len() {
                let other: String = text[..length].char_indices().map(|(i, c)| if i == at { '#' } else { c }).collect();
                seen.push(hash([&*other]));
            }
        }
        seen.extend((1..text.len()).map(|at| hash([&text[..at], &text[at..]])));
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }
}
