//! Program headers: what of a file is loaded, and where.

use super::pages::Pages;
use super::{Fault, Header, Record, Why};

/// Most program headers; compilers write about a dozen.
const MOST: u16 = 512;
const ENTRY: u16 = 56;
/// The largest page of the processors that we run on: a mapping begins at most so far before what is to be loaded.
const PAGE: u64 = 64 << 10;

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

    /// The one of `segments` by which a byte of the file comes into a mapping that is code, or is not. A page that two of them share is loaded
    /// twice, and loaded are whole pages, with what stands in the file before the segment, too.
    pub(crate) fn holder(segments: &[Self], offset: u64, executable: bool) -> Option<&Self> {
        let exact = |segment: &&Self| segment.offset <= offset && offset - segment.offset < segment.file_size;
        let paged = |segment: &&Self| segment.offset & !(PAGE - 1) <= offset && offset < segment.offset;
        let loaded = || segments.iter().filter(|segment| segment.kind == Self::LOAD);
        let alike = || loaded().filter(|segment| segment.executable == executable);
        alike().find(exact).or_else(|| alike().find(paged)).or_else(|| loaded().find(exact))
    }

    /// The address at which a byte on one of its pages is loaded.
    pub(crate) fn page_address_of(&self, offset: u64) -> u64 {
        self.address.wrapping_add(offset.wrapping_sub(self.offset))
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
