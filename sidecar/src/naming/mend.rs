//! The top of a Go stack: puts in the callers that a walk of frame pointers passes over.
//!
//! A function that keeps no frame, and one that is interrupted before it has made its own or after it has taken it down, is walked with the
//! frame pointer of its caller, or of that one's caller: the walk begins one frame too late. Where the return address is, Go's
//! pc-to-SP table says; whose frame the frame pointer is, arithmetic says. In: registers, the bytes above the stack pointer, that table. Out: the
//! callers that are missing, proven, or that it cannot be told. Pure.
//!
//! Source: Go, src/runtime/traceback.go, `unwinder.resolveInternal`; src/cmd/internal/obj/{x86/obj6.go,arm64/obj7.go}, `preprocess`.

use crate::sample::Registers;

/// Most callers that are looked through: functions without a frame call few others of that kind.
const MAX_CALLERS: usize = 8;

/// Where processors keep return addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// amd64: above the frame; a call pushes it.
    Amd64,
    /// arm64: at the bottom of the frame; a call leaves it in the link register.
    Arm64,
}

impl Machine {
    /// The one that this is built for, which all processes here run on.
    pub const HERE: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 };
}

/// What is known of the top of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Top {
    /// The walk began with the interrupted function's own frame: nothing is missing.
    Whole,
    /// These callers, nearest first, stand between the interrupted function and what the walk found.
    Missing(Vec<u64>),
    /// Nothing is missing, but the first address that the walk found is none: what was left on the stack by an earlier call.
    Stale,
    /// These callers are true, but the frame pointer is none of theirs: what the walk found is nothing.
    Astray(Vec<u64>),
    /// It cannot be told.
    Unknown,
}

/// The state of a thread when it was interrupted in a Go function.
#[derive(Debug, Clone, Copy)]
pub struct Interrupted<'a> {
    /// Its registers.
    pub registers: Registers,
    /// The bytes from the stack pointer on.
    pub top: &'a [u8],
    /// Where it keeps return addresses.
    pub machine: Machine,
}

impl Interrupted<'_> {
    /// The callers that are missing, where `depth` says how far the stack pointer is below where it was before the function's first instruction:
    /// `None` where it is not known, also of functions that set the stack pointer themselves.
    pub fn callers(&self, mut depth: impl FnMut(u64) -> Option<i32>) -> Top {
        let mut callers = Vec::new();
        let Registers { ip: mut pc, mut sp, fp, .. } = self.registers;
        while callers.len() < MAX_CALLERS {
            let Some(below) = depth(pc).and_then(|depth| u64::try_from(depth).ok()) else { break };
            if self.is_frame_of(fp, sp, below) {
                return if callers.is_empty() { Top::Whole } else { Top::Missing(callers) };
            }
            if self.is_below(fp, sp, below) {
                // The walk has found the last of them itself, where the call that pushed it has been made.
                return match callers.pop() {
                    None => Top::Stale,
                    Some(_) if callers.is_empty() => Top::Whole,
                    Some(_) => Top::Missing(callers),
                };
            }
            let Some(caller) = self.return_address(sp, below, callers.is_empty()) else { break };
            let Some(above) = self.above(sp, below) else { break };
            // Whatever is no Go function called nothing.
            if depth(caller).is_none() {
                break;
            }
            callers.push(caller);
            (pc, sp) = (caller, above);
        }
        if callers.is_empty() { Top::Unknown } else { Top::Astray(callers) }
    }

    /// The caller of a function that has no frame, or none any more, and whose stack pointer is so far `below` the return address.
    pub fn caller(&self, below: i32) -> Option<u64> {
        self.return_address(self.registers.sp, u64::try_from(below).ok()?, true)
    }

    /// Whether a frame pointer is the one that a function with this stack pointer has set up.
    fn is_frame_of(&self, fp: u64, sp: u64, below: u64) -> bool {
        match self.machine {
            // The caller's is saved right below the return address, and the frame pointer points to it.
            Machine::Amd64 => below >= 8 && sp.checked_add(below - 8) == Some(fp),
            // The caller's is saved right below the stack pointer.
            Machine::Arm64 => below > 0 && sp.checked_sub(8) == Some(fp),
        }
    }

    /// Whether a frame pointer is the one that a function with a frame sets up for `duffzero` and `duffcopy`, which make none: below the stack
    /// pointer, with its own saved there. Source: Go, src/cmd/compile/internal/amd64/ssa.go, `OpAMD64DUFFZERO`.
    fn is_below(&self, fp: u64, sp: u64, below: u64) -> bool {
        self.machine == Machine::Amd64 && below >= 8 && sp.checked_sub(16) == Some(fp)
    }

    fn return_address(&self, sp: u64, below: u64, is_leaf: bool) -> Option<u64> {
        match self.machine {
            Machine::Amd64 => self.word(sp.checked_add(below)?),
            Machine::Arm64 if below > 0 => self.word(sp),
            // What is called without a frame has its caller in the register; what calls has saved it.
            Machine::Arm64 => is_leaf.then_some(self.registers.lr),
        }
    }

    /// The stack pointer of the caller.
    fn above(&self, sp: u64, below: u64) -> Option<u64> {
        let pushed = if self.machine == Machine::Amd64 { 8 } else { 0 };
        sp.checked_add(below)?.checked_add(pushed)
    }

    /// The word at an address of the stack, if it was shipped.
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.registers.sp)?).ok()?;
        let bytes = self.top.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEAF: u64 = 0x1000;
    const CALLER: u64 = 0x2000;
    const ROOT: u64 = 0x3000;

    /// A stack at 0x7000 of these words, and registers.
    fn callers(machine: Machine, words: &[u64], fp: u64, lr: u64, depths: &[(u64, i32)]) -> Top {
        let top: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let registers = Registers { ip: LEAF, sp: 0x7000, fp, lr };
        let depth = |pc| depths.iter().find(|(at, _)| *at == pc).map(|(_, depth)| *depth);
        Interrupted { registers, top: &top, machine }.callers(depth)
    }

    /// Check that a function with a frame of its own lacks no caller, however deep its frame is.
    #[test]
    fn a_function_in_its_body_lacks_no_caller() {
        assert_eq!(callers(Machine::Amd64, &[1, 2, 3, CALLER], 0x7010, 0, &[(LEAF, 24), (CALLER, 8)]), Top::Whole);
        assert_eq!(callers(Machine::Amd64, &[], 0x7000 + 4088, 0, &[(LEAF, 4096)]), Top::Whole);
        assert_eq!(callers(Machine::Arm64, &[CALLER], 0x6ff8, 9, &[(LEAF, 32), (CALLER, 48)]), Top::Whole);
    }

    /// Check that the caller of a function without a frame is found, by the caller's frame pointer.
    #[test]
    fn a_leaf_gets_its_caller() {
        let depths = [(LEAF, 0), (CALLER, 40)];
        assert_eq!(callers(Machine::Amd64, &[CALLER], 0x7000 + 40, 0, &depths), Top::Missing(vec![CALLER]));
        assert_eq!(callers(Machine::Arm64, &[], 0x6ff8, CALLER, &depths), Top::Missing(vec![CALLER]));
    }

    /// Check that a function in its prologue, which has moved the stack pointer and not yet the frame pointer, gets its caller.
    #[test]
    fn a_prologue_gets_its_caller() {
        let depths = [(LEAF, 16), (CALLER, 40)];
        assert_eq!(callers(Machine::Amd64, &[0, 0, CALLER], 0x7010 + 40, 0, &depths), Top::Missing(vec![CALLER]));
        assert_eq!(callers(Machine::Arm64, &[CALLER], 0x7008, 0, &depths), Top::Missing(vec![CALLER]));
    }

    /// Check that a caller without a frame of its own does not hide the next one.
    #[test]
    fn two_without_a_frame_are_both_put_in() {
        let depths = [(LEAF, 0), (CALLER, 0), (ROOT, 24)];
        let top = callers(Machine::Amd64, &[CALLER, ROOT], 0x7008 + 24, 0, &depths);
        assert_eq!(top, Top::Missing(vec![CALLER, ROOT]));
    }

    /// Check that the frame which is made for `duffzero` is seen as what it is: within, before and after the call.
    #[test]
    fn a_frame_below_the_stack_is_no_frame() {
        let depths = [(LEAF, 0), (CALLER, 24)];
        assert_eq!(callers(Machine::Amd64, &[CALLER], 0x6ff8, 0, &depths), Top::Whole);
        assert_eq!(callers(Machine::Amd64, &[1, 2, 3, CALLER], 0x6ff0, 0, &[(LEAF, 24)]), Top::Stale);
        assert_eq!(callers(Machine::Amd64, &[CALLER], 0x6ff0, 0, &[(LEAF, 0), (CALLER, 8)]), Top::Astray(vec![CALLER]));
    }

    /// Check that what is not shipped, not Go's or nobody's frame is not guessed.
    #[test]
    fn in_doubt_nothing_is_put_in() {
        assert_eq!(callers(Machine::Amd64, &[0; 16], 0x9000, 0, &[(LEAF, 128), (0, 8)]), Top::Unknown);
        assert_eq!(callers(Machine::Amd64, &[CALLER], 0x9000, 0, &[(LEAF, 0)]), Top::Unknown);
        assert_eq!(callers(Machine::Amd64, &[CALLER], 0x9000, 0, &[]), Top::Unknown);
        let astray = callers(Machine::Amd64, &[CALLER, 7, 8], 0x9000, 0, &[(LEAF, 0), (CALLER, 8)]);
        assert_eq!(astray, Top::Astray(vec![CALLER]));
        assert_eq!(callers(Machine::Amd64, &[CALLER], 0x9000, 0, &[(LEAF, -8)]), Top::Unknown);
    }

    proptest! {
        /// Check that nothing in registers, bytes or tables leads astray: an answer, with few callers.
        #[test]
        fn anything_has_an_answer(
            ip: u64, sp: u64, fp: u64, lr: u64, arm: bool,
            top in proptest::collection::vec(any::<u8>(), 0..=128),
            depths in proptest::collection::vec(proptest::option::of(any::<i32>()), 1..8),
        ) {
            let machine = if arm { Machine::Arm64 } else { Machine::Amd64 };
            let depth = |pc: u64| depths[(pc % depths.len() as u64) as usize];
            let interrupted = Interrupted { registers: Registers { ip, sp, fp, lr }, top: &top, machine };
            match interrupted.callers(depth) {
                Top::Missing(callers) | Top::Astray(callers) => prop_assert!((1..=MAX_CALLERS).contains(&callers.len())),
                Top::Whole | Top::Stale | Top::Unknown => {}
            }
        }
    }
}
