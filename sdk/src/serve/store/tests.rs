//! What the store keeps, joins and drives out, and what it finds again.

use std::sync::atomic::{AtomicUsize, Ordering};

use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::held::MOST_PROCESSES;
use super::states::GONE;
use super::*;
use crate::serve::lane::Lane;
use crate::serve::size;
use crate::serve::testing::Stacks;

const ALWAYS: Range = Range { from: 0, to: u64::MAX };

fn starts(store: &Store, range: Range) -> Vec<u64> {
    store
        .select(SampleType::Cpu, range, &Chosen::default())
        .iter()
        .map(|set| set.profiles[0].time_unix_nanos / 1_000_000_000)
        .collect()
}

/// Check that profiles older than the window, seen from the newest, go.
#[test]
fn the_old_go() {
    let store = Store::new(Duration::from_secs(30), 1 << 20);
    for start in [1000, 1010, 1020, 1030, 1040] {
        store.add(Stacks::new().at(start, 10).sample("a", 1).shared());
    }
    assert_eq!(starts(&store, ALWAYS), [1010, 1020, 1030, 1040]);
    let middle = Range { from: 1_025_000_000_000, to: 1_035_000_000_000 };
    assert_eq!(starts(&store, middle), [1020, 1030]);
}

/// Check that old sets are joined into minutes, take less room, and hold what they held.
#[test]
fn old_sets_are_joined_into_minutes() {
    let store = Store::new(Duration::from_secs(3600), 1 << 20);
    let set = |start| Stacks::new().at(start, 10).stacks(3).sample("main;a", 2).sample("main;b", 1).shared();
    (0..6).for_each(|n| store.add(set(600 + 10 * n)));
    let apart = store.bytes();
    (6..18).for_each(|n| store.add(set(600 + 10 * n)));
    assert_eq!(starts(&store, ALWAYS)[..3], [600, 660, 670]);
    assert!(store.bytes() < 3 * apart, "{} of {apart}", store.bytes());
    let first = &store.select(SampleType::Cpu, Range { from: 0, to: 600_000_000_000 }, &Chosen::default())[0];
    let values: Vec<i64> = first.profiles[0].samples.iter().map(|sample| sample.value).collect();
    assert_eq!((first.profiles[0].duration_nanos, values), (60_000_000_000, vec![12, 6]));
    assert_eq!(profiler_proto::loss::stacks_of(&first.profiles[0], &first.dictionary), 18);
    let sum: usize = store.held().rooms.values().flatten().flat_map(Lane::iter).map(Stored::bytes).sum();
    assert_eq!(store.bytes(), sum);
}

/// Check that bytes are bounded, that what goes is given back, and that a set larger than all is not kept.
#[test]
fn bytes_are_bounded() {
    let one = Stacks::new().sample("a;b;c", 1).shared();
    let bytes = size::of(&one);
    let store = Store::new(Duration::from_secs(3600), 3 * bytes);
    for minute in 100..200 {
        store.add(Stacks::new().at(60 * minute, 1).sample("a;b;c", 1).shared());
        assert!(store.bytes() <= 3 * bytes);
    }
    assert_eq!(starts(&store, ALWAYS), [197, 198, 199].map(|minute| 60 * minute));
    let tiny = Store::new(Duration::from_secs(3600), bytes - 1);
    tiny.add(one);
    assert_eq!((tiny.bytes(), tiny.select(SampleType::Cpu, ALWAYS, &Chosen::default()).len()), (0, 0));
}

const SECOND: u64 = 1_000_000_000;

/// A heap of ten seconds that ends at this second, with so many bytes in use.
fn heap(end: u64, bytes: i64) -> Arc<ProfileSet> {
    Arc::new(Stacks::new().at(end - 10, 10).sample("main;a", bytes).heap())
}

/// Check that where half of the room is used sets are joined at once: a state a second leaves the first minute's there, of ten minutes, where apart
/// there is room for ten seconds; and the newest is never joined.
#[test]
fn a_narrow_store_is_coarser_rather_than_short() {
    let room = size::of(&heap(60, 1));
    let store = Store::new(Duration::from_secs(900), 20 * room);
    for second in 60..660 {
        let state = Arc::new(Stacks::new().at(second - 1, 1).sample("main;a", second as i64).heap());
        store.add(Arc::clone(&state));
        assert!(store.bytes() <= 20 * room);
        let newest = newest_state(&store, SampleType::InuseSpace, u64::MAX).unwrap();
        assert!(Arc::ptr_eq(&newest, &state), "{second}");
    }
    let first = &store.first_states(SampleType::InuseSpace, ALWAYS, &Chosen::default())[0];
    let moment = moment_of(SampleType::InuseSpace, first).unwrap() / SECOND;
    assert!((60..=120).contains(&moment), "growth begins at {moment}");
    assert_eq!(values(first, SampleType::InuseSpace), [moment as i64]);
}

fn newest_state(store: &Store, sample_type: SampleType, moment: u64) -> Option<Arc<ProfileSet>> {
    store.newest_states(sample_type, moment, &Chosen::default()).pop()
}

fn values(set: &ProfileSet, sample_type: SampleType) -> Vec<i64> {
    sample_type.profiles(set).flat_map(|profile| &profile.samples).map(|sample| sample.value).collect()
}

/// Check that of memory in use the newest state at or before a moment is found, and the first one of a range, each the very set
/// that was added; and that a state in which nothing is in use is one.
#[test]
fn states_are_found_by_their_moments() {
    let store = Store::new(Duration::from_secs(3600), 1 << 20);
    assert_eq!(newest_state(&store, SampleType::InuseSpace, u64::MAX), None);
    let sets = [heap(1010, 1024), heap(1020, 0), heap(1030, 3072)];
    sets.iter().for_each(|set| store.add(Arc::clone(set)));
    let place = |found: Option<Arc<ProfileSet>>| {
        sets.iter().position(|set| found.as_ref().is_some_and(|f| Arc::ptr_eq(f, set)))
    };
    for sample_type in [SampleType::InuseSpace, SampleType::InuseObjects] {
        let newest = |second: u64| place(newest_state(&store, sample_type, second * SECOND));
        assert_eq!(
            [1009, 1010, 1019, 1020, 1030, 9999].map(newest),
            [None, Some(0), Some(0), Some(1), Some(2), Some(2)]
        );
        let first = |from: u64, to: u64| {
            place(
                store
                    .first_states(sample_type, Range { from: from * SECOND, to: to * SECOND }, &Chosen::default())
                    .pop(),
            )
        };
        assert_eq!([first(0, 9999), first(1011, 1030), first(1020, 1020)], [Some(0), Some(1), Some(1)]);
        assert_eq!([first(1011, 1019), first(1031, 9999)], [None, None]);
    }
    assert_eq!(store.types(), SampleType::ALL[1..5]);
    store.add(Stacks::new().sample("a", 1).shared());
    assert_eq!(store.types(), SampleType::ALL[..5]);
    assert!(store.select(SampleType::Cpu, ALWAYS, &Chosen::default()).iter().all(|set| SampleType::Cpu.is_in(set)));
}

/// Check that heaps are joined into minutes beside CPU profiles: what was allocated is summed, of what is in use the last state
/// stays.
#[test]
fn heaps_are_joined_into_minutes() {
    let store = Store::new(Duration::from_secs(3600), 1 << 20);
    for n in 1..=18 {
        store.add(heap(600 + 10 * n, 1024 * n as i64));
        store.add(Stacks::new().at(590 + 10 * n, 10).sample("main;a", 1).shared());
    }
    let allocated = store.select(SampleType::AllocSpace, ALWAYS, &Chosen::default());
    assert_eq!((allocated.len(), store.select(SampleType::Cpu, ALWAYS, &Chosen::default()).len()), (13, 13));
    assert_eq!(values(&allocated[0], SampleType::AllocSpace), [2 * 1024 * (1 + 2 + 3 + 4 + 5 + 6)]);
    assert_eq!(values(&allocated[0], SampleType::InuseSpace), [1024 * 6]);
    let state = |second: u64| {
        newest_state(&store, SampleType::InuseSpace, second * SECOND).map(|set| values(&set, SampleType::InuseSpace))
    };
    assert_eq!(
        [659, 660, 669, 670].map(state),
        [None, Some(vec![1024 * 6]), Some(vec![1024 * 6]), Some(vec![1024 * 7])]
    );
}

/// Check that neither CPU profiles nor heaps drive the others out of their half, that each may have what the others leave, and that
/// the newest of each stays.
#[test]
fn cpu_and_heap_share_the_room() {
    let cpu = |n: u64| Stacks::new().at(1000 + n, 1).sample("main;a;b;c;d;e", 1).shared();
    let (of_cpu, of_heap) = (size::of(&cpu(0)), size::of(&heap(1000, 1)));
    let store = Store::new(Duration::from_secs(3600), 12 * of_heap.max(of_cpu));
    let count = |sample_type| store.select(sample_type, ALWAYS, &Chosen::default()).len();
    (0..1000).for_each(|n| store.add(heap(2000 + n, 1)));
    let alone = count(SampleType::InuseSpace);
    assert!(alone > 10, "{alone}");
    (0..1000).for_each(|n| store.add(cpu(2000 + n)));
    let bytes = |sample_type| {
        store.select(sample_type, ALWAYS, &Chosen::default()).iter().map(|set| size::of(set)).sum::<usize>()
    };
    let half = store.max_bytes / 2;
    let is_about_half = |bytes: usize| (half - of_heap.max(of_cpu)..=half + of_heap.max(of_cpu)).contains(&bytes);
    assert!(is_about_half(bytes(SampleType::InuseSpace)) && is_about_half(bytes(SampleType::Cpu)));
    (0..1000).for_each(|n| store.add(heap(4000 + n, 1)));
    assert!(is_about_half(bytes(SampleType::InuseSpace)) && is_about_half(bytes(SampleType::Cpu)));
    assert!(
        newest_state(&store, SampleType::InuseSpace, u64::MAX)
            .is_some_and(|set| set.profiles[0].end_unix_nanos() == 4999 * SECOND)
    );
    let giant = (0..100_000).fold(Stacks::new().at(4990, 10), |stacks, n| stacks.sample("main", n + 1)).heap();
    let tight = Store::new(Duration::from_secs(3600), size::of(&giant) + 2 * of_cpu);
    (0..9).for_each(|n| tight.add(cpu(4990 + n)));
    tight.add(Arc::new(giant));
    tight.add(cpu(4999));
    assert_eq!(
        (
            tight.select(SampleType::InuseSpace, ALWAYS, &Chosen::default()).len(),
            tight.select(SampleType::Cpu, ALWAYS, &Chosen::default()).len()
        ),
        (1, 2)
    );
}
/// A profile of ten seconds of the process `pid` of `service` that ends at this second.
fn of(service: &str, pid: i64, end: u64) -> Arc<ProfileSet> {
    let mut set = Stacks::new().at(end - 10, 10).sample("main;a", 1).set();
    set.resource.set("service.name", service);
    set.resource.set("process.pid", pid);
    Arc::new(set)
}

fn chosen(service: Option<&str>, pid: Option<u32>) -> Chosen {
    Chosen { service: service.map(str::to_owned), pid }
}

/// Check that processes are listed, told apart, and each joined into minutes by itself although their sets come in turns.
#[test]
fn processes_are_kept_apart() {
    let store = Store::new(Duration::from_secs(3600), 1 << 20);
    for n in 0..18 {
        for (service, pid) in [("shop", 1), ("shop", 2), ("cart", 1)] {
            store.add(of(service, pid, 610 + 10 * n));
        }
    }
    let targets = store.targets();
    let named: Vec<_> = targets.iter().map(|target| (target.service.as_str(), target.pid)).collect();
    assert_eq!(named, [("cart", 1), ("shop", 1), ("shop", 2)]);
    let count = |service, pid| store.select(SampleType::Cpu, ALWAYS, &chosen(service, pid)).len();
    assert_eq!((count(None, None), count(Some("shop"), None), count(None, Some(1))), (39, 26, 26));
    assert_eq!((count(Some("shop"), Some(2)), count(Some("cart"), Some(2))), (13, 0));
}

/// Check that no process drives out one that takes less, that the number of processes is bounded, and that the silent ones go.
#[test]
fn a_busy_process_drives_out_its_own() {
    let bytes = size::of(&of("busy", 1, 1000));
    let store = Store::new(Duration::from_secs(3600), 20 * bytes);
    (0..3).for_each(|n| store.add(of("calm", 2, 1000 + n)));
    (0..100).for_each(|n| store.add(of("busy", 1, 2000 + n)));
    let count = |service| store.select(SampleType::Cpu, ALWAYS, &chosen(Some(service), None)).len();
    assert_eq!((count("calm"), count("busy")), (3, 17));
    let store = Store::new(Duration::from_secs(3600), 1 << 30);
    (0..600).for_each(|n| store.add(of("many", n, 1000 + n.unsigned_abs())));
    let pids: Vec<u32> = store.targets().iter().map(|target| target.pid).collect();
    assert_eq!((pids.len(), pids.iter().min()), (MOST_PROCESSES, Some(&88)));
    let sum: usize = store.held().rooms.values().flatten().flat_map(Lane::iter).map(Stored::bytes).sum();
    assert_eq!(store.bytes(), sum);
}

/// Check that of each process the newest state counts, and that of one that is gone none does.
#[test]
fn each_process_has_its_own_state() {
    let store = Store::new(Duration::from_secs(3600), 1 << 20);
    let state = |pid: i64, end, bytes| {
        let mut set = Stacks::new().at(end - 10, 10).sample("main;a", bytes).heap();
        set.resource.set("process.pid", pid);
        Arc::new(set)
    };
    [state(1, 1000, 1024), state(1, 1100, 2048), state(2, 1095, 4096)].into_iter().for_each(|set| store.add(set));
    let sum = |second: u64| -> i64 {
        let states = store.newest_states(SampleType::InuseSpace, second * SECOND, &Chosen::default());
        states.iter().flat_map(|set| values(set, SampleType::InuseSpace)).sum()
    };
    assert_eq!([999, 1000, 1095, 1100].map(sum), [0, 1024, 1024 + 4096, 2048 + 4096]);
    store.add(state(2, 1095 + 2 * GONE / SECOND, 8192));
    assert_eq!(sum(9999), 8192);
}

/// Check that a set from the future is not kept: all else would look old beside it.
#[test]
fn the_future_is_not_kept() {
    let store = Store::new(Duration::from_secs(60), 1 << 20);
    let now = clock::now() / SECOND;
    store.add(of("shop", 1, now));
    for end in [now + 2 * FUTURE.as_secs(), u64::MAX / SECOND] {
        store.add(of("shop", 2, end));
    }
    let pids: Vec<u32> = store.targets().iter().map(|target| target.pid).collect();
    assert_eq!(pids, [1]);
}

/// Check that what came while our own clock was ahead goes once it is right: else nothing would be kept until then.
#[test]
fn the_future_that_was_is_not_kept() {
    let store = Store::new(Duration::from_secs(60), 1 << 20);
    let now = clock::now() / SECOND;
    for (pid, ahead) in [(1, 3600), (1, 7200), (2, 3600)] {
        let set = of("shop", pid, now + ahead);
        let process = Process::of(&set);
        store.held().rooms.entry(process).or_default()[0].push(Stored::new(set).unwrap());
    }
    for second in 0..2 {
        store.add(of("shop", 1, now + second));
    }
    let ends: Vec<u64> = store
        .held()
        .rooms
        .values()
        .flatten()
        .flat_map(Lane::iter)
        .map(|stored| stored.set().profiles[0].end_unix_nanos() / SECOND)
        .collect();
    assert_eq!((ends.len(), ends.iter().max()), (2, Some(&(now + 1))), "{ends:?}");
    assert_eq!(
        store.bytes(),
        store.held().rooms.values().flatten().flat_map(Lane::iter).map(Stored::bytes).sum::<usize>()
    );
}

/// Check that a sender whose clock is wrong does not fill the log, and that a set that is too large is still said.
#[test]
fn what_is_not_kept_is_said_once() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(lines.clone());
    // A second one must be there: `tracing` takes the answer of the only one for all threads.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, || {
        let store = Store::new(Duration::from_secs(60), 1 << 20);
        for _ in 0..10 {
            store.add(of("shop", 1, u64::MAX / SECOND));
        }
        assert_eq!(lines.0.load(Ordering::Relaxed), 1);
        let store = Store::new(Duration::from_secs(60), 0);
        store.add(of("shop", 1, clock::now() / SECOND));
    });
    assert_eq!(lines.0.load(Ordering::Relaxed), 2);
}

/// Counts the warnings of this crate.
#[derive(Clone, Default)]
struct Lines(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("profiler::serve") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
