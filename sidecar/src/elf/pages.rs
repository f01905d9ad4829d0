//! The bytes of a file, read a page at a time and kept within a bound.
//!
//! In: an open file, or bytes in memory. Out: copies of ranges of it. Any thread; a short lock guards the pages that are kept. What stands in a
//! file is up to its author, so there is a bound on how much is read of it from end to end, too: its tables can ask for hours of that.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{SeekFrom, seek};

use super::{Fault, Why};

/// Bytes that are read at once.
const PAGE: usize = 8 << 10;
/// Pages that are kept of each file: half a megabyte.
const PAGES: usize = 64;
/// Most bytes that are read of one file without being kept, in all: half a second. As much as the largest table of symbols takes.
const MOST: u64 = 5 << 28;
/// No page has this number: it would lie behind all offsets.
const NONE: u64 = u64::MAX;

/// The bytes of a file.
#[derive(Debug)]
pub(super) struct Pages {
    source: Source,
    len: u64,
    /// Bytes that may still be read without being kept.
    left: AtomicU64,
}

#[derive(Debug)]
enum Source {
    File(File, Box<Mutex<Kept>>),
    Memory(Vec<u8>),
}

impl Pages {
    pub(super) fn of_file(file: File) -> Result<Self, Fault> {
        let fault = |why| Fault::new("the file", 0, why);
        let metadata = file.metadata().map_err(|error| fault(Why::Unreadable(error.kind())))?;
        if !metadata.is_file() {
            return Err(fault(Why::Malformed("not an ordinary file")));
        }
        let kept = Box::new(Mutex::new(Kept::new()));
        Ok(Self { source: Source::File(file, kept), len: metadata.len(), left: AtomicU64::new(MOST) })
    }

    pub(super) fn of_bytes(bytes: Vec<u8>) -> Self {
        Self { len: bytes.len() as u64, source: Source::Memory(bytes), left: AtomicU64::new(MOST) }
    }

    /// How many pages were read to be kept so far: those of a walk through a table of the file are bounded by whoever walks.
    pub(super) fn loads(&self) -> u64 {
        match &self.source {
            Source::File(_, kept) => kept.lock().unwrap_or_else(PoisonError::into_inner).loads,
            Source::Memory(_) => 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `into` from `offset` on, by way of the pages that are kept.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        let Source::File(file, kept) = &self.source else { return self.read_once(offset, into) };
        if into.len() > PAGE {
            return self.read_once(offset, into);
        }
        self.check(offset, into.len())?;
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let page = kept.page(file, at / PAGE as u64, self.len).map_err(|kind| unreadable(at, kind))?;
            let from = page.get((at % PAGE as u64) as usize..).unwrap_or_default();
            let len = from.len().min(rest.len());
            if len == 0 {
                return Err(Fault::new("bytes of the file", at, Why::Outside));
            }
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&from[..len]);
            (at, rest) = (at + len as u64, later);
        }
        Ok(())
    }

    /// Fills `into` from `offset` on and keeps nothing, for what is read from end to end.
    pub(super) fn read_once(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.check(offset, into.len())?;
        let take = |left: u64| left.checked_sub(into.len() as u64);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Err(Fault::new("bytes of the file", offset, Why::Exhausting(MOST)));
        }
        match &self.source {
            Source::File(file, _) => file.read_exact_at(into, offset).map_err(|error| unreadable(offset, error.kind())),
            Source::Memory(bytes) => {
                let from = bytes.get(offset as usize..).and_then(|rest| rest.get(..into.len()));
                into.copy_from_slice(from.ok_or(Fault::new("bytes of the file", offset, Why::Outside))?);
                Ok(())
            }
        }
    }

    /// Where the first byte from `offset` on lies that is no hole, if one follows. A file system that does not tell has no holes (lseek(2), `SEEK_DATA`).
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let Source::File(file, _) = &self.source else { return Some(offset) };
        match seek(file, SeekFrom::Data(offset)) {
            Ok(data) => Some(data.max(offset)),
            Err(rustix::io::Errno::NXIO) => None,
            Err(_) => Some(offset),
        }
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), Fault> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len);
        end.map(|_| ()).ok_or(Fault::new("bytes of the file", offset, Why::Outside))
    }
}

/// A file that became shorter since it was opened ends before what is asked for.
fn unreadable(at: u64, kind: io::ErrorKind) -> Fault {
    let why = if kind == io::ErrorKind::UnexpectedEof { Why::Outside } else { Why::Unreadable(kind) };
    Fault::new("bytes of the file", at, why)
}

/// The pages used last.
#[derive(Debug)]
struct Kept {
    numbers: [u64; PAGES],
    used: [u64; PAGES],
    pages: [Vec<u8>; PAGES],
    /// Counts uses.
    clock: u64,
    /// How many were read.
    loads: u64,
}

impl Kept {
    fn new() -> Self {
        Self { numbers: [NONE; PAGES], used: [0; PAGES], pages: [const { Vec::new() }; PAGES], clock: 0, loads: 0 }
    }

    fn page(&mut self, file: &File, number: u64, len: u64) -> Result<&[u8], io::ErrorKind> {
        self.clock += 1;
        let place = match self.numbers.iter().position(|kept| *kept == number) {
            Some(place) => place,
            None => self.load(file, number, len)?,
        };
        self.used[place] = self.clock;
        Ok(&self.pages[place])
    }

    /// Reads a page into the place of the one that was not used for longest.
    fn load(&mut self, file: &File, number: u64, len: u64) -> Result<usize, io::ErrorKind> {
        self.loads += 1;
        let place = (0..PAGES).min_by_key(|place| self.used[*place]).unwrap_or(0);
        self.numbers[place] = NONE;
        let start = number * PAGE as u64;
        let page = &mut self.pages[place];
        page.resize((len - start).min(PAGE as u64) as usize, 0);
        file.read_exact_at(page, start).map_err(|error| error.kind())?;
        self.numbers[place] = number;
        Ok(place)
    }
}
