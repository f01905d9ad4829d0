//! DWARF expressions, as call frame information uses them: in PLT stubs, signal frames and realigned stacks.
//!
//! In: the bytes of an expression, the registers of a frame, stack memory. Out: a number, or nothing where the expression is
//! wrong or reads what cannot be read. Runs in the signal handler: a stack of fixed size, a bounded number of steps.
//!
//! Source: DWARF 5, section 2.5; the operations that section 6.4.2 allows in call frame information.

use super::bytes::Bytes;
use super::memory::StackMemory;

/// Steps of one expression; only a loop takes more.
const STEPS: usize = 256;
/// Values on the stack of one expression.
const DEPTH: usize = 16;

/// The value of `expression`, which finds `first` on its stack; `register` says what is in one, by DWARF number.
pub(crate) fn evaluate(
    expression: &[u8],
    first: Option<u64>,
    register: impl Fn(u8, &mut StackMemory<'_>) -> Option<u64>,
    memory: &mut StackMemory<'_>,
) -> Option<u64> {
    let mut stack = Stack { values: [0; DEPTH], depth: 0 };
    if let Some(first) = first {
        stack.push(first)?;
    }
    let mut bytes = Bytes::new(expression);
    for _ in 0..STEPS {
        if bytes.is_empty() {
            return stack.pop();
        }
        let operation = bytes.u8()?;
        match operation {
            // DW_OP_deref, DW_OP_deref_size
            0x06 => {
                let address = stack.pop()?;
                stack.push(memory.read(address).ok()?)?;
            }
            0x94 => {
                let (size, address) = (bytes.u8()?, stack.pop()?);
                let unused = 64_u32.checked_sub(8 * u32::from(size)).filter(|unused| *unused < 64)?;
                stack.push(memory.read(address).ok()? << unused >> unused)?;
            }
            // DW_OP_breg0 … 31, DW_OP_bregx
            0x70..=0x8f | 0x92 => {
                let number = if operation == 0x92 { bytes.unsigned()? } else { u64::from(operation - 0x70) };
                let value = register(u8::try_from(number).ok()?, memory)?;
                stack.push(value.wrapping_add_signed(bytes.signed()?))?;
            }
            // DW_OP_bra, DW_OP_skip
            0x28 | 0x2f => {
                let distance = i64::from(bytes.u16()?.cast_signed());
                if operation == 0x2f || stack.pop()? != 0 {
                    bytes.jump(distance)?;
                }
            }
            _ => match constant(operation, &mut bytes)? {
                Some(value) => stack.push(value)?,
                None => stack.compute(operation, &mut bytes)?,
            },
        }
    }
    None
}

/// The value of an operation that only pushes one; `Some(None)` for any other.
fn constant(operation: u8, bytes: &mut Bytes<'_>) -> Option<Option<u64>> {
    let signed = |value: i64| value.cast_unsigned();
    Some(Some(match operation {
        // DW_OP_addr, const1u, const1s, const2u, …, constu, consts, lit0 … 31
        0x03 | 0x0e | 0x0f => bytes.u64()?,
        0x08 => u64::from(bytes.u8()?),
        0x09 => signed(i64::from(bytes.u8()?.cast_signed())),
        0x0a => u64::from(bytes.u16()?),
        0x0b => signed(i64::from(bytes.u16()?.cast_signed())),
        0x0c => u64::from(bytes.u32()?),
        0x0d => signed(i64::from(bytes.u32()?.cast_signed())),
        0x10 => bytes.unsigned()?,
        0x11 => signed(bytes.signed()?),
        0x30..=0x4f => u64::from(operation - 0x30),
        _ => return Some(None),
    }))
}

/// The stack of an expression.
struct Stack {
    values: [u64; DEPTH],
    depth: usize,
}

impl Stack {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.depth)? = value;
        self.depth += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.depth = self.depth.checked_sub(1)?;
        self.values.get(self.depth).copied()
    }

    /// The value that many below the top.
    fn below(&self, distance: usize) -> Option<u64> {
        self.values.get(self.depth.checked_sub(distance + 1)?).copied()
    }

    fn compute(&mut self, operation: u8, bytes: &mut Bytes<'_>) -> Option<()> {
        let result = match operation {
            // DW_OP_dup, drop, over, pick
            0x12 => self.below(0)?,
            0x13 => return self.pop().map(drop),
            0x14 => self.below(1)?,
            0x15 => self.below(usize::from(bytes.u8()?))?,
            // DW_OP_swap, rot
            0x16 | 0x17 => {
                let count = if operation == 0x16 { 2 } else { 3 };
                self.values.get_mut(self.depth.checked_sub(count)?..self.depth)?.rotate_right(1);
                return Some(());
            }
            // DW_OP_abs, neg, not, plus_uconst, nop
            0x19 => self.pop()?.cast_signed().unsigned_abs(),
            0x1f => self.pop()?.wrapping_neg(),
            0x20 => !self.pop()?,
            0x23 => self.pop()?.wrapping_add(bytes.unsigned()?),
            0x96 => return Some(()),
            _ => {
                let (right, left) = (self.pop()?, self.pop()?);
                binary(operation, left, right)?
            }
        };
        self.push(result)
    }
}

/// An operation on the two topmost values. Numbers are signed where it matters.
fn binary(operation: u8, left: u64, right: u64) -> Option<u64> {
    let (a, b) = (left.cast_signed(), right.cast_signed());
    let shift = |shifted: Option<u64>| shifted.unwrap_or(0);
    let bits = u32::try_from(right).unwrap_or(u32::MAX);
    Some(match operation {
        0x1a => left & right,
        0x1b => a.checked_div(b)?.cast_unsigned(),
        0x1c => left.wrapping_sub(right),
        0x1d => left.checked_rem(right)?,
        0x1e => left.wrapping_mul(right),
        0x21 => left | right,
        0x22 => left.wrapping_add(right),
        0x24 => shift(left.checked_shl(bits)),
        0x25 => shift(left.checked_shr(bits)),
        0x26 => (a >> bits.min(63)).cast_unsigned(),
        0x27 => left ^ right,
        0x29 => u64::from(a == b),
        0x2a => u64::from(a >= b),
        0x2b => u64::from(a > b),
        0x2c => u64::from(a <= b),
        0x2d => u64::from(a < b),
        0x2e => u64::from(a != b),
        _ => return None,
    })
}
