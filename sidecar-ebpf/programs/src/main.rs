//! The kernel side of the sidecar: one program a file, and what they share.
//!
//! `cpu` runs at every tick of the CPU clock, on every processor, in the interrupt; `events` at exec, exit and fork. Both write records
//! (`profiler_sidecar_ebpf`) into one ring. Nothing here waits, allocates or writes into a process. What the verifier must see as unknown
//! numbers goes through memory: it then proves each function once, not once for every way to it.

#![no_std]
#![no_main]

mod context;
mod cpu;
mod events;
mod executable;
mod go;
mod labels;
mod maps;
mod program;
mod registers;
mod task;
mod walk;

/// Helpers such as `bpf_get_stack` and `bpf_probe_read_kernel` are for programs under a licence that fits the kernel's.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
