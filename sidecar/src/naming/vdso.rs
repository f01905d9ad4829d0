//! Where the caller of a function of the kernel's library is, before it has made its frame and after it has taken that down.
//!
//! In: the call frame information of the vDSO. Out: how far the stack pointer is below the return address, as [`super::mend`] has it of Go. Only for amd64: what
//! arm64 has there makes no frames, and its callers' are walked. Source: DWARF 5, 6.4; LSB 5.0 core, `.eh_frame`.

use gimli::{BaseAddresses, CfaRule, EhFrame, LittleEndian, UnwindContext, UnwindSection as _, X86_64};

use crate::elf;

/// Most bytes of the information: it has two kilobytes.
const MOST: u64 = 64 << 10;

/// The call frame information.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Where it lies, in the library's numbering.
    address: u64,
}

impl Frames {
    /// That of a library; `None` where there is none, or it is another processor's.
    pub(super) fn of(library: &elf::File) -> Option<Self> {
        let section = library.section(".eh_frame").filter(|section| section.size <= MOST)?;
        let mut bytes = vec![0; usize::try_from(section.size).ok()?];
        library.read_at(section.offset, &mut bytes).ok()?;
        (library.machine() == elf::Machine::X86_64).then_some(Self { bytes, address: section.address })
    }

    /// How far the stack pointer is below the return address at an instruction; `None` where the frame pointer leads to it.
    pub(super) fn depth(&self, address: u64) -> Option<i32> {
        let (frames, bases) =
            (EhFrame::new(&self.bytes, LittleEndian), BaseAddresses::default().set_eh_frame(self.address));
        let mut context = UnwindContext::new();
        let row = frames.unwind_info_for_address(&bases, &mut context, address, EhFrame::cie_from_offset).ok()?;
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RSP => {
                i32::try_from(offset.checked_sub(8)?).ok()
            }
            _ => None,
        }
    }
}
