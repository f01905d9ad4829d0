//! Files of a spool; see `sdk/src/export/spool/fuzz.rs`. The modules that read them stand by themselves, for the SDK does not show them.

#![no_main]
#![expect(dead_code, reason = "the fuzzer reads; what writes is here too")]

#[path = "../../../sdk/src/export/spool/fuzz.rs"]
mod fuzz;
#[path = "../../../sdk/src/export/spool/record.rs"]
mod record;
#[path = "../../../sdk/src/export/spool/segment.rs"]
mod segment;
#[path = "../../../sdk/src/export/spool/settled.rs"]
mod settled;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::spool(bytes));
