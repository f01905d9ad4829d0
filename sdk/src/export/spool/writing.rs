//! The writing end of the folder: appends records, and has the disk confirm them.
//!
//! In: bodies with their form and counts. Out: their numbers, in ascending order. What was written is safe from the end of
//! this process at once, and from a power cut when it is confirmed ([`Folder::sync`]). A failure leaves what was written
//! before as it was, and the next record begins a new segment.

use std::fs;
use std::io::{self, ErrorKind, Write};

use super::files::{self, failed};
use super::folder::{Folder, Segment};
use super::record::Header;
use super::segment::{PREAMBLE, preamble};
use crate::error::Error;

/// Numbers that are tried for a new segment, where something else has its name.
const ATTEMPTS: u64 = 16;

impl Folder {
    /// Writes a record; its number.
    ///
    /// # Errors
    /// If it is too long, or cannot be written.
    pub(super) fn append(&mut self, form: u8, counts: &[u8], body: &[u8]) -> Result<u64, Error> {
        let header = Header::of(self.next, form, counts, body).ok_or_else(|| {
            let why = format!("a body of {} bytes with {} bytes of counts is too long", body.len(), counts.len());
            Error::misuse("spool", why, "keep to MAX_BODY and MAX_COUNTS")
        })?;
        let size = (header.encode().len() + body.len()) as u64;
        let first = match self.current.filter(|first| self.has_room(*first, size)) {
            Some(first) => first,
            None => self.begin().map_err(|error| failed("begin a segment in", &self.path, error))?,
        };
        let header = header.numbered(self.next);
        self.write(first, &header.encode(), body).map_err(|error| failed("write to", &self.segment(first), error))
    }

    /// Has the disk confirm what was appended; the number below which everything is confirmed.
    ///
    /// # Errors
    /// If it does not, or a segment is gone: what was appended since the last time may be lost by a power cut.
    pub(super) fn sync(&mut self) -> Result<u64, Error> {
        self.held().map_err(|error| failed("sync", &self.path, error))?;
        while let Some(first) = self.unsynced.next() {
            let path = self.segment(first);
            if self.segments.contains_key(&first)
                && let Err(error) = files::sync(&path)
            {
                self.unsynced.failed(first);
                return Err(failed("sync", &path, error));
            }
        }
        if self.unsynced.has_new_names() {
            files::sync_names(&self.path).map_err(|error| failed("sync", &self.path, error))?;
        }
        Ok(self.unsynced.synced(self.next, |first| self.segments.contains_key(&first)))
    }

    fn has_room(&self, first: u64, size: u64) -> bool {
        self.segments.get(&first).is_some_and(|segment| segment.bytes + size <= self.bounds.segment)
    }

    /// Makes the segment that begins with the next record.
    fn begin(&mut self) -> io::Result<u64> {
        self.current = None;
        self.held()?;
        for first in self.next..self.next.saturating_add(ATTEMPTS) {
            let path = self.segment(first);
            let mut file = match files::create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                created => created?,
            };
            if let Err(error) = file.write_all(&preamble(first)) {
                // Where it cannot be removed, the next start does it.
                let _removed = fs::remove_file(&path);
                return Err(error);
            }
            let segment = Segment { bytes: PREAMBLE as u64, readable: PREAMBLE as u64, end: first };
            self.segments.insert(first, segment);
            self.unsynced.begun();
            (self.current, self.next) = (Some(first), first);
            return Ok(first);
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    fn write(&mut self, first: u64, header: &[u8], body: &[u8]) -> io::Result<u64> {
        let path = self.segment(first);
        let Some(segment) = self.segments.get_mut(&first) else { return Err(ErrorKind::NotFound.into()) };
        if let Err(error) = files::append(&path, segment.bytes, [header, body]) {
            self.current = None;
            if segment.end == first {
                self.segments.remove(&first);
                let _removed = fs::remove_file(&path);
            }
            return Err(error);
        }
        let number = self.next;
        self.next += 1;
        segment.bytes += (header.len() + body.len()) as u64;
        (segment.readable, segment.end) = (segment.bytes, self.next);
        self.unsynced.wrote(first);
        Ok(number)
    }
}
