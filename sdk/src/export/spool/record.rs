//! A record as bytes: what it is and what it counts, with checksums, in front of a body that is encoded already.
//!
//! In: a body with its number, form and counts; or bytes from a file, which may be anything. Out: the bytes before the
//! body; or what they say, if they are whole. Pure: no files, and nothing here takes memory for what a file merely claims.
//!
//! ```text
//! 0  u32  CRC-32 of what follows up to the body      20  u8  form
//! 4  u32  bytes of the body                          21  u8  bytes of the counts
//! 8  u32  CRC-32 of the body                         22      counts
//! 12 u64  number                                     ..      body
//! ```
//!
//! Little-endian. The header has a checksum of its own: one flipped byte in a body costs that body and no other, and its
//! counts are known.

use crc32fast::hash;

/// Most bytes of counts.
pub(super) const MAX_COUNTS: usize = u8::MAX as usize;
/// Most bytes of a body: as many as may wait for a destination in memory by default.
pub(super) const MAX_BODY: usize = 16 << 20;
/// No record has this number or a larger one: no counter reaches it.
pub(super) const NO_NUMBER: u64 = 1 << 62;
/// Most bytes before a body.
pub(super) const MAX_HEADER: usize = FIXED + MAX_COUNTS;
/// Bytes before the counts.
const FIXED: usize = 22;

/// What stands before a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// Its place in the order of all records of a folder.
    pub(super) number: u64,
    /// How the body is encoded: a matter of those who append and read.
    pub(super) form: u8,
    /// What is in the body, in the words of those who append.
    pub(super) counts: Box<[u8]>,
    /// Bytes of the body.
    pub(super) length: u32,
    /// CRC-32 of the body.
    checksum: u32,
}

impl Header {
    /// The header of `body`; `None` if that or `counts` is longer than a record can hold.
    pub(super) fn of(number: u64, form: u8, counts: &[u8], body: &[u8]) -> Option<Self> {
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_BODY)?;
        let counts = (counts.len() <= MAX_COUNTS).then(|| counts.into())?;
        Some(Self { number, form, counts, length, checksum: hash(body) })
    }

    /// The same with another number.
    pub(super) fn numbered(self, number: u64) -> Self {
        Self { number, ..self }
    }

    /// The bytes that stand before the body.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(self.checksum.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend([self.form, self.counts.len() as u8]);
        bytes.extend(&self.counts);
        let checksum = hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header that `bytes` begin with, and its length; `None` if there is no whole one.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut rest = bytes;
        let expected = u32::from_le_bytes(take(&mut rest)?);
        let length = u32::from_le_bytes(take(&mut rest)?);
        let checksum = u32::from_le_bytes(take(&mut rest)?);
        let number = u64::from_le_bytes(take(&mut rest)?);
        let [form, counted] = take(&mut rest)?;
        let counts = rest.get(..usize::from(counted))?.into();
        let end = FIXED + usize::from(counted);
        let sound = hash(bytes.get(4..end)?) == expected && length as usize <= MAX_BODY;
        sound.then_some((Self { number, form, counts, length, checksum }, end))
    }

    /// Whether `body` is the one that this header was made for.
    pub(super) fn is_of(&self, body: &[u8]) -> bool {
        hash(body) == self.checksum
    }
}

/// The next `N` bytes, taken off the front.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}
