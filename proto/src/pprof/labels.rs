//! Between a sample's labels and its attributes and link.
//!
//! pprof knows texts and numbers with a unit, and lets a key stand several times; such a key is an attribute with a list.

use std::borrow::Cow;

use super::messages::Label;
use crate::model::{AttributeSet, Dictionary, Link, Sample, Value};

/// The key of a link's trace id, 32 hexadecimal digits.
const TRACE_ID: &str = "trace_id";
/// The key of a link's span id, 16 hexadecimal digits.
const SPAN_ID: &str = "span_id";

/// The labels of `sample`; `rename` gives the name of a label from its key, `text` the index of a string in the file.
///
/// Empty texts are left out, for in pprof they are not there; values of other types become text.
pub(super) fn encode(
    sample: &Sample,
    dictionary: &Dictionary,
    rename: fn(&str) -> Cow<'_, str>,
    text: &mut impl FnMut(&str) -> i64,
) -> Vec<Label> {
    let mut labels = Vec::new();
    let link = dictionary.links.get(sample.link).filter(|link| **link != Link::default());
    let set = dictionary.attribute_sets.get(sample.attributes);
    for attribute in set.into_iter().flat_map(AttributeSet::ids).filter_map(|id| dictionary.attributes.get(*id)) {
        let key = rename(dictionary.strings.text(attribute.key));
        if link.is_some() && is_link_key(&key) {
            continue;
        }
        let values = match &attribute.value {
            Value::List(values) => values,
            single => std::slice::from_ref(single),
        };
        let unit = dictionary.strings.text(attribute.unit);
        labels.extend(values.iter().filter_map(|value| label(&key, value, unit, text)));
    }
    if let Some(link) = link {
        labels.push(Label { key: text(TRACE_ID), str: text(&hex(&link.trace_id)), ..Label::default() });
        labels.push(Label { key: text(SPAN_ID), str: text(&hex(&link.span_id)), ..Label::default() });
    }
    labels
}

fn label(key: &str, value: &Value, unit: &str, text: &mut impl FnMut(&str) -> i64) -> Option<Label> {
    if let Value::Int(num) = *value {
        // Readers take a label of nothing but a key for none. Without a unit, its key stands for that (pprof's `Profile.NumLabelUnits`).
        let unit = if num == 0 && unit.is_empty() { key } else { unit };
        return Some(Label { key: text(key), num, num_unit: text(unit), ..Label::default() });
    }
    let value = value.to_string();
    (!value.is_empty()).then(|| Label { key: text(key), str: text(&value), ..Label::default() })
}

/// The link of the ids that stand under the keys of a link, one each; `None` if they are not both there and whole.
pub(super) fn decode_link<'a>(mut text_of: impl FnMut(&str) -> Option<&'a str>) -> Option<Link> {
    let link = Link { trace_id: unhex(text_of(TRACE_ID)?)?, span_id: unhex(text_of(SPAN_ID)?)? };
    (link.trace_id != [0; 16] && link.span_id != [0; 8]).then_some(link)
}

/// Whether `key` is that of a link's id.
pub(super) fn is_link_key(key: &str) -> bool {
    key == TRACE_ID || key == SPAN_ID
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that ids of the wrong length, sign or case are no link.
    #[test]
    fn only_canonical_ids_are_links() {
        assert_eq!(unhex::<2>("00ff"), Some([0, 255]));
        assert_eq!((unhex::<2>("00f"), unhex::<2>("+0ff"), unhex::<2>("00FF")), (None, None, None));
        assert_eq!(hex(&[0, 255]), "00ff");
    }
}
