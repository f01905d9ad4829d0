//! A loaded ELF image: what its program headers say of it, and the bytes in memory that they speak of.
//!
//! In: program headers, and where they were put. Out: ranges of addresses, the build id, unwind tables. Nothing here allocates: an image may be looked at while the
//! loader's lock is held.

use std::ops::Range;
use std::slice;

use super::tables::{Tables, UnwindTables};

/// A loaded ELF image: its program headers and where they were put.
pub(super) struct Image<'a> {
    pub(super) bias: u64,
    pub(super) headers: &'a [libc::Elf64_Phdr],
}

impl<'a> Image<'a> {
    fn loads(&self) -> impl Iterator<Item = &'a libc::Elf64_Phdr> + use<'a> {
        self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD)
    }

    /// From its first to its last loaded byte.
    pub(super) fn range(&self) -> Option<Range<u64>> {
        self.loads().map(|load| self.span(load)).reduce(|all, load| {
            let (start, end) = (all.start.min(load.start), all.end.max(load.end));
            start..end
        })
    }

    /// Segments of code.
    pub(super) fn executable(&self) -> impl Iterator<Item = &'a libc::Elf64_Phdr> + use<'a> {
        self.loads().filter(|load| load.p_flags & libc::PF_X != 0)
    }

    /// Where a segment is in memory.
    pub(super) fn span(&self, header: &libc::Elf64_Phdr) -> Range<u64> {
        let start = self.bias.wrapping_add(header.p_vaddr);
        start..start.wrapping_add(header.p_memsz)
    }

    /// The GNU build id, from the notes.
    ///
    /// Source: elf(5), "Notes (Nhdr)": name size, description size, type, then both padded to 4 bytes.
    pub(super) fn build_id(&self) -> Option<&'static [u8]> {
        const NT_GNU_BUILD_ID: u32 = 3;
        let notes = self.headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
        notes.map(|header| self.bytes(&self.span(header))).find_map(|mut notes| {
            while let Some((head, rest)) = notes.split_first_chunk::<12>() {
                let field = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
                let (name_size, description_size) = (field(0) as usize, field(4) as usize);
                let name = rest.get(..name_size)?;
                let description = rest.get(name_size.next_multiple_of(4)..)?.get(..description_size)?;
                if field(8) == NT_GNU_BUILD_ID && name == b"GNU\0" {
                    return Some(description);
                }
                notes = rest.get(name_size.next_multiple_of(4) + description_size.next_multiple_of(4)..)?;
            }
            None
        })
    }

    /// The unwind tables where they are.
    pub(super) fn unwind_tables(&self) -> Option<UnwindTables> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let header_range = self.span(header);
        let start = frames_start(self.bytes(&header_range), header_range.start)?;
        // The size of `.eh_frame` is not recorded; it ends in its segment at the latest, and entries are found by offset.
        let frames_range = start..self.segment(start)?.end;
        let table = |range: &Range<u64>| Tables::InPlace(self.bytes(range));
        Some(UnwindTables { header: table(&header_range), frames: table(&frames_range), header_range, frames_range })
    }

    /// The readable segment that holds `address`.
    fn segment(&self, address: u64) -> Option<Range<u64>> {
        let readable = self.loads().filter(|header| header.p_flags & libc::PF_R != 0);
        readable.map(|load| self.span(load)).find(|span| span.contains(&address))
    }

    /// Bytes of this image in memory; none, where the program headers say that they were not loaded. The lifetime is a lie
    /// for modules that can be unloaded; they are copied while the loader's lock is held.
    fn bytes(&self, range: &Range<u64>) -> &'static [u8] {
        if !self.segment(range.start).is_some_and(|segment| (range.start..=segment.end).contains(&range.end)) {
            return &[];
        }
        // SAFETY: the range lies in a PT_LOAD segment of a loaded module, readable and, inside the callback of
        //         dl_iterate_phdr, not unloaded: the loader holds its lock. Segments with notes and unwind tables are
        //         read-only after relocation.
        unsafe { slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize) }
    }
}

/// Address of `.eh_frame`, from the bytes and the address of `.eh_frame_hdr`.
///
/// Source: Linux Standard Base Core, ".eh_frame_hdr": version, encoding of the pointer, of the count, of the table;
/// then the pointer. Every linker writes it relative to itself in 32 signed bits (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`), the
/// count in 32 bits (`udata4`), and the table in 32 signed bits relative to the header (`DW_EH_PE_datarel | …_sdata4`).
fn frames_start(header: &[u8], address: u64) -> Option<u64> {
    let (head, _) = header.split_first_chunk::<8>()?;
    let [1, 0x1b, 0x03, 0x3b, a, b, c, d] = *head else { return None };
    (address + 4).checked_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
}
