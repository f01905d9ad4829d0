//! Attributes (tags, labels) and sets of them.

use std::fmt::{self, Write};

use super::table::{AttributeId, StringId, Table};

/// A key with its value and, for numbers, the value's unit. Zero value: "not set".
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Attribute {
    /// The key, as `endpoint` or `thread.id`.
    pub key: StringId,
    /// The value.
    pub value: Value,
    /// Unit of a numeric value, as `By`; zero for none.
    pub unit: StringId,
}

/// The value of an attribute: OTLP's `AnyValue` (opentelemetry/proto/common/v1/common.proto).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Value {
    /// Not set; only the zero attribute has it.
    #[default]
    Empty,
    /// Text.
    String(Box<str>),
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(Double),
    /// Bytes.
    Bytes(Box<[u8]>),
    /// Several values.
    List(Box<[Value]>),
    /// Several values by key.
    Map(Box<[(Box<str>, Value)]>),
}

impl Value {
    /// The text of a string value.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number of an integer value.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    /// The text itself, numbers and truth values in Rust's form, bytes in hexadecimal; lists and maps in the form of JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => Ok(()),
            Self::String(text) => f.write_str(text),
            Self::Bool(truth) => truth.fmt(f),
            Self::Int(number) => number.fmt(f),
            Self::Double(number) => number.value().fmt(f),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::List(values) => separated(f, "[", values, "]", |f, value| value.nested(f)),
            Self::Map(pairs) => separated(f, "{", pairs, "}", |f, (key, value)| {
                quoted(f, key)?;
                f.write_char(':')?;
                value.nested(f)
            }),
        }
    }
}

impl Value {
    fn nested(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("null"),
            Self::String(text) => quoted(f, text),
            Self::Bytes(_) => write!(f, "\"{self}\""),
            _ => write!(f, "{self}"),
        }
    }
}

fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    items: &[T],
    close: &str,
    mut write: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_str(open)?;
    for (i, item) in items.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { "," })?;
        write(f, item)?;
    }
    f.write_str(close)
}

/// A JSON string (RFC 8259, section 7).
fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\0'..='\x1f' => write!(f, "\\u{:04x}", c as u32)?,
            _ => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

/// A floating-point number that is compared and hashed by its bits, so that it can be interned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Double(u64);

impl Double {
    /// The number with these bits.
    #[must_use]
    pub fn new(number: f64) -> Self {
        Self(number.to_bits())
    }

    /// The number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Attributes with distinct keys, ordered by id, so that equal sets are equal values. Zero value: the empty set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AttributeSet {
    ids: Box<[AttributeId]>,
}

impl AttributeSet {
    /// The set of `attributes` of `table`; where a key stands twice, the last one holds; unset ids are left out.
    pub fn new(attributes: impl IntoIterator<Item = AttributeId>, table: &Table<Attribute, AttributeId>) -> Self {
        let key_of = |id: &AttributeId| table.get(*id).map(|attribute| attribute.key);
        let mut ids: Vec<_> = attributes.into_iter().filter(|id| !id.is_zero()).collect();
        // A stable sort keeps the last of equal keys first among them, where `dedup` leaves it.
        ids.reverse();
        ids.sort_by_key(key_of);
        ids.dedup_by_key(|id| key_of(id));
        ids.sort_unstable();
        Self { ids: ids.into() }
    }

    /// The attributes' ids in ascending order.
    #[must_use]
    pub fn ids(&self) -> &[AttributeId] {
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use crate::Dictionary;
    use crate::model::Value;

    /// Check that the last of two equal keys holds, and that order does not matter.
    #[test]
    fn the_last_of_equal_keys_holds() {
        let mut dictionary = Dictionary::default();
        let (old, new) = (dictionary.attribute("endpoint", "/a"), dictionary.attribute("endpoint", "/b"));
        let other = dictionary.attribute("method", "GET");
        let set = dictionary.attribute_set([old, other, new]);
        assert_eq!(set, dictionary.attribute_set([other, new]));
        assert_eq!(dictionary.value_of(set, "endpoint"), Some(&Value::from("/b")));
    }

    /// Check that a value reads as its own text, and as JSON where it has parts.
    #[test]
    fn values_read_as_text() {
        let list = Value::List([Value::from("a\"\n"), Value::Int(-1), Value::Bytes([1, 255].into())].into());
        assert_eq!(list.to_string(), r#"["a\"\u000a",-1,"01ff"]"#);
        let map = Value::Map([("k".into(), Value::Empty), ("l".into(), Value::Bool(true))].into());
        assert_eq!(map.to_string(), r#"{"k":null,"l":true}"#);
        assert_eq!(Value::from("plain \"text\"").to_string(), "plain \"text\"");
    }
}
