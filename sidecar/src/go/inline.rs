//! The functions that one address stands for: the innermost inlined call, those around it, and the function that holds them.
//!
//! `PCDATA_InlTreeIndex` says at each address which inlined call it belongs to, `FUNCDATA_InlTree` what was called, and at which address
//! of the function around it that call stands. Source: runtime/symtabinl.go of Go 1.21 to 1.27, runtime/symtab.go of 1.18 to 1.20.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::header::Form;
use super::pclntab::{Func, Table};
use super::pcvalue::Steps;
use super::{Frame, Program};
use crate::elf::Record;

const PCDATA_INL_TREE_INDEX: u32 = 2;
pub(super) const FUNCDATA_INL_TREE: u8 = 3;
/// Most inlined calls at one address; the compiler's budget ends long before.
const DEPTH: usize = 128;
/// Bytes of names and files at one address, as far as there are calls behind it: of eighty calls with long names.
const TEXT: usize = 32 << 10;

/// An inlined call.
#[derive(Debug, Clone, Copy)]
pub(super) struct InlinedCall {
    pub(super) func_id: u8,
    /// Bytes that are zero in any that is what it seems.
    pub(super) padding: u32,
    pub(super) name: u32,
    /// Where in the function the call stands.
    pub(super) parent: i32,
    pub(super) start_line: i32,
}

/// The functions at `pc`, innermost first, and among how many pairs of numbers they were looked for.
pub(super) fn frames(program: &Program, pc: u64) -> (Vec<Frame>, u32) {
    let table = &program.table;
    let Some(function) = table.function(pc) else {
        program.damaged.fetch_add(1, Ordering::Relaxed);
        return (Vec::new(), 0);
    };
    let mut steps = Steps::new();
    let mut frames = Vec::with_capacity(1);
    let tree = table.funcdata(FUNCDATA_INL_TREE, &function);
    let (mut at, mut text) = (pc, 0);
    while frames.len() < DEPTH && text < TEXT {
        let index = tree.map_or(-1, |_| table.pcdata(PCDATA_INL_TREE_INDEX, &function, at, &mut steps));
        let call = tree.filter(|_| index >= 0).and_then(|tree| InlinedCall::read(table, None, tree, index as u32));
        let (file, line) = place(program, &function, at, &mut steps);
        let (name, start_line, func_id) = match &call {
            Some(call) => (call.name, call.start_line.max(0) as u32, call.func_id),
            None => (function.name, function.start_line, function.func_id),
        };
        let role = program.role(func_id);
        let name = program.name(name);
        text += name.len() + file.len();
        frames.push(Frame { function: name, file, line, start_line, role });
        let Some(call) = call else { break };
        at = function.entry.wrapping_add_signed(i64::from(call.parent));
    }
    if steps.are_spent() || frames.len() == DEPTH || text >= TEXT {
        program.damaged.fetch_add(1, Ordering::Relaxed);
    }
    (frames, steps.taken())
}

/// File and line at `pc`; none where one of them is unknown.
fn place(program: &Program, function: &Func, pc: u64, steps: &mut Steps) -> (Arc<str>, u32) {
    let number = program.table.value(function.pcfile, function, pc, steps);
    let line = program.table.value(function.pcln, function, pc, steps);
    let (Ok(number), Ok(line)) = (u32::try_from(number), u32::try_from(line)) else { return Default::default() };
    program.table.file(function.unit, number).map(|file| (program.file(file), line)).unwrap_or_default()
}

impl InlinedCall {
    /// Call `index` of the tree at `tree`, counted from `base`, or from where the table says.
    pub(super) fn read(table: &Table, base: Option<u64>, tree: u32, index: u32) -> Option<Self> {
        match table.form() {
            Form::Go118 => {
                let mut bytes = [0; 20];
                table.read_inlined(base, u64::from(tree) + 20 * u64::from(index), &mut bytes)?;
                // Parent's index, number of the function, padding, file, line, name, parent's address. Source: runtime/symtab.go of Go 1.19.
                let bytes = Record::new(bytes);
                let [_, _, func_id, padding] = bytes.u32::<0>().to_le_bytes();
                let (name, parent) = (bytes.u32::<12>(), bytes.i32::<16>());
                Some(Self { func_id, padding: u32::from(padding), name, parent, start_line: 0 })
            }
            Form::Go120 => {
                let mut bytes = [0; 16];
                table.read_inlined(base, u64::from(tree) + 16 * u64::from(index), &mut bytes)?;
                let bytes = Record::new(bytes);
                let [func_id, padding @ ..] = bytes.u32::<0>().to_le_bytes();
                let padding = padding.iter().fold(0, |all, byte| all | u32::from(*byte));
                let (name, parent, start_line) = (bytes.u32::<4>(), bytes.i32::<8>(), bytes.i32::<12>());
                Some(Self { func_id, padding, name, parent, start_line })
            }
        }
    }
}
