//! The time of day, as profiles tell it.
//!
//! In: the system's clock. Out: nanoseconds, for windows and answers of the server.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970 UTC.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
