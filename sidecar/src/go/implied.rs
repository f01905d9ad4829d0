//! The addresses that Go's runtime makes up for the functions that a call is inlined into, where it keeps one address for each function.
//!
//! In: a return address. Out: for each function around the innermost one, the address that stands for it in such a stack: one behind
//! where its inlined call stands. Source: runtime/traceback.go, `tracebackPCs`; runtime/symtab.go, `Frames.Next`.

use super::Program;
use super::inline::{FUNCDATA_INL_TREE, InlinedCall};
use super::pcvalue::Steps;

/// As in `inline`.
const PCDATA_INL_TREE_INDEX: u32 = 2;

impl Program {
    /// The made-up addresses around a return address at which so many functions were found, innermost first: one less than these; and among how many
    /// pairs of numbers they were looked for, none where there is nothing to look for.
    pub(crate) fn implied_in(&self, pc: u64, functions: usize) -> (Vec<u64>, Option<u32>) {
        let around = functions.saturating_sub(1);
        if around == 0 {
            return Default::default();
        }
        let (mut steps, mut implied) = (Steps::new(), Vec::with_capacity(around));
        self.imply(pc.wrapping_sub(1), around, &mut steps, &mut implied);
        (implied, Some(steps.taken()))
    }

    fn imply(&self, mut at: u64, around: usize, steps: &mut Steps, implied: &mut Vec<u64>) {
        let table = &self.table;
        let Some(function) = table.function(at) else { return };
        let Some(tree) = table.funcdata(FUNCDATA_INL_TREE, &function) else { return };
        while implied.len() < around {
            let index = table.pcdata(PCDATA_INL_TREE_INDEX, &function, at, steps);
            let call = u32::try_from(index).ok().and_then(|index| InlinedCall::read(table, None, tree, index));
            let Some(call) = call else { return };
            at = function.entry.wrapping_add_signed(i64::from(call.parent));
            implied.push(at.wrapping_add(1));
        }
    }
}
