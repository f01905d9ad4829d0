//! Values by address, as differences: the line, the file, the depth of the stack at each instruction of a function.
//!
//! Pairs of numbers in groups of seven bits: how much the value changes (the sign in the lowest bit), and for how many instructions it
//! then holds. Source: runtime/symtab.go, `pcvalue`, `step`, `readvarint`.

use super::pclntab::Table;

/// Most pairs that are read for one address, over all tables: the longest functions of real programs have some ten thousand.
const MOST: u32 = 1 << 19;
/// Bytes that are read at once.
const CHUNK: usize = 96;

/// What may still be read for one address.
#[derive(Debug)]
pub(super) struct Steps {
    left: u32,
}

impl Steps {
    pub(super) fn new() -> Self {
        Self { left: MOST }
    }

    /// How much has been read.
    pub(super) fn taken(&self) -> u32 {
        MOST - self.left
    }

    /// Whether all has been read that may be: what was answered is not the whole.
    pub(super) fn are_spent(&self) -> bool {
        self.left == 0
    }

    /// The value at `pc` in the table that begins at `start` and is of a function that begins at `entry`; `None` where it ends before.
    pub(super) fn value(&mut self, table: &Table, start: u64, quantum: u8, entry: u64, pc: u64) -> Option<i32> {
        let mut bytes = Bytes { table, at: start, chunk: [0; CHUNK], len: 0, next: 0 };
        let (mut end, mut value, mut first) = (entry, -1i32, true);
        while self.left > 0 {
            self.left -= 1;
            let change = bytes.number()?;
            if change == 0 && !first {
                return None;
            }
            first = false;
            value = value.wrapping_add(((change >> 1) as i32) ^ -((change & 1) as i32));
            // As in the runtime, the product is one of 32 bits.
            let len = bytes.number()?.wrapping_mul(u32::from(quantum));
            end = end.checked_add(u64::from(len))?;
            if pc < end {
                return Some(value);
            }
        }
        None
    }
}

/// The bytes of a table, read ahead a little.
struct Bytes<'a> {
    table: &'a Table,
    at: u64,
    chunk: [u8; CHUNK],
    len: usize,
    next: usize,
}

impl Bytes<'_> {
    fn number(&mut self) -> Option<u32> {
        let mut number = 0u32;
        for shift in (0..32).step_by(7) {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        if self.next == self.len {
            self.len = self.table.rest(self.at).min(CHUNK as u64) as usize;
            self.table.read(self.at, self.chunk.get_mut(..self.len)?)?;
            self.at += self.len as u64;
            self.next = 0;
        }
        let byte = self.chunk[..self.len].get(self.next).copied()?;
        self.next += 1;
        Some(byte)
    }
}
