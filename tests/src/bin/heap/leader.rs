//! The first thread of the program ends, and threads that come later allocate: a process is then known by a thread that has no memory any more.
//!
//! In: nothing. Out: what is known of the blocks of threads that are so young that the profiler has not seen their stacks yet.

use std::time::Duration;

use profiler::Profiler;
use profiler_tests::Result;
use serde_json::{Value, json};

use super::exact::Block;
use super::{say, start, sums};

const THREADS: usize = 50;

/// Ends the calling thread, the first one, and goes on in another one, which tells the outcome.
pub(crate) fn leader() -> Result<Value> {
    let profiler = start(0)?;
    std::thread::spawn(move || {
        say(&go_on(&profiler).unwrap_or_else(|error| json!({ "error": error.to_string() })));
        std::process::exit(0);
    });
    // SAFETY: exit(2) ends this thread alone, and nothing on its stack is anybody else's.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    Err("the first thread goes on".into())
}

fn go_on(profiler: &Profiler) -> Result<Value> {
    while std::fs::read_link("/proc/self/exe").is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut blocks = Vec::new();
    for _ in 0..THREADS {
        blocks.push(std::thread::spawn(young).join().map_err(|_| "a thread panicked")?);
    }
    let lived = sums(profiler)?;
    drop(blocks);
    Ok(json!({ "threads": THREADS, "young": lived.function("young"), "allocates": lived.function("allocates") }))
}

#[inline(never)]
fn young() -> Block {
    let block = allocates();
    std::hint::black_box("young");
    block
}

#[inline(never)]
fn allocates() -> Block {
    let block = Block::of(1024);
    std::hint::black_box("allocates");
    block
}
