//! Functions that Go's own traces treat apart: wrappers that the compiler made, and the panics that show them.

use super::Version;
use super::header::Form;
use super::pclntab::Table;

/// What a function is to whoever shows stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// One like any other.
    #[default]
    Normal,
    /// Made by the compiler: a method's wrapper, hash and equality functions.
    Wrapper,
    /// `runtime.gopanic`, `runtime.panicwrap`: the wrapper that called it is shown.
    Panic,
    /// `runtime.sigpanic`: as a panic; besides, its caller did not call it, so the address is that of the instruction that faulted.
    SignalPanic,
}

impl Role {
    /// Whether a handler of signals has put the function of this role and name on a stack: what stands behind it was interrupted and did not call, so its address is that of an
    /// instruction, perhaps the first of its function.
    ///
    /// Source: runtime/traceback.go, `injectedCall`, since 1.27 `isInjectedCall`.
    pub fn is_injected(self, name: &str) -> bool {
        self == Self::SignalPanic || ["runtime.asyncPreempt", "runtime.debugCallV2"].contains(&name)
    }
}

/// Which frames of a stack Go's traces show: a wrapper is left out but where it called a panic.
///
/// Fed with a whole stack, leaf first, inlined frames included. Source: runtime/traceback.go, `tracebackPCs`, `elideWrapperCalling`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Elision {
    callee: Role,
}

impl Elision {
    /// Whether the next frame is shown.
    pub fn shows(&mut self, role: Role) -> bool {
        let callee = std::mem::replace(&mut self.callee, role);
        role != Role::Wrapper || matches!(callee, Role::Panic | Role::SignalPanic)
    }
}

/// The linker's numbers for these functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids {
    gopanic: u8,
    panicwrap: u8,
    sigpanic: u8,
    wrapper: u8,
}

impl Ids {
    /// Of a program of that version, or, where it is not known, of the one that its functions show. `None`: of none that is known.
    pub(super) fn of(version: &Version, table: &Table) -> Option<Self> {
        let wrapper = match () {
            () if table.form() == Form::Go118 || version.is_before(22) => 21,
            () if version.is_before(25) => 22,
            () if version.is_known() => 23,
            // It is the last of them, and every program has such.
            () => table.highest_id()?,
        };
        Self::with(wrapper)
    }

    /// Those of the versions that have this number for wrappers.
    ///
    /// Source: runtime/symtab.go of Go 1.18 to 1.20, internal/abi/symtab.go of 1.21 to 1.27, `FuncID`.
    fn with(wrapper: u8) -> Option<Self> {
        match wrapper {
            21 => Some(Self { gopanic: 9, panicwrap: 14, sigpanic: 18, wrapper }),
            22 => Some(Self { gopanic: 10, panicwrap: 15, sigpanic: 19, wrapper }),
            23 => Some(Self { gopanic: 10, panicwrap: 15, sigpanic: 20, wrapper }),
            _ => None,
        }
    }

    pub(super) fn role(self, id: u8) -> Role {
        match id {
            id if id == self.wrapper => Role::Wrapper,
            id if id == self.sigpanic => Role::SignalPanic,
            id if id == self.gopanic || id == self.panicwrap => Role::Panic,
            _ => Role::Normal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the same number is not taken for the same function everywhere: 20 is `sigpanic` in Go 1.25, and `systemstack`, on the stack of much of the runtime, before.
    #[test]
    fn numbers_are_of_their_version() {
        let role = |wrapper, id| Ids::with(wrapper).map(|ids| ids.role(id));
        assert_eq!([21, 22, 23].map(|wrapper| role(wrapper, wrapper)), [Some(Role::Wrapper); 3]);
        assert_eq!([21, 22, 23].map(|wrapper| role(wrapper, 20) == Some(Role::SignalPanic)), [false, false, true]);
        assert_eq!([20, 24].map(|wrapper| role(wrapper, 20)), [None; 2]);
    }

    #[test]
    fn a_wrapper_is_shown_only_where_it_called_a_panic() {
        let shown = |stack: &[Role]| {
            let mut elision = Elision::default();
            stack.iter().map(|role| elision.shows(*role)).collect::<Vec<_>>()
        };
        assert_eq!(shown(&[Role::Normal, Role::Wrapper, Role::Wrapper, Role::Normal]), [true, false, false, true]);
        assert_eq!(shown(&[Role::Panic, Role::Wrapper, Role::Wrapper]), [true, true, false]);
        assert_eq!(shown(&[Role::SignalPanic, Role::Wrapper]), [true, true]);
        assert_eq!(shown(&[Role::Wrapper]), [false]);
    }
}
