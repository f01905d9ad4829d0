//! The reading end of the folder: records in order, whichever process wrote them.
//!
//! In: where a reader stands, and which records it wants. Out: the next of these with its body, or what is known of one that
//! cannot be read any more. Files are opened for one record at a time, and one body is in memory.

use std::io::{self, ErrorKind};
use std::ops::Range;

use super::files::{self, failed, is_lost};
use super::folder::Folder;
use super::record::Header;
use super::segment::{PREAMBLE, Reader};
use crate::error::Error;

/// Where a reader stands.
#[derive(Debug, Clone, Default)]
pub(super) struct Position {
    /// No record with a smaller number comes.
    number: u64,
    /// The segment that was read last, and where in it the next header is.
    place: Option<(u64, u64)>,
    /// How often the disk could not read what is there, one time after the other.
    failures: u32,
}

/// So often what cannot be read is tried again: what a network tells as an error of the disk may be over by then.
const TRIES: u32 = 10;

/// What is found next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A record.
    Whole(Header, Vec<u8>),
    /// A record whose body is not the one that was written.
    Damaged(Header),
    /// Records of which nothing is known any more: somebody cut the file or took it away.
    Missing(Range<u64>),
}

impl Position {
    /// Goes back, so that record `number` comes.
    pub(super) fn rewind(&mut self, number: u64) {
        if number < self.number {
            *self = Self { number, ..Self::default() };
        }
    }
}

impl Folder {
    /// The next record that is `wanted`, from `position` on, which moves up to it: it is found again as long as it is wanted. What cannot be read
    /// later either, tried several times, is missing.
    ///
    /// # Errors
    /// If a segment cannot be read now; `position` stays where it is.
    pub(super) fn read(
        &self,
        position: &mut Position,
        wanted: impl Fn(&Header) -> bool,
    ) -> Result<Option<Found>, Error> {
        while let Some((first, end)) = self.segment_from(position.number) {
            let found = self.read_in(first, position, &wanted);
            match found {
                Ok(Some(found)) => return Ok(Some(found)),
                Err(error) if is_lost(&error) && position.failures < TRIES => {
                    position.failures += 1;
                    return Err(failed("read", &self.segment(first), error));
                }
                Err(error) if error.kind() != ErrorKind::NotFound && !is_lost(&error) => {
                    return Err(failed("read", &self.segment(first), error));
                }
                _ => {}
            }
            position.failures = 0;
            let missing = position.number.max(first)..end;
            position.number = end;
            if !missing.is_empty() {
                return Ok(Some(Found::Missing(missing)));
            }
        }
        Ok(None)
    }

    /// The segment in which record `number` is, or else the first one behind it; with its end.
    fn segment_from(&self, number: u64) -> Option<(u64, u64)> {
        let within = self.segments.range(..=number).next_back().filter(|(_, segment)| number < segment.end);
        let behind = || self.segments.range(number..).find(|(first, segment)| segment.end > **first);
        within.or_else(behind).map(|(first, segment)| (*first, segment.end))
    }

    fn read_in(
        &self,
        first: u64,
        position: &mut Position,
        wanted: impl Fn(&Header) -> bool,
    ) -> io::Result<Option<Found>> {
        let Some(segment) = self.segments.get(&first) else { return Ok(None) };
        let offset = position.place.filter(|(place, _)| *place == first).map_or(PREAMBLE as u64, |(_, offset)| offset);
        let mut reader = Reader::at(files::open(&self.segment(first))?, offset, first);
        while let Some(header) = reader.header(segment.readable)? {
            if header.number >= position.number && wanted(&header) {
                let body = match reader.body(&header) {
                    Err(error) if is_lost(&error) && position.failures >= TRIES => None,
                    body => body?,
                };
                position.failures = 0;
                return Ok(Some(match body {
                    Some(body) => Found::Whole(header, body),
                    None => Found::Damaged(header),
                }));
            }
            position.number = position.number.max(header.number + 1);
            position.place = Some((first, reader.offset()));
        }
        Ok(None)
    }
}
