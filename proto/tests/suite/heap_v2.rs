//! Dumps of jemalloc.

use profiler_proto::heap_v2::{Counts, Dump, Stack, decode};
use profiler_proto::{DecodeError, Limits};

/// The beginning of what jemalloc 5.3.0 wrote, with `prof_accum`, and some of its list of mappings.
const WRITTEN: &[u8] = include_bytes!("../golden/prof_dump.heap");

fn counts([live, live_bytes, allocated, allocated_bytes]: [u64; 4]) -> Counts {
    Counts { live, live_bytes, allocated, allocated_bytes }
}

fn decoded(text: &str) -> Result<Dump, DecodeError> {
    decode(text.as_bytes(), &Limits::default())
}

/// Check that a real dump is read: its interval, the counts of all and of each stack, threads and mappings passed over; and that it comes back from its
/// own text.
#[test]
fn a_real_dump_is_read() {
    let dump = decode(WRITTEN, &Limits::default()).unwrap();
    assert_eq!((dump.interval, dump.in_all), (1 << 19, counts([14, 50417, 171, 223_563])));
    let depths: Vec<usize> = dump.stacks.iter().map(|stack| stack.addresses.len()).collect();
    let lines: Vec<&str> = std::str::from_utf8(WRITTEN).unwrap().lines().filter(|line| line.starts_with('@')).collect();
    assert_eq!(depths, lines.iter().map(|line| line.matches("0x").count()).collect::<Vec<_>>());
    assert_eq!(dump.stacks[0].counts, counts([0, 0, 1, 8_388_608]));
    assert_eq!(dump.stacks[1].counts, counts([1, 516_101, 1, 516_101]));
    let [first, .., last] = *dump.stacks[0].addresses else { panic!("{dump:?}") };
    assert!(lines[0].starts_with(&format!("@ {first:#x} ")) && lines[0].ends_with(&format!(" {last:#x}")));
    assert_eq!(decoded(&dump.to_string()), Ok(dump));
}

/// Check that lines of threads, whatever their names, and a null address are no trouble.
#[test]
fn names_of_threads_are_passed_over() {
    let dump = decoded(
        "heap_v2/8\n  t*: 1: 2 [3: 4]\n  t0: 1: 2 [0: 0] a [name]\nof: two lines\n@ 0 0xff\n  t*: 5: 6 [7: 8]\n  t0: x\n",
    );
    let stack = Stack { addresses: [0, 255].into(), counts: counts([5, 6, 7, 8]) };
    assert_eq!(dump, Ok(Dump { interval: 8, in_all: counts([1, 2, 3, 4]), stacks: vec![stack] }));
}

/// Check that what is no dump, or breaks off, or has numbers that are none, is refused with the line and the reason.
#[test]
fn what_is_no_dump_is_refused() {
    const HEAD: &str = "heap_v2/8\n  t*: 1: 2 [3: 4]\n";
    let refusals = [
        (String::new(), "line 1: no heap_v2/ and interval"),
        ("heap profile: 1: 2 [3: 4] @ heapprofile\n".to_owned(), "line 1: no heap_v2/ and interval"),
        ("heap_v2/0\n  t*: 1: 2 [3: 4]\n".to_owned(), "line 1: no heap_v2/ and interval"),
        ("heap_v2/8\n".to_owned(), "it ends before the counts"),
        (format!("{HEAD}@ 0x1\n"), "it ends before the counts"),
        ("heap_v2/8\n@ 0x1\n".to_owned(), "line 2: a stack, where counts are due"),
        (format!("{HEAD}@ 0x1\n@ 0x2\n"), "line 4: a stack, where counts are due"),
        (format!("{HEAD}  t*: 1: 2 [3: 4]\n"), "line 3: counts of no stack"),
        (format!("{HEAD}@ 0xg\n"), "line 3: an address is not a number"),
        (format!("{HEAD}@ 0x+1\n"), "line 3: an address is not a number"),
        (format!("{HEAD}@ 0x10000000000000000\n"), "line 3: an address is not a number"),
        (format!("{HEAD}@ 0x1\n  t*: 1: 2\n"), "line 4: counts are not \"1: 2 [3: 4]\""),
        (format!("{HEAD}@ 0x1\n  t*: -1: 2 [3: 4]\n"), "line 4: counts are not \"1: 2 [3: 4]\""),
    ];
    for (text, why) in refusals {
        assert_eq!(decoded(&text).unwrap_err().to_string(), format!("not valid dump of jemalloc: {why}"), "{text:?}");
    }
}

/// Check that a dump is refused that is longer, or would take more memory, than is allowed.
#[test]
fn limits_hold() {
    let refusal = |limits: Limits| decode(WRITTEN, &limits).unwrap_err();
    let bytes = WRITTEN.len() - 1;
    let too_long = refusal(Limits { bytes, ..Limits::default() });
    assert_eq!(too_long, DecodeError::OverLimit { what: "bytes of input", limit: bytes });
    let too_much = refusal(Limits { memory: 1000, ..Limits::default() });
    assert_eq!(too_much, DecodeError::OverLimit { what: "bytes of decoded content", limit: 1000 });
}
