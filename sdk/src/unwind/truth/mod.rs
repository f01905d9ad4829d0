//! The truth about a stack, at every instruction: programs run in single steps, and the walk must know their stacks throughout.
//!
//! In: programs that do what is hard for an unwinder ([`programs`], [`assembly`], [`libraries`],
//! [`variants`], [`cpp`]), and those in which the handler reads more than the stack ([`contexts`]). Out: how many instructions
//! were checked; a failure names each one at which the walk was wrong. The processor traps after every instruction; the
//! handler of the trap ([`stepper`]) does what the handler of SIGPROF does, on the same registers, and compares with a
//! [`shadow`] stack that is kept by watching calls and the stack pointer alone.

mod assembly;
#[cfg(all(feature = "opentelemetry", feature = "tracing-layer"))]
mod contexts;
mod cpp;
mod faults;
pub(in crate::unwind) mod folder;
mod just_in_time;
pub(in crate::unwind) mod libraries;
mod programs;
mod shadow;
mod stepper;
mod variants;
