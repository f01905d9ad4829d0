//! Memory at the edges: of threads that end, of an arena that is destroyed, of the profiler's own threads.
//!
//! In: nothing. Out: for each what is really in use and what a profile says, before and after; how much of what was allocated is the profiler's
//! own threads'.

use std::cell::RefCell;
use std::ffi::CString;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use profiler_proto::ProfileSet;
use profiler_tests::{Result, capture};
use serde_json::{Value, json};
use tikv_jemalloc_sys::{MALLOCX_ARENA, MALLOCX_TCACHE_NONE, mallctl, malloc_usable_size, mallocx};

use super::exact::Block;
use super::sums::{Sums, functions_of};
use super::{start, sums};

/// Blocks of each kind.
const BLOCKS: usize = 100;
/// What only threads of the profiler do: these parts of its crate, and the runtime that it brings.
const OWN: [&str; 3] = ["profiler_sdk::symbolize", "profiler_sdk::assemble", "tokio::runtime"];

/// What threads leave that end.
static LEFT: Mutex<Vec<Block>> = Mutex::new(Vec::new());

thread_local! {
    /// Allocates when its thread ends.
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.extend(at_the_end_of_a_thread());
    }
}

#[inline(never)]
fn at_the_end_of_a_thread() -> [Block; 2] {
    std::hint::black_box([Block::of(500), Block::of(50_000)])
}

/// Allocates at all of them.
pub(crate) fn edges() -> Result<Value> {
    let profiler = start(0)?;
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).reserve(2 * BLOCKS);
    for _ in 0..BLOCKS {
        let thread = std::thread::spawn(|| LAST.set(Some(Last)));
        thread.join().map_err(|_| "a thread panicked")?;
    }
    let arena = Arena::create()?;
    let in_arena = in_an_arena(&arena);
    let lived = sums(&profiler)?;
    let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    let at_the_end = [left.len() as u64, left.iter().map(Block::usable).sum()];
    drop(left);
    arena.destroy()?;
    let set = capture::heap(&profiler)?;
    let freed = Sums::of(&set);
    let of = |name: &str, truth: [u64; 2]| json!({ "truth": truth, "lived": lived.function(name), "freed": freed.function(name) });
    Ok(json!({
        "at_the_end_of_a_thread": of("at_the_end_of_a_thread", at_the_end), "in_an_arena": of("in_an_arena", in_arena),
        "own": own(&set), "all": freed.total[0], "stats": profiler_tests::stats::heap_to_json(&profiler.stats().heap),
    }))
}

/// Samples of what the profiler's own threads allocated.
fn own(set: &ProfileSet) -> usize {
    let is_own = |name: &String| OWN.iter().any(|own| name.contains(own));
    let samples = set.profiles.iter().flat_map(|profile| &profile.samples);
    samples.filter(|sample| functions_of(sample, &set.dictionary).iter().any(is_own)).count()
}

/// An arena of its own.
struct Arena(u32);

impl Arena {
    fn create() -> Result<Self> {
        let (mut number, mut length) = (0_u32, size_of::<u32>());
        // SAFETY: mallctl(3) writes `length` bytes to `number`, or gives an error (jemalloc(3), `arenas.create`).
        let outcome = unsafe {
            mallctl(c"arenas.create".as_ptr(), (&raw mut number).cast(), &raw mut length, ptr::null_mut(), 0)
        };
        if outcome == 0 { Ok(Self(number)) } else { Err(std::io::Error::from_raw_os_error(outcome).into()) }
    }

    /// Frees all that is in it (jemalloc(3), `arena.<i>.destroy`).
    fn destroy(self) -> Result<()> {
        let name = CString::new(format!("arena.{}.destroy", self.0))?;
        // SAFETY: mallctl(3) reads and writes nothing for this name; nobody uses what was allocated in this arena.
        let outcome = unsafe { mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0) };
        if outcome == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(outcome).into()) }
    }
}

/// Small and large blocks, which go with the arena: how many, and how many bytes.
#[inline(never)]
fn in_an_arena(arena: &Arena) -> [u64; 2] {
    let flags = MALLOCX_ARENA(arena.0 as usize) | MALLOCX_TCACHE_NONE;
    let usable = |size: usize| {
        // SAFETY: the size is not 0; what was allocated is asked about while it lives.
        unsafe {
            let block = mallocx(size, flags);
            if block.is_null() { 0 } else { malloc_usable_size(block) as u64 }
        }
    };
    let bytes = (1..=BLOCKS).map(|n| usable(n * 10) + usable(n * 10_000)).sum();
    std::hint::black_box([2 * BLOCKS as u64, bytes])
}
