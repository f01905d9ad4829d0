//! The scopes of a thread, innermost last: what was entered and not left yet.
//!
//! In: tags, when a scope is entered; its number, when it is left, in any order; tags of the span that is current, which stand outside
//! all scopes. Out: what is then in force. A thread's own; bounded in number, for a scope may be forgotten.

use super::attributes::{MAX_TAG_BYTES, merge};

/// Most scopes of a thread at once; the tags of further ones are left out.
const MAX_SCOPES: usize = 256;

/// Who says which span is current.
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    OpenTelemetry,
    #[cfg_attr(not(feature = "tracing-layer"), expect(dead_code, reason = "follows spans of tracing"))]
    Tracing,
}

/// The scopes. Invariant: the last one is not left.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    /// The tags of the current span, by [`Source`].
    of_spans: [Vec<u8>; 2],
    entered: Vec<Entered>,
    /// The tags of all of them, one scope's behind the other's.
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Entered {
    /// Where its tags end in `bytes`.
    end: u32,
    left: bool,
}

impl Scopes {
    /// Enters a scope with these tags; its number, `None` when there are too many.
    pub(super) fn enter(&mut self, tags: &[u8]) -> Option<u32> {
        if self.entered.len() >= MAX_SCOPES {
            return None;
        }
        self.bytes.extend_from_slice(tags);
        self.entered.push(Entered { end: self.bytes.len() as u32, left: false });
        Some(self.entered.len() as u32 - 1)
    }

    /// Leaves a scope. Others keep what they brought, also those that are inside it and outlive it.
    pub(super) fn leave(&mut self, number: u32) {
        if let Some(scope) = self.entered.get_mut(number as usize) {
            scope.left = true;
        }
        while self.entered.pop_if(|last| last.left).is_some() {}
        self.bytes.truncate(self.entered.last().map_or(0, |last| last.end as usize));
    }

    /// Takes note of the tags of the current span; `false` if they are what they were.
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    pub(super) fn set_span_tags(&mut self, source: Source, tags: &[u8]) -> bool {
        let [first, second] = &mut self.of_spans;
        let place = if source == Source::OpenTelemetry { first } else { second };
        if place.as_slice() == tags {
            return false;
        }
        place.clear();
        place.extend_from_slice(tags);
        true
    }

    /// Writes the tags that are in force: those of inner scopes win. The bytes written.
    pub(super) fn in_force(&self, into: &mut [u8; MAX_TAG_BYTES]) -> usize {
        let spans = self.of_spans.iter().map(Vec::as_slice);
        stack(spans.chain(self.scopes()), into)
    }

    /// The same without those of spans: what a task inherits.
    pub(super) fn of_scopes(&self, into: &mut [u8; MAX_TAG_BYTES]) -> usize {
        stack(self.scopes(), into)
    }

    /// The tags of each scope that is not left, innermost last.
    fn scopes(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.entered.len()).filter(|number| !self.entered[*number].left).map(|number| self.tags(number))
    }

    fn tags(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.entered[before].end as usize);
        &self.bytes[start..self.entered[number].end as usize]
    }
}

/// Writes tags on top of each other, innermost last. The bytes written.
fn stack<'a>(all: impl Iterator<Item = &'a [u8]>, into: &mut [u8; MAX_TAG_BYTES]) -> usize {
    let mut length = 0;
    for tags in all.filter(|tags| !tags.is_empty()) {
        if length == 0 {
            // The outermost alone, as it nearly always is.
            (length, _) = merge(tags, &[], into);
        } else {
            // What has no room was counted on entry.
            let outer = *into;
            (length, _) = merge(tags, &outer[..length], into);
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::super::attributes::pairs;
    use super::*;

    fn keys(scopes: &Scopes) -> Vec<(u8, u8)> {
        let mut into = [0; MAX_TAG_BYTES];
        let length = scopes.in_force(&mut into);
        let mut keys: Vec<_> = pairs(&into[..length]).map(|(key, value)| (key, value[0])).collect();
        keys.sort_unstable();
        keys
    }

    /// Check that scopes left in order restore what was, and that those left out of order take only what they brought.
    #[test]
    fn scopes_take_with_them_what_they_brought() {
        let mut scopes = Scopes::default();
        let outer = scopes.enter(&[1, 1, 10, 2, 1, 10]).unwrap();
        let middle = scopes.enter(&[2, 1, 20]).unwrap();
        let inner = scopes.enter(&[3, 1, 30]).unwrap();
        assert_eq!(keys(&scopes), [(1, 10), (2, 20), (3, 30)]);
        scopes.leave(outer);
        assert_eq!(keys(&scopes), [(2, 20), (3, 30)]);
        scopes.leave(inner);
        assert_eq!(keys(&scopes), [(2, 20)]);
        let next = scopes.enter(&[4, 1, 40]).unwrap();
        scopes.leave(middle);
        assert_eq!(keys(&scopes), [(4, 40)]);
        scopes.leave(next);
        assert_eq!((keys(&scopes), scopes.entered.len(), scopes.bytes.len()), (vec![], 0, 0));
    }

    /// Check that forgotten scopes are bounded.
    #[test]
    fn forgotten_scopes_are_bounded() {
        let mut scopes = Scopes::default();
        let entered = (0..1000).filter(|_| scopes.enter(&[1, 0]).is_some()).count();
        assert_eq!(entered, MAX_SCOPES);
        scopes.leave(u32::MAX);
        scopes.leave(0);
        assert_eq!(scopes.entered.len(), MAX_SCOPES);
    }
}
