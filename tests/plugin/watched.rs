//! A plugin whose threads change tags and spans, each change announced, for a reader outside to check.
//!
//! In: what `profiler_tests::outside::changing` asks for, from a host in C (`host.c`) that loads this with `dlopen`. Out: what it says, on standard
//! output, with the places of the thread-local variable, wherever the loader put it. Apart from the other plugins, whose thread-locals shall be few.

use std::arch::asm;
use std::ffi::{CStr, c_char};

use profiler_tests::child::say;
use profiler_tests::outside::changing;
use profiler_tests::subject::Options;
use serde_json::json;

/// Runs one thread with the option `how`, to its end; 0 if it came there.
///
/// # Safety
/// `how` must be a C string.
// SAFETY: no other symbol of this name is in the hosts of the tests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plugin_watched(how: *const c_char) -> i32 {
    // SAFETY: a C string (contract).
    let how = unsafe { CStr::from_ptr(how) }.to_string_lossy().into_owned();
    let options = Options::parse([how, "rate=1".to_owned(), "threads=1".to_owned()]);
    let outcome = options.and_then(|options| changing::watched(&options, || Some(symbol())));
    let status = i32::from(outcome.is_err());
    say(&outcome.unwrap_or_else(|error| json!({ "error": error.to_string() })));
    status
}

/// Where the calling thread's `otel_thread_ctx_v1` is: by its descriptor, for a library of Rust exports nothing that it was not told to.
///
/// Source: Oliva, "Thread-Local Storage Descriptors for IA32 and AMD64/EM64T".
#[cfg(target_arch = "x86_64")]
fn symbol() -> u64 {
    let address;
    // SAFETY: the sequence that the specification gives, and the thread pointer added. All that a C function may change is declared as changed.
    unsafe {
        asm!(
            "leaq otel_thread_ctx_v1@tlsdesc(%rip), %rax",
            "call *otel_thread_ctx_v1@tlscall(%rax)",
            "addq %fs:0, %rax",
            out("rax") address,
            clobber_abi("C"),
            options(att_syntax),
        );
    }
    address
}

/// The same for this processor.
///
/// Source: ELF for the Arm 64-bit architecture, "Relocations for thread-local storage", the descriptor dialect.
#[cfg(target_arch = "aarch64")]
fn symbol() -> u64 {
    let address;
    // SAFETY: as above.
    unsafe {
        asm!(
            "adrp x0, :tlsdesc:otel_thread_ctx_v1",
            "ldr x1, [x0, #:tlsdesc_lo12:otel_thread_ctx_v1]",
            "add x0, x0, :tlsdesc_lo12:otel_thread_ctx_v1",
            ".tlsdesccall otel_thread_ctx_v1",
            "blr x1",
            "mrs x1, tpidr_el0",
            "add x0, x0, x1",
            out("x0") address,
            clobber_abi("C"),
        );
    }
    address
}
