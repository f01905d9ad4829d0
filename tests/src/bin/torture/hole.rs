//! A page of a thread's own stack is taken away, and unwind tables lead into just that page: a plain load there would end the process.
//!
//! In: the bench. Out: how many rounds of work were done below such a page. Before each, the thread works until the sampler has found where its
//! stack ends, with the page in place.

use std::arch::naked_asm;
use std::io;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use serde_json::{Value, json};

use crate::bench::{Time, torture};

/// As large as pages can be.
const PAGE: usize = 64 << 10;
/// How often the loop turns while the page is away: some ten milliseconds.
const TURNS: u64 = 20_000_000;
/// How long the sampler may take to find where a stack ends, with some room.
const FOUND: Duration = Duration::from_millis(1500);

/// A part of a stack.
#[repr(C, align(65536))]
struct Pages([[u8; PAGE]; 3]);

/// Works below pages that are away on two threads.
pub(crate) fn hole(options: &Options) -> Result<Value> {
    torture(options, |time, _| {
        let work = || below(&mut Pages([[1; PAGE]; 3]), time);
        let rounds = std::thread::scope(|scope| {
            let make = || std::thread::Builder::new().stack_size(16 * PAGE).spawn_scoped(scope, work);
            let threads = [make()?, make()?];
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64>>| thread.join().map_err(|_| "a panic")?;
            threads.into_iter().map(join).sum::<Result<u64>>()
        })?;
        Ok(json!({ "rounds": rounds }))
    })
}

/// Works below `pages`, which lie on this thread's stack; how many rounds there were.
#[inline(never)]
fn below(pages: &mut Pages, time: &Time) -> Result<u64> {
    let Pages([_, page, _]) = pages;
    spin(FOUND);
    let mut rounds = 0;
    while time.is_left() || rounds < 20 {
        protect(page, libc::PROT_NONE)?;
        misled(page.as_ptr().wrapping_add(PAGE / 2), TURNS);
        protect(page, libc::PROT_READ | libc::PROT_WRITE)?;
        rounds += 1;
    }
    Ok(rounds)
}

fn protect(page: &mut [u8; PAGE], protection: i32) -> Result<()> {
    // SAFETY: whole pages of a variable that the caller has exclusively, and that nobody reads before they are back.
    match unsafe { libc::mprotect(page.as_mut_ptr().cast(), PAGE, protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().into()),
    }
}

/// Turns so often; its tables say that its caller's frame ends behind `address`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn misled(address: *const u8, turns: u64) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa rdi, 16",
        "2:",
        "dec rsi",
        "jnz 2b",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Turns so often; its tables say that its caller's frame ends behind `address`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn misled(address: *const u8, turns: u64) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa x0, 16",
        ".cfi_offset x30, -8",
        "2:",
        "subs x1, x1, #1",
        "b.ne 2b",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}
