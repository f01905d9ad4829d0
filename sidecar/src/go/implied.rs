//! The addresses that Go's runtime makes up for the functions that a call is inlined into, where it keeps one address for each function.
//!
//! In: a return address. Out: for each function around the innermost one, the address that stands for it in such a stack: one behind
//! where its inlined call stands. Source: runtime/traceback.go, `tracebackPCs`; runtime/symtab.go, `Frames.Next`.

use super::inline::{FUNCDATA_INL_TREE, InlinedCall};
use super::pcvalue::Steps;
use super::{Call, Program};

/// As in `inline`.
const PCDATA_INL_TREE_INDEX: u32 = 2;

impl Program {
    /// The made-up addresses around a return address, innermost first: one less than [`frames`](Self::frames) has functions.
    #[must_use]
    pub fn implied(&self, pc: u64) -> Vec<u64> {
        let around = self.frames(pc, Call::Return).len().saturating_sub(1);
        if around == 0 {
            return Vec::new();
        }
        let mut at = pc.wrapping_sub(1);
        let table = &self.table;
        let Some(function) = table.function(at) else { return Vec::new() };
        let Some(tree) = table.funcdata(FUNCDATA_INL_TREE, &function) else { return Vec::new() };
        let mut steps = Steps::new();
        let mut implied = Vec::with_capacity(around);
        while implied.len() < around {
            let index = table.pcdata(PCDATA_INL_TREE_INDEX, &function, at, &mut steps);
            let Some(call) = u32::try_from(index).ok().and_then(|index| InlinedCall::read(table, None, tree, index))
            else {
                break;
            };
            at = function.entry.wrapping_add_signed(i64::from(call.parent));
            implied.push(at.wrapping_add(1));
        }
        implied
    }
}
