//! Where the caller of a function of the kernel's library is, before it has made its frame and after it has taken that down.
//!
//! In: the call frame information of the vDSO. Out: how far the stack pointer is below the return address, as [`super::mend`] has it of Go: on arm64 it is in a register
//! then. Source: DWARF 5, 6.4; LSB 5.0 core, `.eh_frame`.

use gimli::{
    AArch64, BaseAddresses, CfaRule, EhFrame, LittleEndian, RegisterRule, UnwindContext, UnwindSection as _, X86_64,
};

use super::mend::Machine;
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
    /// That of a library; `None` where there is none.
    pub(super) fn of(library: &elf::File) -> Option<Self> {
        let section = library.section(".eh_frame").filter(|section| section.size <= MOST)?;
        let mut bytes = vec![0; usize::try_from(section.size).ok()?];
        library.read_at(section.offset, &mut bytes).ok()?;
        Some(Self { bytes, address: section.address })
    }

    /// How far the stack pointer is below the return address at an instruction; `None` where the frame pointer leads to it.
    pub(super) fn depth(&self, address: u64) -> Option<i32> {
        let (frames, bases) =
            (EhFrame::new(&self.bytes, LittleEndian), BaseAddresses::default().set_eh_frame(self.address));
        let mut context = UnwindContext::new();
        let row = frames.unwind_info_for_address(&bases, &mut context, address, EhFrame::cie_from_offset).ok()?;
        match (Machine::HERE, row.cfa()) {
            (Machine::Amd64, CfaRule::RegisterAndOffset { register, offset }) if *register == X86_64::RSP => {
                i32::try_from(offset.checked_sub(8)?).ok()
            }
            (Machine::Amd64, _) => None,
            // Not written to memory yet, or read from there again.
            (Machine::Arm64, _) => match row.register(AArch64::X30) {
                None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(0),
                Some(_) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::book::Book;

    /// Check this machine's own: where a function begins its caller is at the stack pointer, or in the register, and somewhere behind only the frame leads there; of
    /// what is no function nothing is said.
    #[test]
    fn a_function_has_no_frame_where_it_begins() {
        let library = Book::default().vdso().unwrap();
        let elf = library.elf().unwrap();
        let frames = Frames::of(elf).unwrap();
        let name = match Machine::HERE {
            Machine::Amd64 => "__vdso_clock_gettime",
            Machine::Arm64 => "__kernel_clock_gettime",
        };
        let begin = elf.symbols().unwrap().address_of(elf, name).unwrap();
        assert_eq!(frames.depth(begin), Some(0));
        let depths: Vec<_> = (0..64).map(|at| frames.depth(begin + at)).collect();
        assert!(Machine::HERE == Machine::Arm64 || depths.contains(&None), "{depths:?}");
        assert_eq!(frames.depth(u64::MAX), None);
    }
}
