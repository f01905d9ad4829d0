//! Every way to ask for memory, in functions of the program's own: who stands at the leaf of their stacks.
//!
//! In: nothing. Out: for each way the functions at the leaves of the stacks that it is in.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::sync::Arc;

use profiler_tests::{Result, capture};
use serde_json::{Value, json};
use tikv_jemalloc_sys::{aligned_alloc, calloc, free, malloc, mallocx, posix_memalign, realloc};

use super::exact::Block;
use super::start;
use super::sums::functions_of;

// A body of its own for each, for the linker folds equal functions.
macro_rules! ways {
    ($($name:ident => $work:expr;)*) => {
        const WAYS: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
        $(
            #[inline(never)]
            fn $name() {
                drop(black_box($work));
                black_box(stringify!($name));
            }
        )*
    };
}

ways! {
    rust_block => Block::of(100);
    rust_resized => Block::of(100).resized(10_000);
    std_box => Box::new([1_u8; 1000]);
    std_vector => vec![1_u8; 1000];
    std_grown => (0..1000_u32).fold(Vec::new(), |mut grown, n| { grown.push(n); grown });
    std_text => "x".repeat(1000);
    std_format => format!("{:>1000}", 1);
    std_shared => Arc::<[u8]>::from(&[1_u8; 1000][..]);
    std_map => (0..100_u32).map(|n| (n, n)).collect::<BTreeMap<_, _>>();
    std_path => std::path::Path::new("a").join("b");
    std_thread => std::thread::Builder::new().name("leaf".into()).spawn(|| ()).map(|thread| thread.join().is_ok());
    // SAFETY: as C has it; all of these are freed by `OfC` alone, and not touched.
    c_plain => OfC(unsafe { malloc(100) });
    // SAFETY: as above.
    c_zeroed => OfC(unsafe { calloc(10, 10) });
    // SAFETY: as above; `realloc` takes over the block.
    c_resized => OfC(unsafe { realloc(malloc(100), 10_000) });
    // SAFETY: as above; the size is a multiple of the alignment, which is a power of two.
    c_aligned => OfC(unsafe { aligned_alloc(64, 640) });
    // SAFETY: as above; jemalloc writes the address of the block.
    c_posix => unsafe {
        let mut block = ptr::null_mut();
        posix_memalign(&raw mut block, 64, 640);
        OfC(block)
    };
    // SAFETY: as above.
    c_extended => OfC(unsafe { mallocx(100, 0) });
}

/// A block that C's functions gave.
struct OfC(*mut c_void);

impl Drop for OfC {
    fn drop(&mut self) {
        // SAFETY: it is jemalloc's, or null, and nobody else's.
        unsafe { free(self.0) };
    }
}

/// Asks in every way.
pub(crate) fn leaves() -> Result<Value> {
    let profiler = start(0)?;
    WAYS.iter().for_each(|(_, way)| way());
    let set = capture::heap(&profiler)?;
    let mut ways: BTreeMap<&str, BTreeSet<String>> = WAYS.iter().map(|(name, _)| (*name, BTreeSet::new())).collect();
    for sample in set.profiles.iter().flat_map(|profile| &profile.samples) {
        let functions = functions_of(sample, &set.dictionary);
        let known = |name: &&str| ways.contains_key(name);
        let way = functions.iter().filter_map(|name| name.strip_prefix("heap::leaves::")).find(known);
        if let Some(leaves) = way.and_then(|way| ways.get_mut(way)) {
            leaves.extend(functions.first().cloned());
        }
    }
    Ok(json!({ "ways": ways }))
}
