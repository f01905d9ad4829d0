//! Tests of `profiler-proto` through its public interface, one module per subject. No process-global state.

mod arbitrary;
mod otlp;
mod pprof;
