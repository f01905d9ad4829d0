//! Functions that Go's own traces treat apart: wrappers that the compiler made, and the panics that show them.

use super::Version;
use super::header::Form;

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
    /// `None` where the version is not known and the form of the tables is that of several with other numbers: those of one of them stand for other functions in the next.
    ///
    /// Source: runtime/symtab.go of Go 1.18 to 1.20, internal/abi/symtab.go of 1.21 to 1.27, `FuncID`.
    pub(super) fn of(version: &Version, form: Form) -> Option<Self> {
        if form == Form::Go118 || version.is_before(22) {
            return Some(Self { gopanic: 9, panicwrap: 14, sigpanic: 18, wrapper: 21 });
        }
        let (sigpanic, wrapper) = if version.is_before(25) { (19, 22) } else { (20, 23) };
        version.is_known().then_some(Self { gopanic: 10, panicwrap: 15, sigpanic, wrapper })
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

    /// Check that of programs whose version is not known nothing is guessed: 20 is `sigpanic` in Go 1.25, and `systemstack`, on the stack of much of the runtime, before.
    #[test]
    fn numbers_say_nothing_without_the_version() {
        let role = |text: &str, form, id| Ids::of(&Version::parse(text), form).map(|ids| ids.role(id));
        assert_eq!(role("go1.25.1", Form::Go120, 20), Some(Role::SignalPanic));
        assert_eq!(role("go1.24.1", Form::Go120, 20), Some(Role::Normal));
        assert_eq!(role("unknown", Form::Go120, 20), None);
        assert_eq!(role("unknown", Form::Go118, 18), Some(Role::SignalPanic));
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
