//! The record of a thread that stands still.
//!
//! In: where the thread's pointer to it is, and the keys that the process publishes. Out: the span and the tags.

use std::collections::BTreeMap;

use super::published::Memory;
use crate::Result;

/// What a thread is working for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Trace id and span id.
    pub span: Option<([u8; 16], [u8; 8])>,
    /// The flags of its trace, of W3C Trace Context; 0 without a span.
    pub flags: u8,
    /// Tags by key.
    pub tags: BTreeMap<String, String>,
}

/// A key that the process has not published yet, or had not when its context was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownKey(pub u8);

/// The record behind the pointer at `place`.
///
/// # Errors
/// When it cannot be read, or breaks a rule.
pub fn read(memory: &Memory, place: u64, keys: &[String]) -> Result<Result<Seen, UnknownKey>> {
    let mut seen = Seen::default();
    let record = memory.word(place)?;
    if record == 0 {
        return Ok(Ok(seen));
    }
    let mut head = [0; 28];
    memory.read(record, &mut head)?;
    let (trace_id, span_id): ([u8; 16], [u8; 8]) = (head[..16].try_into()?, head[16..24].try_into()?);
    match (trace_id == [0; 16], span_id == [0; 8]) {
        (true, true) => {}
        (false, false) => seen.span = Some((trace_id, span_id)),
        _ => return Err(format!("one id without the other: {head:?}").into()),
    }
    if record % 2 != 0 || head[24] != 1 {
        return Err(format!("no valid record at {record:#x}: {head:?}").into());
    }
    seen.flags = head[25];
    let mut tags = vec![0; u16::from_ne_bytes([head[26], head[27]]).into()];
    if tags.len() > 640 - head.len() {
        return Err(format!("{} bytes of tags", tags.len()).into());
    }
    memory.read(record + 28, &mut tags)?;
    let mut rest = &tags[..];
    while let [key, length, behind @ ..] = rest {
        let (value, behind) = behind.split_at_checked(usize::from(*length)).ok_or("a tag that is cut off")?;
        let Some(name) = keys.get(usize::from(*key)) else { return Ok(Err(UnknownKey(*key))) };
        seen.tags.insert(name.clone(), String::from_utf8(value.to_vec())?);
        rest = behind;
    }
    Ok(Ok(seen))
}
