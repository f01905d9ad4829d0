//! What names of a real program cost and take, as it is counted and bounded: a hostile program's tables have names without end.

use profiler_sidecar::capture::{Bounds, Code, Source};

use crate::programs;
use crate::running::Running;

/// What one look-up costs at least, as the work of reading so many bytes.
const LOOK_UP: u64 = 32 << 10;

/// Check that an address is counted for its functions, once more where others are inlined there, for the addresses that stand for these; and nothing for what is known.
#[test]
fn each_look_up_of_a_name_is_counted() {
    let running = Running::start(&programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64"), &[]);
    let source = Source::find(running.pid()).unwrap();
    let loaded = source.loaded();
    let mut addresses: Vec<u64> =
        source.heap(Bounds::default()).unwrap().records.iter().flat_map(|record| record.stack.to_vec()).collect();
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
