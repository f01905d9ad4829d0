//! Programs that begin: which of them are looked at before they have samples, and which samples are of what they ran before.
//!
//! In: records in their order. Out: where each process became another program last; how many may be looked at now. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::drain::Event;

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

/// The place of the last exec of each process that has one.
pub(super) fn last_execs(events: &[Event]) -> HashMap<u32, usize> {
    let exec = |(place, event): (usize, &Event)| match event {
        Event::Exec { pid } => Some((*pid, place)),
        _ => None,
    };
    events.iter().enumerate().filter_map(exec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that of several execs of a process the last one counts, and that other events are none.
    #[test]
    fn the_last_exec_counts() {
        let events = [
            Event::Exec { pid: 7 },
            Event::Fork { pid: 7, child: 8 },
            Event::Exec { pid: 8 },
            Event::Exec { pid: 7 },
            Event::Exit { pid: 9 },
        ];
        assert_eq!(last_execs(&events), HashMap::from([(7, 3), (8, 2)]));
    }

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
