//! An ELF file read in pieces: headers, segments, notes, sections, symbols. Total: whatever stands in a file, an answer or an error.
//!
//! In: an open file of a target, or the image of a vDSO. Out: [`File`], which any thread may ask. Nothing is mapped: a file that is
//! cut short while it is read gives a [`Fault`], where a mapping would end the sidecar with SIGBUS; and what is kept of a file is
//! bounded, however large it is. Only 64-bit little-endian files are read, for no other runs here. Source: elf(5).

mod fault;
pub mod fuzz;
mod notes;
mod pages;
mod record;
mod relocations;
mod scan;
mod sections;
mod segments;
mod symbols;
#[cfg(test)]
mod tests;
mod variables;

use std::sync::OnceLock;

pub use fault::{Fault, Why};
pub(crate) use record::Record;
pub(crate) use scan::{OF_TABLES, Pattern};
pub use sections::Section;
pub use segments::Segment;
pub use symbols::{Symbol, Symbols};

use pages::Pages;

/// The processor that a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// `EM_X86_64`.
    X86_64,
    /// `EM_AARCH64`.
    Aarch64,
    /// Another, by its number in the header.
    Other(u16),
}

/// An open ELF file.
#[derive(Debug)]
pub struct File {
    pages: Pages,
    machine: Machine,
    relocatable: bool,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    symbols: OnceLock<Option<Symbols>>,
}

impl File {
    /// Reads the headers of `file`.
    ///
    /// # Errors
    ///
    /// Where it is not an ordinary file, not ELF, not of 64 bits and little-endian, or its program headers are damaged. Damaged
    /// section headers are no error: the file then has no sections, like one whose section headers were taken away.
    pub fn open(file: std::fs::File) -> Result<Self, Fault> {
        Self::parse(Pages::of_file(file)?)
    }

    /// Reads the headers of an image in memory, such as a vDSO's.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn of_bytes(bytes: Vec<u8>) -> Result<Self, Fault> {
        Self::parse(Pages::of_bytes(bytes))
    }

    fn parse(pages: Pages) -> Result<Self, Fault> {
        let header = Header::read(&pages)?;
        let segments = segments::read(&pages, &header)?;
        // Nothing that runs needs section headers, so they cannot make a file unreadable.
        let sections = sections::read(&pages, &header).unwrap_or_default();
        let machine = match header.machine {
            62 => Machine::X86_64,
            183 => Machine::Aarch64,
            other => Machine::Other(other),
        };
        let relocatable = header.kind == Header::ET_DYN;
        Ok(Self { pages, machine, relocatable, segments, sections, symbols: OnceLock::new() })
    }

    /// The processor that it is for.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Whether it may be loaded anywhere (`ET_DYN`): a shared object or a position-independent program.
    #[must_use]
    pub fn is_relocatable(&self) -> bool {
        self.relocatable
    }

    /// Bytes of the file when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.pages.len()
    }

    /// What a walk through a table may still read, from now on.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk { file: self, until: self.pages.loads().saturating_add(WALK) }
    }

    /// All program headers, in the order of the file.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// All sections; none where the file has no section headers, or damaged ones.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The first section of this name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name() == name)
    }

    /// Whether it has the symbol table that `strip` takes away.
    #[must_use]
    pub fn has_symbol_table(&self) -> bool {
        self.sections.iter().any(|section| section.kind == Section::SYMBOLS && section.size > 0)
    }

    /// The name of the file that its symbols were split off to, and the CRC-32 of that. Source: GDB manual, "Debugging Information in Separate Files",
    /// `.gnu_debuglink`: the name, zeros up to a multiple of four bytes, the checksum.
    #[must_use]
    pub fn debug_link(&self) -> Option<(String, u32)> {
        const MOST: u64 = 4096;
        let section = self.section(".gnu_debuglink").filter(|section| section.size <= MOST)?;
        let mut bytes = vec![0; section.size as usize];
        self.read_at(section.offset, &mut bytes).ok()?;
        let name = bytes.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        let checksum = bytes.get((name.len() + 1).next_multiple_of(4)..)?.first_chunk()?;
        Some((String::from_utf8(name.to_vec()).ok()?, u32::from_le_bytes(*checksum)))
    }

    /// The functions of its symbol table; `None` where there is none, or none that can be read. Read at the first call.
    pub fn symbols(&self) -> Option<&Symbols> {
        self.symbols.get_or_init(|| Symbols::read(self).ok().flatten()).as_ref()
    }

    /// Entries of its symbol table that the first call of [`symbols`](Self::symbols) looks at, some of them more than once; 0 after that.
    pub(crate) fn symbol_work(&self) -> u64 {
        if self.symbols.get().is_some() { 0 } else { Symbols::work(self) }
    }

    /// Bytes of memory that its symbols take, once they were asked for.
    pub(crate) fn symbol_bytes(&self) -> usize {
        self.symbols.get().and_then(Option::as_ref).map_or(0, Symbols::bytes)
    }

    /// The file's offset of the byte that is loaded at `address`, as the file counts addresses.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.loaded().find_map(|segment| segment.offset_of(address))
    }

    /// The address, as the file counts them, at which the byte at `offset` is loaded. Where a byte is loaded twice, as those on a page
    /// that two segments share, code comes first.
    #[must_use]
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let code = self.loaded().filter(|segment| segment.executable);
        code.chain(self.loaded()).find_map(|segment| segment.address_of(offset))
    }

    /// The address, as the file counts them, of the first byte of a mapping that begins at `offset` of the file and is code, or is not: with
    /// where it lies in a process, this gives the load bias. Other than for [`address_of`](Self::address_of) the byte may stand before the
    /// segment, on its first page: linkers let segments begin anywhere in a page, and lld gives the pages before them to others (elf(5),
    /// `p_align`).
    #[must_use]
    pub fn mapped_address_of(&self, offset: u64, executable: bool) -> Option<u64> {
        Segment::holder(&self.segments, offset, executable).map(|segment| segment.page_address_of(offset))
    }

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    ///
    /// Where the file ends before, or cannot be read.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.pages.read(offset, into)
    }

    /// Fills `into` with what the file has for `address` on; relocations are not applied.
    ///
    /// # Errors
    ///
    /// Where the bytes are not all of one segment's, or cannot be read.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        if self.readable(address) < into.len() as u64 {
            return Err(Fault::new("an address", address, Why::Outside));
        }
        let offset = self.offset_of(address).ok_or(Fault::new("an address", address, Why::Outside))?;
        self.read_at(offset, into)
    }

    /// How many bytes the file has from `address` to the end of the segment that it is in.
    #[must_use]
    pub fn readable(&self, address: u64) -> u64 {
        let inside = self.loaded().find_map(|segment| Some((segment, segment.offset_of(address)?)));
        let Some((segment, offset)) = inside else { return 0 };
        let end = segment.offset.saturating_add(segment.file_size).min(self.size());
        end.saturating_sub(offset)
    }

    /// Segments that are loaded (`PT_LOAD`).
    pub fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == Segment::LOAD)
    }
}

/// Most pages that one walk through a table reads, of which each entry may lie on another one: half a gigabyte, a third of a second.
const WALK: u64 = 1 << 16;

/// A walk through a table, entry by entry.
pub(crate) struct Walk<'f> {
    file: &'f File,
    until: u64,
}

impl Walk<'_> {
    /// Whether it may go on.
    pub(crate) fn goes_on(&self) -> bool {
        self.file.pages.loads() < self.until
    }
}

/// What of the file header is needed further on.
struct Header {
    kind: u16,
    machine: u16,
    segments: Table,
    sections: Table,
    /// The section with the names of sections.
    names: u16,
}

/// A table of headers.
struct Table {
    at: u64,
    entry: u16,
    count: u16,
}

impl Header {
    const ET_DYN: u16 = 3;

    fn read(pages: &Pages) -> Result<Self, Fault> {
        /// 64 bits, least significant byte first, the only version.
        const IDENT: [u8; 7] = *b"\x7fELF\x02\x01\x01";
        let fault = |why| Fault::new("the ELF header", 0, why);
        let mut bytes = [0; 64];
        pages.read(0, &mut bytes).map_err(|_| fault(Why::Outside))?;
        if !bytes.starts_with(&IDENT[..4]) {
            return Err(fault(Why::Malformed("not an ELF file")));
        }
        if !bytes.starts_with(&IDENT) {
            return Err(fault(Why::Malformed(
                "a program of 32 bits or of big-endian words, where 64 bits and little-endian are read",
            )));
        }
        let header = Record::new(bytes);
        Ok(Self {
            kind: header.u16::<0x10>(),
            machine: header.u16::<0x12>(),
            segments: Table { at: header.u64::<0x20>(), entry: header.u16::<0x36>(), count: header.u16::<0x38>() },
            sections: Table { at: header.u64::<0x28>(), entry: header.u16::<0x3a>(), count: header.u16::<0x3c>() },
            names: header.u16::<0x3e>(),
        })
    }
}
