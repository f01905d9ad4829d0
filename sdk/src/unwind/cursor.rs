//! Where a walk stands: the registers of one frame, and how they become those of its caller.
//!
//! In: the registers of the interrupted thread, then rules. Out: the address to look rules up by, registers for expressions.
//! Registers other than the stack pointer and the program counter are not read from the stack before somebody asks: most
//! frames save several, and nearly none is ever needed. Runs in the signal handler.

use super::arch::{PRESERVED, REGISTERS, RETURN_ADDRESS, Registers, STACK_POINTER, code_address};
use super::cfi::{Cfa, Row, Rule, Span};
use super::expression::evaluate;
use super::memory::StackMemory;
use super::rules::Frame;
use super::tables::UnwindTables;

/// The registers of one frame.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    /// The frame stands at `pc` itself, interrupted there; else `pc` is where a call returns to.
    pub(crate) is_exact: bool,
    /// By DWARF number: a value, or the address of a value.
    values: [u64; REGISTERS],
    /// Which of `values` are addresses, as bits.
    saved: u64,
    /// Which of `values` are known, as bits.
    known: u64,
}

/// The bits of the registers that a call preserves.
const PRESERVED_BITS: u64 = {
    let (mut bits, mut index) = (0, 0);
    while index < PRESERVED.len() {
        bits |= 1 << PRESERVED[index];
        index += 1;
    }
    bits
};

impl Cursor {
    /// At the instruction that a signal interrupted.
    pub(crate) fn new(registers: &Registers) -> Self {
        let Registers { pc, sp, values } = *registers;
        Self { pc, sp, is_exact: true, values, saved: 0, known: u64::MAX }
    }

    /// The address by which the frame is known: `pc`, or the byte before it, which belongs to the call for certain.
    pub(crate) fn address(&self) -> u64 {
        if self.is_exact { self.pc } else { self.pc.wrapping_sub(1) }
    }

    /// The value of a register, if it is still known in this frame.
    pub(crate) fn register(&self, number: u8, memory: &mut StackMemory<'_>) -> Option<u64> {
        if number == STACK_POINTER {
            return Some(self.sp);
        }
        let value = *self.values.get(usize::from(number))?;
        let bit = 1 << number;
        match (self.known & bit, self.saved & bit) {
            (0, _) => None,
            (_, 0) => Some(value),
            _ => memory.read(value).ok(),
        }
    }

    /// Moves to the caller by a compact rule.
    pub(crate) fn apply(&mut self, frame: &Frame, memory: &mut StackMemory<'_>) -> Option<()> {
        let base = self.register(frame.register, memory)?;
        let cfa = base.checked_add_signed(i64::from(frame.offset))?;
        let pc = match frame.in_register {
            true => self.register(RETURN_ADDRESS, memory)?,
            false => memory.read(cfa.checked_add_signed(8 * i64::from(frame.return_address))?).ok()?,
        };
        // Without branches, which nothing could predict here.
        for (register, words) in PRESERVED.iter().zip(frame.saved) {
            let value = &mut self.values[usize::from(*register)];
            let place = cfa.wrapping_add_signed(8 * i64::from(words));
            *value = if words == 0 { *value } else { place };
        }
        self.saved |= u64::from(frame.bits);
        self.known |= u64::from(frame.bits);
        self.return_to(pc, cfa)
    }

    /// The caller's register `number` is at `place`.
    pub(crate) fn save(&mut self, number: u8, place: u64) {
        if let Some(value) = self.values.get_mut(usize::from(number)) {
            *value = place;
            self.saved |= 1 << number;
            self.known |= 1 << number;
        }
    }

    /// No register but the stack pointer is known any more.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn forget(&mut self) {
        self.known = 0;
    }

    /// Moves to the caller, whose registers are the same but for the stack pointer.
    pub(crate) fn return_to(&mut self, pc: u64, sp: u64) -> Option<()> {
        let pc = code_address(pc);
        if pc == self.pc && sp == self.sp {
            return None;
        }
        self.known &= PRESERVED_BITS;
        (self.pc, self.sp, self.is_exact) = (pc, sp, false);
        Some(())
    }

    /// Moves to the code that a signal interrupted with these registers.
    pub(crate) fn resume(&mut self, registers: &Registers) {
        *self = Self::new(registers);
    }

    /// Moves to the caller by what the tables say, whatever it is.
    pub(crate) fn apply_row(&mut self, row: &Row, tables: &UnwindTables, memory: &mut StackMemory<'_>) -> Option<()> {
        let cfa = match row.cfa {
            Cfa::Register { register, offset } => self.register(register, memory)?.checked_add_signed(offset)?,
            Cfa::Expression(span) => self.evaluate(span, None, tables, memory)?,
        };
        let mut caller = self.clone();
        caller.sp = cfa;
        for (number, rule) in (0_u8..).zip(&row.rules) {
            caller.set(number, self.apply_rule(number, *rule, cfa, tables, memory), memory)?;
        }
        let pc = code_address(caller.register(RETURN_ADDRESS, memory)?);
        if pc == self.pc && caller.sp == self.sp {
            return None;
        }
        if !row.is_signal_frame {
            let ruled = (0..REGISTERS).filter(|n| row.rules[*n] != Rule::Unspecified).fold(0, |bits, n| bits | 1 << n);
            caller.known &= PRESERVED_BITS | ruled;
        }
        (caller.pc, caller.is_exact) = (pc, row.is_signal_frame);
        *self = caller;
        Some(())
    }

    /// Where a rule says that the caller's register is.
    fn apply_rule(
        &self,
        number: u8,
        rule: Rule,
        cfa: u64,
        tables: &UnwindTables,
        memory: &mut StackMemory<'_>,
    ) -> Place {
        let offset = |offset| cfa.checked_add_signed(offset);
        let mut expression = |span| self.evaluate(span, Some(cfa), tables, memory);
        match rule {
            Rule::Unspecified => Place::Same,
            Rule::Same if number == STACK_POINTER => Place::Value(Some(self.sp)),
            Rule::Same => Place::Same,
            Rule::Undefined => Place::Value(None),
            Rule::At(at) => Place::Address(offset(at)),
            Rule::Is(at) => Place::Value(offset(at)),
            Rule::Register(other) => Place::Value(self.register(other, memory)),
            Rule::AtExpression(span) => Place::Address(expression(span)),
            Rule::IsExpression(span) => Place::Value(expression(span)),
        }
    }

    /// The value of an expression, which finds `first` on its stack.
    fn evaluate(
        &self,
        span: Span,
        first: Option<u64>,
        tables: &UnwindTables,
        memory: &mut StackMemory<'_>,
    ) -> Option<u64> {
        evaluate(span.of(tables)?, first, |number, memory| self.register(number, memory), memory)
    }

    fn set(&mut self, number: u8, place: Place, memory: &mut StackMemory<'_>) -> Option<()> {
        let (value, is_address) = match place {
            Place::Same => return Some(()),
            Place::Value(value) => (value, false),
            Place::Address(value) => (value, true),
        };
        if number == STACK_POINTER {
            let value = value?;
            self.sp = if is_address { memory.read(value).ok()? } else { value };
            return Some(());
        }
        let bit = 1 << number;
        self.values[usize::from(number)] = value.unwrap_or_default();
        self.known = if value.is_some() { self.known | bit } else { self.known & !bit };
        self.saved = if is_address { self.saved | bit } else { self.saved & !bit };
        Some(())
    }
}

/// Where the caller's register is; `None` inside: lost.
#[derive(Clone, Copy)]
enum Place {
    Same,
    Value(Option<u64>),
    Address(Option<u64>),
}
