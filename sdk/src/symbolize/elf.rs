//! An ELF file: its sections, its build id, the link to its debug information.
//!
//! In: a path, or the image of the vDSO. Out: [`Elf`], of which every part is checked to lie within the file. Only 64-bit
//! little-endian files are read: what else could be loaded here? Source: elf(5).

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use gimli::Reader;

use super::bytes::{Cursor, MEMORY, Storage};
use super::inflate::{self, Packing};
use super::pace::{Pace, Unreadable};
use crate::own_file::OwnFile;

/// Most sections that a program or library has; object files may have more, and are not loaded.
const MAX_SECTIONS: u16 = 4096;
/// Longest name of a section that is of interest, with its zero byte.
const MAX_NAME: u64 = 32;
/// Most bytes of notes that are read.
const MAX_NOTES: u64 = 64 << 10;
/// Most bytes of unpacked sections of one file.
const MAX_UNPACKED: u64 = 32 << 20;
/// How much longer packed sections may be than what they unpack to, beside a part of that.
const PACKED_MORE: u64 = 64 << 10;

const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHF_COMPRESSED: u64 = 1 << 11;

/// An open ELF file.
pub(super) struct Elf {
    storage: Rc<Storage>,
    sections: Vec<Section>,
    /// GNU build id, hexadecimal.
    pub(super) build_id: Option<String>,
    /// What may still be unpacked.
    room: Cell<u64>,
}

#[derive(Debug)]
struct Section {
    name: String,
    kind: u32,
    flags: u64,
    /// Where it is loaded, as the file counts addresses.
    address: u64,
    start: u64,
    len: u64,
}

impl Elf {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::parse(Storage::open(path)?)
    }

    /// Opens the image of the vDSO.
    pub(super) fn vdso(range: &Range<u64>) -> io::Result<Self> {
        Self::parse(Storage::vdso(range)?)
    }

    /// The first bytes of a module as they are in memory.
    pub(super) fn loaded_head(range: &Range<u64>, len: u64) -> Option<Cursor> {
        let len = len.min(range.end - range.start);
        Storage::file(OwnFile::open(Path::new(MEMORY)).ok()?, range.start, len).cursor(0, len)
    }

    fn parse(storage: Rc<Storage>) -> io::Result<Self> {
        let sections = sections(&storage).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let mut elf = Self { storage, sections, build_id: None, room: Cell::new(MAX_UNPACKED) };
        let notes = elf.sections.iter().filter(|section| section.kind == SHT_NOTE);
        elf.build_id = notes.filter_map(|notes| elf.raw(notes, MAX_NOTES)).find_map(|notes| build_id(notes).ok()?);
        Ok(elf)
    }

    /// The first bytes of the file.
    pub(super) fn head(&self, len: u64) -> Option<Cursor> {
        self.storage.cursor(0, len.min(self.storage.len()))
    }

    /// All bytes of the file.
    pub(super) fn whole(&self) -> Option<Cursor> {
        self.head(u64::MAX)
    }

    /// Whether there is a section of this name with bytes in this file, packed or not.
    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The address where the section with this number ends; 0 where there is none.
    pub(super) fn end_of(&self, section: u16) -> u64 {
        self.sections.get(usize::from(section)).map_or(0, |section| section.address.saturating_add(section.len))
    }

    /// The bytes of a section as they are in the file, empty where there is none.
    pub(super) fn plain(&self, name: &str) -> Cursor {
        let section = self.sections.iter().find(|section| section.name == name);
        let section = section.filter(|section| section.flags & SHF_COMPRESSED == 0);
        section.and_then(|section| self.raw(section, u64::MAX)).unwrap_or_else(Cursor::nothing)
    }

    /// The bytes of a section, unpacked; empty where there is none.
    pub(super) async fn section(&self, name: &str, pace: &mut Pace) -> Result<Cursor, Unreadable> {
        let Some(section) = self.find(name) else { return Ok(Cursor::nothing()) };
        let Some(mut bytes) = self.raw(section, u64::MAX) else { return Ok(Cursor::nothing()) };
        let (packing, len) = if section.flags & SHF_COMPRESSED != 0 {
            // Source: elf(5), "Compression header": type, reserved, size, alignment.
            let kind = bytes.read_u32()?;
            bytes.skip(4)?;
            let len = bytes.read_u64()?;
            bytes.skip(8)?;
            (Packing::of(kind)?, len)
        } else if section.name.starts_with(".z") {
            // The GNU form of old: `ZLIB` and the size, most significant byte first.
            bytes.skip(4)?;
            (Packing::Zlib, bytes.read_u64()?.swap_bytes())
        } else {
            return Ok(bytes);
        };
        // A packer makes little more of what cannot be packed; in what is much longer, there may be no end of blocks without a byte.
        if bytes.len() as u64 > len.saturating_add(len / 128).saturating_add(PACKED_MORE) {
            return Err(Unreadable::TooLarge("compressed debug information, for what it unpacks to"));
        }
        let room = self.room.get().checked_sub(len).ok_or(Unreadable::TooLarge("compressed debug information"))?;
        self.room.set(room);
        let unpacked = inflate::unpack(bytes, packing, len, pace).await?;
        Storage::memory(unpacked).cursor(0, len).ok_or(Unreadable::TooLarge("compressed debug information"))
    }

    /// Name and checksum of the file with the debug information (`.gnu_debuglink`).
    ///
    /// Source: GDB manual, "Debugging Information in Separate Files": the name, zero bytes up to a multiple of four, CRC.
    pub(super) fn debug_link(&self) -> Option<(String, u32)> {
        let link = self.plain(".gnu_debuglink");
        let name = link.text(0).ok()?;
        let checksum = (name.len() as u64 + 1).next_multiple_of(4);
        let checksum = link.part(checksum, 4).ok()?.read_u32().ok()?;
        (!name.is_empty() && !name.contains('/')).then_some((name, checksum))
    }

    fn find(&self, name: &str) -> Option<&Section> {
        let packed = name.strip_prefix(".debug_").map(|rest| format!(".zdebug_{rest}"));
        let same = |section: &&Section| section.name == name || packed.as_ref().is_some_and(|z| section.name == *z);
        self.sections.iter().filter(same).find(|section| section.kind != SHT_NOBITS && section.len > 0)
    }

    fn raw(&self, section: &Section, most: u64) -> Option<Cursor> {
        if section.kind == SHT_NOBITS {
            return None;
        }
        self.storage.cursor(section.start, section.len.min(most))
    }
}

fn sections(storage: &Rc<Storage>) -> gimli::Result<Vec<Section>> {
    /// 64 bits, least significant byte first, the only version.
    const MAGIC: [u8; 7] = *b"\x7fELF\x02\x01\x01";
    const ENTRY: u16 = 64;
    let malformed = gimli::Error::Io;
    let whole = storage.cursor(0, storage.len()).ok_or(malformed)?;
    let mut header = whole.part(0, 64)?;
    if header.read_u8_array::<[u8; 7]>()? != MAGIC {
        return Err(malformed);
    }
    header.skip(0x28 - MAGIC.len())?;
    let table = header.read_u64()?;
    header.skip(10)?;
    let (entry, count, names) = (header.read_u16()?, header.read_u16()?, header.read_u16()?);
    if count == 0 {
        return Ok(Vec::new());
    }
    if entry != ENTRY || count > MAX_SECTIONS {
        return Err(malformed);
    }
    let mut table = whole.part(table, u64::from(ENTRY) * u64::from(count))?;
    let mut sections = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        sections.push(section(&mut table)?);
    }
    let names = sections.get(usize::from(names)).map(|(_, names)| (names.start, names.len)).ok_or(malformed)?;
    let names = storage.cursor(names.0, names.1).ok_or(malformed)?;
    let named = sections.into_iter().map(|(name, section)| Section {
        // A section without a name that can be read is one that nobody asks for.
        name: names.up_to(name, MAX_NAME).and_then(|name| name.text(0)).unwrap_or_default(),
        ..section
    });
    Ok(named.collect())
}

/// A section header; where its name is.
fn section(table: &mut Cursor) -> gimli::Result<(u64, Section)> {
    let name = table.read_u32()?;
    let kind = table.read_u32()?;
    let flags = table.read_u64()?;
    let (address, start, len) = (table.read_u64()?, table.read_u64()?, table.read_u64()?);
    table.skip(24)?;
    Ok((u64::from(name), Section { name: String::new(), kind, flags, address, start, len }))
}

/// Source: elf(5), "Notes (Nhdr)": name size, description size, type, then both padded to 4 bytes.
fn build_id(mut notes: Cursor) -> gimli::Result<Option<String>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    while !notes.is_empty() {
        let (name, description, kind) = (notes.read_u32()?, notes.read_u32()?, notes.read_u32()?);
        let padded = |len: u32| len.next_multiple_of(4) as usize;
        if name > MAX_NOTES as u32 || description > MAX_NOTES as u32 {
            return Ok(None);
        }
        let is_ours = kind == NT_GNU_BUILD_ID && notes.part(0, u64::from(name))?.to_slice()?.as_ref() == b"GNU\0";
        notes.skip(padded(name))?;
        if is_ours {
            let id = notes.part(0, u64::from(description))?;
            return Ok(Some(id.to_slice()?.iter().map(|byte| format!("{byte:02x}")).collect()));
        }
        notes.skip(padded(description))?;
    }
    Ok(None)
}
