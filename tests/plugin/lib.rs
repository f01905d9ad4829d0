//! A plugin: a library with the profiler in it, that a program which knows nothing of Rust loads with `dlopen`.
//!
//! In: calls of a host in C or Python (`host.c`, and `ctypes` in the test). Out: samples of the host's threads and of the
//! plugin's own work, and the account as JSON in a buffer of the host. Any thread of the host may call.

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use profiler::{Config, Profiler};
use profiler_tests::stats;
use profiler_tests::workload::spin;

static RUNNING: Mutex<Option<Profiler>> = Mutex::new(None);

/// Starts the profiler of the plugin with settings from the environment; 0 if it runs.
// SAFETY: no other symbol of this name is in the hosts of the tests.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_start() -> i32 {
    let config = Config::new("plugin").rate_hz(1000).interval(Duration::from_millis(500));
    match profiler::start(config) {
        Ok(profiler) => {
            *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(profiler);
            0
        }
        Err(_) => 1,
    }
}

/// Burns CPU of the calling thread under a tag.
// SAFETY: as for `plugin_start`.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_work(milliseconds: u32) {
    let _scope = profiler::tag!("from" => "plugin");
    plugin_burn(Duration::from_millis(milliseconds.into()));
}

/// A function to be found in the profile.
#[inline(never)]
fn plugin_burn(time: Duration) {
    std::hint::black_box(spin(time));
}

/// Whether the dynamic linker put the plugin's thread-locals at one distance from each thread's pointer: 1 if so.
// SAFETY: as for `plugin_start`.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_is_fixed() -> i32 {
    thread_local! {
        static MARK: Cell<u8> = const { Cell::new(0) };
    }
    // SAFETY: pthread_self(3) has no argument; with glibc on x86_64 it is the thread pointer.
    let distance =
        || MARK.with(|mark| std::ptr::from_ref(mark) as usize).wrapping_sub(unsafe { libc::pthread_self() } as usize);
    // A thread's stack holds its thread pointer, so two threads have theirs far apart; what they allocate is not as far.
    let distances = [(); 3].map(|()| std::thread::spawn(distance));
    let here = distance();
    i32::from(distances.into_iter().all(|other| other.join().is_ok_and(|other| other == here)))
}

/// How many stacks were taken so far.
// SAFETY: as for `plugin_start`.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_taken() -> u64 {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.as_ref().map_or(0, |profiler| profiler.stats().account.taken)
}

/// Stops, sends what is left, and writes the account as a C string into `buffer`; 0 if all of it was sent and written.
///
/// # Safety
/// `buffer` must be writable for `size` bytes.
// SAFETY: as for `plugin_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plugin_stop(buffer: *mut c_char, size: usize) -> i32 {
    let Some(profiler) = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).take() else { return 1 };
    profiler.pause();
    let mut flushed = profiler.flush(Duration::from_secs(20));
    // A thread that the machine stopped inside of the handler holds its epoch open: what was taken in it comes later.
    for _ in 0..20 {
        if profiler.stats().account.pending == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        flushed = profiler.flush(Duration::from_secs(20));
    }
    let text = stats::to_json(&profiler.stats()).to_string();
    let ended = profiler.shutdown(Duration::from_secs(20));
    if !flushed || !ended || text.len() >= size {
        return 2;
    }
    // SAFETY: the text and the zero behind it fit (checked above) into the host's buffer (contract).
    unsafe {
        buffer.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        buffer.add(text.len()).write(0);
    }
    0
}
