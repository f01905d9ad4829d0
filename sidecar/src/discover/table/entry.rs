//! What the table keeps of a process, and when it must look at it again.
//!
//! In: the line of `stat`, the time. Out: whether what is known still holds. A process is looked at again when its program is another one,
//! when what it publishes has changed, and a few times after its start, for it publishes only once it is under way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::classify::classify;
use super::super::resource::Pod;
use super::super::scout::Scout;
use super::super::target::{Target, WhyNot};
use super::Options;
use crate::target::{Folder, Process, Stat, State};

/// When a process that publishes nothing is looked through for the first time after it was found; then after twice as long, and so on. Until it is seen to profile itself, it is
/// sampled by both.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// The same of one that gave no answer, for which others wait: where it is not known, no sample is reason to.
const LOOK_AFTER_SILENCE: Duration = Duration::from_millis(500);
/// The longest time between two such looks.
const LAST_LOOK: Duration = Duration::from_secs(64);
/// The shortest time between two looks that were asked for, or that a process gave a reason for.
const REFRESHED: Duration = Duration::from_millis(100);
/// So much longer than the last look took it is at least: a process can make its own take as long as it likes.
const SHARE: u32 = 20;

/// What is known of a process.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) process: Process,
    /// `None`: nothing to profile.
    pub(super) target: Option<Arc<Target>>,
    /// It was told that it is not what it was.
    pub(super) is_stale: bool,
    /// It was told that it runs another program, or is another process: what is known is not true of it.
    pub(super) is_another: bool,
    pub(super) has_ended: bool,
    /// Who has to know of its end does.
    pub(super) is_end_told: bool,
    /// The table's clock at the last use.
    pub(super) used: u64,
    layout: (u64, u64),
    looked: Instant,
    /// How long that look took.
    cost: Duration,
    next_look: Instant,
    pause: Duration,
}

fn is_kept_from_us(target: &Target) -> bool {
    matches!(target.profiled, Err(WhyNot::Unreadable(_)))
}

impl Entry {
    /// Finds out what a process is. `known`: what was known of it.
    ///
    /// # Errors
    /// When it is gone meanwhile: what was known of it, which then is all that will be.
    pub(super) fn classify(
        process: Process,
        stat: &Stat,
        folder: Folder,
        surroundings: (&Options, &Pod, &Scout),
        (known, now): (Option<Self>, Instant),
    ) -> Result<Self, Option<Self>> {
        let begun = Instant::now();
        let found = match classify(process, stat, folder, surroundings) {
            Ok(found) => found,
            Err(_) => {
                return Err(known.map(|mut entry| {
                    entry.ends(now);
                    entry
                }));
            }
        };
        let has_ended = stat.state == State::Ended;
        let same_program = known.as_ref().is_some_and(|entry| entry.layout == stat.layout);
        let has_answered = found.as_ref().is_none_or(|target| target.profiled != Err(WhyNot::NoAnswer));
        let pause = match &known {
            _ if !has_answered => LOOK_AFTER_SILENCE,
            Some(entry) if same_program => (entry.pause * 2).min(LAST_LOOK),
            _ => FIRST_LOOK,
        };
        let is_another = known.as_ref().is_some_and(|entry| entry.is_another);
        let old = known.and_then(|entry| entry.target);
        let target = match (found.map(Arc::new), old) {
            // The program is the one that it was, and only whoever has its file on the same disk keeps the answer back.
            (Some(_), Some(old)) if !has_answered && same_program && !is_another => Some(old),
            // It may be looked at no more since capabilities were dropped, and the kernel says nothing of its memory either (`do_task_stat` in fs/proc/array.c: 1): what is known stays true.
            (Some(new), Some(old))
                if is_kept_from_us(&new) && old.profiled.is_ok() && stat.layout.0 <= 1 && !is_another =>
            {
                Some(old)
            }
            // The same Arc as long as nothing changed, so that others see at once that nothing did.
            (Some(new), Some(old)) if new == old => Some(old),
            // Of one that ended, what it was is worth more than that it ended.
            (None, old) if has_ended => old,
            (new, _) => new,
        };
        let cost = begun.elapsed();
        let next_look = now.checked_add(pause.max(cost.saturating_mul(SHARE))).unwrap_or(now);
        Ok(Self {
            process,
            target,
            is_stale: false,
            is_another: false,
            has_ended,
            is_end_told: false,
            used: 0,
            layout: stat.layout,
            looked: now,
            cost,
            next_look,
            pause,
        })
    }

    /// Whether nothing is to be found out anew. Notes if it ended.
    pub(super) fn is_current(&mut self, stat: &Stat, scout: &Scout, now: Instant) -> bool {
        if stat.state == State::Ended {
            self.ends(now);
            return true;
        }
        (self.has_ended, self.is_end_told) = (false, false);
        !self.is_stale && self.layout == stat.layout && !self.may_say_something_new(scout, now)
    }

    /// It has ended. What was known of it is true of its last samples, unless these are of a program that nobody saw: then nothing is.
    pub(super) fn ends(&mut self, now: Instant) {
        if self.is_another {
            self.target = None;
        }
        (self.has_ended, self.is_stale, self.is_another, self.looked) = (true, false, false, now);
    }

    /// Whether nothing new is to be expected of it as long as nobody tells of an exec or its end.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        let is_quiet = |target: &Arc<Target>| target.context.is_none() && now < self.next_look;
        !self.is_stale && !self.has_ended && self.target.as_ref().is_none_or(is_quiet)
    }

    /// Whether a sample of it is reason to look at it: what is known may not be true of it, or it had the time to publish something.
    pub(super) fn is_in_question(&self, now: Instant) -> bool {
        let may_publish = |target: &Arc<Target>| target.context.is_none() && target.profiled != Err(WhyNot::NoAnswer);
        // Of one that ended the number may be another one's by now, of whose birth nothing was heard.
        let is_another = self.has_ended && self.is_due(now);
        let has_had_time = || now >= self.next_look && self.target.as_ref().is_some_and(may_publish);
        self.is_stale || is_another || !self.has_ended && has_had_time()
    }

    /// Has it looked at anew at the next visit, unless it just was: a process can give reasons without end.
    pub(super) fn refresh(&mut self, now: Instant) {
        self.is_stale |= !self.has_ended && self.is_due(now);
    }

    /// Whether it may be looked at anew for what it says itself.
    fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.looked) >= REFRESHED.max(self.cost.saturating_mul(SHARE))
    }

    fn may_say_something_new(&self, scout: &Scout, now: Instant) -> bool {
        let Some(target) = self.target.as_deref() else { return false };
        match &target.context {
            Some(_) if !self.is_due(now) => false,
            Some(known) => {
                let answer = scout.published_time(self.process, known.header);
                answer.is_some_and(|time| time != Some(known.time))
            }
            None => now >= self.next_look,
        }
    }
}
