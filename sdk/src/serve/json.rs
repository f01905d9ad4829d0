//! JSON objects written straight into bytes: columns of a million numbers are too many for a tree of values.
//!
//! In: fields in the order in which they shall stand. Out: bytes.

use std::fmt::Display;
use std::io::Write;

use serde_json::Value;

/// A JSON object that grows field by field. Names are ours and need no escape.
#[derive(Debug)]
pub(super) struct Object {
    out: Vec<u8>,
}

impl Object {
    /// `{}`.
    pub(super) fn new() -> Self {
        Self { out: vec![b'{'] }
    }

    /// A number, as its `Display` writes it.
    pub(super) fn number(&mut self, name: &str, number: impl Display) -> &mut Self {
        self.name(name);
        self.put(number);
        self
    }

    /// Any small value.
    pub(super) fn value(&mut self, name: &str, value: &Value) -> &mut Self {
        self.name(name);
        self.put(value);
        self
    }

    /// Another object.
    pub(super) fn object(&mut self, name: &str, object: Self) -> &mut Self {
        self.name(name);
        self.out.extend(object.finish());
        self
    }

    /// A column of numbers.
    pub(super) fn numbers(&mut self, name: &str, numbers: impl Iterator<Item = impl Display>) -> &mut Self {
        self.column(name, numbers, Self::put)
    }

    /// A column of texts.
    pub(super) fn texts<'a>(&mut self, name: &str, texts: impl Iterator<Item = &'a str>) -> &mut Self {
        self.column(name, texts, |object, text| object.put(Value::from(text)))
    }

    /// The bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }

    fn column<T>(&mut self, name: &str, elements: impl Iterator<Item = T>, put: impl Fn(&mut Self, T)) -> &mut Self {
        self.name(name);
        self.out.push(b'[');
        for (index, element) in elements.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            put(self, element);
        }
        self.out.push(b']');
        self
    }

    fn name(&mut self, name: &str) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        self.put(format_args!("\"{name}\":"));
    }

    fn put(&mut self, text: impl Display) {
        // A vector takes every write.
        let written = write!(self.out, "{text}");
        debug_assert!(written.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Check that what is written is the JSON that was meant, with whatever text.
    #[test]
    fn what_is_written_is_what_was_meant() {
        let mut inner = Object::new();
        inner.numbers("none", [0u8; 0].iter()).texts("texts", ["a\"b\\c", "\u{7}é", "</script>"].into_iter());
        let mut object = Object::new();
        object.number("n", u64::MAX).value("v", &json!({"a": null})).object("o", inner).numbers("c", 1..4);
        let parsed: Value = serde_json::from_slice(&object.finish()).unwrap();
        let inner = json!({"none": [], "texts": ["a\"b\\c", "\u{7}é", "</script>"]});
        assert_eq!(parsed, json!({"n": u64::MAX, "v": {"a": null}, "o": inner, "c": [1, 2, 3]}));
        assert_eq!(Object::new().finish(), b"{}");
    }
}
