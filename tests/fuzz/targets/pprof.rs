//! pprof files; see `profiler_proto::fuzz::pprof`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_proto::fuzz::pprof(bytes));
