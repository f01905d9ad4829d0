//! What must hold for any bytes in the files of a spool: the entry point of the fuzz target and of the smoke test.
//!
//! In: bytes from a fuzzer, which are taken for files, and for an account of how a good segment is damaged. Out: nothing; a
//! broken property is a failed assertion, which is why nothing else may call this.

use std::io::Cursor;

use super::record::Header;
use super::segment::{Kind, PREAMBLE, Reader, preamble, recognise};
use super::settled::Cursors;

/// Any bytes.
pub(crate) fn spool(bytes: &[u8]) {
    cursors(bytes);
    let _kind = recognise(bytes, 1);
    let mut reader = Reader::at(Cursor::new(bytes), 0, 0);
    while let Ok(Some(header)) = reader.header(bytes.len() as u64) {
        let end = usize::try_from(reader.offset()).unwrap_or(usize::MAX);
        let start = end - header.length as usize - header.encode().len();
        assert!(bytes[start..end].starts_with(&header.encode()), "what was read is not there");
        let _body = reader.body(&header);
    }
    if let Some((damage, bodies)) = bytes.split_first_chunk::<6>() {
        damaged(*damage, bodies);
    }
}

fn cursors(bytes: &[u8]) {
    if let Some(cursors) = Cursors::decode(bytes) {
        let once = cursors.encode();
        assert_eq!(Cursors::decode(&once).map(|cursors| cursors.encode()), Some(once));
    }
}

/// A segment of records, and where each ends.
pub(crate) fn segment(bodies: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = preamble(1).to_vec();
    let ends = bodies.iter().zip(1..).filter_map(|(body, number)| {
        bytes.extend(Header::of(number, 7, &[number as u8], body)?.encode());
        bytes.extend(*body);
        Some(bytes.len())
    });
    let ends = ends.collect();
    (bytes, ends)
}

/// A segment of which a byte was changed, and the end cut off.
fn damaged([at_low, at_high, change, cut_low, cut_high, size]: [u8; 6], bytes: &[u8]) {
    let bodies: Vec<&[u8]> = bytes.chunks(usize::from(size) + 1).take(64).collect();
    let (mut bytes, ends) = segment(&bodies);
    let at = usize::from(u16::from_le_bytes([at_low, at_high])) % bytes.len();
    let cut = usize::from(u16::from_le_bytes([cut_low, cut_high])) % (bytes.len() + 1);
    bytes[at] ^= change;
    bytes.truncate(cut);
    let intact = if change == 0 { cut } else { cut.min(at) };
    assert_eq!(recognise(&bytes, 1) == Kind::Ours, intact >= PREAMBLE);
    let records = read(&bytes);
    let whole = ends.iter().filter(|end| **end <= intact).count();
    assert!(records.len() >= whole, "{} records came back, {whole} are whole", records.len());
    for (number, body) in records {
        let index = number as usize - 1;
        let expected = if index < whole { Some(bodies[index]) } else { body.as_deref().map(|_| bodies[index]) };
        assert_eq!(body.as_deref(), expected, "record {number}");
    }
}

/// What comes back from a segment: numbers, and the bodies that are what they were.
pub(crate) fn read(bytes: &[u8]) -> Vec<(u64, Option<Vec<u8>>)> {
    let mut reader = Reader::at(Cursor::new(bytes), PREAMBLE as u64, 1);
    let mut records = Vec::new();
    while let Ok(Some(header)) = reader.header(bytes.len() as u64) {
        records.push((header.number, reader.body(&header).ok().flatten()));
    }
    records
}
