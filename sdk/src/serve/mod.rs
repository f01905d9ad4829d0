//! Serves profiles from inside the process: the page, `/debug/pprof/*`, `/stats`, `/healthz`.

mod source;

pub use source::{CaptureError, CaptureFuture, Source, Target};
