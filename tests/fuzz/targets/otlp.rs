//! OTLP requests; see `profiler_proto::fuzz::otlp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_proto::fuzz::otlp(bytes));
