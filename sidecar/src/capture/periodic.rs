//! Captures of one process again and again, each for the time since the one before.
//!
//! In: a [`Source`]. Out: for each window one set: what is in use and which goroutines there are at its end; what was allocated and waited for in it,
//! where the runtime counts from its start. The first window has no such figures, for nothing says when they came about. Memory: 24 bytes for each
//! record of the runtime's. On a thread that can be left behind.

use profiler_proto::ProfileSet;
use profiler_proto::hash::{Map, State};
use profiler_proto::model::Contention as Kind;
use profiler_proto::resource::Resource;

use crate::error::Error;

use super::contention::Contention;
use super::figures::RuntimeFigures;
use super::heap::{Amount, Heap};
use super::profile::{Builder, Window};
use super::source::{Bounds, Source};

/// A process that is captured each window.
#[derive(Debug)]
pub struct Periodic {
    source: Source,
    allocated: Totals,
    blocked: Totals,
    held: Totals,
}

impl Periodic {
    /// Begins with a process.
    #[must_use]
    pub fn new(source: Source) -> Self {
        let (allocated, blocked, held) = Default::default();
        Self { source, allocated, blocked, held }
    }

    /// The process.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What is to be said of the window that ends now. Profiles that the program has off are left out; each kind that cannot be read is missing, with why,
    /// and keeps no other from being there. One at a time is read and built, so that no two are in memory at once.
    ///
    /// # Errors
    /// When the process is gone, runs another program, or not one kind can be read.
    pub fn capture(&mut self, resource: Resource, window: Window, bounds: Bounds) -> Result<Captured, Error> {
        let (mut builder, mut missing, mut count) = (Builder::new(&self.source, resource), Vec::new(), None);
        match self.source.heap(bounds) {
            Ok(mut heap) => {
                since_heap(&mut self.allocated, &mut heap);
                builder.heap(&mut heap, window);
            }
            Err(error) => missing.push((What::Heap, error)),
        }
        match self.source.goroutines(bounds) {
            Ok(goroutines) => {
                let told = builder.goroutines(&goroutines, window);
                // Of those beyond the bound it is not known which are the runtime's own.
                count = Some(told).filter(|_| goroutines.beyond == 0);
            }
            Err(error) => missing.push((What::Goroutines, error)),
        }
        let contention = [(Kind::Block, What::Block, &mut self.blocked), (Kind::Mutex, What::Mutex, &mut self.held)];
        for (kind, what, totals) in contention {
            match self.source.contention(kind, bounds) {
                Ok(mut read) => {
                    since_contention(totals, &mut read);
                    builder.contention(&read, window);
                }
                Err(error) => missing.push((what, error)),
            }
        }
        if missing.len() == What::ALL.len() || !self.source.is_same() {
            let first = missing.into_iter().next();
            return Err(first.map_or_else(|| self.source.changed(), |(_, error)| error));
        }
        let mut set = builder.finish();
        set.profiles.retain(|profile| !profile.samples.is_empty());
        let figures = self.source.figures().map(|figures| RuntimeFigures { goroutines: count, ..figures });
        Ok(Captured { set, missing, figures })
    }
}

/// What a runtime keeps of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// Allocations, and what of them is in use.
    Heap,
    /// What there is, and where each stands.
    Goroutines,
    /// Who waited.
    Block,
    /// Who let others wait.
    Mutex,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Heap, Self::Goroutines, Self::Block, Self::Mutex];

    /// The name of its profile in Go.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Goroutines => "goroutine",
            Self::Block => "block",
            Self::Mutex => "mutex",
        }
    }
}

/// What came of a window.
#[derive(Debug)]
pub struct Captured {
    /// Profiles of the kinds that could be read.
    pub set: ProfileSet,
    /// Why the others could not.
    pub missing: Vec<(What, Error)>,
    /// The runtime's figures, or why there are none.
    pub figures: Result<RuntimeFigures, Error>,
}

/// Counts and amounts of each record as of the window before; none before the first.
type Totals = Option<Map<u64, (i64, i64)>>;

/// Leaves of allocations those since `totals`.
fn since_heap(totals: &mut Totals, heap: &mut Heap) {
    let mut now = Map::with_capacity_and_hasher(heap.records.len(), State::default());
    for record in &mut heap.records {
        let Amount { objects, bytes } = record.allocated;
        let (objects, bytes) = since(totals, &mut now, record.at, (objects, bytes));
        record.allocated = Amount { objects, bytes };
    }
    keep_unseen(totals, &mut now, heap.walk.is_whole());
    *totals = Some(now);
}

/// Leaves of events those since `totals`.
fn since_contention(totals: &mut Totals, contention: &mut Contention) {
    let mut now = Map::with_capacity_and_hasher(contention.records.len(), State::default());
    for record in &mut contention.records {
        (record.count, record.ticks) = since(totals, &mut now, record.at, (record.count, record.ticks));
    }
    keep_unseen(totals, &mut now, contention.walk.is_whole());
    *totals = Some(now);
}

/// Where not all of a list was taken, the other records are not new when they are seen again.
fn keep_unseen(totals: &Totals, now: &mut Map<u64, (i64, i64)>, is_whole: bool) {
    if !is_whole {
        totals.iter().flatten().for_each(|(at, value)| _ = now.entry(*at).or_insert(*value));
    }
}

fn since(totals: &Totals, now: &mut Map<u64, (i64, i64)>, at: u64, value: (i64, i64)) -> (i64, i64) {
    let Some(before) = totals else {
        now.insert(at, value);
        return (0, 0);
    };
    let (count, amount) = before.get(&at).copied().unwrap_or_default();
    // The highest so far: a total that fell (before the first collection, allocations are told that are not in it later) rises to what was
    // told already.
    now.insert(at, (value.0.max(count), value.1.max(amount)));
    (value.0.saturating_sub(count).max(0), value.1.saturating_sub(amount).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_since_is_told_and_nothing_of_the_time_before_the_first() {
        let mut totals = None;
        let window = |totals: &mut Totals, values: &[(u64, (i64, i64))]| {
            let mut now = Map::default();
            let told: Vec<_> = values.iter().map(|(at, value)| since(totals, &mut now, *at, *value)).collect();
            *totals = Some(now);
            told
        };
        assert_eq!(window(&mut totals, &[(1, (5, 50))]), [(0, 0)]);
        assert_eq!(window(&mut totals, &[(1, (7, 90)), (2, (3, 30))]), [(2, 40), (3, 30)]);
        // A record that was read torn is not less than nothing.
        assert_eq!(window(&mut totals, &[(1, (6, 95)), (2, (3, 30))]), [(0, 5), (0, 0)]);
    }
}
