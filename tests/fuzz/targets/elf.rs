//! ELF files; see `sidecar/src/elf/fuzz.rs`. The module stands by itself, so that the fuzzer need not build what loads eBPF.

#![no_main]
#![expect(dead_code, reason = "the fuzzer asks for a part of what it can say")]

#[path = "../../../sidecar/src/elf/mod.rs"]
mod elf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _read = elf::fuzz::file(bytes.to_vec());
});
