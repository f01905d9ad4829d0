//! The decoders' bound on memory, measured: peak of live heap while decoding, by an allocator that counts.
//!
//! The allocator is global, hence a binary of its own, with one test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use profiler_proto::{DecodeError, Limits, folded, heap_v2, otlp, pprof};

/// Counts live bytes and their peak. One thread allocates while a decoder is measured.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to `System` unchanged, whose contract is the same; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract, and `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Counted as if old and new were there together, as they are while the content is copied.
        grow(size);
        // SAFETY: the caller keeps `realloc`'s contract, and `pointer` came from `System`.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        LIVE.fetch_sub(layout.size(), Relaxed);
        moved
    }
}

fn grow(size: usize) {
    let live = LIVE.fetch_add(size, Relaxed) + size;
    PEAK.fetch_max(live, Relaxed);
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The result of `decode` and the most heap it took beyond what was there before.
fn peak<T>(decode: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = decode();
    (result, PEAK.load(Relaxed) - before)
}

fn tagged(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut len = content.len();
    while len >= 0x80 {
        bytes.push(len as u8 | 0x80);
        len >>= 7;
    }
    bytes.push(len as u8);
    [bytes.as_slice(), content].concat()
}

fn repeated(number: u8, content: &[u8], count: usize) -> Vec<u8> {
    tagged(number, content).repeat(count)
}

/// Requests that cost little to send and as much as possible to decode.
fn hostile_requests(count: usize) -> Vec<(&'static str, Vec<u8>)> {
    let zero = |tables: &[u8]| tables.iter().flat_map(|table| tagged(*table, &[])).collect::<Vec<_>>();
    let scopes = |scope: &[u8]| tagged(1, &repeated(2, scope, count));
    let profile_of = |samples: &[u8]| tagged(1, &tagged(2, &tagged(2, samples)));
    let wide_stack =
        tagged(2, &[zero(&[7]), zero(&[2]), tagged(2, &[16, 1]), tagged(7, &tagged(1, &vec![1; count]))].concat());
    let long_name =
        [tagged(5, &[]), tagged(5, &vec![b'x'; count]), tagged(6, &[]), tagged(6, &[8, 1, 18, 2, 16, 1])].concat();
    vec![
        ("empty resources", repeated(1, &[], count)),
        ("empty profiles", tagged(1, &tagged(2, &repeated(2, &[], count)))),
        ("empty samples", profile_of(&repeated(2, &[], count))),
        ("empty locations", tagged(2, &repeated(2, &[], count))),
        ("empty strings", tagged(2, &repeated(5, &[], count))),
        ("empty attributes", tagged(2, &repeated(6, &[18, 0], count))),
        ("one wide value", tagged(2, &tagged(6, &tagged(2, &tagged(5, &repeated(1, &[], count)))))),
        ("many values", profile_of(&tagged(2, &tagged(4, &vec![1; count])))),
        ("equal samples", profile_of(&repeated(2, &[34, 1, 1], count))),
        ("many scopes", scopes(&[])),
        ("a wide stack, in every scope", [scopes(&tagged(2, &tagged(2, &[8, 1, 34, 1, 1]))), wide_stack].concat()),
        ("a long name, in every scope", [scopes(&tagged(2, &[90, 1, 1])), tagged(2, &long_name)].concat()),
        ("a long resource, in every scope", {
            let resource = tagged(1, &tagged(1, &tagged(1, &vec![b'x'; count])));
            tagged(1, &[resource, repeated(2, &[], count)].concat())
        }),
    ]
}

/// Files that cost little to store and as much as possible to decode.
fn hostile_files(count: usize) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("empty types", repeated(1, &[], count)),
        ("empty samples", repeated(2, &[], count)),
        (
            "empty labels",
            [tagged(1, &[]), repeated(2, &[tagged(2, &[1]), repeated(3, &[], 9)].concat(), count / 9)].concat(),
        ),
        (
            "locations",
            (1..=count.min(1 << 14)).flat_map(|id| tagged(4, &[8, id as u8 | 0x80, (id >> 7) as u8 & 0x7f])).collect(),
        ),
        (
            "one deep stack",
            [tagged(1, &[]), tagged(4, &[8, 1]), tagged(2, &[tagged(1, &vec![1; count]), vec![16, 1]].concat())]
                .concat(),
        ),
        ("a long label", {
            let label = |key: u8| tagged(3, &[8, key, 16, 1]);
            let sample = [(2..100).flat_map(label).collect(), tagged(2, &[1])].concat();
            let strings = [
                tagged(6, &[]),
                tagged(6, &vec![b'x'; count]),
                (0..98_u8).flat_map(|i| tagged(6, &[b'0' + i % 64, b'0' + i / 64])).collect(),
            ];
            [strings.concat(), tagged(1, &[]), repeated(2, &sample, 10)].concat()
        }),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).and_then(|()| gzip.finish()).unwrap_or_default()
}

/// Check that, however small the limit on memory, no input makes a decoder take more than it documents.
#[test]
fn decoders_stay_within_their_limits() {
    let mut refused = 0;
    for memory in [1 << 16, 1 << 20, 1 << 23] {
        let limits = Limits { bytes: 1 << 20, memory, depth: 8 };
        let bound = 4 * memory + 3 * limits.bytes;
        let mut check = |name: &str, format: &str, input: &[u8], decode: &dyn Fn() -> Result<(), DecodeError>| {
            let (result, peak) = peak(decode);
            assert!(peak <= bound, "{format}, {name}: {} bytes became {peak}, allowed {bound}", input.len());
            refused += usize::from(matches!(result, Err(DecodeError::OverLimit { .. })));
        };
        for count in [1_000, 30_000, 100_000] {
            for (name, bytes) in hostile_requests(count) {
                check(name, "otlp", &bytes, &|| otlp::decode_bytes(&bytes, &limits).map(drop));
            }
            for (name, bytes) in hostile_files(count) {
                check(name, "pprof", &bytes, &|| pprof::decode(&bytes, &limits).map(drop));
                let file = gzip(&bytes);
                check(name, "pprof with gzip", &file, &|| pprof::decode(&file, &limits).map(drop));
            }
            let lines = "a;b;c 1\n".repeat(count / 8)
                + &"a;".repeat(count / 2)
                + "b 1\n"
                + &"{a=b,c=d};x 1\n".repeat(count / 16);
            check("many lines", "folded", lines.as_bytes(), &|| folded::decode(lines.as_bytes(), &limits).map(drop));
            let head = "heap_v2/8\n  t*: 1: 2 [3: 4]\n";
            let empty = head.to_owned() + &"@\n  t*: 1: 2 [3: 4]\n".repeat(count / 20);
            check("empty stacks", "heap_v2", empty.as_bytes(), &|| {
                heap_v2::decode(empty.as_bytes(), &limits).map(drop)
            });
            let deep = format!("{head}@{}\n  t*: 1: 2 [3: 4]\n", " 1".repeat(count / 2));
            check("one deep stack", "heap_v2", deep.as_bytes(), &|| {
                heap_v2::decode(deep.as_bytes(), &limits).map(drop)
            });
            let names: String = (0..count / 8).map(|i| format!("f{i};g{i} 1\n")).collect();
            check("many names", "folded", names.as_bytes(), &|| folded::decode(names.as_bytes(), &limits).map(drop));
        }
    }
    for memory in [1 << 16, 1 << 20] {
        let (bomb, limits) = (gzip(&vec![0; 64 << 20]), Limits { bytes: 1 << 20, memory, depth: 8 });
        let (result, peak) = peak(|| pprof::decode(&bomb, &limits).map(drop));
        assert_eq!(result, Err(DecodeError::OverLimit { what: "bytes of input", limit: 1 << 20 }));
        assert!(peak <= 4 * memory + 3 * limits.bytes, "{} bytes became {peak}", bomb.len());
    }
    // Some are within even these limits; if most were, the test would not test them.
    assert!(refused > 60, "{refused} inputs were beyond a limit");
}
