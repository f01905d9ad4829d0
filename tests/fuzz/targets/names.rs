//! Names of functions as symbol tables have them: whatever stands there, a name within bounds, in no time to speak of.
//!
//! The modules stand by themselves, so that the fuzzer need not build what loads eBPF.

#![no_main]
#![expect(dead_code, unreachable_pub, reason = "the fuzzer asks for a part of what they can say")]

#[path = "../../../sidecar/src/naming/demangle.rs"]
mod demangle;
#[path = "../../../sidecar/src/naming/frame.rs"]
mod frame;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let name = String::from_utf8_lossy(bytes);
    for name in [name.to_string(), format!("_Z{name}"), format!("_R{name}")] {
        let (shown, _) = demangle::demangled(&name);
        assert!(shown.len() <= 2048 + '…'.len_utf8(), "{} bytes for {name:?}", shown.len());
    }
});
