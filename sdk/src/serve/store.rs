//! The profiles of the last minutes, in memory, of any number of processes.
//!
//! In: closed profile sets, from the thread that assembles or receives them. Out: those of a range of time, shared and not copied.
//! Bounded by time, by bytes and by processes: the oldest go first, of the process and sort (CPU, or all else) that takes most room. What is older than some
//! minutes is joined into sets of a minute, what is newer too once half of the room is used. The lock is held only while shares are handed over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;
use profiler_proto::model::merge;

use self::held::Held;
use super::clock;
use super::lane::{Lane, Stored};
use super::minutes::When;
use super::process::{Chosen, Process};
use super::range::Range;
use super::sample_type::SampleType;
use super::source::Target;
use crate::seldom::Seldom;

mod held;
mod states;

pub(super) use self::states::moment_of;

/// Profiles of the last minutes, bounded by time and by bytes.
#[derive(Debug)]
pub struct Store {
    window: Duration,
    max_bytes: usize,
    held: Mutex<Held>,
    /// What is said of sets that are not kept: too large, of the future.
    refusals: Mutex<[Seldom; 2]>,
}

/// A clock may be wrong by this much. What ends later would make all else look old.
const FUTURE: Duration = Duration::from_secs(300);

impl Store {
    /// How long profiles are kept by [`Store::default`].
    pub const WINDOW: Duration = Duration::from_secs(15 * 60);
    /// How many bytes of them are kept by [`Store::default`].
    pub const MAX_BYTES: usize = 64 << 20;

    /// An empty store that keeps profiles until they are older than `window` (compared with the newest) or hold more
    /// than `max_bytes` together. A set that alone is larger is not kept.
    #[must_use]
    pub fn new(window: Duration, max_bytes: usize) -> Self {
        Self { window, max_bytes, held: Mutex::default(), refusals: Mutex::default() }
    }

    /// Keeps `set`, which may drive out the oldest ones: where there is no room, of that process's CPU profiles or other ones that take
    /// most. So each has its share of the room, and what the others leave of theirs. A set from the future is not kept.
    pub fn add(&self, set: Arc<ProfileSet>) {
        let (process, lane) = (Process::of(&set), usize::from(!SampleType::Cpu.is_in(&set)));
        let Some(stored) = Stored::new(set).filter(|stored| self.may_be_kept(stored)) else { return };
        let driven_out: Vec<Stored> = {
            let mut held = self.held();
            let gone = held.make_room(&process);
            held.rooms.entry(process.clone()).or_default()[lane].push(stored);
            gone.into_iter().flatten().chain(held.drive_out(latest(), nanos(self.window), self.max_bytes)).collect()
        };
        // Outside of the lock: to free a large set takes a while.
        drop(driven_out);
        self.join_minute(&process, lane);
    }

    /// How long profiles are kept.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The estimated size of what is kept, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held().bytes()
    }

    /// The processes that there are profiles of, by service and pid.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let held = self.held();
        let newest = |lanes: &[Lane; 2]| {
            lanes.iter().filter_map(|lane| lane.iter().last()).next().map(|stored| Arc::clone(stored.set()))
        };
        held.rooms.iter().filter_map(|(process, lanes)| Some(process.target(&newest(lanes)?.resource))).collect()
    }

    /// The types that there are profiles of.
    pub(super) fn types(&self) -> Vec<SampleType> {
        let (held, all) = (self.held(), Chosen::default());
        SampleType::ALL.into_iter().filter(|sample_type| held.of_type(*sample_type, &all).next().is_some()).collect()
    }

    /// The sets with profiles of a type, of the chosen processes, that touch a range of time, those of a process in the order of their
    /// arrival. One that lies in it only in part belongs to it as a whole: what is newest is shown rather than left out.
    pub(super) fn select(&self, sample_type: SampleType, range: Range, of: &Chosen) -> Vec<Arc<ProfileSet>> {
        let held = self.held();
        let touched = held.of_type(sample_type, of).filter(|stored| stored.touches(range));
        touched.map(|stored| Arc::clone(stored.set())).collect()
    }

    /// Of each chosen process the newest state of a type at or before `moment`, of those that were there still.
    pub(super) fn newest_states(&self, sample_type: SampleType, moment: u64, of: &Chosen) -> Vec<Arc<ProfileSet>> {
        self.held().newest_states(sample_type, moment, of)
    }

    /// Of each chosen process the first state of a type in a range of time.
    pub(super) fn first_states(&self, sample_type: SampleType, range: Range, of: &Chosen) -> Vec<Arc<ProfileSet>> {
        self.held().first_states(sample_type, range, of)
    }

    fn may_be_kept(&self, stored: &Stored) -> bool {
        let (bytes, max_bytes) = (stored.bytes(), self.max_bytes);
        if bytes > max_bytes && self.may_say(0) {
            tracing::warn!(bytes, max_bytes, "a profile larger than the whole store is not kept");
        }
        let comes = stored.ends_after(latest());
        if comes && self.may_say(1) {
            tracing::warn!("a profile that ends in the future is not kept; the clock of whoever sent it is wrong");
        }
        bytes <= max_bytes && !comes
    }

    /// Whether a refusal of this sort is to be in the log now: who sends one set that is not kept sends many.
    fn may_say(&self, sort: usize) -> bool {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)[sort].is_due(Instant::now())
    }

    /// Puts one merged set in the place of the sets of a minute, if one is due. They are merged outside of the lock.
    fn join_minute(&self, process: &Process, lane: usize) {
        let apart = {
            let held = self.held();
            // Rather coarser than gone: how what is in use grew can be told from the oldest state on that is kept.
            let is_narrow = held.bytes() > self.max_bytes / 2;
            let when = if is_narrow { When::Soon } else { When::Old(held.newest()) };
            held.rooms.get(process).map(|lanes| lanes[lane].due(when)).unwrap_or_default()
        };
        let Some(first) = apart.first() else { return };
        let set = Arc::new(merge(apart.iter().map(Arc::as_ref)));
        let Some(joined) = Stored::new(set) else { return };
        let replaced = self.held().rooms.get_mut(process).map(|lanes| lanes[lane].replace(first, apart.len(), joined));
        drop(replaced);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // What the lock guards is changed by calls that do not panic: it is whole even if it is poisoned.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latest end that a profile may have now.
fn latest() -> u64 {
    clock::now().saturating_add(nanos(FUTURE))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Store {
    fn default() -> Self {
        Self::new(Self::WINDOW, Self::MAX_BYTES)
    }
}

#[cfg(test)]
mod tests;
