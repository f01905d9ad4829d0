//! How often the heap is sampled where nobody has said it: less often while requests allocate so much that samples would cost more than a profiler may.
//!
//! In: how many samples the hooks were told of, CPU time of the process, the interval in force. Out: another interval, when it is time for one. One sample in
//! the usual interval costs next to nothing where a program computes, and more than 3 % where all that it does is to allocate.

use std::time::{Duration, Instant};

/// The interval of `profiler::jemalloc!()`, as a power of two: none shorter is chosen here.
pub(super) const USUAL: u32 = 20;
/// None longer is, either: estimates of what holds less would say nothing.
const LONGEST: u32 = USUAL + 6;
/// Samples in a second of CPU time, at most: five times as many as CPU samples at 100 Hz. docs/design/0010-heap.md has what they cost at which interval.
const MOST: f64 = 500.0;
/// CPU time that is looked at at once: of as many samples, chance makes a twentieth.
const SPENT: Duration = Duration::from_secs(1);
/// A shorter interval has to be affordable for so long, whatever was spent.
const CALM: Duration = Duration::from_secs(60);

/// Chooses intervals, for as long as nobody else does.
#[derive(Debug)]
pub(super) struct Pace {
    /// In force, as far as is known.
    lg: u32,
    /// Asked for, and not in force yet: a profile is made before.
    wanted: Option<Wanted>,
    /// Samples and CPU time when what is looked at began.
    began: Option<(u64, Duration)>,
    /// Since when a shorter interval would have been affordable, or when it was looked at last.
    calm: Instant,
}

/// An interval that was chosen.
#[derive(Debug)]
struct Wanted {
    lg: u32,
    /// When it was last asked for.
    asked: Instant,
    /// It was before, too, which may be on its way still.
    is_again: bool,
}

impl Pace {
    /// For a start that finds `lg` in force and was asked for none; `is_ours`: it was chosen here before. `None`: somebody else has chosen it.
    pub(super) fn new(lg: u32, is_ours: bool, now: Instant) -> Option<Self> {
        (lg == USUAL || is_ours).then_some(Self { lg, wanted: None, began: None, calm: now })
    }

    /// Looks anew, behind a time without samples. What was chosen before it may still come in force.
    pub(super) fn begin_anew(&mut self, now: Instant) {
        (self.began, self.calm) = (None, now);
    }

    /// What was chosen last could not be asked for.
    pub(super) fn leave_choice(&mut self, now: Instant) {
        self.wanted.take_if(|wanted| !wanted.is_again);
        self.begin_anew(now);
    }

    /// Whether `lg`, which is in force, is what was chosen here; if not, somebody else has chosen it.
    pub(super) fn knows(&mut self, lg: u32) -> bool {
        if self.wanted.as_ref().is_some_and(|wanted| wanted.lg == lg) {
            (self.lg, self.wanted, self.began) = (lg, None, None);
        }
        self.lg == lg
    }

    /// Another interval, if it is time: since the start, so many samples were taken and so much CPU time was spent.
    pub(super) fn choose(&mut self, now: Instant, sampled: u64, cpu: Duration) -> Option<u32> {
        if let Some(wanted) = &mut self.wanted {
            // The same one: of two that are under way, the first would look like somebody else's.
            let is_late = now.saturating_duration_since(wanted.asked) >= CALM;
            if is_late {
                (wanted.asked, wanted.is_again) = (now, true);
            }
            return is_late.then_some(wanted.lg);
        }
        let began = *self.began.get_or_insert((sampled, cpu));
        let (samples, spent) = (sampled.saturating_sub(began.0), cpu.saturating_sub(began.1));
        let is_calm = now.saturating_duration_since(self.calm) >= CALM;
        if spent < SPENT && !is_calm {
            return None;
        }
        self.began = Some((sampled, cpu));
        let share = samples as f64 / (MOST * spent.max(SPENT).as_secs_f64());
        // Twice the samples come of half the interval: these have to be few enough with something to spare, or it would go up and down.
        if share > 0.25 || is_calm {
            self.calm = now;
        }
        let chosen = if share > 1.0 {
            (self.lg + share.log2().ceil() as u32).min(LONGEST)
        } else if is_calm && share <= 0.25 && self.lg > USUAL {
            self.lg - 1
        } else {
            return None;
        };
        if chosen == self.lg {
            return None;
        }
        self.wanted = Some(Wanted { lg: chosen, asked: now, is_again: false });
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of CPU time and of the clock after the other, with so many samples in each.
    struct Seconds {
        pace: Pace,
        now: Instant,
        sampled: u64,
        cpu: Duration,
    }

    impl Seconds {
        fn at(lg: u32, is_ours: bool) -> Option<Self> {
            let now = Instant::now();
            let mut pace = Pace::new(lg, is_ours, now)?;
            assert_eq!(pace.choose(now, 0, Duration::ZERO), None);
            Some(Self { pace, now, sampled: 0, cpu: Duration::ZERO })
        }

        /// What is chosen in these seconds, with so many samples in each at the usual interval, and put in force at once.
        fn pass(&mut self, seconds: u32, samples: u64) -> Vec<u32> {
            let mut chosen = Vec::new();
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                self.cpu += Duration::from_secs(1);
                self.sampled += samples >> (self.pace.lg - USUAL);
                if let Some(lg) = self.pace.choose(self.now, self.sampled, self.cpu) {
                    assert!(self.pace.knows(lg));
                    assert_eq!(self.pace.choose(self.now, self.sampled, self.cpu), None);
                    chosen.push(lg);
                }
            }
            chosen
        }
    }

    /// Check that much that is allocated makes the interval longer at once, as much as it takes and up to a bound, and that it comes back step by step, not below the usual
    /// one, and does not swing.
    #[test]
    fn the_interval_follows_what_is_allocated() {
        let mut seconds = Seconds::at(USUAL, false).unwrap();
        assert!(seconds.pass(100, 475).is_empty());
        assert_eq!(seconds.pass(200, 875), [21]);
        assert_eq!(seconds.pass(1, 4000), [23]);
        assert_eq!(seconds.pass(1, u64::from(u32::MAX)), [LONGEST]);
        assert_eq!(seconds.pass(600, 875), [25, 24, 23, 22]);
        assert_eq!(seconds.pass(600, 0), [21, 20]);
    }

    /// Check that a program that hardly computes comes back to the usual interval, too, and that a burst of samples in next to no CPU time changes nothing.
    #[test]
    fn time_passes_for_who_waits() {
        let mut seconds = Seconds::at(USUAL, false).unwrap();
        assert_eq!(seconds.pass(1, 875), [21]);
        let mut at = |after: u64, more: u64| {
            let cpu = seconds.cpu + Duration::from_millis(after);
            let chosen = seconds.pace.choose(seconds.now + Duration::from_secs(after), seconds.sampled + more, cpu);
            chosen.inspect(|lg| assert!(seconds.pace.knows(*lg)))
        };
        assert_eq!([at(30, 100), at(61, 100), at(130, 100)], [None, Some(20), None]);
    }

    /// Check that many samples in little CPU time are noticed once it comes to a second, however long it was calm before; and that a time without samples
    /// is no calm one.
    #[test]
    fn what_is_calm_for_long_is_looked_at_as_closely() {
        let mut seconds = Seconds::at(USUAL, false).unwrap();
        assert!(seconds.pass(61, 0).is_empty());
        let mut turns = Vec::new();
        for turn in 1..=30 {
            let (now, cpu) = (seconds.now + turn * Duration::from_millis(250), seconds.cpu + turn * Duration::from_millis(40));
            turns.extend(seconds.pace.choose(now, seconds.sampled + 120 * u64::from(turn), cpu).map(|lg| (turn, lg)));
        }
        assert_eq!(turns, [(25, 23)]);
        let mut paused = Seconds::at(USUAL + 1, true).unwrap();
        let later = paused.now + 10 * CALM;
        paused.pace.begin_anew(later);
        assert_eq!(paused.pace.choose(later, 0, CALM), None);
    }

    /// Check that a program that allocates much whenever it works keeps one interval, however seldom that is: what is looked at does not depend on what is in force.
    #[test]
    fn who_seldom_works_has_one_interval() {
        for permille in [1, 3, 5, 10, 50, 1000] {
            let mut seconds = Seconds::at(USUAL, false).unwrap();
            let (mut changes, mut samples) = (0, 0.0);
            for _ in 0..7200 {
                seconds.now += Duration::from_secs(1);
                seconds.cpu += Duration::from_millis(permille);
                samples += 3.3 * permille as f64 / f64::from(1 << (seconds.pace.lg - USUAL));
                if let Some(lg) = seconds.pace.choose(seconds.now, samples as u64, seconds.cpu) {
                    assert!(seconds.pace.knows(lg));
                    changes += 1;
                }
            }
            assert!(changes <= 1, "{changes} at {permille} ‰ of a processor");
        }
    }

    /// Check that an interval that is not in force yet, for a profile takes long, is not chosen again at each turn; and that one which never comes is.
    #[test]
    fn what_was_chosen_is_waited_for() {
        let mut seconds = Seconds::at(USUAL, false).unwrap();
        let mut chosen = Vec::new();
        for second in 1..=70 {
            let (now, cpu) = (seconds.now + Duration::from_secs(second), Duration::from_secs(second));
            let samples = if second < 50 { 875 } else { 8000 };
            chosen.extend(seconds.pace.choose(now, samples * second, cpu).map(|lg| (second, lg)));
            assert!(seconds.pace.knows(USUAL));
        }
        assert_eq!(chosen, [(1, 21), (61, 21)]);
        assert!(seconds.pace.knows(21));
    }

    /// Check that a choice that is under way when samples pause is still known when it comes in force, and that one which could not be asked for is chosen anew.
    #[test]
    fn a_pause_does_not_make_a_choice_somebody_elses() {
        let mut seconds = Seconds::at(USUAL, false).unwrap();
        let (now, cpu) = (seconds.now + Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(seconds.pace.choose(now, 875, cpu), Some(21));
        seconds.pace.begin_anew(now);
        assert!(seconds.pace.knows(21));
        let mut refused = Seconds::at(USUAL, false).unwrap();
        for second in 1..=3 {
            let (now, cpu) = (refused.now + Duration::from_secs(second), Duration::from_secs(second));
            // Looked at from the next turn on.
            let chosen = refused.pace.choose(now, 875 * second, cpu);
            assert_eq!(chosen.is_some(), second != 2);
            if chosen.is_some() {
                refused.pace.leave_choice(now);
            }
        }
    }

    /// Check that an interval that somebody else has chosen is left alone, at the start and later, and that one chosen here is known to the next start.
    #[test]
    fn the_interval_of_others_is_theirs() {
        assert!(Seconds::at(19, false).is_none() && Seconds::at(21, false).is_none());
        let mut seconds = Seconds::at(USUAL, false).unwrap();
        assert_eq!(seconds.pass(1, 875), [21]);
        assert!(Seconds::at(21, true).is_some());
        assert_eq!((seconds.pace.knows(22), seconds.pace.knows(21)), (false, true));
    }
}
