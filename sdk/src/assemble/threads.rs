//! Which threads a profile names: the busiest ones.
//!
//! In: the entries of a window. Out: `thread.id` and `thread.name` of the threads that are told apart. A service that makes a thread per
//! request would otherwise fill its profiles with them. Pure.

use std::hash::Hash;

use profiler_proto::hash::{Map, Set};
use profiler_proto::model::Value;

use crate::aggregate::Entry;

/// Most threads of a profile that have their id on their samples.
const MAX_IDS: usize = 256;
/// Most names of threads in a profile.
const MAX_NAMES: usize = 256;

/// The threads, and the names, that are told apart.
#[derive(Debug, Default)]
pub(super) struct ThreadLabels<'a> {
    ids: Set<u32>,
    names: Set<&'a str>,
}

impl<'a> ThreadLabels<'a> {
    /// Those that used the most CPU time.
    pub(super) fn of(entries: &[Entry<'a>]) -> Self {
        let known = || entries.iter().filter(|entry| entry.tid != 0);
        Self {
            ids: busiest(known().map(|entry| (entry.tid, entry.tally.nanos)), MAX_IDS),
            names: busiest(known().filter_map(|entry| Some((entry.thread_name?, entry.tally.nanos))), MAX_NAMES),
        }
    }

    /// The labels of a thread (OpenTelemetry semantic conventions, "Thread attributes").
    pub(super) fn labels(&self, tid: u32, name: Option<&str>) -> impl Iterator<Item = (&'static str, Value)> + use<> {
        let id = self.ids.contains(&tid).then(|| ("thread.id", Value::Int(tid.into())));
        let name = name.filter(|name| self.names.contains(name)).map(|name| ("thread.name", Value::from(name)));
        id.into_iter().chain(name)
    }
}

/// The `most` keys with the largest sums.
fn busiest<K: Copy + Eq + Hash + Ord>(parts: impl Iterator<Item = (K, u64)>, most: usize) -> Set<K> {
    let mut sums: Map<K, u64> = Map::default();
    parts.for_each(|(key, nanos)| *sums.entry(key).or_default() += nanos);
    let mut sorted: Vec<(K, u64)> = sums.into_iter().collect();
    sorted.sort_unstable_by_key(|(key, nanos)| (u64::MAX - nanos, *key));
    sorted.into_iter().take(most).map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant, SystemTime};

    use super::*;
    use crate::aggregate::Aggregate;
    use crate::cpu::Sample;
    use crate::cpu::record::Head;
    use crate::unwind::modules::Modules;

    /// Check that the busiest threads have ids and names, that threads may share a name, and that both are bounded.
    #[test]
    fn the_busiest_threads_are_told_apart() {
        let modules = Arc::new(Modules::default());
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        for tid in 1..=1000 {
            let name = if tid % 2 == 0 { "worker".to_owned() } else { format!("thread-{tid}") };
            let head = Head { tid, weight: tid, period: 1, ..Head::default() };
            let sample = Sample { head, tags: &[], addresses: &[1], modules: &modules, thread_name: Some(name.into()) };
            aggregate.add(&sample).unwrap();
        }
        let window = aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10));
        let entries = window.entries();
        let labels = ThreadLabels::of(&entries);
        let of = |tid| {
            let name = entries.iter().find(|entry| entry.tid == tid).and_then(|entry| entry.thread_name);
            labels.labels(tid, name).map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(of(1000), ["thread.id=1000", "thread.name=worker"]);
        assert_eq!(of(999), ["thread.id=999", "thread.name=thread-999"]);
        assert_eq!(of(2), ["thread.name=worker"]);
        assert_eq!((of(1), of(0)), (vec![], vec![]));
        let all: Vec<Vec<String>> = (1..=1000).map(of).collect();
        let count = |prefix: &str| all.iter().flatten().filter(|label| label.starts_with(prefix)).collect::<Set<_>>();
        assert_eq!((count("thread.id").len(), count("thread.name").len()), (MAX_IDS, MAX_NAMES));
    }
}
