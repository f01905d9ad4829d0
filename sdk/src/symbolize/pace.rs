//! How fast debug information is read: in slices, and not for ever.
//!
//! Whoever reads in a loop counts its steps here. After a slice of time everybody else on the `profiler-io` thread gets a
//! turn: requests are answered while a large program is symbolized. A file whose reading takes more steps than its size
//! can explain, or a minute, is given up.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long reading may keep the thread.
const SLICE: Duration = Duration::from_millis(2);
/// How long all slices of one look-up may take together: a hundred times what a large program needs.
const LONGEST: Duration = Duration::from_secs(60);
/// Steps between two looks at the clock.
const STEPS: u32 = 256;

/// Most bytes of names and paths that one look-up brings.
const TEXT: usize = 8 << 20;

/// A count of steps.
#[derive(Debug)]
pub(super) struct Pace {
    slice: Duration,
    since: Instant,
    spent: Duration,
    until_look: u32,
    left: u64,
    room: usize,
}

/// Why debug information cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("malformed: {0}")]
    Malformed(#[from] gimli::Error),
    #[error("it leads round in circles")]
    TooLong,
    #[error("too large: {0}")]
    TooLarge(&'static str),
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            slice: SLICE,
            since: Instant::now(),
            spent: Duration::ZERO,
            until_look: STEPS,
            left: u64::MAX,
            room: TEXT,
        }
    }
}

impl Pace {
    /// Begins to count anew: so many steps may follow.
    pub(super) fn allow(&mut self, steps: u64) {
        self.left = steps;
        self.room = TEXT;
        self.spent = Duration::ZERO;
        self.since = Instant::now();
    }

    /// The text, if there is room for it.
    pub(super) fn text(&mut self, text: &str) -> Option<Arc<str>> {
        self.room = self.room.checked_sub(text.len())?;
        Some(text.into())
    }

    /// Counts steps; `true` when it is time to [`rest`](Self::rest).
    #[inline]
    pub(super) fn step(&mut self, steps: u32) -> Result<bool, Unreadable> {
        self.left = self.left.checked_sub(u64::from(steps)).ok_or(Unreadable::TooLong)?;
        self.until_look = self.until_look.saturating_sub(steps);
        if self.until_look > 0 {
            return Ok(false);
        }
        self.until_look = STEPS;
        let slice = self.since.elapsed();
        if self.spent + slice > LONGEST {
            return Err(Unreadable::TooLong);
        }
        Ok(slice >= self.slice)
    }

    /// Lets others run.
    pub(super) async fn rest(&mut self) {
        self.spent += self.since.elapsed();
        tokio::task::yield_now().await;
        self.since = Instant::now();
    }
}
