//! Tests of `profiler-proto` through its public interface, one module per subject. No process-global state.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arbitrary;
mod folded;
mod golden;
mod heap_v2;
mod merge;
mod otlp;
mod pprof;
mod sample;
mod split;
mod validate;
