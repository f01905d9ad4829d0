//! Notes: the build ids that linkers write.

use super::{File, Record, Segment};

/// Most bytes of notes that are read.
const MOST: u64 = 64 << 10;

impl File {
    /// The build id that GNU's and LLVM's linkers write (`NT_GNU_BUILD_ID`).
    #[must_use]
    pub fn build_id(&self) -> Option<Vec<u8>> {
        self.note(b"GNU\0", 3)
    }

    /// The build id of Go's linker: parts of text with `/` between them. Source: cmd/internal/buildid.
    #[must_use]
    pub fn go_build_id(&self) -> Option<String> {
        String::from_utf8(self.note(b"Go\0\0", 4)?).ok()
    }

    /// What the first note of this name and type says.
    fn note(&self, name: &[u8], kind: u32) -> Option<Vec<u8>> {
        const SHT_NOTE: u32 = 7;
        let segments = self.segments().iter().filter(|segment| segment.kind == Segment::NOTE);
        let segments = segments.map(|segment| (segment.offset, segment.file_size));
        let sections = self.sections().iter().filter(|section| section.kind == SHT_NOTE);
        let sections = sections.map(|section| (section.offset, section.size));
        segments.chain(sections).find_map(|(offset, size)| {
            let mut bytes = vec![0; size.min(MOST) as usize];
            self.read_at(offset, &mut bytes).ok()?;
            find(&bytes, name, kind)
        })
    }
}

/// Source: elf(5), "Notes (Nhdr)": name size, description size, type, then both padded to 4 bytes.
fn find(mut notes: &[u8], name: &[u8], kind: u32) -> Option<Vec<u8>> {
    while let Some((head, rest)) = notes.split_first_chunk::<12>() {
        let head = Record::new(*head);
        let (this, rest) = padded(rest, head.u32::<0>())?;
        let (description, rest) = padded(rest, head.u32::<4>())?;
        if this == name && head.u32::<8>() == kind {
            return Some(description.to_vec());
        }
        notes = rest;
    }
    None
}

/// The first `len` bytes, and what follows their padding.
fn padded(bytes: &[u8], len: u32) -> Option<(&[u8], &[u8])> {
    let (part, _) = bytes.split_at_checked(len as usize)?;
    Some((part, bytes.get((len as usize).next_multiple_of(4)..).unwrap_or_default()))
}
