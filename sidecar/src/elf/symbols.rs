//! Functions by a file's symbol table.
//!
//! In: `.symtab`, or `.dynsym` where that was stripped. Out: the function that holds an address. The table is read once from end to
//! end; what is kept is 16 bytes for each function within a bound, beyond which an address costs a walk through the table.

use super::{Fault, File, Record, Section, Why};

/// Bytes of an entry. Source: elf(5), "String and symbol tables".
const ENTRY: usize = 24;
/// Most entries that are read: more than a browser has.
const MOST: u64 = 1 << 22;
/// Entries that are read at once.
const CHUNK: usize = 2048;
/// Most functions that are kept: two megabytes of them.
const KEPT: usize = 1 << 17;
/// Longest name; a longer one is cut.
const NAME: usize = 4096;
/// How far a function without a size, as assembly has them, reaches where no other one begins.
const UNSIZED: u64 = 4096;

/// The functions of a file.
#[derive(Debug)]
pub struct Symbols {
    table: Table,
    names: Section,
    /// By address; none where there are too many to keep.
    kept: Option<Vec<Entry>>,
}

/// A function of a symbol table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its linker's name, without a version.
    pub name: String,
    /// Where it begins, as the file counts addresses.
    pub address: u64,
    /// Its length; 0 where the table does not say it.
    pub size: u64,
}

#[derive(Debug, Clone, Copy)]
struct Table {
    at: u64,
    count: u64,
}

/// An entry of the table, as it is kept. The order is by address, then those that other modules see come last, as the better names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    address: u64,
    /// The highest bit says whether the symbol is global.
    size: u32,
    name: u32,
}

impl Entry {
    const GLOBAL: u32 = 1 << 31;

    fn size(self) -> u64 {
        u64::from(self.size & !Self::GLOBAL)
    }

    fn covers(self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|inside| inside < self.size())
    }
}

impl Symbols {
    pub(super) fn read(file: &File) -> Result<Option<Self>, Fault> {
        let of_kind = |kind| file.sections().iter().find(|section| section.kind == kind && section.size > 0);
        let Some(section) = of_kind(Section::SYMBOLS).or_else(|| of_kind(Section::DYNAMIC_SYMBOLS)) else {
            return Ok(None);
        };
        let fault = |why| Fault::new("the symbol table", section.offset, why);
        let names = *file.sections().get(section.link as usize).ok_or(fault(Why::Malformed("it has no names")))?;
        let count = section.size / ENTRY as u64;
        if count > MOST {
            return Err(fault(Why::TooMuch(count)));
        }
        let table = Table { at: section.offset, count };
        let mut kept = Vec::new();
        let mut fits = true;
        table.each(file, |entry| {
            fits = fits && kept.len() < KEPT;
            if fits {
                kept.push(entry);
            }
        })?;
        kept.sort_unstable();
        kept.shrink_to_fit();
        Ok(Some(Self { table, names, kept: fits.then_some(kept) }))
    }

    /// The function of `file`, the file they were read from, that holds `address`.
    #[must_use]
    pub fn find(&self, file: &File, address: u64) -> Option<Symbol> {
        let entry = match &self.kept {
            Some(kept) => holder(kept, address),
            None => self.walk(file, address),
        }?;
        Some(Symbol { name: self.name(file, entry.name)?, address: entry.address, size: entry.size() })
    }

    /// The address of the function of this name.
    #[must_use]
    pub fn address_of(&self, file: &File, name: &str) -> Option<u64> {
        let mut found = None;
        let each = |entry: Entry| {
            if found.is_none() && self.name(file, entry.name).is_some_and(|this| this == name) {
                found = Some(entry.address);
            }
        };
        match &self.kept {
            Some(kept) => kept.iter().copied().for_each(each),
            None => self.table.each(file, each).ok()?,
        }
        found
    }

    /// The nearest function at or before `address`, by reading the whole table.
    fn walk(&self, file: &File, address: u64) -> Option<Entry> {
        let mut near: Vec<Entry> = Vec::new();
        let keep = |entry: Entry| {
            if entry.address <= address && (entry.size() == 0 || entry.covers(address)) {
                near.push(entry);
                near.sort_unstable();
                near.drain(..near.len().saturating_sub(8));
            }
        };
        self.table.each(file, keep).ok()?;
        holder(&near, address)
    }

    /// The name, without the version that linkers write behind it: `memcpy` for `memcpy@@GLIBC_2.14`. Source: GNU ld manual, "VERSION Command".
    fn name(&self, file: &File, at: u32) -> Option<String> {
        let rest = self.names.size.checked_sub(u64::from(at))?;
        let name = file.text_at(self.names.offset.checked_add(u64::from(at))?, rest.min(NAME as u64) as usize)?;
        let name = name.split('@').next().unwrap_or_default();
        (!name.is_empty()).then(|| name.to_owned())
    }
}

impl File {
    /// The text from `offset` on up to a zero byte, or to `most` bytes; damaged characters are replaced.
    pub(crate) fn text_at(&self, offset: u64, most: usize) -> Option<String> {
        let mut text = Vec::new();
        while text.len() < most {
            let mut part = [0; 64];
            let at = offset.checked_add(text.len() as u64)?;
            let rest = self.size().checked_sub(at).map_or(0, |rest| rest.min(64)) as usize;
            let part = part.get_mut(..rest.min(most - text.len())).filter(|part| !part.is_empty())?;
            self.read_at(at, part).ok()?;
            let end = part.iter().position(|byte| *byte == 0);
            text.extend_from_slice(&part[..end.unwrap_or(part.len())]);
            if end.is_some() {
                break;
            }
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Table {
    /// Calls `each` with every function that is defined here.
    fn each(self, file: &File, mut each: impl FnMut(Entry)) -> Result<(), Fault> {
        let mut chunk = vec![0; CHUNK * ENTRY];
        let (mut at, mut rest) = (self.at, self.count);
        while rest > 0 {
            let count = rest.min(CHUNK as u64);
            let bytes = chunk.get_mut(..count as usize * ENTRY).unwrap_or_default();
            file.pages.read_once(at, bytes)?;
            bytes.as_chunks::<ENTRY>().0.iter().filter_map(|entry| function(&Record::new(*entry))).for_each(&mut each);
            (rest, at) = (rest - count, at.saturating_add(bytes.len() as u64));
        }
        Ok(())
    }
}

/// An entry that is a function which this file defines. Fields: name, info, other, section, value, size.
fn function(entry: &Record<ENTRY>) -> Option<Entry> {
    const STT_FUNC: u8 = 2;
    const STT_GNU_IFUNC: u8 = 10;
    const STB_LOCAL: u8 = 0;
    let info = entry.u8::<4>();
    if !matches!(info & 0xf, STT_FUNC | STT_GNU_IFUNC) || entry.u16::<6>() == 0 {
        return None;
    }
    let global = if info >> 4 == STB_LOCAL { 0 } else { Entry::GLOBAL };
    let size = entry.u64::<16>().min(u64::from(Entry::GLOBAL - 1)) as u32;
    Some(Entry { address: entry.u64::<8>(), size: size | global, name: entry.u32::<0>() })
}

/// The function of `sorted` that holds `address`: the nearest that covers it. One without a size reaches to the next one, and not far.
fn holder(sorted: &[Entry], address: u64) -> Option<Entry> {
    /// Functions that may lie in others, or have other names.
    const NESTED: usize = 16;
    let before = &sorted[..sorted.partition_point(|entry| entry.address <= address)];
    let covering = before.iter().rev().take(NESTED).find(|entry| entry.covers(address));
    let open = before.last().filter(|last| last.size() == 0 && address - last.address < UNSIZED);
    covering.or(open).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(address: u64, size: u32, name: u32) -> Entry {
        Entry { address, size, name }
    }

    #[test]
    fn functions_end_where_they_say_or_where_the_next_begins() {
        let mut table = [
            entry(0x100, 0x10, 1),
            entry(0x100, 0x10 | Entry::GLOBAL, 2),
            entry(0x110, 0, 3),
            entry(0x140, 0x20, 4),
            entry(0x148, 0x8, 5),
        ];
        table.sort_unstable();
        let wanted = [0xff, 0x100, 0x10f, 0x110, 0x13f, 0x140, 0x148, 0x150, 0x160];
        let names = wanted.map(|address| holder(&table, address).map(|entry| entry.name));
        assert_eq!(names, [None, Some(2), Some(2), Some(3), Some(3), Some(4), Some(5), Some(4), None]);
    }

    /// A program without symbols of its own has few, far between: the last one before an address says nothing of it.
    #[test]
    fn a_function_without_a_size_does_not_reach_far() {
        let table = [entry(0x1000, 0, 1)];
        assert_eq!(holder(&table, 0x1000 + UNSIZED - 1).map(|entry| entry.name), Some(1));
        assert_eq!(holder(&table, 0x1000 + UNSIZED), None);
    }
}
