//! Names of functions as symbol tables have them: whatever stands there, a name within bounds, in no time to speak of; see `proto/src/fuzz.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let begun = std::time::Instant::now();
    profiler_proto::fuzz::names(bytes, || begun.elapsed());
});
