//! Captures of one process again and again, each for the time since the one before.
//!
//! In: a [`Source`]. Out: for each window one set: what is in use and which goroutines there are at its end; what was allocated and waited for in it,
//! where the runtime counts from its start. The first window has no such figures, for nothing says when they came about. Memory: 24 bytes for each
//! record of the runtime's. On a thread that can be left behind.

use std::collections::HashMap;

use profiler_proto::ProfileSet;
use profiler_proto::model::Contention as Kind;
use profiler_proto::resource::Resource;

use crate::error::Error;

use super::contention::Contention;
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

    /// What is to be said of the window that ends now. Profiles that the program has off are left out.
    ///
    /// # Errors
    /// When the process is gone, does not let us, or its runtime has no such variables.
    pub fn capture(&mut self, resource: Resource, window: Window, bounds: Bounds) -> Result<ProfileSet, Error> {
        let mut heap = self.source.heap(bounds)?;
        since_heap(&mut self.allocated, &mut heap);
        let goroutines = self.source.goroutines(bounds)?;
        let mut contention = Vec::with_capacity(2);
        for (kind, totals) in [(Kind::Block, &mut self.blocked), (Kind::Mutex, &mut self.held)] {
            let mut read = self.source.contention(kind, bounds)?;
            since_contention(totals, &mut read);
            contention.push(read);
        }
        let mut builder = Builder::new(&self.source, resource);
        builder.heap(&heap, window);
        builder.goroutines(&goroutines, window);
        contention.iter().filter(|read| !read.records.is_empty()).for_each(|read| builder.contention(read, window));
        let mut set = builder.finish();
        set.profiles.retain(|profile| !profile.samples.is_empty());
        Ok(set)
    }
}

/// Counts and amounts of each record as of the window before; none before the first.
type Totals = Option<HashMap<u64, (i64, i64)>>;

/// Leaves of allocations those since `totals`.
fn since_heap(totals: &mut Totals, heap: &mut Heap) {
    let mut now = HashMap::with_capacity(heap.records.len());
    for record in &mut heap.records {
        let Amount { objects, bytes } = record.allocated;
        let (objects, bytes) = since(totals, &mut now, record.at, (objects, bytes));
        record.allocated = Amount { objects, bytes };
    }
    keep_unseen(totals, &mut now, heap.walk.broken);
    *totals = Some(now);
}

/// Leaves of events those since `totals`.
fn since_contention(totals: &mut Totals, contention: &mut Contention) {
    let mut now = HashMap::with_capacity(contention.records.len());
    for record in &mut contention.records {
        (record.count, record.delay_nanos) = since(totals, &mut now, record.at, (record.count, record.delay_nanos));
    }
    keep_unseen(totals, &mut now, contention.walk.broken);
    *totals = Some(now);
}

/// Where a list could not be read to its end, the records behind are not new when they are seen again.
fn keep_unseen(totals: &Totals, now: &mut HashMap<u64, (i64, i64)>, broken: u64) {
    if broken > 0 {
        totals.iter().flatten().for_each(|(at, value)| _ = now.entry(*at).or_insert(*value));
    }
}

fn since(totals: &Totals, now: &mut HashMap<u64, (i64, i64)>, at: u64, value: (i64, i64)) -> (i64, i64) {
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
            let mut now = HashMap::new();
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
