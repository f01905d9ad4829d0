//! A walk over protobuf bytes that adds up what decoding them would allocate, before anything is allocated.
//!
//! In: bytes, and the [`Shape`] of the message they should be. Out: nothing, or the error that a bound is passed. Needed
//! because an empty element takes 2 bytes on the wire and up to 200 in memory. It checks no more of the content than it
//! needs to find its way; prost does the rest.
//!
//! Source: protobuf.dev, "Encoding": tag = field number << 3 | wire type.

use crate::error::DecodeError;
use crate::limits::{Budget, Limits};

/// What the walk must know of a message.
pub(crate) struct Shape {
    /// Size of the decoded message in memory, without what it points to.
    pub(crate) size: usize,
    /// Whether it can hold messages of its own type; counts for [`Limits::depth`].
    pub(crate) nests: bool,
    /// Its fields that repeat or hold such; all others cost no more memory than bytes of input.
    pub(crate) fields: &'static [(u64, Field)],
}

/// What a field holds.
pub(crate) enum Field {
    /// A message.
    Message(&'static Shape),
    /// A string of a repeated field.
    Text,
    /// Numbers, packed or one by one.
    Numbers,
}

/// Checks that `bytes`, decoded as `shape`, stay within `limits`.
pub(crate) fn check(bytes: &[u8], shape: &Shape, limits: &Limits) -> Result<(), DecodeError> {
    limits.check_len(bytes.len())?;
    walk(bytes, shape, limits, 0, &mut Budget::new(limits))
}

fn walk(
    mut bytes: &[u8],
    shape: &Shape,
    limits: &Limits,
    depth: usize,
    budget: &mut Budget,
) -> Result<(), DecodeError> {
    let depth = depth + usize::from(shape.nests);
    // The outermost value is not in any other, hence one more.
    if depth > limits.depth + 1 {
        return Err(DecodeError::OverLimit { what: "levels of lists and maps in a value", limit: limits.depth });
    }
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let content = content(&mut bytes, tag & 7)?;
        let field = shape.fields.iter().find(|(number, _)| *number == tag >> 3);
        match (field, content) {
            (Some((_, Field::Message(inner))), Some(content)) => {
                budget.spend(inner.size)?;
                walk(content, inner, limits, depth, budget)?;
            }
            (Some((_, Field::Text)), Some(content)) => budget.spend(size_of::<String>() + content.len())?,
            (Some((_, Field::Numbers)), content) => budget.spend_on::<u64>(content.map_or(1, <[u8]>::len))?,
            _ => {}
        }
    }
    Ok(())
}

/// Steps over the value of a field; gives the content of a length-delimited one.
fn content<'a>(bytes: &mut &'a [u8], wire_type: u64) -> Result<Option<&'a [u8]>, DecodeError> {
    match wire_type {
        0 => varint(bytes).map(|_| None),
        1 => take(bytes, 8).map(|_| None),
        5 => take(bytes, 4).map(|_| None),
        2 => {
            let len = varint(bytes)?;
            take(bytes, usize::try_from(len).unwrap_or(usize::MAX)).map(Some)
        }
        other => Err(malformed(format!("wire type {other}"))),
    }
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], DecodeError> {
    let (content, rest) = bytes
        .split_at_checked(len)
        .ok_or_else(|| malformed(format!("a field of {len} bytes where {} are left", bytes.len())))?;
    *bytes = rest;
    Ok(content)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = take(bytes, 1)? else { break };
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(malformed("a varint of more than 10 bytes".into()))
}

fn malformed(detail: String) -> DecodeError {
    DecodeError::Malformed { format: "protobuf", detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TREE: Shape = Shape { size: 100, nests: true, fields: &[(1, Field::Message(&TREE)), (2, Field::Numbers)] };

    fn limits(memory: usize, depth: usize) -> Limits {
        Limits { bytes: 1_000, memory, depth }
    }

    /// Check that each element is charged with its size, however small it is on the wire.
    #[test]
    fn empty_elements_are_charged() {
        let three = [0x0a, 0, 0x0a, 0, 0x0a, 0];
        assert_eq!(check(&three, &TREE, &limits(300, 9)), Ok(()));
        let error = check(&three, &TREE, &limits(299, 9)).unwrap_err();
        assert_eq!(error, DecodeError::OverLimit { what: "bytes of decoded content", limit: 299 });
    }

    /// Check that packed numbers are charged one by one.
    #[test]
    fn packed_numbers_are_charged() {
        assert_eq!(check(&[0x12, 3, 1, 2, 3], &TREE, &limits(24, 9)), Ok(()));
        assert!(check(&[0x12, 3, 1, 2, 3], &TREE, &limits(23, 9)).is_err());
    }

    /// Check that a message is refused one level below the allowed depth.
    #[test]
    fn depth_is_bounded() {
        let nested = [0x0a, 4, 0x0a, 2, 0x0a, 0];
        assert_eq!(check(&nested, &TREE, &limits(1_000, 3)), Ok(()));
        let error = check(&nested, &TREE, &limits(1_000, 2)).unwrap_err();
        assert_eq!(error.to_string(), "levels of lists and maps in a value go beyond the limit of 2");
    }

    /// Check that cut and absurd input is named.
    #[test]
    fn malformed_input_is_named() {
        let detail = |bytes: &[u8]| check(bytes, &TREE, &limits(1_000, 9)).unwrap_err().to_string();
        assert_eq!(detail(&[0x0a, 9, 1]), "not valid protobuf: a field of 9 bytes where 1 are left");
        assert_eq!(detail(&[0x0b]), "not valid protobuf: wire type 3");
        assert_eq!(detail(&[0xff; 12]), "not valid protobuf: a varint of more than 10 bytes");
    }
}
