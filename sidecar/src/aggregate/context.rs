//! What a sample was taken under: its tags, and the span that they name.
//!
//! In: the labels of a goroutine or a published thread context. Out: tags, in an order of their own so that equal sets are equal, and a span. The
//! names under which tracers put their spans into labels become the span and are no tags, for each value is another one. Pure.
//!
//! Source: grafana/otel-profiling-go, otelpyroscope.go (`span_id`, `trace_id`: hexadecimal); DataDog/dd-trace-go, internal/traceprof
//! (`span id`, `local root span id`: decimal).

use crate::sample::{Sample, Span};

/// Longest tag that a sample may have. Source: Pyroscope, pkg/validation/limits.go.
const MAX_TEXT: usize = 2048;
/// Most tags: with those of the thread, fewer than Pyroscope takes.
const MAX_TAGS: usize = 90;

/// Labels that name the trace, the best first.
const TRACES: [&str; 2] = ["trace_id", "trace id"];
/// Labels that name the span, the best first: the root is the span where nothing tells it better.
const SPANS: [&str; 3] = ["span_id", "span id", "local root span id"];

/// Tags and span of a sample.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// Keys with their values, by key; no key stands twice.
    pub tags: Vec<(String, String)>,
    /// The span.
    pub span: Option<Span>,
    /// Whether there were more tags, or longer ones, than there is room for.
    pub is_cut: bool,
}

impl Context {
    /// That of a sample. A published span goes before one in labels; labels that make up no span stay tags.
    #[must_use]
    pub fn of(sample: &Sample) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut tags: Vec<(String, String)> =
            sample.labels.iter().map(|(key, value)| (text(key), text(value))).collect();
        let span = sample.span.filter(is_whole).or_else(|| span_of(&tags));
        if span.is_some() {
            tags.retain(|(key, _)| !TRACES.contains(&key.as_str()) && !SPANS.contains(&key.as_str()));
        }
        let mut is_cut = sample.labels_cut;
        tags.retain(|(key, _)| !key.is_empty());
        tags.iter_mut().for_each(|tag| is_cut |= fit(tag));
        // The last of equal keys holds, as in a set of attributes.
        tags.reverse();
        tags.sort_by(|(one, _), (other, _)| one.cmp(other));
        tags.dedup_by(|(later, _), (first, _)| later == first);
        is_cut |= tags.len() > MAX_TAGS;
        tags.truncate(MAX_TAGS);
        Self { tags, span, is_cut }
    }
}

/// Makes a tag one that receivers take; whether something of it went.
fn fit((key, value): &mut (String, String)) -> bool {
    // These are what locations say; receivers refuse them as tags.
    if key.starts_with("code.") {
        key.insert_str(0, "label.");
    }
    let is_long = key.len().max(value.len()) > MAX_TEXT;
    key.truncate(key.floor_char_boundary(MAX_TEXT));
    value.truncate(value.floor_char_boundary(MAX_TEXT));
    is_long
}

/// Whether neither id is all zero, which W3C Trace Context calls invalid.
fn is_whole(span: &Span) -> bool {
    span.trace_id != [0; 16] && span.span_id != [0; 8]
}

/// The span that labels name, where they name both the trace and the span.
fn span_of(tags: &[(String, String)]) -> Option<Span> {
    let value = |key: &str| tags.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
    let trace = TRACES.iter().find_map(|key| number(key, value(key)?, 32))?;
    let span = SPANS.iter().find_map(|key| u64::try_from(number(key, value(key)?, 16)?).ok())?;
    Some(Span { trace_id: trace.to_be_bytes(), span_id: span.to_be_bytes() }).filter(is_whole)
}

/// An id: hexadecimal of at most so many digits under a name with `_`, decimal under one with spaces, as its tracer writes it. One that cannot be
/// decimal is hexadecimal there too.
fn number(key: &str, value: &str, digits: usize) -> Option<u128> {
    let is_hex = value.len() <= digits && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_decimal = value.len() <= 39 && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match () {
        () if key.contains(' ') && is_decimal && value.len() < 32 => value.parse().ok(),
        () if is_hex => u128::from_str_radix(value, 16).ok(),
        () => None,
    }
    .filter(|id| *id != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Labels;

    fn context(labels: &[(&str, &str)]) -> Context {
        Context::of(&Sample { labels: labels.iter().copied().collect(), ..Sample::default() })
    }

    fn tags(context: &Context) -> Vec<(&str, &str)> {
        context.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    /// Check that the labels of OpenTelemetry's tracers become the span and are no tags, and that the others stay.
    #[test]
    fn hexadecimal_ids_become_the_span() {
        let context = context(&[
            ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
            ("span_name", "GET /"),
            ("span_id", "00f067aa0ba902b7"),
        ]);
        let span = context.span.unwrap();
        assert_eq!(span.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
        assert_eq!(span.span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        assert_eq!(tags(&context), [("span_name", "GET /")]);
    }

    /// Check that Datadog's ids are decimal, that the span goes before its root, and that the root does where it stands alone.
    #[test]
    fn decimal_ids_become_the_span() {
        let both = [("span id", "10"), ("local root span id", "11"), ("trace id", "12")];
        assert_eq!(context(&both).span.map(|span| span.span_id), Some(10_u64.to_be_bytes()));
        assert_eq!(context(&both).span.map(|span| span.trace_id), Some(12_u128.to_be_bytes()));
        assert!(context(&both).tags.is_empty());
        let root = context(&[("local root span id", "11"), ("trace_id", "c")]);
        assert_eq!(
            root.span.map(|span| (span.trace_id, span.span_id)),
            Some((12_u128.to_be_bytes(), 11_u64.to_be_bytes()))
        );
    }

    /// Check that labels which make up no span stay what they are.
    #[test]
    fn what_is_no_span_stays_a_tag() {
        for odd in [
            vec![("span_id", "00f067aa0ba902b7")],
            vec![("span_id", "zz"), ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736")],
            vec![("span_id", "0000000000000000"), ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736")],
            vec![("span id", "340282366920938463463374607431768211456"), ("trace id", "1")],
            vec![("span_id", ""), ("trace_id", "")],
        ] {
            let context = context(&odd);
            assert_eq!((context.span, context.tags.len()), (None, odd.len()), "{odd:?}");
        }
    }

    /// Check that a published span goes before labels, unless it is none.
    #[test]
    fn a_published_span_goes_first() {
        let labels = Labels::from_iter([("trace_id", "1"), ("span_id", "2")]);
        let published = Span { trace_id: [1; 16], span_id: [2; 8] };
        let sample = Sample { labels, span: Some(published), ..Sample::default() };
        assert_eq!(Context::of(&sample), Context { span: Some(published), ..Context::default() });
        let none = Sample { span: Some(Span::default()), ..sample };
        assert_eq!(Context::of(&none).span.map(|span| span.span_id), Some(2_u64.to_be_bytes()));
    }

    /// Check that equal sets are equal in whichever order, that keys stand once, and that odd texts are made to fit.
    #[test]
    fn tags_are_ordered_distinct_and_fit() {
        assert_eq!(context(&[("b", "2"), ("a", "1")]), context(&[("a", "1"), ("b", "2")]));
        assert_eq!(tags(&context(&[("a", "1"), ("", "x"), ("a", "2")])), [("a", "2")]);
        assert_eq!(tags(&context(&[("code.function.name", "f")])), [("label.code.function.name", "f")]);
        let long = context(&[("long", &"é".repeat(2000))]);
        assert_eq!((long.tags[0].1.len(), long.is_cut), (MAX_TEXT, true));
        let bytes = Sample { labels: Labels::from_iter([(b"k\xff", b"\xfe")]), ..Sample::default() };
        assert_eq!(tags(&Context::of(&bytes)), [("k\u{fffd}", "\u{fffd}")]);
    }
}
