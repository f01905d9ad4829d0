//! The record of a thread: what others read of it, in a shape that is not ours alone.
//!
//! In: a span and tags. Out: their bytes, where a reader expects them. Pure.

#[cfg(feature = "opentelemetry")]
use opentelemetry::trace::SpanContext;

use super::attributes::{MAX_TAG_BYTES, copy_short, merge};

/// What a thread is working for, laid out as the OpenTelemetry thread context record, so that profilers outside can read it.
///
/// Source: OTEP 4947, "Thread Context: Sharing Thread-Level Information with the OpenTelemetry eBPF Profiler". It asks for an alignment of 8; ours
/// is that of a cache line, of which a record has ten for itself: no other thread waits for what its own writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Record {
    pub(super) span: Span,
    /// 1: the record is whole. A record that is not is never in force.
    valid: u8,
    pub(super) trace_flags: u8,
    /// Bytes of `attrs_data` that hold tags.
    attrs_data_size: u16,
    attrs_data: [u8; MAX_TAG_BYTES],
}

const _: () = {
    assert!(size_of::<Record>() == 640);
    assert!(align_of::<Record>() == 64);
    assert!(std::mem::offset_of!(Record, span) == 0);
    assert!(std::mem::offset_of!(Record, valid) == 24);
    assert!(std::mem::offset_of!(Record, trace_flags) == 25);
    assert!(std::mem::offset_of!(Record, attrs_data_size) == 26);
    assert!(std::mem::offset_of!(Record, attrs_data) == 28);
};

/// A span, as W3C Trace Context writes it; all zero: none.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Span {
    pub(crate) trace_id: [u8; 16],
    pub(crate) span_id: [u8; 8],
}

impl Span {
    pub(crate) const NONE: Self = Self { trace_id: [0; 16], span_id: [0; 8] };

    fn words(&self) -> [u64; 3] {
        let ([high, low], _) = self.trace_id.as_chunks() else { return [0; 3] };
        [*high, *low, self.span_id].map(u64::from_ne_bytes)
    }
}

/// By words, as spans are written a moment before: a processor waits where 16 bytes are read of which 8 were written last.
impl PartialEq for Span {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let ([a, b, c], [d, e, f]) = (self.words(), other.words());
        (a ^ d) | (b ^ e) | (c ^ f) == 0
    }
}

impl Eq for Span {}

#[cfg(feature = "opentelemetry")]
impl From<&SpanContext> for Span {
    fn from(span: &SpanContext) -> Self {
        Self { trace_id: span.trace_id().to_bytes(), span_id: span.span_id().to_bytes() }
    }
}

/// The span that samples link to, with its trace flags. Words alone, as it is handed on between two changes: padding would be copied in pieces that
/// overlap, and a processor waits where it reads what was written in other pieces a moment before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Linked {
    span: Span,
    flags: u64,
}

impl Linked {
    /// No span.
    pub(super) const NONE: Self = Self { span: Span::NONE, flags: 0 };

    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    #[inline]
    pub(super) fn new(span: Span, trace_flags: u8) -> Self {
        Self { span, flags: trace_flags.into() }
    }

    /// Whether it is a span.
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.span != Span::NONE
    }
}

impl Record {
    /// What is in force where nothing is.
    pub(super) const EMPTY: Self =
        Self { span: Span::NONE, valid: 1, trace_flags: 0, attrs_data_size: 0, attrs_data: [0; MAX_TAG_BYTES] };

    /// The tags, as `attributes` writes them.
    #[inline]
    pub(super) fn tags(&self) -> &[u8] {
        self.attrs_data.get(..self.attrs_data_size.into()).unwrap_or(&[])
    }

    /// Whether it says nothing.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.attrs_data_size == 0 && self.span == Span::NONE
    }

    /// Writes the tags, as [`merge`] does; how many of the outer ones found no room.
    #[inline]
    pub(super) fn write(&mut self, inner: &[u8], outer: &[u8]) -> u64 {
        let (length, left_out) = merge(inner, outer, &mut self.attrs_data);
        self.attrs_data_size = length as u16;
        left_out
    }

    /// Writes these tags alone, where they are as short as tags are as a rule; else `false`.
    #[inline]
    pub(super) fn write_short(&mut self, tags: &[u8]) -> bool {
        let is_short = copy_short(tags, &mut self.attrs_data);
        if is_short {
            self.attrs_data_size = tags.len() as u16;
        }
        is_short
    }

    /// Writes the span.
    #[inline]
    pub(super) fn link(&mut self, linked: Linked) {
        (self.span, self.trace_flags) = (linked.span, linked.flags as u8);
    }
}
