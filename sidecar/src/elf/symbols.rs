//! Functions by a file's symbol table.
//!
//! In: `.symtab`, or `.dynsym` where that was stripped. Out: the function that holds an address. The table is read once from end to end, and 16
//! bytes are kept for each function. Of a file with very many, as a browser or a compiler has, only their order by address is kept, 4 bytes for
//! each, made in several readings of bounded memory ([`Index`]); an address then costs some twenty small reads of the file.

use super::{Fault, File, Record, Section, Why};

/// Bytes of an entry. Source: elf(5), "String and symbol tables".
pub(super) const ENTRY: usize = 24;
/// Most entries that are read: more than a browser has.
const MOST: u64 = 1 << 22;
/// Entries that are read at once.
const CHUNK: usize = 2048;
/// Most functions that are kept whole: two megabytes of them.
const KEPT: usize = 1 << 17;
/// Functions that are put in order in one reading: as much memory.
const ORDERED: usize = 3 << 17;
/// Functions that may lie in others, or have other names.
const NESTED: usize = 16;
/// Longest name; a longer one is cut.
const NAME: usize = 4096;
/// How far a function without a size, as assembly has them, reaches where no other one begins.
const UNSIZED: u64 = 4096;

/// The functions of a file.
#[derive(Debug)]
pub struct Symbols {
    table: Table,
    names: Section,
    index: Index,
}

/// The functions by address.
#[derive(Debug)]
enum Index {
    /// All of them.
    Whole(Vec<Entry>),
    /// Their numbers in the table.
    Numbers(Vec<u32>),
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

/// A symbol table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
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

/// What functions are put in order by where only their numbers are kept: address, whether other modules see it, number.
type Key = u64;

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
        let Some((table, names)) = Table::of(file)? else { return Ok(None) };
        let lowest = table.lowest(file, None, KEPT + 1, |entry, _| Some(entry))?;
        let index = if lowest.len() > KEPT {
            drop(lowest);
            Index::Numbers(table.numbers(file)?)
        } else {
            Index::Whole(lowest)
        };
        Ok(Some(Self { table, names, index }))
    }

    /// Entries that [`read`](Self::read) looks at, if all are functions.
    pub(super) fn work(file: &File) -> u64 {
        let count = Table::of(file).ok().flatten().map_or(0, |(table, _)| table.count);
        let ordered = if count > KEPT as u64 { 1 + count / ORDERED as u64 } else { 0 };
        count * (1 + ordered)
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        match &self.index {
            Index::Whole(kept) => kept.capacity() * size_of::<Entry>(),
            Index::Numbers(numbers) => numbers.capacity() * size_of::<u32>(),
        }
    }

    /// The function of `file`, the file they were read from, that holds `address`.
    #[must_use]
    pub fn find(&self, file: &File, address: u64) -> Option<Symbol> {
        let entry = match &self.index {
            Index::Whole(kept) => holder(kept, address),
            Index::Numbers(numbers) => holder(&self.table.around(file, numbers, address)?, address),
        }?;
        Some(Symbol { name: self.name(file, entry.name)?, address: entry.address, size: entry.size() })
    }

    /// The address of the function of this name.
    #[must_use]
    pub fn address_of(&self, file: &File, name: &str) -> Option<u64> {
        let mut found = None;
        let mut each = |entry: Entry| {
            if found.is_none() && self.name(file, entry.name).is_some_and(|this| this == name) {
                found = Some(entry.address);
            }
        };
        match &self.index {
            Index::Whole(kept) => kept.iter().copied().for_each(each),
            Index::Numbers(_) => self.table.each(file, |entry, _| each(entry)).ok()?,
        }
        found
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
    /// The table of a file, and where its names are.
    pub(super) fn of(file: &File) -> Result<Option<(Self, Section)>, Fault> {
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
        Ok(Some((Self { at: section.offset, count }, names)))
    }

    /// The numbers of all functions by address.
    fn numbers(self, file: &File) -> Result<Vec<u32>, Fault> {
        let base = file.loaded().map(|segment| segment.address).min().unwrap_or_default();
        let key = |entry, number| key(base, entry, number);
        let (mut numbers, mut last) = (Vec::new(), None);
        loop {
            let next = self.lowest(file, last, ORDERED, key)?;
            last = next.last().copied();
            numbers.extend(next.iter().map(|key| (key % MOST) as u32));
            if next.len() < ORDERED {
                break;
            }
        }
        numbers.shrink_to_fit();
        Ok(numbers)
    }

    /// The first `most` functions behind `after` in the order of their keys, in this order.
    fn lowest<K: Ord + Copy>(
        self,
        file: &File,
        after: Option<K>,
        most: usize,
        key: impl Fn(Entry, u32) -> Option<K>,
    ) -> Result<Vec<K>, Fault> {
        let (mut low, mut bound): (Vec<K>, Option<K>) = (Vec::new(), None);
        self.each(file, |entry, number| {
            let Some(this) = key(entry, number) else { return };
            if after.is_some_and(|after| this <= after) || bound.is_some_and(|bound| this > bound) {
                return;
            }
            low.push(this);
            if low.len() == 2 * most {
                let (_, highest, _) = low.select_nth_unstable(most - 1);
                bound = Some(*highest);
                low.truncate(most);
            }
        })?;
        low.sort_unstable();
        low.truncate(most);
        low.shrink_to_fit();
        Ok(low)
    }

    /// The functions by address that begin at or before `address`, the last of them.
    fn around(self, file: &File, numbers: &[u32], address: u64) -> Option<Vec<Entry>> {
        let (mut low, mut high) = (0, numbers.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(file, *numbers.get(middle)?)?.address <= address { low = middle + 1 } else { high = middle }
        }
        let near = numbers.get(low.saturating_sub(NESTED)..low)?;
        near.iter().map(|number| self.entry(file, *number)).collect()
    }

    /// The function of this number.
    fn entry(self, file: &File, number: u32) -> Option<Entry> {
        let mut bytes = [0; ENTRY];
        let at = self.at.checked_add(u64::from(number) * ENTRY as u64)?;
        file.read_at(at, &mut bytes).ok()?;
        function(&Record::new(bytes))
    }

    /// Calls `each` with every function that is defined here, and its number.
    fn each(self, file: &File, mut each: impl FnMut(Entry, u32)) -> Result<(), Fault> {
        self.entries(file, |entry, number| {
            if let Some(entry) = function(entry) {
                each(entry, number);
            }
        })
    }

    /// Calls `each` with every entry, and its number.
    pub(super) fn entries(self, file: &File, mut each: impl FnMut(&Record<ENTRY>, u32)) -> Result<(), Fault> {
        let mut chunk = vec![0; CHUNK * ENTRY];
        let (mut at, mut number) = (self.at, 0);
        while number < self.count {
            let count = (self.count - number).min(CHUNK as u64);
            let bytes = chunk.get_mut(..count as usize * ENTRY).unwrap_or_default();
            file.pages.read_once(at, bytes)?;
            for (number, entry) in (number as u32..).zip(bytes.as_chunks::<ENTRY>().0) {
                each(&Record::new(*entry), number);
            }
            (number, at) = (number + count, at.saturating_add(bytes.len() as u64));
        }
        Ok(())
    }
}

/// The key of a function of a file that is loaded from `base` on; `None`: it lies where no code of the file can.
fn key(base: u64, entry: Entry, number: u32) -> Option<Key> {
    const BITS: u32 = u64::BITS - 1 - MOST.ilog2();
    let offset = entry.address.checked_sub(base).filter(|offset| *offset < 1 << BITS)?;
    let is_global = u64::from(entry.size & Entry::GLOBAL != 0);
    Some((offset << 1 | is_global) * MOST + u64::from(number))
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

    /// A file of a table with so many functions, in any order, and names `f0`, `f1`…: those of 16 bytes at each multiple of 32.
    fn file(count: u32) -> File {
        let (mut table, mut names) = (vec![0; ENTRY], vec![0]);
        for number in 0..count {
            // Of no common divisor with a power of two, so each comes up once.
            let place = number.wrapping_mul(0x9e37_79b1) % count.next_power_of_two();
            table.extend((names.len() as u32).to_le_bytes());
            table.extend([0x12, 0, 1, 0]);
            table.extend((0x1_0000 + u64::from(place) * 32).to_le_bytes());
            table.extend(16_u64.to_le_bytes());
            names.extend(format!("f{place}\0").bytes());
        }
        let (table_at, names_at) = (64_u64, 64 + table.len() as u64);
        let sections_at = names_at + names.len() as u64;
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[0x28..0x30].copy_from_slice(&sections_at.to_le_bytes());
        bytes[0x3a] = 64;
        bytes[0x3c] = 3;
        bytes.extend(&table);
        bytes.extend(&names);
        for (kind, at, size) in [(0, 0, 0), (2_u32, table_at, table.len()), (3, names_at, names.len())] {
            let mut section = [0; 64];
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&at.to_le_bytes());
            section[32..40].copy_from_slice(&(size as u64).to_le_bytes());
            section[40] = 2;
            bytes.extend(section);
        }
        File::of_bytes(bytes).unwrap()
    }

    /// Check that a file with more functions than are kept whole has them all found, by 4 bytes of memory for each.
    #[test]
    fn very_many_functions_are_found_by_their_order() {
        for (count, each) in [(1 << 10, size_of::<Entry>()), (1 << 19, 4)] {
            let file = file(count);
            let symbols = file.symbols().unwrap();
            assert!(symbols.bytes() <= (count as usize + 1) * each, "{count}: {} bytes", symbols.bytes());
            for place in (0..count).step_by(count as usize / 500).chain([0, 1, count - 1]) {
                let at = 0x1_0000 + u64::from(place) * 32;
                let name = |address| symbols.find(&file, address).map(|symbol| symbol.name);
                assert_eq!([name(at), name(at + 15)], [Some(format!("f{place}")), Some(format!("f{place}"))]);
                assert_eq!([name(at + 16), name(at - 1)], [None, None]);
            }
            assert_eq!(symbols.address_of(&file, "f77"), Some(0x1_0000 + 77 * 32));
            assert_eq!(symbols.find(&file, u64::MAX), None);
        }
    }
}
