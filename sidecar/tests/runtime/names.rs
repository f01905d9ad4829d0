//! What names of a real program cost and take, as it is counted and bounded: a hostile program's tables have names without end.

use profiler_proto::ProfileSet;
use profiler_proto::resource::Resource;
use profiler_sidecar::capture::profile::{Builder, Window};
use profiler_sidecar::capture::{Bounds, Code, Source};

use crate::capture::stack;
use crate::programs;
use crate::running::Running;

const WINDOW: Window = Window { start_unix_nanos: 1_700_000_000_000_000_000, duration_nanos: 1 };

/// What one look-up costs at least, as the work of reading so many bytes.
const LOOK_UP: u64 = 32 << 10;

/// Check that an address is counted for its functions, once more where others are inlined there, for the addresses that stand for these; and nothing for what is known.
#[test]
fn each_look_up_of_a_name_is_counted() {
    let running = Running::start(&programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64"), &[]);
    let source = Source::find(running.pid()).unwrap();
    let loaded = source.loaded();
    // Which allocations are sampled is chance; goroutines are all there.
    let records = source.heap(Bounds::default()).unwrap().records;
    let goroutines = source.goroutines(Bounds::default()).unwrap().list;
    let parked = goroutines.iter().flat_map(|goroutine| goroutine.stack.iter()).filter(|pc| pc.is_return);
    let mut addresses: Vec<u64> = records.iter().flat_map(|record| record.stack.to_vec()).collect();
    addresses.extend(parked.map(|pc| pc.address));
    addresses.sort_unstable();
    addresses.dedup();
    let counted = |pc: u64| {
        let before = loaded.looked_up();
        let named = loaded.named(pc);
        (named, loaded.looked_up() - before)
    };
    let mut inlined = 0;
    for pc in addresses {
        let (named, cost) = counted(pc);
        let look_ups = if named.frames.len() > 1 { 2 } else { 1 };
        assert!((look_ups * LOOK_UP..(look_ups + 1) * LOOK_UP).contains(&cost), "{cost} for {:?}", named.frames);
        assert_eq!(named.implied.len() + 1, named.frames.len());
        inlined += look_ups - 1;
        assert_eq!(counted(pc).1, 0);
    }
    assert!(inlined > 3, "{inlined}");
}

/// Check that names that are beyond what a set may have are left out where they would begin, with the figures there, and counted.
#[test]
fn names_beyond_their_bytes_are_left_out_and_counted() {
    let running = Running::start(&programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64"), &[]);
    let source = Source::find(running.pid()).unwrap();
    let told = |bytes: usize| {
        let resource = Resource::new().with("service.name", "parked");
        let mut builder = Builder::new(&source, resource).naming_within(bytes);
        builder.heap(&mut source.heap(Bounds::default()).unwrap(), WINDOW);
        builder.finish()
    };
    let (whole, cut) = (told(16 << 20), told(256));
    let ends = |set: &ProfileSet| {
        let stacks = set.profiles[1].samples.iter().map(|sample| stack(set, sample));
        stacks.filter(|stack| stack.last().is_some_and(|frame| frame.starts_with("[frames left out]"))).count() as i64
    };
    let counted = |set: &ProfileSet| {
        let mut losses = set.dictionary.attributes_of(set.profiles[1].attributes);
        losses
            .find(|(key, _)| *key == "profiler.capture.names_cut")
            .map_or(0, |(_, value)| value.to_string().parse().unwrap())
    };
    let total = |set: &ProfileSet| set.profiles[1].samples.iter().map(|sample| sample.value).sum::<i64>();
    assert_eq!((ends(&whole), counted(&whole), total(&whole)), (0, 0, total(&cut)));
    assert!(ends(&cut) >= 1 && counted(&cut) >= ends(&cut), "{} {}", ends(&cut), counted(&cut));
    let text = |set: &ProfileSet| set.dictionary.strings.iter().map(|text| text.len()).sum::<usize>();
    assert!(text(&cut) < text(&whole), "{} {}", text(&cut), text(&whole));
}

/// Check that each goroutine whose stack has no room for its names is counted, also where many have one stack, which is looked at once.
#[test]
fn each_goroutine_without_names_is_counted() {
    let running = Running::start(&programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64"), &["100"]);
    let source = Source::find(running.pid()).unwrap();
    let goroutines = source.goroutines(Bounds::default()).unwrap();
    let mut builder = Builder::new(&source, Resource::new()).naming_within(0);
    let count = builder.goroutines(&goroutines, WINDOW).unwrap();
    let set = builder.finish();
    let (profile, mut losses) = (&set.profiles[0], set.dictionary.attributes_of(set.profiles[0].attributes));
    let cut = losses.find(|(key, _)| *key == "profiler.capture.names_cut").map(|(_, value)| value.to_string());
    assert_eq!(cut, Some(count.to_string()));
    assert!(profile.samples.len() < count as usize, "{count} goroutines have {} stacks", profile.samples.len());
    // Where names are not even looked up, the runtime's own are not told from others: there is no number of those.
    let mut builder = Builder::new(&source, Resource::new()).looking_up_within(0);
    assert_eq!(builder.goroutines(&goroutines, WINDOW), None);
    let set = builder.finish();
    let losses: Vec<_> = set.dictionary.attributes_of(set.profiles[0].attributes).collect();
    let all = goroutines.list.len().to_string();
    assert!(
        losses.iter().any(|(key, value)| *key == "profiler.capture.over_work" && value.to_string() == all),
        "{losses:?}"
    );
}
