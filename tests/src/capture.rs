//! A profile of the heap, asked for until there is one.
//!
//! In: a profiler. Out: what is known of the heap since the start. Waits on the caller's thread.

use std::time::Duration;

use profiler::{ProfileKind, Profiler};
use profiler_proto::ProfileSet;

use crate::Result;

/// How often it is asked for.
const TRIES: u32 = 6;

/// What is known of the heap since the start. Asked for again where names take longer to find than anybody waits: those that
/// were found are kept.
///
/// # Errors
/// When there is none the last time, either.
pub fn heap(profiler: &Profiler) -> Result<ProfileSet> {
    let capture = || profiler.capture(ProfileKind::Heap, Duration::ZERO);
    // A capture that nobody waits for any more has its turn before it is found out.
    let again = |_| capture().inspect_err(|_| std::thread::sleep(Duration::from_secs(1)));
    Ok((1..TRIES).map(again).find(std::result::Result::is_ok).unwrap_or_else(capture)?)
}
