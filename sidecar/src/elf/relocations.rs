//! Words that the loader computes: relocations that add the address at which a file was loaded.
//!
//! In position-independent programs the words of Go's tables that are addresses may be zero in the file, and stand here alone.

use super::{File, Machine, Record, Segment};

/// Most relocations that are read; the largest programs have about a million.
const MOST: u64 = 1 << 22;
/// Bytes of one. Source: elf(5), "Relocation entries (Rel & Rela)".
const ENTRY: usize = 24;
/// Relocations that are read at once.
const CHUNK: usize = 4096;

impl File {
    /// Calls `each` with the address of every word that is `RELATIVE`, and what it points to as the file counts addresses.
    pub(crate) fn relative_words(&self, mut each: impl FnMut(u64, u64)) {
        let Some((address, size)) = self.relocation_table() else { return };
        let relative = match self.machine() {
            Machine::X86_64 => 8,
            Machine::Aarch64 => 1027,
            Machine::Other(_) => return,
        };
        let Some(mut at) = self.offset_of(address) else { return };
        let mut rest = (size.min(self.readable(address)) / ENTRY as u64).min(MOST) as usize;
        let mut chunk = vec![0; CHUNK * ENTRY];
        while rest > 0 {
            let count = rest.min(CHUNK);
            let Some(bytes) = chunk.get_mut(..count * ENTRY) else { return };
            if self.pages.read_once(at, bytes).is_err() {
                return;
            }
            for entry in bytes.as_chunks::<ENTRY>().0 {
                let entry = Record::new(*entry);
                if entry.u64::<8>() == relative {
                    each(entry.u64::<0>(), entry.u64::<16>());
                }
            }
            (rest, at) = (rest - count, at + bytes.len() as u64);
        }
    }

    /// Address and length of the table of relocations with addends (`DT_RELA`). Source: elf(5), "Dynamic tags (Dyn)".
    fn relocation_table(&self) -> Option<(u64, u64)> {
        const DT_RELA: u64 = 7;
        const DT_RELASZ: u64 = 8;
        const TAGS: u64 = 512;
        let dynamic = self.segments().iter().find(|segment| segment.kind == Segment::DYNAMIC)?;
        let (mut table, mut size) = (None, None);
        for number in 0..(dynamic.file_size / 16).min(TAGS) {
            let mut tag = [0; 16];
            self.read_at(dynamic.offset.checked_add(number * 16)?, &mut tag).ok()?;
            let tag = Record::new(tag);
            match tag.u64::<0>() {
                0 => break,
                DT_RELA => table = Some(tag.u64::<8>()),
                DT_RELASZ => size = Some(tag.u64::<8>()),
                _ => {}
            }
        }
        Some((table?, size?))
    }
}
