//! Variables of Go's runtime by a program's debug information, for one that has it and no symbols (`-ldflags="-s -w=0"`, Go 1.22 and newer).
//!
//! In: the names of a few. Out: their addresses. Units are passed over one after the other, unpacked while they are read and not kept, up to the one of
//! package `runtime`, which is gone through once. Whatever stands there, an answer: [`UNPACKED`] bytes, [`UNIT`] of the unit, [`ABBREVIATIONS`] of what
//! its entries look like and [`STEPS`] in it are the most that is looked at. Source: DWARF 4 and 5, sections 2.5, 7.5; cmd/internal/dwarf/dwarf.go
//! (`PutGlobal`); elf(5), `SHF_COMPRESSED`.

use std::io::{self, BufReader, Read};

use flate2::read::ZlibDecoder;
use gimli::constants as dw;
use gimli::{AttributeValue, DebugAbbrev, DebugInfo, LittleEndian};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::elf::{File, Section};

/// Most bytes that are unpacked on the way to the unit: several times what the largest programs have.
const UNPACKED: u64 = 256 << 20;
/// Most bytes of the unit: it has about one million.
const UNIT: u64 = 8 << 20;
/// Most bytes of the table of abbreviations, of which Go writes two thousand.
const ABBREVIATIONS: u64 = 64 << 10;
/// Most entries and attributes of the unit that are looked at: several times as many as it has.
const STEPS: usize = 1 << 24;
/// Units that may have the name of the package at their beginning and be others.
const TRIES: usize = 16;
/// The name of the unit, as it stands within so many of its first bytes.
const PACKAGE: &[u8] = b"runtime";
const BEGINNING: u64 = 64;

/// Where the variables of these names, `runtime.allgs` and others, are, as the file counts addresses; `None` for those that are not found.
#[must_use]
pub fn variables(elf: &File, wanted: &[&str]) -> Vec<Option<u64>> {
    let mut found = vec![None; wanted.len()];
    // What damaged information said before it ended is as true as the rest of the file.
    _ = search(elf, wanted, &mut found);
    found
}

/// Fills in what is found; `None` where that ended before its time.
fn search(elf: &File, wanted: &[&str], found: &mut [Option<u64>]) -> Option<()> {
    let mut units = section(elf, ".debug_info")?.take(UNPACKED);
    let mut left = UNPACKED;
    for _ in 0..TRIES {
        let unit = likely(&mut units)?;
        // What is written in assembly is a unit of its own, of the same name and without variables.
        _ = of_runtime(elf, &unit, wanted, (found, &mut left));
        if found.iter().any(Option::is_some) {
            return Some(());
        }
    }
    None
}

/// The next unit that begins with the name of the package, whole.
fn likely(units: &mut impl Read) -> Option<Vec<u8>> {
    /// Lengths from here on have another meaning (7.2.2); Go has none of them.
    const RESERVED: u32 = 0xffff_fff0;
    loop {
        let mut length = [0; 4];
        units.read_exact(&mut length).ok()?;
        let mut rest = Some(u32::from_le_bytes(length)).filter(|length| *length < RESERVED)?.into();
        let mut unit = length.to_vec();
        let mut read = |unit: &mut Vec<u8>, most: u64| {
            let count = most.min(rest);
            rest -= count;
            let read = units.by_ref().take(count).read_to_end(unit).ok()?;
            (read as u64 == count).then_some(rest)
        };
        let left = read(&mut unit, BEGINNING)?;
        let is_likely = unit.windows(PACKAGE.len() + 1).any(|text| text.strip_suffix(&[0]) == Some(PACKAGE));
        if is_likely && left <= UNIT {
            read(&mut unit, left)?;
            return Some(unit);
        }
        let passed = io::copy(&mut units.by_ref().take(left), &mut io::sink()).ok()?;
        if passed < left {
            return None;
        }
    }
}

/// Goes through a unit; `None` where it is another one's, or not what it must be.
fn of_runtime(elf: &File, unit: &[u8], wanted: &[&str], (found, left): (&mut [Option<u64>], &mut u64)) -> Option<()> {
    let header = DebugInfo::new(unit, LittleEndian).units().next().ok()??;
    let table = abbreviations(elf, header.debug_abbrev_offset().0 as u64, left)?;
    let table = DebugAbbrev::new(&table, LittleEndian).abbreviations(gimli::DebugAbbrevOffset(0)).ok()?;
    let mut entries = header.entries_raw(&table, None).ok()?;
    let mut steps = 0;
    while !entries.is_empty() {
        let depth = entries.next_depth();
        let Some(entry) = entries.read_abbreviation().ok()? else { continue };
        steps += 1 + entry.attributes().len();
        if steps > STEPS {
            return None;
        }
        if depth > 1 || depth == 1 && entry.tag() != dw::DW_TAG_variable {
            entries.skip_attributes(entry.attributes()).ok()?;
            continue;
        }
        let (mut name, mut address) = (None, None);
        for attribute in entry.attributes() {
            let attribute = entries.read_attribute(*attribute).ok()?;
            match (attribute.name(), attribute.value()) {
                (dw::DW_AT_name, AttributeValue::String(text)) => name = Some(text.slice()),
                (dw::DW_AT_location, AttributeValue::Exprloc(location)) => address = address_of(location.0.slice()),
                _ => {}
            }
        }
        // The first entry is the unit itself.
        if depth == 0 && name != Some(PACKAGE) {
            return None;
        }
        for (found, _) in found.iter_mut().zip(wanted).filter(|(_, wanted)| name == Some(wanted.as_bytes())) {
            *found = found.or(address);
        }
    }
    Some(())
}

/// Of a variable that is always at one address: `DW_OP_addr`, and that.
fn address_of(location: &[u8]) -> Option<u64> {
    const DW_OP_ADDR: u8 = 3;
    let address = location.strip_prefix(&[DW_OP_ADDR])?;
    address.try_into().ok().map(u64::from_le_bytes)
}

/// The table of abbreviations from `offset` on: it says itself where it ends. `left`: what may still be unpacked on the way to tables of this file.
fn abbreviations(elf: &File, offset: u64, left: &mut u64) -> Option<Vec<u8>> {
    *left = left.checked_sub(offset)?;
    let mut section = section(elf, ".debug_abbrev")?;
    let passed = io::copy(&mut section.by_ref().take(offset), &mut io::sink()).ok()?;
    let mut table = Vec::new();
    section.take(ABBREVIATIONS).read_to_end(&mut table).ok()?;
    (passed == offset).then_some(table)
}

/// The bytes of a section, unpacked while they are read, if it is compressed: by Go's linker with zlib, by others with zstd as well.
fn section<'f>(elf: &'f File, name: &str) -> Option<Box<dyn Read + 'f>> {
    /// `SHF_COMPRESSED`, `ELFCOMPRESS_ZLIB`, `ELFCOMPRESS_ZSTD`, and the length of a `Chdr`.
    const COMPRESSED: u64 = 0x800;
    const ZLIB: u32 = 1;
    const ZSTD: u32 = 2;
    const HEADER: usize = 24;
    let section = elf.section(name).filter(|section| section.kind != Section::NO_BITS)?;
    let end = section.offset.checked_add(section.size)?;
    let mut bytes = BufReader::with_capacity(32 << 10, Bytes { elf, at: section.offset, end });
    if section.flags & COMPRESSED == 0 {
        return Some(Box::new(bytes));
    }
    let mut header = [0; HEADER];
    bytes.read_exact(&mut header).ok()?;
    match u32::from_le_bytes(*header.first_chunk()?) {
        ZLIB => Some(Box::new(ZlibDecoder::new(bytes))),
        ZSTD => Some(Box::new(Frames::new(bytes)?)),
        _ => None,
    }
}

/// What was compressed with zstd: one frame after the other, for some linkers make several of a section.
struct Frames<R: Read> {
    now: Option<StreamingDecoder<R, FrameDecoder>>,
    /// How many more are begun.
    left: usize,
}

impl<R: Read> Frames<R> {
    /// Largest window: what level 19 uses.
    const WINDOW: u64 = 8 << 20;
    /// Most frames: linkers make one of each megabyte. One costs as much as thousands of bytes, and may hold none.
    const MOST: usize = 4096;

    fn new(bytes: R) -> Option<Self> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(Self::WINDOW);
        StreamingDecoder::new_with_decoder(bytes, decoder)
            .ok()
            .map(|frame| Self { now: Some(frame), left: Self::MOST - 1 })
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.now {
            let read = frame.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let ended = self.now.take().filter(|_| self.left > 0).map(StreamingDecoder::into_parts);
            self.left = self.left.saturating_sub(1);
            self.now = ended.and_then(|(bytes, decoder)| StreamingDecoder::new_with_decoder(bytes, decoder).ok());
        }
        Ok(0)
    }
}

/// A range of a file's bytes.
struct Bytes<'f> {
    elf: &'f File,
    at: u64,
    end: u64,
}

impl Read for Bytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = (into.len() as u64).min(self.end.saturating_sub(self.at)) as usize;
        self.elf.read_at(self.at, &mut into[..length]).map_err(io::Error::other)?;
        self.at += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    /// Of units: code 1, with children, a name and a language; of variables: code 2, a name and a location; of others: code 3, a name. Source: DWARF 4, 7.5.
    const TABLE: [u8; 24] = [1, 0x11, 1, 3, 8, 0x13, 0xb, 0, 0, 2, 0x34, 0, 3, 8, 2, 0x18, 0, 0, 3, 0x2e, 0, 3, 8, 0];

    fn unit(name: &str, address: u64) -> Vec<u8> {
        let mut entries = vec![1];
        entries.extend(format!("{name}\0").bytes());
        entries.push(22);
        entries.extend(b"\x03runtime.main\0\x02runtime.allgs\0\x09\x03");
        entries.extend(address.to_le_bytes());
        entries.push(0);
        let mut unit = (entries.len() as u32 + 7).to_le_bytes().to_vec();
        unit.extend([4, 0, 0, 0, 0, 0, 8]);
        unit.extend(entries);
        unit
    }

    /// A file with these units.
    fn file(units: &[u8]) -> Vec<u8> {
        let names = b"\0.debug_info\0.debug_abbrev\0.names\0";
        let table = [&TABLE[..], &[0, 0]].concat();
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut headers = vec![[0; 64]];
        for (name, content) in [(1_u32, units), (13, &table), (27, names)] {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4] = 1;
            header[24..32].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            headers.push(header);
            bytes.extend(content);
        }
        let at = bytes.len() as u64;
        bytes[0x28..0x30].copy_from_slice(&at.to_le_bytes());
        (bytes[0x3a], bytes[0x3c], bytes[0x3e]) = (64, 4, 3);
        bytes.extend(headers.concat());
        bytes
    }

    fn found(bytes: Vec<u8>) -> Vec<Option<u64>> {
        File::of_bytes(bytes).map_or_else(|_| vec![None; 2], |elf| variables(&elf, &["runtime.allgs", "runtime.none"]))
    }

    #[test]
    fn variables_are_those_of_the_runtime_alone() {
        let mut assembly = unit("runtime", 0x22);
        let name = assembly.windows(5).position(|name| name == b"allgs").unwrap();
        assembly[name] = b'A';
        let units = [unit("main", 0x11), unit("internal/runtime", 0x22), assembly, unit("runtime", 0x33)];
        assert_eq!(found(file(&[&units[..], &[unit("runtime", 0x44)]].concat().concat())), [Some(0x33), None]);
        assert_eq!(found(file(&units[..2].concat())), [None; 2]);
    }

    /// Check that frames of zstd are read one after the other, those that hold nothing too, and no more than there may be.
    #[test]
    fn frames_follow_each_other_up_to_a_bound() {
        let frame = |bytes: &[u8]| compress_to_vec(bytes, CompressionLevel::Fastest);
        let read = |packed: Vec<u8>| {
            let mut bytes = Vec::new();
            Frames::new(&packed[..]).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(read([frame(b"one"), frame(b""), frame(b"two")].concat()), b"onetwo");
        assert_eq!(read(frame(b"a").repeat(5000)).len(), Frames::<&[u8]>::MOST);
    }

    /// Check that no damage leads astray: each byte, one after the other, with each of some values in its place, and each length.
    #[test]
    fn damaged_information_is_read_in_part_or_not_at_all() {
        let whole = file(&[unit("main", 0x11), unit("runtime", 0x33)].concat());
        let (mut same, mut none) = (0, 0);
        for at in 64..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let found = found(damaged);
                same += usize::from(found[0] == Some(0x33));
                none += usize::from(found[0].is_none());
            }
            found(whole[..at].to_vec());
        }
        assert!(same > 100 && none > 100, "{same} {none}");
    }
}
