//! What exporting may use: bytes that wait, bytes of a request, time for retries.
//!
//! In: what the caller sets over the defaults. Out: the bounds that the exporter and each destination keep. Plain values.

use super::retry::Retry;

/// What exporting may use.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of encoded requests that wait for one destination. Default: 16 MiB.
    pub queue_bytes: usize,
    /// Bytes of one request before compression, of OTLP as [`profiler_proto::split::request_bytes`] counts them: some backends
    /// copy the dictionary for each profile and store half a request if that grows too large. Default: 2 MB.
    pub request_bytes: usize,
    /// How failed requests are tried again.
    pub retry: Retry,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue_bytes: 16 << 20, request_bytes: 2_000_000, retry: Retry::default() }
    }
}
