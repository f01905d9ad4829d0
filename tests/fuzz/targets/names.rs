//! Names of functions as symbol tables have them: whatever stands there, a name within bounds, in no time to speak of; see `sidecar/src/naming/fuzz.rs`.
//!
//! The modules stand by themselves, so that the fuzzer need not build what loads eBPF.

#![no_main]
#![expect(dead_code, unreachable_pub, reason = "the fuzzer asks for a part of what they can say")]

#[path = "../../../sidecar/src/naming/demangle.rs"]
mod demangle;
#[path = "../../../sidecar/src/naming/frame.rs"]
mod frame;
#[path = "../../../sidecar/src/naming/fuzz.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::name(bytes));
