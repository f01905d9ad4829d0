//! How far each destination is: which records it needs no more.
//!
//! In: numbers of records that are settled, in any order, for what is live and what is replayed go side by side; or a file
//! of an earlier process, which may be anything. Out: whether a number is settled, and all of it as bytes. Pure, and
//! bounded: where there are too many gaps, the newest is forgotten to be settled, and sent twice.
//!
//! The file: magic and version (8 bytes), the number that the next record gets at least (u64), destinations (u16), and for
//! each its name (u16, UTF-8), the number below which all is settled (u64), and ranges beyond it (u16, twice u64 each); at
//! the end the CRC-32 of everything before. Little-endian.

use std::collections::BTreeMap;
use std::ops::Range;

use crc32fast::hash;

use super::record::{NO_NUMBER, take};

/// The longest file that is read or made.
pub(super) const MAX_BYTES: usize = 2 << 20;
/// Destinations that are remembered.
pub(super) const MAX_NAMES: usize = 64;
/// Bytes of a name that is remembered.
const MAX_NAME: usize = 1024;
/// Ranges beyond the first gap that are known: there may be one for each record that is not for this destination.
const MAX_AHEAD: usize = 1 << 16;
/// Those of them that are saved, the first ones.
const MAX_SAVED: usize = 1024;
const MAGIC: [u8; 8] = *b"profcur\x01";

/// The records that one destination needs no more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// All numbers below are settled.
    below: u64,
    /// Start and end of further ranges. Invariant: above `below`, apart from each other.
    ahead: BTreeMap<u64, u64>,
}

impl Settled {
    /// Whether `number` is settled.
    pub(super) fn contains(&self, number: u64) -> bool {
        number < self.below || self.ahead.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// Whether all below `end` are settled.
    pub(super) fn is_past(&self, end: u64) -> bool {
        end <= self.below
    }

    /// Settles `numbers`.
    pub(super) fn add(&mut self, numbers: Range<u64>) {
        let Range { mut start, mut end } = numbers;
        if start >= end {
            return;
        }
        while let Some((&from, &to)) = self.ahead.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            (start, end) = (start.min(from), end.max(to));
            self.ahead.remove(&from);
        }
        if start <= self.below {
            self.below = self.below.max(end);
        } else {
            self.ahead.insert(start, end);
        }
        if self.ahead.len() > MAX_AHEAD {
            self.ahead.pop_last();
        }
    }

    /// Those of `numbers` that are not settled.
    pub(super) fn lacking(&self, numbers: Range<u64>) -> Vec<Range<u64>> {
        let mut start = numbers.start.max(self.below);
        let mut lacking = Vec::new();
        for (&from, &to) in self.ahead.range(..numbers.end) {
            lacking.push(start..from);
            start = start.max(to);
        }
        lacking.push(start..numbers.end);
        lacking.retain(|part| !part.is_empty());
        lacking
    }

    /// No number from here on is settled.
    fn end(&self) -> u64 {
        self.ahead.last_key_value().map_or(self.below, |(_, end)| *end)
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.below.to_le_bytes());
        bytes.extend((self.ahead.len().min(MAX_SAVED) as u16).to_le_bytes());
        self.ahead
            .iter()
            .take(MAX_SAVED)
            .for_each(|(start, end)| bytes.extend([start.to_le_bytes(), end.to_le_bytes()].concat()));
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut settled = Self { below: u64::from_le_bytes(take(bytes)?), ahead: BTreeMap::new() };
        for _ in 0..u16::from_le_bytes(take(bytes)?) {
            let start = u64::from_le_bytes(take(bytes)?);
            settled.add(start..u64::from_le_bytes(take(bytes)?));
        }
        Some(settled)
    }
}

/// What is known of all destinations, those too that are not configured at present: they may come back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cursors {
    /// The number that the next record gets at least: records that were settled may be gone, and their numbers with them.
    pub(super) next: u64,
    /// By the name of the destination.
    pub(super) settled: BTreeMap<String, Settled>,
}

impl Cursors {
    /// As a file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let names = self.settled.iter().filter(|(name, _)| name.len() <= MAX_NAME).take(MAX_NAMES);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.next.to_le_bytes());
        bytes.extend((names.clone().count() as u16).to_le_bytes());
        for (name, settled) in names {
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(name.as_bytes());
            settled.encode(&mut bytes);
        }
        let checksum = hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// From a file; `None` if it is not whole.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut bytes, checksum) = bytes.split_last_chunk()?;
        if hash(bytes) != u32::from_le_bytes(*checksum) || take(&mut bytes)? != MAGIC {
            return None;
        }
        let mut cursors = Self { next: u64::from_le_bytes(take(&mut bytes)?), settled: BTreeMap::new() };
        for _ in 0..u16::from_le_bytes(take(&mut bytes)?) {
            let length = usize::from(u16::from_le_bytes(take(&mut bytes)?));
            let (name, rest) = bytes.split_at_checked(length)?;
            bytes = rest;
            cursors.settled.insert(std::str::from_utf8(name).ok()?.to_owned(), Settled::decode(&mut bytes)?);
        }
        // What has no number yet cannot be settled.
        let possible =
            cursors.next < NO_NUMBER && cursors.settled.values().all(|settled| settled.end() <= cursors.next);
        possible.then_some(cursors)
    }
}
