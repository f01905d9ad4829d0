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

impl Link {
    /// The trace's id in its hexadecimal form; `None` where there is none.
    #[must_use]
    pub fn trace(&self) -> Option<String> {
        (self.trace_id != [0; 16]).then(|| hex(&self.trace_id))
    }

    /// The span's id in its hexadecimal form; `None` where there is none.
    #[must_use]
    pub fn span(&self) -> Option<String> {
        (self.span_id != [0; 8]).then(|| hex(&self.span_id))
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
