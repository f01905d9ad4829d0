//! The thread-local variable of ours: its name, its size, its place in the object, and how its address is asked for.
//!
//! In: nothing. Out: the symbols, defined by assembly, for a library's thread-local variable that Rust defines may be reached by a call that
//! allocates, and has no name that others could look up; and what the instructions of each architecture answer (`tls_x86_64`, `tls_aarch64`).
//! All zero at a thread's birth. What stands in it: `thread`.

use std::arch::global_asm;

/// Bytes of the variable.
pub(super) const SIZE: usize = 24;

/// The variable's name begins with that of this: the compiler's name of it is of this build of this crate alone, so that another build in the same program, of another version or
/// another revision, has its own.
pub(super) static THREAD: u8 = 0;

// The second name, for its first word, is the one that OTEP 4947 gives: readers look it up. It is weak, so that programs link
// in which others define it too: another version of this crate, another library for thread contexts. Whose definition the
// name then stands for does not matter here, for this crate reaches its own by the first name, which is hidden.
global_asm!(
    ".pushsection .tbss,\"awT\",%nobits",
    ".balign 8",
    ".globl {thread}_here",
    ".hidden {thread}_here",
    ".type {thread}_here, %object",
    ".size {thread}_here, {size}",
    ".weak otel_thread_ctx_v1",
    ".type otel_thread_ctx_v1, %object",
    ".size otel_thread_ctx_v1, 8",
    "otel_thread_ctx_v1:",
    "{thread}_here:",
    ".zero {size}",
    ".popsection",
    size = const SIZE,
    thread = sym THREAD,
);

/// What the linker and the loader made of the variable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Address of the descriptor, or the distance itself where the linker knew it.
    pub(super) descriptor: isize,
    /// Distance of the calling thread's variable from its thread pointer.
    pub(super) distance: isize,
}
