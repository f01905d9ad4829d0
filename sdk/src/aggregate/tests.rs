//! What is added up, what is kept apart, and what a full window does.

use super::*;
use crate::unwind::modules::Modules;

const PERIOD: u32 = 10_000_000;

fn window(samples: &[(Head, &[u8], &[u64])]) -> (Window, usize) {
    let modules = Arc::new(Modules::default());
    let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
    let mut add = |(head, tags, addresses): &(Head, &[u8], &[u64])| {
        let thread_name = (head.tid == 7).then(|| "worker".into());
        aggregate.add(&Sample { head: *head, tags, addresses, modules: &modules, thread_name })
    };
    let refused = samples.iter().filter(|sample| add(sample).is_err()).count();
    (aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10)), refused)
}

/// Check that equal stacks of one thread under equal tags are added up and others are kept apart.
#[test]
fn equal_samples_are_added_up() {
    let head = |weight, epoch, tid| Head { weight, epoch, tid, period: PERIOD, ..Head::default() };
    let samples: [(Head, &[u8], &[u64]); 5] = [
        (head(1, 0, 7), &[1, 0], &[10, 20]),
        (head(3, 1, 7), &[1, 0], &[10, 20]),
        (head(1, 0, 7), &[], &[10, 20]),
        (head(1, 0, 7), &[1, 0], &[10]),
        (head(1, 0, 8), &[1, 0], &[10]),
    ];
    let (window, refused) = window(&samples);
    let periods = |entry: &Entry<'_>| (entry.tally.count, entry.tally.nanos / u64::from(PERIOD));
    let tallies: Vec<_> = window.entries().iter().map(periods).collect();
    let sum = tallies.iter().fold((0, 0), |sum, tally| (sum.0 + tally.0, sum.1 + tally.1));
    assert_eq!((sum, tallies.len(), refused), ((5, 7), 4, 0));
    assert!(tallies.contains(&(2, 4)));
    let places: Vec<_> = window.places().into_iter().map(|(addresses, _)| addresses).collect();
    assert_eq!((window.stacks(), places), (5, vec![vec![10, 20]]));
    let named = |entry: &Entry<'_>| (entry.thread_name == Some("worker")) == (entry.tid == 7);
    assert!(window.entries().iter().all(named));
}

/// Check that stacks come in the order of their roots, callers before what they call, whatever their leaves are.
#[test]
fn stacks_come_from_the_root_on() {
    let stacks: [&[u64]; 5] = [&[1, 8], &[3, 2, 9], &[9], &[5, 2, 9], &[7, 9]];
    let head = Head { weight: 1, ..Head::default() };
    let (window, _) = window(&stacks.map(|addresses| (head, &[][..], addresses)));
    let entries = window.entries();
    let order: Vec<_> = entries.iter().map(|entry| entry.addresses).collect();
    assert_eq!(order, [&[1, 8][..], &[9], &[3, 2, 9], &[5, 2, 9], &[7, 9]]);
}

/// Check that a thread's samples keep the name that it had, and that a name found out later holds for those before it.
#[test]
fn a_renamed_thread_keeps_its_earlier_name_on_earlier_samples() {
    let modules = Arc::new(Modules::default());
    let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
    for (address, name) in [(1, None), (2, Some("first")), (3, Some("second")), (4, None), (5, Some("third"))] {
        let head = Head { tid: 7, weight: 1, ..Head::default() };
        let thread_name = name.map(Into::into);
        aggregate.add(&Sample { head, tags: &[], addresses: &[address], modules: &modules, thread_name }).unwrap();
    }
    let window = aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10));
    let names: Vec<_> = window.entries().iter().map(|entry| entry.thread_name.unwrap()).collect();
    assert_eq!(names, ["first", "first", "second", "second", "third"]);
    assert_eq!(window.names.len(), 3);
}

/// Check that stacks that end early are counted, all together and by what ended them, and that those that reach the root or
/// the bound of the walk are not.
#[test]
fn early_ends_are_counted_by_reason() {
    use StackEnd::{InDoubt, Root, TooDeep, Unknown, Unreadable};
    let ends = [Root, Unknown, Unknown, Unknown, TooDeep, Unreadable, Unreadable, InDoubt];
    let samples = ends.map(|end| (Head { end, weight: 1, ..Head::default() }, &[][..], &[10][..]));
    let (window, _) = window(&samples);
    let flaws =
        [Flaw::UnwindStopped, Flaw::UnwindUnknown, Flaw::UnwindUnreadable, Flaw::UnwindInDoubt, Flaw::Truncated];
    assert_eq!(flaws.map(|flaw| window.degraded.count(flaw)), [6, 3, 2, 1, 1]);
    // Of one address each, and told apart by their ends in the profile, too.
    assert_eq!(window.entries().len(), 5);
    assert!(ends.into_iter().all(|end| StackEnd::from_byte(end as u8) == end));
}

/// Check that equal addresses are kept apart where they were in different libraries, and added up where they were not.
#[test]
fn equal_addresses_of_different_libraries_are_kept_apart() {
    let library = |build_id: &str| Arc::new(Modules::only(crate::unwind::modules::Module::at(0x10_0000, build_id)));
    let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
    for build_id in ["aa", "bb", "aa"] {
        let (head, modules) = (Head { weight: 1, elided: 3, ..Head::default() }, &library(build_id));
        let sample = Sample { head, tags: &[], addresses: &[0x10_1800], modules, thread_name: None };
        aggregate.add(&sample).unwrap();
    }
    let window = aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10));
    let library = |modules: &Modules| modules.find(0x10_1800).unwrap().build_id.clone().unwrap();
    let of = |entry: &Entry<'_>| (library(&window.eras[entry.era]), entry.tally.count, entry.gap_behind);
    let entries: Vec<_> = window.entries().iter().map(of).collect();
    assert_eq!(entries, [("aa".to_owned(), 2, Some(0)), ("bb".to_owned(), 1, Some(0))]);
    let places: Vec<_> = window.places().into_iter().map(|(all, modules)| (all, library(modules))).collect();
    assert_eq!(places, [(vec![0x10_1800], "aa".to_owned()), (vec![0x10_1800], "bb".to_owned())]);
}

/// Check that a window ends when its time is over, and after a tenth of it where it is half full by then.
#[test]
fn a_window_that_fills_up_ends_sooner() {
    let (began, interval) = (Instant::now(), Duration::from_secs(10));
    let mut aggregate = Aggregate::begin(began, SystemTime::now());
    let is_due = |aggregate: &Aggregate| {
        [999, 1000, 9999, 10_000].map(|ms| aggregate.is_due(began + Duration::from_millis(ms), interval))
    };
    let modules = Arc::new(Modules::default());
    for number in 0..2000 {
        let half_full = number > (MAX_CALM - THREAD_BYTES) / (513 * 8 + STACK_BYTES + ENTRY_BYTES);
        assert_eq!(is_due(&aggregate), [false, half_full, half_full, true], "{number} stacks");
        let addresses = &[number as u64; 512];
        let head = Head { weight: 1, ..Head::default() };
        drop(aggregate.add(&Sample { head, tags: &[], addresses, modules: &modules, thread_name: None }));
    }
    drop(aggregate.end(began + interval, SystemTime::now(), Duration::from_millis(10)));
    assert!(!aggregate.is_due(began + interval + Duration::from_millis(9999), interval), "the next one is empty");
}

/// Check that memory is bounded and that what is beyond is refused.
#[test]
fn a_full_window_refuses() {
    let stacks: Vec<Vec<u64>> = (0..3000).map(|n| vec![n; 512]).collect();
    let samples: Vec<_> =
        stacks.iter().map(|stack| (Head { weight: 1, ..Head::default() }, &[][..], stack.as_slice())).collect();
    let (window, refused) = window(&samples);
    let kept = (MAX_BYTES - THREAD_BYTES) / (513 * 8 + STACK_BYTES + ENTRY_BYTES);
    assert_eq!((window.stacks() as usize, refused), (kept, 3000 - kept));
    assert_eq!(window.lost.count(Cause::AggregateFull) as usize, refused, "and a profile says so");
}

/// Check that requests without number, each with its span, fill a window only so far: further samples of the same stack lose their
/// links and keep their tags, and this is counted, rather than being lost; others are as they would be.
#[test]
fn spans_without_number_lose_no_samples() {
    let head = |span_id| Head {
        weight: 1,
        context: Current { trace_id: [span_id; 2], span_id, ..Current::default() },
        ..Head::default()
    };
    let samples = (1..100_001).map(|span| (head(span), &[1, 1, b'a'][..], &[1][..]));
    let plain = (0..1000).map(|_| (head(0), &[][..], &[2][..]));
    let (window, refused) = window(&samples.chain(plain).collect::<Vec<_>>());
    let (linked, others): (Vec<_>, Vec<_>) = window.entries().into_iter().partition(|entry| entry.span_id != 0);
    let others: Vec<_> = others.iter().map(|entry| (entry.tag_set, entry.trace_id, entry.tally.count)).collect();
    assert!(linked.len().abs_diff(MAX_LINKED / ENTRY_BYTES) < 10, "{}", linked.len());
    let unlinked = 100_000 - linked.len() as u64;
    assert_eq!(others, [(1, [0; 2], unlinked), (NO_TAGS, [0; 2], 1000)]);
    assert_eq!((refused, window.stacks()), (0, 101_000));
    assert_eq!(window.degraded.count(Flaw::NoContext), unlinked);
}

/// Check that many tags at many stacks fill a window only so far: further samples say that they lack theirs.
#[test]
fn tags_at_many_stacks_lose_no_samples() {
    let head = Head { weight: 1, ..Head::default() };
    let tags: Vec<[u8; 4]> = (0..1000_u16).map(|tag| [1, 2, tag.to_le_bytes()[0], tag.to_le_bytes()[1]]).collect();
    let stacks: Vec<[u64; 1]> = (1..=100).map(|stack| [stack]).collect();
    let samples = tags.iter().flat_map(|tags| stacks.iter().map(move |stack| (head, &tags[..], &stack[..])));
    let (window, refused) = window(&samples.collect::<Vec<_>>());
    let entries = window.entries();
    let beyond: Vec<_> = entries.iter().filter(|entry| entry.tag_set == OVERFLOW).collect();
    let beyond_samples: u64 = beyond.iter().map(|entry| entry.tally.count).sum();
    assert!((MAX_TAGGED / ENTRY_BYTES).abs_diff(entries.len()) < 3000, "{}", entries.len());
    assert_eq!((beyond.len(), refused, window.stacks()), (stacks.len(), 0, 100_000));
    assert_eq!((window.degraded.count(Flaw::NoContext), beyond_samples > 10_000), (beyond_samples, true));
}

/// Check that sets of tags are bounded, that those beyond share one, and that this is said of each sample.
#[test]
fn sets_of_tags_are_bounded() {
    let sets: Vec<[u8; 6]> = (0..MAX_SETS as u32 + 10)
        .map(|number| {
            let [a, b, c, d] = number.to_ne_bytes();
            [0, 4, a, b, c, d]
        })
        .collect();
    let samples: Vec<_> = sets.iter().map(|set| (Head { weight: 1, ..Head::default() }, &set[..], &[1][..])).collect();
    let (window, refused) = window(&samples);
    assert_eq!((window.degraded.count(Flaw::NoContext), refused, window.tags().len()), (10, 0, MAX_SETS + 2));
    let beyond: Vec<_> = window.entries().into_iter().filter(|entry| entry.tag_set == OVERFLOW).collect();
    assert_eq!((beyond.len(), beyond[0].tally.count), (1, 10));
    assert_eq!(window.tags()[&OVERFLOW], [("profiler.tags", "overflow".to_owned())]);
}

/// Check that it is also said of samples whose tags a thread's record had no room for, alone and below others.
#[test]
fn tags_beyond_a_threads_bound_are_counted() {
    let head = Head { weight: 1, ..Head::default() };
    let sets: [&[u8]; 5] = [b"\0\x08overflow", b"\x01\x01a\0\x08overflow", b"\x01\x08overflow", b"\0\x01a", b""];
    let (window, _) = window(&sets.map(|set| (head, set, &[1][..])));
    assert_eq!((window.degraded.count(Flaw::NoContext), window.stacks()), (2, 5));
}
