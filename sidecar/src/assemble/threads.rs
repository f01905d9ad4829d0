//! Which threads a profile names: the busiest ones.
//!
//! In: the entries of a window. Out: `thread.id` and `thread.name` of the threads that are told apart. A process that makes a thread for each
//! request would otherwise fill its profiles with them. Entries of goroutines have no thread. Pure.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use profiler_proto::model::Value;

use crate::aggregate::Entry;

/// Most threads of a window that have their ids on their samples, and most names: as the SDK has them.
const MOST: usize = 256;

/// The threads, and the names, that are told apart.
#[derive(Debug, Default)]
pub(super) struct ThreadLabels<'a> {
    ids: HashSet<u32>,
    names: HashSet<&'a str>,
}

impl<'a> ThreadLabels<'a> {
    /// Those that used the most CPU time.
    pub(super) fn of(entries: &[Entry<'a>]) -> Self {
        let nanos = |entry: &Entry<'a>| entry.count.saturating_mul(entry.period_nanos);
        let ids = entries.iter().map(|entry| (entry.tid, nanos(entry))).filter(|(tid, _)| *tid != 0);
        let names = entries.iter().map(|entry| (entry.name, nanos(entry))).filter(|(name, _)| !name.is_empty());
        Self { ids: busiest(ids), names: busiest(names) }
    }

    /// The labels of a thread (OpenTelemetry semantic conventions, "Thread attributes").
    pub(super) fn labels(&self, tid: u32, name: &str) -> impl Iterator<Item = (&'static str, Value)> + use<> {
        let id = self.ids.contains(&tid).then(|| ("thread.id", Value::Int(tid.into())));
        let name = self.names.contains(name).then(|| ("thread.name", Value::from(name)));
        id.into_iter().chain(name)
    }
}

/// The keys with the largest sums.
fn busiest<K: Copy + Eq + Hash + Ord>(parts: impl Iterator<Item = (K, u64)>) -> HashSet<K> {
    let mut sums: HashMap<K, u64> = HashMap::new();
    for (key, nanos) in parts {
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(nanos);
    }
    let mut sorted: Vec<(K, u64)> = sums.into_iter().collect();
    sorted.sort_unstable_by_key(|(key, nanos)| (std::cmp::Reverse(*nanos), *key));
    sorted.into_iter().take(MOST).map(|(key, _)| key).collect()
}
