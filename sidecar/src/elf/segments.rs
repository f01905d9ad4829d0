//! Program headers: what of a file is loaded, and where.

use super::pages::Pages;
use super::{Fault, Header, Record, Why};

/// Most program headers; compilers write about a dozen.
const MOST: u16 = 512;
const ENTRY: u16 = 56;

/// A program header. Source: elf(5), "Program header (Phdr)".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `PF_R`.
    pub readable: bool,
    /// `PF_W`.
    pub writable: bool,
    /// `PF_X`.
    pub executable: bool,
    /// Where its bytes begin in the file.
    pub offset: u64,
    /// Where they are loaded, as the file counts addresses.
    pub address: u64,
    /// Bytes that the file has.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
}

impl Segment {
    /// `PT_LOAD`.
    pub const LOAD: u32 = 1;
    /// `PT_DYNAMIC`.
    pub const DYNAMIC: u32 = 2;
    /// `PT_NOTE`.
    pub const NOTE: u32 = 4;
    /// `PT_TLS`.
    pub const TLS: u32 = 7;

    /// The file's offset of what is loaded at `address`.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        let inside = address.checked_sub(self.address).filter(|inside| *inside < self.file_size)?;
        self.offset.checked_add(inside)
    }

    /// The address at which what is at `offset` is loaded.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = offset.checked_sub(self.offset).filter(|inside| *inside < self.file_size)?;
        self.address.checked_add(inside)
    }
}

pub(super) fn read(pages: &Pages, header: &Header) -> Result<Vec<Segment>, Fault> {
    let table = &header.segments;
    let fault = |why| Fault::new("the program headers", table.at, why);
    if table.count > MOST {
        return Err(fault(Why::TooMuch(u64::from(table.count))));
    }
    if table.count > 0 && table.entry != ENTRY {
        return Err(fault(Why::Malformed("each must have 56 bytes")));
    }
    let mut segments = Vec::with_capacity(usize::from(table.count));
    for number in 0..table.count {
        let mut bytes = [0; ENTRY as usize];
        let at = table.at.checked_add(u64::from(number) * u64::from(ENTRY)).ok_or(fault(Why::Outside))?;
        pages.read(at, &mut bytes).map_err(|inner| fault(inner.why))?;
        segments.push(segment(&Record::new(bytes)));
    }
    Ok(segments)
}

fn segment(record: &Record<{ ENTRY as usize }>) -> Segment {
    let flags = record.u32::<4>();
    Segment {
        kind: record.u32::<0>(),
        executable: flags & 1 != 0,
        writable: flags & 2 != 0,
        readable: flags & 4 != 0,
        offset: record.u64::<8>(),
        address: record.u64::<16>(),
        file_size: record.u64::<32>(),
        memory_size: record.u64::<40>(),
    }
}
