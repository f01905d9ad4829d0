//! How long an answer is waited for once one did not come: for some time others are waited for only shortly, so that several that hang do not add up.
//!
//! In: that one was late. Out: how long to wait. Belongs to who asks.

use std::time::{Duration, Instant};

/// How long an answer is waited for after one did not come: enough for files and memory that are there.
const HURRIED: Duration = Duration::from_millis(50);
/// For how long.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// When an answer last did not come in time.
#[derive(Debug, Default)]
pub struct Hurry(Option<Instant>);

impl Hurry {
    /// How long to wait where `usual` is as long as may be.
    #[must_use]
    pub fn patience(&self, usual: Duration) -> Duration {
        if self.0.is_some_and(|late| late.elapsed() < AFTERWARDS) { usual.min(HURRIED) } else { usual }
    }

    /// One did not come in time; whether that is the first.
    pub fn note_late(&mut self) -> bool {
        self.0.replace(Instant::now()).is_none()
    }
}
