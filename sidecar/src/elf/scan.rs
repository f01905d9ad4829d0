//! Words looked for in what is loaded of a file, where no section says where they are.

use std::ops::ControlFlow;

use super::{File, Segment};

/// Most bytes that a search for a table reads: what is looked for stands near the beginning of what is looked through, if that is no hole.
pub(crate) const OF_TABLES: u64 = 256 << 20;
/// Most places that are looked at more closely: a file may be full of what only looks like it.
const PLACES: usize = 4096;
/// Bytes that are read at once.
const CHUNK: usize = 128 << 10;

/// What is looked for: eight bytes of which those in `mask` are `word`, at a multiple of `align`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    pub(crate) word: u64,
    pub(crate) mask: u64,
    /// A multiple of 8 that divides [`CHUNK`].
    pub(crate) align: usize,
}

impl File {
    /// Calls `found` with the address of each word like `pattern` in the loaded segments that `wanted` says, until it breaks
    /// or there are too many, or `most` bytes are read.
    pub(crate) fn search<T>(
        &self,
        wanted: impl Fn(&Segment) -> bool,
        (pattern, most): (Pattern, u64),
        mut found: impl FnMut(u64) -> ControlFlow<T>,
    ) -> Option<T> {
        let (mut room, mut places) = (most, PLACES);
        let mut chunk = vec![0; CHUNK];
        for segment in self.loaded().filter(|segment| wanted(segment)) {
            let end = segment.file_size.min(self.size().saturating_sub(segment.offset));
            let mut inside = segment.address.wrapping_neg() % pattern.align as u64;
            while inside < end && room > 0 {
                let len = (end - inside).min(CHUNK as u64).min(room) as usize;
                let bytes = chunk.get_mut(..len)?;
                if self.pages.read_once(segment.offset.checked_add(inside)?, bytes).is_err() {
                    break;
                }
                let base = segment.address.checked_add(inside)?;
                let place = |at| {
                    places = places.saturating_sub(1);
                    if places == 0 {
                        ControlFlow::Break(None)
                    } else {
                        found(base.saturating_add(at as u64)).map_break(Some)
                    }
                };
                if let ControlFlow::Break(result) = each(bytes, pattern, place) {
                    return result;
                }
                (inside, room) = (inside + len as u64, room - len as u64);
                // Perhaps a hole, of which a file may pretend to have any length. Nothing that is looked for is zeros.
                if bytes.iter().all(|byte| *byte == 0) {
                    let at = segment.offset.checked_add(inside)?;
                    let Some(data) = self.pages.next_data(at) else { break };
                    inside += (data - at) / pattern.align as u64 * pattern.align as u64;
                }
            }
        }
        None
    }
}

fn each<T>(bytes: &[u8], pattern: Pattern, mut found: impl FnMut(usize) -> ControlFlow<T>) -> ControlFlow<T> {
    for (number, part) in bytes.chunks(pattern.align).enumerate() {
        let Some(word) = part.first_chunk::<8>() else { continue };
        if u64::from_le_bytes(*word) & pattern.mask == pattern.word {
            found(number * pattern.align)?;
        }
    }
    ControlFlow::Continue(())
}
