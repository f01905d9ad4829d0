//! Folded stacks; see `profiler_proto::fuzz::folded`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_proto::fuzz::folded(bytes));
