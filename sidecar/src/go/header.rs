//! The header of `pclntab`: how its parts are laid out, and where they begin.
//!
//! Source: runtime/symtab.go, `pcHeader`, and internal/abi/symtab.go, `PCLnTabMagic`, of Go 1.18 to 1.27.

use crate::elf::{Fault, File, Machine, Pattern, Record, Why};

/// Most functions; the largest programs have half a million.
const MOST: u64 = 1 << 23;

/// How functions and inlined calls are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Go 1.18 and 1.19.
    Go118,
    /// Go 1.20 and later.
    Go120,
}

/// The header, its offsets made good.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    /// Its address.
    pub(super) address: u64,
    /// Its offset in the file, and how many bytes there are from there on.
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) form: Form,
    /// Bytes of the smallest instruction.
    pub(super) quantum: u8,
    pub(super) functions: u32,
    /// Where the text begins, up to Go 1.25; later, and where relocations say it, 0.
    pub(super) text: u64,
    /// Offsets from the header on: names, units, files, values by pc, functions.
    pub(super) names: u64,
    pub(super) units: u64,
    pub(super) files: u64,
    pub(super) values: u64,
    pub(super) lines: u64,
}

/// Either magic, no padding, any instruction size, pointers of 8 bytes.
pub(super) const PATTERN: Pattern = Pattern { word: 0x0800_0000_ffff_fff0, mask: 0xff00_ffff_ffff_fffe, align: 8 };
/// The same behind any magic.
const ANY: Pattern = Pattern { word: 0x0800_0000_0000_0000, mask: 0xff00_ffff_0000_0000, align: 8 };
const GO_118: u32 = 0xffff_fff0;
/// Of Go 1.2 and of Go 1.16, whose tables are others.
const EARLIER: [u32; 2] = [0xffff_fffb, 0xffff_fffa];

impl Header {
    /// Reads what has the magic of Go 1.18 or later.
    pub(super) fn read(elf: &File, address: u64) -> Result<Self, Fault> {
        Self::like(PATTERN, elf, address)
    }

    /// Reads what is called so by a section. Its magic may be any: garble draws one for each program (mvdan.cc/garble, internal/linker), of Go 1.20 or later, and lets the rest
    /// that is read here as it is.
    pub(super) fn read_called_so(elf: &File, address: u64) -> Result<Self, Fault> {
        Self::like(ANY, elf, address)
    }

    fn like(pattern: Pattern, elf: &File, address: u64) -> Result<Self, Fault> {
        let fault = |why| Fault::new("the header of the table of functions", address, why);
        let mut bytes = [0; 72];
        elf.read(address, &mut bytes).map_err(|inner| fault(inner.why))?;
        let bytes = Record::new(bytes);
        let magic = bytes.u32::<0>();
        if bytes.u64::<0>() & pattern.mask != pattern.word || EARLIER.contains(&magic) {
            return Err(fault(Why::Malformed("not one of Go 1.18 or later, of 64 bits, little-endian")));
        }
        let functions = bytes.u64::<8>();
        if functions > MOST {
            return Err(fault(Why::TooMuch(functions)));
        }
        let header = Self {
            address,
            offset: elf.offset_of(address).ok_or(fault(Why::Outside))?,
            len: elf.readable(address),
            form: if magic == GO_118 { Form::Go118 } else { Form::Go120 },
            quantum: bytes.u8::<6>(),
            functions: functions as u32,
            text: bytes.u64::<24>(),
            names: bytes.u64::<32>(),
            units: bytes.u64::<40>(),
            files: bytes.u64::<48>(),
            values: bytes.u64::<56>(),
            lines: bytes.u64::<64>(),
        };
        header.check(elf).map_err(fault)?;
        Ok(header)
    }

    fn check(&self, elf: &File) -> Result<(), Why> {
        let quantum = if elf.machine() == Machine::X86_64 { 1 } else { 4 };
        if self.functions == 0 || self.quantum != quantum {
            return Err(Why::Malformed("it has no functions, or those of another processor"));
        }
        // Entry and offset of each function, then where the last one ends.
        let functions = self.lines.saturating_add(8 * u64::from(self.functions) + 4);
        let parts = [72, self.names, self.units, self.files, self.values, self.lines, functions, self.len];
        if !parts.is_sorted() {
            return Err(Why::Malformed("its parts are not in their order, or not in the file"));
        }
        Ok(())
    }
}
