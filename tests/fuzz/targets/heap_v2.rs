//! Dumps of jemalloc; see `profiler_proto::fuzz::heap_v2`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_proto::fuzz::heap_v2(bytes));
