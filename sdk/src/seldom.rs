//! Lines of one sort in the log: one in ten minutes at most, for what goes wrong goes wrong again and again.
//!
//! In: the moment at which one would be written. Out: whether it may be. Any thread that owns it.

use std::time::{Duration, Instant};

/// Between two lines.
const BETWEEN: Duration = Duration::from_secs(600);

/// Lines of one sort.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    last: Option<Instant>,
}

impl Seldom {
    /// Whether one may be written at `now`, which it then is.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= BETWEEN);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what a peer does all the time is said at once, then once in ten minutes.
    #[test]
    fn lines_are_written_seldom() {
        let (start, mut lines) = (Instant::now(), Seldom::default());
        let written = (0..3601).filter(|second| lines.is_due(start + Duration::from_secs(*second)));
        assert_eq!(written.collect::<Vec<_>>(), [0, 600, 1200, 1800, 2400, 3000, 3600]);
    }
}
