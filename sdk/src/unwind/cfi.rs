//! Call frame information: what `.eh_frame` says about one address.
//!
//! In: the tables of a module and an address in it. Out: a [`Row`], which says how to find the caller's registers there;
//! nothing where the tables do not speak of the address, or speak nonsense. The entry is found by the binary search table of
//! `.eh_frame_hdr`, then its program is run up to the address. Runs in the signal handler: no allocation, no panic, every
//! loop bounded by the bytes that it consumes.
//!
//! Sources: DWARF 5, section 6.4; Linux Standard Base Core 5.0, chapter 10.6 (what `.eh_frame` does differently).

use super::arch::{REGISTERS, RETURN_ADDRESS};
use super::bytes::Bytes;
use super::tables::UnwindTables;

/// `DW_CFA_remember_state` nests this deep at most; compilers nest once.
const REMEMBERED: usize = 4;

/// Bytes of a call frame program that is run; the longest in the Rust compiler itself has 12 thousand.
const LONGEST: usize = 1 << 16;

/// How the caller's registers are found at one address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// The canonical frame address: the stack pointer before the call.
    pub(crate) cfa: Cfa,
    /// By DWARF number.
    pub(crate) rules: [Rule; REGISTERS],
    /// The "caller" was interrupted by a signal: its address is that of its next instruction, not one behind a call.
    pub(crate) is_signal_frame: bool,
}

/// How the canonical frame address is found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cfa {
    Register { register: u8, offset: i64 },
    Expression(Span),
}

/// How one register of the caller is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Nothing is said of it. What that means is the architecture's business.
    Unspecified,
    /// Lost; for the return address: there is no caller.
    Undefined,
    /// Unchanged.
    Same,
    /// In memory, at the canonical frame address and this.
    At(i64),
    /// The canonical frame address and this.
    Is(i64),
    /// In another register.
    Register(u8),
    /// In memory, where the expression says.
    AtExpression(Span),
    /// What the expression says.
    IsExpression(Span),
}

/// An expression: its place in the module's `.eh_frame`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    length: u32,
}

impl Span {
    /// The bytes of the expression.
    pub(crate) fn of(self, tables: &UnwindTables) -> Option<&[u8]> {
        tables.frames.get(self.start as usize..)?.get(..self.length as usize)
    }
}

/// What the tables say about `address`.
pub(crate) fn row(tables: &UnwindTables, address: u64) -> Option<Row> {
    let entry = Entry::find(tables, address)?;
    let target = address.checked_sub(entry.start)?;
    if target >= entry.length {
        return None;
    }
    let mut program = Program {
        section: &tables.frames,
        common: &entry.common,
        row: Row {
            cfa: Cfa::Register { register: 0, offset: 0 },
            rules: [Rule::Unspecified; REGISTERS],
            is_signal_frame: entry.common.is_signal_frame,
        },
        initial: [Rule::Unspecified; REGISTERS],
        remembered: [None; REMEMBERED],
        depth: 0,
        location: 0,
    };
    program.run(entry.common.program, target)?;
    program.initial = program.row.rules;
    program.location = 0;
    program.run(entry.program, target)?;
    Some(program.row)
}

/// Where the function begins that holds `address`.
pub(crate) fn start_of_function(tables: &UnwindTables, address: u64) -> Option<u64> {
    Entry::find(tables, address).map(|entry| entry.start)
}

/// Where the last entry ends.
pub(crate) fn end(tables: &UnwindTables) -> Option<u64> {
    let last = pairs(&tables.header)?.iter().map(|pair| entry_address(tables.header_range.start, pair)).max()??;
    let start = usize::try_from(last.checked_sub(tables.frames_range.start)?).ok()?;
    let end = end_of_entry(&mut Bytes::at(&tables.frames, start)?)?;
    tables.frames_range.start.checked_add(end as u64)
}

/// A range of bytes in the section.
type Part = (usize, usize);

/// A frame description entry with its common information entry.
struct Entry {
    start: u64,
    length: u64,
    program: Part,
    common: Common,
}

/// A common information entry.
struct Common {
    code_alignment: u64,
    data_alignment: i64,
    /// How addresses are written (`DW_EH_PE_*`).
    encoding: u8,
    has_augmentation: bool,
    is_signal_frame: bool,
    program: Part,
}

impl Entry {
    fn find(tables: &UnwindTables, address: u64) -> Option<Self> {
        let offset = search(&tables.header, tables.header_range.start, address)?;
        let start = usize::try_from(offset.checked_sub(tables.frames_range.start)?).ok()?;
        let section: &[u8] = &tables.frames;
        let mut bytes = Bytes::at(section, start)?;
        let end = end_of_entry(&mut bytes)?;
        let pointer = bytes.position();
        let common = pointer.checked_sub(bytes.u32()? as usize)?;
        let common = Common::parse(section, common)?;
        let place = tables.frames_range.start.wrapping_add(bytes.position() as u64);
        let start = encoded(&mut bytes, common.encoding, place)?;
        // The length is a plain number in the same format.
        let length = encoded(&mut bytes, common.encoding & 0x0f, 0)?;
        if common.has_augmentation {
            let length = bytes.unsigned()?;
            bytes.take(length)?;
        }
        Some(Self { start, length, program: (bytes.position(), end), common })
    }
}

impl Common {
    fn parse(section: &[u8], start: usize) -> Option<Self> {
        let mut bytes = Bytes::at(section, start)?;
        let end = end_of_entry(&mut bytes)?;
        let (0, version @ (1 | 3)) = (bytes.u32()?, bytes.u8()?) else { return None };
        let augmentation = bytes.position();
        while bytes.u8()? != 0 {}
        let augmentation = section.get(augmentation..bytes.position() - 1)?;
        let (code_alignment, data_alignment) = (bytes.unsigned()?, bytes.signed()?);
        let return_address = if version == 1 { u64::from(bytes.u8()?) } else { bytes.unsigned()? };
        if return_address != u64::from(RETURN_ADDRESS) {
            return None;
        }
        let mut common = Self {
            code_alignment,
            data_alignment,
            encoding: 0,
            has_augmentation: augmentation.first() == Some(&b'z'),
            is_signal_frame: false,
            program: (0, end),
        };
        match augmentation {
            [] => {}
            [b'z', letters @ ..] => {
                let length = bytes.unsigned()?;
                let mut data = Bytes::new(bytes.take(length)?);
                letters.iter().try_for_each(|letter| common.augment(*letter, &mut data))?;
            }
            _ => return None,
        }
        common.program.0 = bytes.position();
        Some(common)
    }

    /// Takes what one letter of the augmentation stands for. Unknown ones are at the end of what can be understood, and the
    /// length of the whole is known.
    fn augment(&mut self, letter: u8, data: &mut Bytes<'_>) -> Option<()> {
        match letter {
            b'R' => self.encoding = data.u8()?,
            b'L' => drop(data.u8()?),
            b'P' => {
                let encoding = data.u8()?;
                encoded(data, encoding & 0x0f, 0)?;
            }
            b'S' => self.is_signal_frame = true,
            _ => {}
        }
        Some(())
    }
}

/// Takes the length of an entry; where the entry ends. A length of 0 ends the section; the 64-bit form has no users.
fn end_of_entry(bytes: &mut Bytes<'_>) -> Option<usize> {
    match bytes.u32()? {
        0 | 0xffff_fff0.. => None,
        length => bytes.position().checked_add(length as usize),
    }
}

/// The address of the last entry that begins at or before `address`, by the table of `.eh_frame_hdr`.
///
/// Every linker writes the table as pairs of 32 signed bits relative to the header (`DW_EH_PE_datarel | DW_EH_PE_sdata4`);
/// `modules` has checked that it is so.
fn search(header: &[u8], header_start: u64, address: u64) -> Option<u64> {
    let pairs = pairs(header)?;
    let wanted = address.wrapping_sub(header_start).cast_signed();
    let next = pairs.partition_point(|pair| i64::from(number(pair, 0)) <= wanted);
    entry_address(header_start, pairs.get(next.checked_sub(1)?)?)
}

/// The table of `.eh_frame_hdr`: of each function its start and its entry.
fn pairs(header: &[u8]) -> Option<&[[u8; 8]]> {
    let (pairs, _) = header.get(12..)?.as_chunks();
    let count = u32::from_ne_bytes(*header.get(8..)?.first_chunk()?) as usize;
    pairs.get(..count)
}

fn number(pair: &[u8; 8], at: usize) -> i32 {
    i32::from_ne_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]])
}

fn entry_address(header_start: u64, pair: &[u8; 8]) -> Option<u64> {
    header_start.checked_add_signed(i64::from(number(pair, 4)))
}

/// An address as `.eh_frame` writes it; `place` is where it stands.
fn encoded(bytes: &mut Bytes<'_>, encoding: u8, place: u64) -> Option<u64> {
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => bytes.u64()?,
        0x01 => bytes.unsigned()?,
        0x02 => u64::from(bytes.u16()?),
        0x03 => u64::from(bytes.u32()?),
        0x09 => bytes.signed()?.cast_unsigned(),
        0x0a => i64::from(bytes.u16()?.cast_signed()).cast_unsigned(),
        0x0b => i64::from(bytes.u32()?.cast_signed()).cast_unsigned(),
        _ => return None,
    };
    match encoding & 0xf0 {
        0x00 => Some(value),
        0x10 => Some(place.wrapping_add(value)),
        _ => None,
    }
}

/// A running call frame program.
struct Program<'a> {
    section: &'a [u8],
    common: &'a Common,
    row: Row,
    /// What the common entry says, for `DW_CFA_restore`.
    initial: [Rule; REGISTERS],
    remembered: [Option<(Cfa, [Rule; REGISTERS])>; REMEMBERED],
    depth: usize,
    /// Bytes from the start of the function.
    location: u64,
}

impl Program<'_> {
    /// Runs what applies `target` bytes behind the function's start.
    fn run(&mut self, (start, end): Part, target: u64) -> Option<()> {
        // It runs in the handler, and its length is the file's to say.
        if end.saturating_sub(start) > LONGEST {
            return None;
        }
        let mut bytes = Bytes::at(self.section.get(..end)?, start)?;
        while !bytes.is_empty() {
            let byte = bytes.u8()?;
            let low = byte & 0x3f;
            match byte >> 6 {
                1 => self.location = self.advanced(u64::from(low))?,
                2 => {
                    let offset = self.unsigned_offset(&mut bytes)?;
                    self.set(u64::from(low), Rule::At(offset));
                }
                3 => self.restore(u64::from(low)),
                _ => self.instruction(byte, &mut bytes)?,
            }
            if self.location > target {
                return Some(());
            }
        }
        Some(())
    }

    /// One of the instructions with six bits of opcode.
    fn instruction(&mut self, opcode: u8, bytes: &mut Bytes<'_>) -> Option<()> {
        match opcode {
            0x00 => {}
            // DW_CFA_advance_loc1, 2, 4
            0x02 => self.location = self.advanced(u64::from(bytes.u8()?))?,
            0x03 => self.location = self.advanced(u64::from(bytes.u16()?))?,
            0x04 => self.location = self.advanced(u64::from(bytes.u32()?))?,
            // DW_CFA_remember_state, restore_state: as every compiler and unwinder understands them, the canonical frame
            // address is part of the state.
            0x0a => {
                *self.remembered.get_mut(self.depth)? = Some((self.row.cfa, self.row.rules));
                self.depth += 1;
            }
            0x0b => {
                self.depth = self.depth.checked_sub(1)?;
                (self.row.cfa, self.row.rules) = (*self.remembered.get(self.depth)?)?;
            }
            // DW_CFA_def_cfa, def_cfa_register, def_cfa_offset, def_cfa_expression, def_cfa_sf, def_cfa_offset_sf
            0x0c..=0x0f | 0x12 | 0x13 => self.row.cfa = self.cfa(opcode, bytes)?,
            // DW_CFA_GNU_args_size
            0x2e => drop(bytes.unsigned()?),
            // DW_CFA_AARCH64_negate_ra_state_with_pc, negate_ra_state: whether a return address is signed. It is stripped
            // either way.
            0x2c | 0x2d => {}
            _ => {
                let register = bytes.unsigned()?;
                match opcode {
                    // DW_CFA_restore_extended
                    0x06 => self.restore(register),
                    _ => {
                        let rule = self.rule(opcode, bytes)?;
                        self.set(register, rule);
                    }
                }
            }
        }
        Some(())
    }

    fn cfa(&self, opcode: u8, bytes: &mut Bytes<'_>) -> Option<Cfa> {
        let (register, offset) = match self.row.cfa {
            Cfa::Register { register, offset } => (u64::from(register), offset),
            Cfa::Expression(_) => (u64::MAX, 0),
        };
        let (register, offset) = match opcode {
            0x0c => (bytes.unsigned()?, i64::try_from(bytes.unsigned()?).ok()?),
            0x0d => (bytes.unsigned()?, offset),
            0x0e => (register, i64::try_from(bytes.unsigned()?).ok()?),
            0x0f => return self.expression(bytes).map(Cfa::Expression),
            0x12 => (bytes.unsigned()?, self.signed_offset(bytes)?),
            _ => (register, self.signed_offset(bytes)?),
        };
        let register = u8::try_from(register).ok()?;
        Some(Cfa::Register { register, offset })
    }

    /// The rule that an instruction sets for its register, which was taken already.
    fn rule(&self, opcode: u8, bytes: &mut Bytes<'_>) -> Option<Rule> {
        Some(match opcode {
            0x05 => Rule::At(self.unsigned_offset(bytes)?),
            0x07 => Rule::Undefined,
            0x08 => Rule::Same,
            0x09 => Rule::Register(u8::try_from(bytes.unsigned()?).ok()?),
            0x10 => Rule::AtExpression(self.expression(bytes)?),
            0x11 => Rule::At(self.signed_offset(bytes)?),
            0x14 => Rule::Is(self.unsigned_offset(bytes)?),
            0x15 => Rule::Is(self.signed_offset(bytes)?),
            0x16 => Rule::IsExpression(self.expression(bytes)?),
            // DW_CFA_GNU_negative_offset_extended
            0x2f => Rule::At(self.unsigned_offset(bytes)?.checked_neg()?),
            _ => return None,
        })
    }

    fn expression(&self, bytes: &mut Bytes<'_>) -> Option<Span> {
        let length = bytes.unsigned()?;
        let start = u32::try_from(bytes.position()).ok()?;
        bytes.take(length)?;
        Some(Span { start, length: u32::try_from(length).ok()? })
    }

    fn unsigned_offset(&self, bytes: &mut Bytes<'_>) -> Option<i64> {
        i64::try_from(bytes.unsigned()?).ok()?.checked_mul(self.common.data_alignment)
    }

    fn signed_offset(&self, bytes: &mut Bytes<'_>) -> Option<i64> {
        bytes.signed()?.checked_mul(self.common.data_alignment)
    }

    fn advanced(&self, by: u64) -> Option<u64> {
        self.location.checked_add(by.checked_mul(self.common.code_alignment)?)
    }

    /// Registers beyond those of [`REGISTERS`] (floating point, flags) never lead to a caller.
    fn set(&mut self, register: u64, rule: Rule) {
        if let Some(place) = self.row.rules.get_mut(register as usize) {
            *place = rule;
        }
    }

    fn restore(&mut self, register: u64) {
        if let Some(rule) = self.initial.get(register as usize) {
            self.set(register, *rule);
        }
    }
}
