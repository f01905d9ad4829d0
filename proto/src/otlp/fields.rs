//! Fields of protobuf messages, without the messages: counted, or written.
//!
//! In: an element that tells its fields one after the other. Out: how long its message is, or the bytes of that. For elements of which there are
//! thousands in a request: a message of each, with its vectors, takes several times as long as writing it.
//!
//! Source: protobuf.dev, "Encoding": tag = field number << 3 | wire type; a field with its default value is not there; numbers that repeat are packed.

use prost::encoding::{encode_varint, encoded_len_varint};

/// What is a message on the wire.
pub(super) trait Element {
    /// Tells all fields, each once, in any order: protobuf.dev, "Encoding", has none.
    fn tell(&self, to: &mut impl Fields);

    /// Bytes of its message.
    fn length(&self) -> usize {
        let mut length = Length(0);
        self.tell(&mut length);
        length.0
    }
}

/// What is done with one field after the other. All have numbers below 16: a tag is one byte.
pub(super) trait Fields {
    /// An integer, unless it is 0.
    fn number(&mut self, field: u8, value: u64);
    /// All integers of a field that repeats, unless there are none.
    fn numbers(&mut self, field: u8, values: impl Iterator<Item = u64> + Clone);
    /// Bytes, unless there are none.
    fn bytes(&mut self, field: u8, bytes: &[u8]);
    /// A message.
    fn element(&mut self, field: u8, element: &impl Element);
}

/// A field with so many bytes, with what stands before them.
pub(super) fn delimited(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

/// What stands before a field of so many bytes.
pub(super) fn begin(field: u8, length: usize, out: &mut Vec<u8>) {
    const LENGTH_DELIMITED: u8 = 2;
    out.push(field << 3 | LENGTH_DELIMITED);
    encode_varint(length as u64, out);
}

/// The sum of the lengths of fields.
struct Length(usize);

impl Fields for Length {
    fn number(&mut self, _: u8, value: u64) {
        self.0 += if value == 0 { 0 } else { 1 + encoded_len_varint(value) };
    }

    fn numbers(&mut self, _: u8, values: impl Iterator<Item = u64> + Clone) {
        let length = packed(values);
        self.0 += if length == 0 { 0 } else { delimited(length) };
    }

    fn bytes(&mut self, _: u8, bytes: &[u8]) {
        self.0 += if bytes.is_empty() { 0 } else { delimited(bytes.len()) };
    }

    fn element(&mut self, _: u8, element: &impl Element) {
        self.0 += delimited(element.length());
    }
}

impl Fields for Vec<u8> {
    fn number(&mut self, field: u8, value: u64) {
        if value != 0 {
            self.push(field << 3);
            encode_varint(value, self);
        }
    }

    fn numbers(&mut self, field: u8, values: impl Iterator<Item = u64> + Clone) {
        let length = packed(values.clone());
        if length > 0 {
            begin(field, length, self);
            values.for_each(|value| encode_varint(value, self));
        }
    }

    fn bytes(&mut self, field: u8, bytes: &[u8]) {
        if !bytes.is_empty() {
            begin(field, bytes.len(), self);
            self.extend_from_slice(bytes);
        }
    }

    fn element(&mut self, field: u8, element: &impl Element) {
        begin(field, element.length(), self);
        element.tell(self);
    }
}

fn packed(values: impl Iterator<Item = u64>) -> usize {
    values.map(encoded_len_varint).sum()
}
