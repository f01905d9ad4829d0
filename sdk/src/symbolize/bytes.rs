//! The bytes of a file, read a page at a time.
//!
//! In: an open file, or bytes in memory. Out: [`Cursor`]s, from which everything here reads, DWARF too (`gimli::Reader`).
//! A file is never mapped: one that shrinks while it is read would end the host with SIGBUS, and its pages would count
//! as the host's memory. What is kept of it is bounded, however large it is.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

use gimli::{Error, LittleEndian, Reader, ReaderOffsetId, Result};

use crate::own_file::OwnFile;

/// Bytes that are read at once.
const PAGE: u64 = 16 << 10;
/// Pages that are kept of each file: 1 MB.
const PAGES: usize = 64;
/// The memory of this process.
pub(super) const MEMORY: &str = "/proc/thread-self/mem";
/// Longest string; beyond it a file is not what it says it is.
pub(super) const MAX_TEXT: usize = 64 << 10;

/// Where bytes come from.
pub(super) struct Storage {
    origin: Origin,
    /// Each page has one place; another page with the same place takes it over.
    kept: RefCell<[Option<Rc<Page>>; PAGES]>,
}

enum Origin {
    /// The part of a file that begins at `start` and is `len` long.
    File {
        file: OwnFile,
        start: u64,
        len: u64,
    },
    Memory(Rc<Page>),
}

#[derive(Default)]
struct Page {
    start: u64,
    bytes: Vec<u8>,
}

impl Storage {
    /// Opens a file. What is no ordinary file is not opened: reading a pipe might wait for ever.
    pub(super) fn open(path: &Path) -> io::Result<Rc<Self>> {
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an ordinary file"));
        }
        Ok(Self::file(OwnFile::of(file)?, 0, metadata.len()))
    }

    /// Opens the image of the vDSO, which is in memory only.
    pub(super) fn vdso(range: &Range<u64>) -> io::Result<Rc<Self>> {
        // Its section headers lie behind what its program headers name, on the same pages.
        let len = (range.end - range.start).next_multiple_of(4096);
        Ok(Self::file(OwnFile::open(Path::new(MEMORY))?, range.start, len))
    }

    pub(super) fn file(file: OwnFile, start: u64, len: u64) -> Rc<Self> {
        Rc::new(Self { origin: Origin::File { file, start, len }, kept: RefCell::new([const { None }; PAGES]) })
    }

    pub(super) fn memory(bytes: Vec<u8>) -> Rc<Self> {
        let page = Rc::new(Page { start: 0, bytes });
        Rc::new(Self { origin: Origin::Memory(page), kept: RefCell::new([const { None }; PAGES]) })
    }

    pub(super) fn len(&self) -> u64 {
        match &self.origin {
            Origin::File { len, .. } => *len,
            Origin::Memory(page) => page.bytes.len() as u64,
        }
    }

    /// Everything from `start` on, `len` bytes; `None` where the storage ends before.
    pub(super) fn cursor(self: &Rc<Self>, start: u64, len: u64) -> Option<Cursor> {
        let end = start.checked_add(len).filter(|end| *end <= self.len())?;
        Some(Cursor { storage: Rc::clone(self), page: Rc::default(), at: start, end })
    }

    /// The page that holds the byte at `at`.
    fn page(&self, at: u64) -> Option<Rc<Page>> {
        let (file, start, len) = match &self.origin {
            Origin::File { file, start, len } => (file, *start, *len),
            Origin::Memory(page) => return Some(Rc::clone(page)),
        };
        let number = at / PAGE;
        let mut kept = self.kept.borrow_mut();
        let place = kept.get_mut((number % PAGES as u64) as usize)?;
        if let Some(page) = place.as_ref().filter(|page| page.start == number * PAGE) {
            return Some(Rc::clone(page));
        }
        let first = number * PAGE;
        let mut bytes = vec![0; PAGE.min(len.checked_sub(first)?) as usize];
        read_at(file, &mut bytes, start + first).ok()?;
        let page = Rc::new(Page { start: first, bytes });
        *place = Some(Rc::clone(&page));
        Some(page)
    }
}

/// Fills `bytes`. A file may have become shorter since it was opened: that is an error, and nothing more.
fn read_at(file: &OwnFile, bytes: &mut [u8], at: u64) -> io::Result<()> {
    file.file()?.read_exact_at(bytes, at)
}

/// A part of a storage that is read from its start.
#[derive(Clone)]
pub(super) struct Cursor {
    storage: Rc<Storage>,
    page: Rc<Page>,
    at: u64,
    end: u64,
}

impl Cursor {
    /// Nothing.
    pub(super) fn nothing() -> Self {
        Self { storage: Storage::memory(Vec::new()), page: Rc::default(), at: 0, end: 0 }
    }

    /// The `len` bytes at `start` of what is left.
    pub(super) fn part(&self, start: u64, len: u64) -> Result<Self> {
        let mut part = self.clone();
        part.skip(offset(start)?)?;
        part.truncate(offset(len)?)?;
        Ok(part)
    }

    /// At most `len` bytes from `start` on.
    pub(super) fn up_to(&self, start: u64, len: u64) -> Result<Self> {
        let mut part = self.clone();
        part.skip(offset(start)?)?;
        part.end = part.end.min(part.at.saturating_add(len));
        Ok(part)
    }

    /// The text that ends with a zero byte, `start` bytes from here.
    pub(super) fn text(&self, start: u64) -> Result<String> {
        let mut text = self.clone();
        text.skip(offset(start)?)?;
        let len = text.find(0)?;
        text.truncate(len)?;
        Ok(text.to_string_lossy()?.into_owned())
    }

    /// What is left of the page that the next byte is in.
    fn chunk(&mut self) -> Result<&[u8]> {
        let missing = || Error::UnexpectedEof(ReaderOffsetId(self.at));
        let left = self.end.checked_sub(self.at).filter(|left| *left > 0).ok_or_else(missing)?;
        if self.at < self.page.start || self.at - self.page.start >= self.page.bytes.len() as u64 {
            self.page = self.storage.page(self.at).ok_or_else(missing)?;
        }
        let chunk = self.page.bytes.get((self.at - self.page.start) as usize..).filter(|chunk| !chunk.is_empty());
        let chunk = chunk.ok_or_else(missing)?;
        Ok(&chunk[..chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX))])
    }

    fn end_of_file(&self) -> Error {
        Error::UnexpectedEof(ReaderOffsetId(self.at))
    }
}

fn offset(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::UnsupportedOffset)
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.at, self.end)
    }
}

impl io::Read for Cursor {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        let chunk = self.chunk().map_err(io::Error::other)?;
        let len = chunk.len().min(bytes.len());
        bytes[..len].copy_from_slice(&chunk[..len]);
        self.at += len as u64;
        Ok(len)
    }
}

impl Reader for Cursor {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    #[inline]
    fn len(&self) -> usize {
        (self.end - self.at) as usize
    }

    fn empty(&mut self) {
        self.end = self.at;
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len() {
            return Err(self.end_of_file());
        }
        self.end = self.at + len as u64;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.at.saturating_sub(base.at) as usize
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.at)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        (self.at..=self.end).contains(&id.0).then(|| (id.0 - self.at) as usize)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let mut text = self.clone();
        let mut passed = 0;
        while passed < MAX_TEXT {
            let chunk = text.chunk()?;
            if let Some(found) = chunk.iter().position(|other| *other == byte) {
                return Ok(passed + found);
            }
            let len = chunk.len();
            passed += len;
            text.skip(len)?;
        }
        Err(self.end_of_file())
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<()> {
        if len > self.len() {
            return Err(self.end_of_file());
        }
        self.at += len as u64;
        Ok(())
    }

    fn split(&mut self, len: usize) -> Result<Self> {
        let mut first = self.clone();
        first.truncate(len)?;
        self.skip(len)?;
        Ok(first)
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        if self.len() > MAX_TEXT {
            return Err(self.end_of_file());
        }
        let mut bytes = vec![0; self.len()];
        self.clone().read_slice(&mut bytes)?;
        Ok(bytes.into())
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        let bytes = self.to_slice()?.into_owned();
        String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        Ok(String::from_utf8_lossy(&self.to_slice()?).into_owned().into())
    }

    fn read_slice(&mut self, mut bytes: &mut [u8]) -> Result<()> {
        while !bytes.is_empty() {
            let chunk = self.chunk()?;
            let len = chunk.len().min(bytes.len());
            let (now, later) = bytes.split_at_mut(len);
            now.copy_from_slice(&chunk[..len]);
            self.at += len as u64;
            bytes = later;
        }
        Ok(())
    }

    #[inline]
    fn read_u8(&mut self) -> Result<u8> {
        let [byte, ..] = self.chunk()? else { return Err(self.end_of_file()) };
        let byte = *byte;
        self.at += 1;
        Ok(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file without a name that holds these bytes.
    fn file(bytes: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("bytes-{}-{}", std::process::id(), bytes.len()));
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all(bytes).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    /// Check that every byte arrives, over the borders of pages and after pages were given up.
    #[test]
    fn all_bytes_arrive() {
        let bytes: Vec<u8> = (0..3 * PAGE * PAGES as u64 / 2 + 7).map(|n| (n * 31 % 251) as u8).collect();
        let storage = Storage::file(OwnFile::of(file(&bytes)).unwrap(), 0, bytes.len() as u64);
        for _ in 0..2 {
            let mut cursor = storage.cursor(0, bytes.len() as u64).unwrap();
            let mut read = vec![0; bytes.len()];
            cursor.read_slice(&mut read[..100_001]).unwrap();
            read[100_001] = cursor.read_u8().unwrap();
            cursor.read_slice(&mut read[100_002..]).unwrap();
            assert!(read == bytes && cursor.is_empty() && cursor.read_u8().is_err());
        }
        assert!(storage.kept.borrow().iter().flatten().count() <= PAGES);
    }

    /// Check that a cursor stays within its part, and that a part stays within its storage.
    #[test]
    fn parts_have_ends() {
        let storage = Storage::memory(b"abc\0defg".to_vec());
        let whole = storage.cursor(0, 8).unwrap();
        assert!(storage.cursor(4, 5).is_none() && storage.cursor(u64::MAX, 2).is_none());
        assert_eq!(whole.text(1).unwrap(), "bc");
        assert!(whole.text(4).is_err(), "no zero byte");
        let mut part = whole.part(4, 2).unwrap();
        assert_eq!((part.read_u8().unwrap(), part.read_u8().unwrap()), (b'd', b'e'));
        assert!(part.read_u8().is_err() && whole.part(4, 5).is_err() && whole.part(9, 0).is_err());
    }

    /// Check that a file that became shorter is an error and no crash.
    #[test]
    fn a_file_that_shrank_is_an_error() {
        let file = file(&vec![1; 5 * PAGE as usize]);
        let storage = Storage::file(OwnFile::of(file.try_clone().unwrap()).unwrap(), 0, 5 * PAGE);
        file.set_len(PAGE + 1).unwrap();
        let mut cursor = storage.cursor(0, 5 * PAGE).unwrap();
        assert!(cursor.read_slice(&mut vec![0; PAGE as usize]).is_ok());
        assert!(cursor.read_u8().is_err());
    }
}
