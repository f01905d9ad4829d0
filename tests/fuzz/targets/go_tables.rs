//! Programs of Go; see `sidecar/src/go/fuzz.rs`. The modules stand by themselves, so that the fuzzer need not build what loads eBPF.

#![no_main]
#![expect(dead_code, unused_imports, reason = "the fuzzer asks for a part of what they can say")]

#[path = "../../../sidecar/src/elf/mod.rs"]
mod elf;
#[path = "../../../sidecar/src/go/mod.rs"]
mod go;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _read = go::fuzz::program(bytes.to_vec());
});
