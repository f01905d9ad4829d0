//! Section headers, where a file has them: nothing here may rest on them alone, for they can be taken away.

use super::pages::Pages;
use super::{Fault, Header, Record, Why};

/// Most sections that a program or library has; object files may have more, and are not loaded.
const MOST: u64 = 4096;
const ENTRY: u16 = 64;
/// Longest name that is told from others; those of interest are shorter.
const NAME: usize = 32;

/// A section. Source: elf(5), "Section header (Shdr)".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    name: [u8; NAME],
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Where it is loaded, as the file counts addresses; 0 where it is not.
    pub address: u64,
    /// Where its bytes begin in the file.
    pub offset: u64,
    /// Its length.
    pub size: u64,
    /// `sh_link`: of a table of symbols, the number of the section with their names.
    pub link: u32,
    /// Bytes of each entry of a table.
    pub entry: u64,
}

impl Section {
    /// `SHT_NOBITS`: it has no bytes in the file.
    pub const NO_BITS: u32 = 8;
    /// `SHT_SYMTAB`.
    pub const SYMBOLS: u32 = 2;
    /// `SHT_DYNSYM`.
    pub const DYNAMIC_SYMBOLS: u32 = 11;

    /// Its name; empty where that is longer than any name of interest, or cannot be read.
    #[must_use]
    pub fn name(&self) -> &str {
        let len = self.name.iter().position(|byte| *byte == 0).unwrap_or(0);
        str::from_utf8(&self.name[..len]).unwrap_or_default()
    }
}

pub(super) fn read(pages: &Pages, header: &Header) -> Result<Vec<Section>, Fault> {
    let table = &header.sections;
    let fault = |why| Fault::new("the section headers", table.at, why);
    if table.at == 0 {
        return Ok(Vec::new());
    }
    if table.entry != ENTRY {
        return Err(fault(Why::Malformed("each must have 64 bytes")));
    }
    let first = record(pages, table.at, 0)?;
    // Where their number has no room in the file header it is in the first section header. Source: elf(5), `e_shnum`, `e_shstrndx`.
    let count = if table.count == 0 { first.u64::<32>() } else { u64::from(table.count) };
    if count > MOST {
        return Err(fault(Why::TooMuch(count)));
    }
    let names = if header.names == u16::MAX { first.u32::<40>() } else { u32::from(header.names) };
    let names = record(pages, table.at, u64::from(names))?;
    let (names, len) = (names.u64::<24>(), names.u64::<32>());
    (0..count).map(|number| Ok(section(&record(pages, table.at, number)?, pages, names, len))).collect()
}

fn record(pages: &Pages, table: u64, number: u64) -> Result<Record<{ ENTRY as usize }>, Fault> {
    let at = number.checked_mul(u64::from(ENTRY)).and_then(|inside| table.checked_add(inside));
    let at = at.ok_or(Fault::new("a section header", table, Why::Outside))?;
    let mut bytes = [0; ENTRY as usize];
    pages.read(at, &mut bytes)?;
    Ok(Record::new(bytes))
}

fn section(record: &Record<{ ENTRY as usize }>, pages: &Pages, names: u64, len: u64) -> Section {
    Section {
        name: name(pages, names, len, u64::from(record.u32::<0>())),
        kind: record.u32::<4>(),
        flags: record.u64::<8>(),
        address: record.u64::<16>(),
        offset: record.u64::<24>(),
        size: record.u64::<32>(),
        link: record.u32::<40>(),
        entry: record.u64::<56>(),
    }
}

/// A section without a name that can be read is one that nobody asks for.
fn name(pages: &Pages, names: u64, len: u64, at: u64) -> [u8; NAME] {
    let mut name = [0; NAME];
    let rest = len.saturating_sub(at).min(NAME as u64) as usize;
    let read = names.checked_add(at).and_then(|at| pages.read(at, &mut name[..rest]).ok());
    if read.is_some() && name.contains(&0) { name } else { [0; NAME] }
}
