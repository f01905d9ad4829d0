//! Programs that begin: how many of them are looked at before they have samples.
//!
//! In: how many were looked at. Out: how many may be now. Pure.

use std::time::{Duration, Instant};

/// Most in a second: a machine that starts a thousand has no time for more. The others are looked at when they have samples.
const MOST: usize = 20;
const SECOND: Duration = Duration::from_secs(1);

/// How many programs may be looked at because they begin.
#[derive(Debug, Default)]
pub(super) struct Welcome {
    since: Option<Instant>,
    met: usize,
}

impl Welcome {
    /// How many more, in this second.
    pub(super) fn room(&mut self, now: Instant) -> usize {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= SECOND) {
            *self = Self { since: Some(now), met: 0 };
        }
        MOST.saturating_sub(self.met)
    }

    /// Notes that so many were looked at.
    pub(super) fn met(&mut self, programs: usize) {
        self.met += programs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each second has its own room, and that there is none beyond it.
    #[test]
    fn there_is_room_for_so_many_a_second() {
        let (mut welcome, now) = (Welcome::default(), Instant::now());
        assert_eq!(welcome.room(now), MOST);
        welcome.met(MOST - 1);
        assert_eq!(welcome.room(now + SECOND / 2), 1);
        welcome.met(1);
        assert_eq!(welcome.room(now + SECOND / 2), 0);
        assert_eq!(welcome.room(now + SECOND), MOST);
    }
}
