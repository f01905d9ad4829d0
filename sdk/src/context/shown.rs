//! Which span is current on a thread, as those say who follow spans: its ids, its flags and its tags.
//!
//! In: the word of an observer of OpenTelemetry's contexts, and of a layer for `tracing`. Out: what of it is news, for the records of `scopes`. A
//! layer may be taken out of its subscriber while its spans are current: then nobody says any more that they are over, and what it said goes
//! with it. A thread's own; writes nothing that other threads read.

use std::sync::Weak;
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
use std::{ptr, sync::Arc};

use super::records::Linked;

/// Who says which span is current.
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
#[derive(Debug, Clone, Copy)]
pub(super) enum Source<'a> {
    #[cfg_attr(
        not(any(test, feature = "opentelemetry")),
        expect(dead_code, reason = "follows contexts of OpenTelemetry")
    )]
    OpenTelemetry,
    /// OpenTelemetry within a span that samples are not to link to: ids that a layer sees are of the same span.
    #[cfg_attr(
        not(any(test, feature = "opentelemetry")),
        expect(dead_code, reason = "follows contexts of OpenTelemetry")
    )]
    Unlinked,
    /// A layer, and what goes when it goes.
    #[cfg_attr(not(any(test, feature = "tracing-layer")), expect(dead_code, reason = "follows spans of tracing"))]
    Tracing(&'a Arc<()>),
}

/// What was said last. Where no layer has said anything, or the one that did is forgotten, nothing is by `tracing`.
#[derive(Debug)]
pub(super) struct Shown {
    /// The span that samples link to, with its flags: OpenTelemetry's, or else that of a layer.
    pub(super) linked: Linked,
    /// How often another one became current.
    pub(super) turns: u64,
    /// It is OpenTelemetry's, or none because OpenTelemetry's is not to be linked to: whatever a layer says.
    is_of_opentelemetry: bool,
    by_tracing: Linked,
    of_opentelemetry: Vec<u8>,
    of_tracing: Vec<u8>,
    /// The layer that said something last.
    layer: Option<Weak<()>>,
}

/// What differs from what was shown before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct News {
    pub(super) tags: bool,
    pub(super) span: bool,
}

impl Shown {
    /// Nothing.
    pub(super) const fn nothing() -> Self {
        Self {
            linked: Linked::NONE,
            turns: 0,
            is_of_opentelemetry: false,
            by_tracing: Linked::NONE,
            of_opentelemetry: Vec::new(),
            of_tracing: Vec::new(),
            layer: None,
        }
    }

    /// The tags of the span of OpenTelemetry.
    pub(super) fn of_opentelemetry(&self) -> &[u8] {
        &self.of_opentelemetry
    }

    /// The tags of the span of `tracing`, which stand within those.
    pub(super) fn of_tracing(&self) -> &[u8] {
        &self.of_tracing
    }

    /// Takes note of the span of OpenTelemetry, if there is one, where there are no tags of spans and no layer has a say; whether it is another
    /// one. Else `None`, and nothing is done.
    #[cfg(feature = "opentelemetry")]
    #[inline]
    pub(super) fn show_alone(&mut self, span: Linked) -> Option<bool> {
        if self.layer.is_some() || !self.of_opentelemetry.is_empty() {
            return None;
        }
        self.is_of_opentelemetry = span.is_some();
        Some(self.link(span))
    }

    /// Takes note of the current span: its tags, and its ids and flags where its source has any to say.
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    pub(super) fn show(&mut self, source: Source<'_>, tags: &[u8], span: Option<Linked>) -> News {
        let gone = if self.is_left_behind() { self.forget_layer() } else { News { tags: false, span: false } };
        let (is_other, known_tags) = match source {
            Source::OpenTelemetry | Source::Unlinked => {
                (self.heed_opentelemetry(source, span), &mut self.of_opentelemetry)
            }
            Source::Tracing(layer) => (self.heed_layer(layer, span), &mut self.of_tracing),
        };
        News { tags: exchange(known_tags, tags) || gone.tags, span: is_other || gone.span }
    }

    /// What OpenTelemetry says of the span; whether the one to link to is another one.
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    fn heed_opentelemetry(&mut self, source: Source<'_>, span: Option<Linked>) -> bool {
        let Some(span) = span else { return false };
        self.is_of_opentelemetry = matches!(source, Source::Unlinked) || span.is_some();
        self.link(if self.is_of_opentelemetry { span } else { self.by_tracing })
    }

    /// What a layer says of it.
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    fn heed_layer(&mut self, layer: &Arc<()>, span: Option<Linked>) -> bool {
        if follow(&mut self.layer, layer) {
            // Of another layer, which nobody would know to be gone.
            self.by_tracing = Linked::NONE;
        }
        self.by_tracing = span.unwrap_or(self.by_tracing);
        self.link_layers()
    }

    /// Whether the layer that said something is gone.
    #[inline]
    pub(super) fn is_left_behind(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| layer.strong_count() == 0)
    }

    /// Forgets what it said.
    #[cold]
    pub(super) fn forget_layer(&mut self) -> News {
        (self.layer, self.by_tracing) = (None, Linked::NONE);
        News { tags: exchange(&mut self.of_tracing, &[]), span: self.link_layers() }
    }

    /// Links to the span of the layer, unless OpenTelemetry has a say; whether that is another one.
    fn link_layers(&mut self) -> bool {
        !self.is_of_opentelemetry && self.link(self.by_tracing)
    }

    /// Links to a span; whether it is another one.
    #[inline]
    fn link(&mut self, span: Linked) -> bool {
        let is_other = span != self.linked;
        if is_other {
            self.linked = span;
            self.turns += 1;
        }
        is_other
    }
}

/// Remembers the layer, if it is another one; written once by each thread, for the count is memory that threads share.
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
#[inline]
fn follow(known: &mut Option<Weak<()>>, layer: &Arc<()>) -> bool {
    let is_other = !known.as_ref().is_some_and(|known| ptr::eq(known.as_ptr(), Arc::as_ptr(layer)));
    if is_other {
        *known = Some(Arc::downgrade(layer));
    }
    is_other
}

/// Puts tags in the place of others; `false` if they are what they were.
#[inline]
fn exchange(place: &mut Vec<u8>, tags: &[u8]) -> bool {
    // Asked first: as a rule there are none, and comparing nothing takes a processor 70 ns where it lies at no real address.
    let both_empty = place.is_empty() && tags.is_empty();
    if both_empty || place.as_slice() == tags {
        return false;
    }
    place.clear();
    place.extend_from_slice(tags);
    true
}
