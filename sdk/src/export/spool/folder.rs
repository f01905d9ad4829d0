//! The folder: which segments there are, whose it is, and what must go when there is no room.
//!
//! In: a path. Out: possession of it, and its segments by the number of their first record; an error names path and cause.
//! Waits for the disk as long as that likes, so it is for a thread that may. Touches only regular files that have these
//! names, and opens each only while it reads or writes: a program may close descriptors that it does not know, and what
//! was written next would go to whatever it has opened since.
//!
//! | name | what it is |
//! |---|---|
//! | `lock` | locked while a process has the folder |
//! | `0000000000000001.segment` | records from that number on (hexadecimal): `segment` |
//! | `settled` | how far each destination is: `settled`; for a moment `settled.new` |

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::files::{self, failed, is_lost, name_of, number_of};
use super::lock::Lock;
use super::record::{Header, MAX_HEADER};
use super::segment::{Kind, PREAMBLE, Reader, recognise};
use super::settled::{Cursors, MAX_BYTES};
use super::unsynced::Unsynced;
use crate::error::Error;

/// How much may be on the disk.
#[derive(Debug, Clone, Copy)]
pub(in crate::export) struct Bounds {
    /// Bytes of all segments.
    pub(in crate::export) folder: u64,
    /// A record that would make a segment longer than this begins the next one.
    pub(in crate::export) segment: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { folder: 256 << 20, segment: 4 << 20 }
    }
}

/// Segments in a folder: a program that ends again and again as soon as it has started leaves small ones.
const MAX_SEGMENTS: usize = 1024;
/// Entries of a folder that are looked at.
const MAX_ENTRIES: usize = 1 << 16;
/// The name of the file with the cursors.
const SETTLED: &str = "settled";

/// A segment, as far as it is known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// Bytes of the file.
    pub(super) bytes: u64,
    /// Where the last whole record ends.
    pub(super) readable: u64,
    /// The number behind the last record.
    pub(super) end: u64,
}

/// Files with names of segments that do not begin as one, which are removed: what a crash left, or damage; and those that the disk cannot read, which are left: it may be able to
/// the next time.
#[derive(Debug, Default)]
struct Ruins {
    bytes: u64,
    /// The smallest number in their names.
    first: Option<u64>,
    /// The largest in those of files that are left.
    left: u64,
}

impl Ruins {
    fn add(&mut self, number: u64, bytes: u64) {
        self.bytes += bytes;
        self.first = Some(self.first.map_or(number, |least| least.min(number)));
    }

    fn leave(&mut self, number: u64, bytes: u64) {
        self.add(number, bytes);
        self.left = self.left.max(number);
    }
}

/// A folder that this process alone uses, as long as this lives.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    lock: Lock,
    pub(super) bounds: Bounds,
    /// By the number of the first record.
    pub(super) segments: BTreeMap<u64, Segment>,
    /// What was found that is no segment, though it has the name of one.
    ruins: Ruins,
    /// The segment that is being written.
    pub(super) current: Option<u64>,
    /// The number of the next record.
    pub(super) next: u64,
    pub(super) unsynced: Unsynced,
}

impl Folder {
    /// Takes possession of the folder at `path`, which is made if there is none. Its records are known after
    /// [`Folder::survey`].
    ///
    /// # Errors
    /// If another process has it, it cannot be written to, or what is in it cannot be looked at.
    pub(super) fn open(path: &Path, bounds: Bounds) -> Result<Self, Error> {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(path).map_err(|error| failed("make", path, error))?;
        let (path, lock) = (path.to_owned(), Lock::take(path)?);
        let (segments, ruins) = scan(&path).map_err(|error| failed("look through", &path, error))?;
        Ok(Self { path, lock, bounds, segments, ruins, current: None, next: 1, unsynced: Unsynced::default() })
    }

    /// Goes through the headers of all segments, so that every record is known by its number. How many bytes hold none, or cannot be read any more.
    ///
    /// # Errors
    /// If a segment cannot be read now.
    pub(super) fn survey(&mut self, mut see: impl FnMut(&Header)) -> Result<u64, Error> {
        let mut unreadable = self.ruins.bytes;
        self.next = self.next.max(self.ruins.left + 1);
        for (&first, segment) in &mut self.segments {
            let path = self.path.join(name_of(first));
            match segment.survey(first, &path, &mut see) {
                Err(error) if !is_lost(&error) => return Err(failed("read", &path, error)),
                _ => {}
            }
            unreadable += segment.bytes.saturating_sub(segment.readable);
            self.next = self.next.max(segment.end).max(first + 1);
        }
        Ok(unreadable)
    }

    /// Numbers of records that are in no segment, though behind the first that there was, up to `end`: never written, or cut off, or lost with
    /// their file.
    pub(super) fn gaps(&self, end: u64) -> Vec<Range<u64>> {
        let first = self.ruins.first.into_iter().chain(self.oldest().map(|(first, _)| first)).min();
        let Some(mut before) = first else { return Vec::new() };
        let mut gaps = Vec::new();
        for (&first, segment) in &self.segments {
            gaps.push(before..first.min(end));
            before = segment.end;
        }
        gaps.push(before..end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// The path of segment `first`.
    pub(super) fn segment(&self, first: u64) -> PathBuf {
        self.path.join(name_of(first))
    }

    /// Whether the folder is still the one that was opened, and this process the one that has it.
    pub(super) fn is_held(&self) -> bool {
        self.lock.is_held()
    }

    /// Makes sure that what has our names is ours: in a folder that somebody put in the place of this one it is not.
    pub(super) fn held(&self) -> io::Result<()> {
        if self.is_held() {
            Ok(())
        } else {
            Err(io::Error::new(ErrorKind::NotFound, "it is not the folder that it was"))
        }
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().fold(0, |sum, segment| sum.saturating_add(segment.bytes))
    }

    /// The oldest segment.
    pub(super) fn oldest(&self) -> Option<(u64, Segment)> {
        self.segments.first_key_value().map(|(first, segment)| (*first, *segment))
    }

    /// The oldest segment, if it must go before there is room for a body of `body` bytes.
    pub(super) fn too_much(&self, body: usize) -> Option<(u64, Segment)> {
        let added = (PREAMBLE + MAX_HEADER + body) as u64;
        let full = self.bytes().saturating_add(added) > self.bounds.folder || self.segments.len() >= MAX_SEGMENTS;
        self.oldest().filter(|_| full)
    }

    /// Takes a segment out of the folder; a reader of what was in it, unless it is gone already.
    ///
    /// # Errors
    /// If it cannot be removed, or cannot be opened first: what is lost with it would not be known.
    pub(super) fn remove(&mut self, first: u64) -> Result<Option<Reader<File>>, Error> {
        let path = self.segment(first);
        self.held().map_err(|error| failed("remove", &path, error))?;
        let file = match files::open(&path) {
            Ok(file) => Some(file),
            Err(error) if says_nothing(&error) => return Err(failed("read", &path, error)),
            Err(_) => None,
        };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound && !is_lost(&error) => {
                return Err(failed("remove", &path, error));
            }
            _ => {}
        }
        self.segments.remove(&first);
        self.current = self.current.filter(|current| *current != first);
        Ok(file.map(|file| Reader::at(file, PREAMBLE as u64, first)))
    }

    /// How far destinations are, as it was saved last; nothing is settled where that cannot be read.
    ///
    /// # Errors
    /// If there is something that is not a file, or it cannot be read now.
    pub(super) fn cursors(&self) -> Result<Cursors, Error> {
        let path = self.path.join(SETTLED);
        let mut bytes = Vec::new();
        let read = files::open(&path).and_then(|file| file.take(MAX_BYTES as u64).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() != ErrorKind::NotFound && !is_lost(&error) => Err(failed("read", &path, error)),
            _ => Ok(Cursors::decode(&bytes).unwrap_or_default()),
        }
    }

    /// Saves how far destinations are.
    ///
    /// # Errors
    /// If it cannot be written: after this process ends, more is sent twice.
    pub(super) fn save(&self, cursors: &Cursors) -> Result<(), Error> {
        let saved = self.held().and_then(|()| files::replace(&self.path, SETTLED, &cursors.encode()));
        saved.map_err(|error| failed("write", &self.path.join(SETTLED), error))
    }
}

/// Whether a file that could not be opened may be there all the same, and open the next time: there are too many open files, or no memory.
fn says_nothing(error: &io::Error) -> bool {
    // What is no regular file has no code of the system.
    error.raw_os_error().is_some() && error.kind() != ErrorKind::NotFound && !is_lost(error)
}

impl Segment {
    fn survey(&mut self, first: u64, path: &Path, see: &mut dyn FnMut(&Header)) -> io::Result<()> {
        let mut reader = Reader::at(files::open(path)?, PREAMBLE as u64, first);
        while let Some(header) = reader.header(self.bytes)? {
            self.end = header.number + 1;
            self.readable = reader.offset();
            see(&header);
        }
        Ok(())
    }
}

/// The segments of a folder. What a crash left of one that has no preamble yet is removed.
fn scan(folder: &Path) -> io::Result<(BTreeMap<u64, Segment>, Ruins)> {
    let (mut segments, mut ruins) = (BTreeMap::new(), Ruins::default());
    for (seen, entry) in fs::read_dir(folder)?.enumerate() {
        if seen >= MAX_ENTRIES {
            return Err(io::Error::other(format!("there are more than {MAX_ENTRIES} files in it")));
        }
        let entry = entry?;
        let Some(first) = entry.file_name().to_str().and_then(number_of) else { continue };
        let metadata = match entry.metadata() {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => continue,
            Err(error) if is_lost(&error) => {
                ruins.leave(first, 0);
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::with_capacity(PREAMBLE);
        let read = File::open(entry.path()).and_then(|file| file.take(PREAMBLE as u64).read_to_end(&mut bytes));
        match read {
            Err(error) if is_lost(&error) => {
                ruins.leave(first, metadata.len());
                continue;
            }
            read => _ = read?,
        }
        match recognise(&bytes, first) {
            Kind::Ours => {
                let segment = Segment { bytes: metadata.len(), readable: PREAMBLE as u64, end: first };
                segments.insert(first, segment);
            }
            Kind::Damaged => {
                fs::remove_file(entry.path())?;
                ruins.add(first, metadata.len());
            }
            Kind::OtherVersion => {}
        }
    }
    Ok((segments, ruins))
}
