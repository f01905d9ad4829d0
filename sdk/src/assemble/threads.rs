//! Which threads a profile names: the busiest ones.
//!
//! In: a window. Out: `thread.id` and `thread.name` of the threads that are told apart. A service that makes a thread per
//! request would otherwise fill its profiles with them. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use profiler_proto::model::Value;

use crate::aggregate::Window;

/// Most threads of a profile that have their id on their samples.
const MAX_IDS: usize = 256;
/// Most names of threads in a profile.
const MAX_NAMES: usize = 256;

/// The threads that are told apart.
#[derive(Debug)]
pub(super) struct ThreadLabels<'a> {
    threads: HashMap<u32, Label<'a>>,
}

#[derive(Debug, Default)]
struct Label<'a> {
    has_id: bool,
    name: Option<&'a Arc<str>>,
}

impl<'a> ThreadLabels<'a> {
    /// Those of `window` that used the most CPU time.
    pub(super) fn of(window: &'a Window) -> Self {
        let mut nanos: HashMap<u32, u64> = HashMap::new();
        window.entries().iter().for_each(|entry| *nanos.entry(entry.tid).or_default() += entry.tally.nanos);
        let mut busiest: Vec<(u32, u64)> = nanos.into_iter().filter(|(tid, _)| *tid != 0).collect();
        busiest.sort_unstable_by_key(|(tid, nanos)| (u64::MAX - nanos, *tid));
        let mut names: HashSet<&str> = HashSet::new();
        let labelled = busiest.iter().enumerate().map(|(rank, (tid, _))| {
            let name = window.thread_name(*tid).filter(|name| {
                let known = names.contains(&***name);
                known || names.len() < MAX_NAMES && names.insert(&***name)
            });
            (*tid, Label { has_id: rank < MAX_IDS, name })
        });
        Self { threads: labelled.collect() }
    }

    /// The labels of a thread (OpenTelemetry semantic conventions, "Thread attributes").
    pub(super) fn labels(&self, tid: u32) -> impl Iterator<Item = (&'static str, Value)> + use<> {
        let label = self.threads.get(&tid);
        let id = label.filter(|label| label.has_id).map(|_| ("thread.id", Value::Int(tid.into())));
        let name = label.and_then(|label| label.name).map(|name| ("thread.name", Value::from(&**name)));
        id.into_iter().chain(name)
    }
}

#[cfg(test)]
mod tests {
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
            let sample = Sample { head, tags: &[], addresses: &[1], thread_name: Some(name.into()) };
            aggregate.add(&sample, &modules).unwrap();
        }
        let window = aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10));
        let labels = ThreadLabels::of(&window);
        let of = |tid| labels.labels(tid).map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        assert_eq!(of(1000), ["thread.id=1000", "thread.name=worker"]);
        assert_eq!(of(999), ["thread.id=999", "thread.name=thread-999"]);
        assert_eq!(of(2), ["thread.name=worker"]);
        assert_eq!((of(1), of(0)), (vec![], vec![]));
        let all: Vec<Vec<String>> = (1..=1000).map(of).collect();
        let count =
            |prefix: &str| all.iter().flatten().filter(|label| label.starts_with(prefix)).collect::<HashSet<_>>();
        assert_eq!((count("thread.id").len(), count("thread.name").len()), (MAX_IDS, MAX_NAMES));
    }
}
