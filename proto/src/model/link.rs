//! Spans that samples belong to.

/// A span of a trace. Zero value: "no link".
///
/// Source: W3C Trace Context, `trace-id` and `parent-id`; all-zero ids are invalid there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Link {
    /// Trace id, 16 bytes in the order of their hexadecimal form.
    pub trace_id: [u8; 16],
    /// Span id, 8 bytes in the order of their hexadecimal form.
    pub span_id: [u8; 8],
}
