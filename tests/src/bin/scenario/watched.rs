//! Threads that change tags and spans, each change announced, for a reader outside to check.
//!
//! In: what `profiler_tests::outside::changing` asks for. Out: what it says, with the places of the symbol that this program exports.

use profiler_tests::Result;
use profiler_tests::outside::changing;
use profiler_tests::subject::Options;
use serde_json::Value;

/// Runs the threads.
pub(crate) fn watched(options: &Options) -> Result<Value> {
    changing::watched(options, symbol)
}

/// Where the calling thread's `otel_thread_ctx_v1` is, if the symbol is exported.
fn symbol() -> Option<u64> {
    // SAFETY: dlsym(3) with a text that ends with a zero. Of a thread-local variable it gives the calling thread's.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"otel_thread_ctx_v1".as_ptr()) };
    (!address.is_null()).then_some(address as u64)
}
