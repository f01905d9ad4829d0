//! Attributes (tags, labels) and sets of them.

use super::table::{AttributeId, Id, StringId, Table};

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
        let mut ids: Vec<AttributeId> = Vec::new();
        let key_of = |id| table.get(id).map(|attribute| attribute.key);
        for id in attributes.into_iter().filter(|id| id.index() != 0) {
            match ids.iter().position(|known| key_of(*known) == key_of(id)) {
                Some(position) => ids[position] = id,
                None => ids.push(id),
            }
        }
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
}
