//! A segment as bytes: a preamble that says which one it is, then records, one behind the other.
//!
//! In: a file, or any bytes. Out: headers and bodies in order, up to the first thing that is no whole record; what stands
//! behind that is not believed. At most one header and one body are in memory, whatever the bytes say. Only reads, and
//! only what it is given.

use std::io::{self, Read, Seek, SeekFrom};

use crc32fast::hash;

use super::record::{Header, MAX_HEADER, NO_NUMBER, take};

/// Bytes of a preamble: magic, version, number of the first record, CRC-32 of these.
pub(super) const PREAMBLE: usize = 20;
const MAGIC: [u8; 7] = *b"profspl";
const VERSION: u8 = 1;

/// What a file with the name of a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A segment.
    Ours,
    /// A segment of a version that this one does not read.
    OtherVersion,
    /// Nothing that can be read: what a crash left of one.
    Damaged,
}

/// The preamble of the segment whose first record is number `first`.
pub(super) fn preamble(first: u64) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..7].copy_from_slice(&MAGIC);
    bytes[7] = VERSION;
    bytes[8..16].copy_from_slice(&first.to_le_bytes());
    let checksum = hash(&bytes[..16]);
    bytes[16..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// What a file is that begins with `bytes` and has the name of segment `first`.
pub(super) fn recognise(mut bytes: &[u8], first: u64) -> Kind {
    if bytes.starts_with(&preamble(first)) {
        return Kind::Ours;
    }
    let other = take(&mut bytes) == Some(MAGIC) && bytes.first().is_some_and(|version| *version != VERSION);
    if other { Kind::OtherVersion } else { Kind::Damaged }
}

/// Reads the records of a segment in order.
#[derive(Debug)]
pub(super) struct Reader<R> {
    source: R,
    /// Where the next header begins.
    offset: u64,
    /// Where the body of the last header begins.
    body: u64,
    /// No record from here on has a smaller number: what does is left over from a file that was here before.
    least: u64,
}

impl<R: Read + Seek> Reader<R> {
    /// A reader that stands at `offset` (behind the preamble, or where another one was), before record `least`.
    pub(super) fn at(source: R, offset: u64, least: u64) -> Self {
        Self { source, offset, body: offset, least }
    }

    /// Where the next header begins; all before it is known to be whole, but for the bodies.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next header, of a segment that ends at `end`; `None` where there is no whole record any more.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(super) fn header(&mut self, end: u64) -> io::Result<Option<Header>> {
        let left = end.saturating_sub(self.offset);
        let mut bytes = Vec::with_capacity(MAX_HEADER);
        self.source.seek(SeekFrom::Start(self.offset))?;
        self.source.by_ref().take(left.min(MAX_HEADER as u64)).read_to_end(&mut bytes)?;
        let Some((header, length)) = Header::decode(&bytes) else { return Ok(None) };
        let whole = length as u64 + u64::from(header.length);
        if whole > left || header.number < self.least || header.number >= NO_NUMBER {
            return Ok(None);
        }
        self.body = self.offset + length as u64;
        self.offset += whole;
        self.least = header.number + 1;
        Ok(Some(header))
    }

    /// The body of `header`, which was the last to be read; `None` if it is not the one that was written.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(super) fn body(&mut self, header: &Header) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.source.seek(SeekFrom::Start(self.body))?;
        self.source.by_ref().take(u64::from(header.length)).read_to_end(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| header.is_of(bytes)))
    }
}
