//! jemalloc's sampling alone: hooks that do nothing, and a stack of one frame for jemalloc's own profile.
//!
//! In: nothing. Out: the hooks in force, and sampling on. What it costs is the least that any profiler by these hooks costs: a sampled block
//! gets pages of its own, however small it is.

use std::ffi::{CStr, c_uint, c_void};

use profiler_tests::Result;

use profiler_tests::mallctl::{FREE_HOOK, FreeHook, SAMPLE_HOOK, SampleHook, write};

/// Takes a stack: where to, how many it took, how many there is room for.
type BacktraceHook = unsafe extern "C" fn(*mut *mut c_void, *mut c_uint, c_uint);

const BACKTRACE_HOOK: &CStr = c"experimental.hooks.prof_backtrace";

unsafe extern "C" fn on_sample(_: *const c_void, _: usize, _: *mut *mut c_void, _: c_uint, _: usize) {}

unsafe extern "C" fn on_free(_: *const c_void, _: usize) {}

unsafe extern "C" fn on_backtrace(stack: *mut *mut c_void, length: *mut c_uint, most: c_uint) {
    if most > 0 {
        // SAFETY: jemalloc gives room for `most` addresses and for their number.
        unsafe {
            *stack = on_backtrace as BacktraceHook as *mut c_void;
            *length = 1;
        }
    }
}

/// Has jemalloc sample, for nobody.
pub(crate) fn begin() -> Result<()> {
    write(BACKTRACE_HOOK, on_backtrace as BacktraceHook)?;
    write(FREE_HOOK, on_free as FreeHook)?;
    write(SAMPLE_HOOK, on_sample as SampleHook)?;
    Ok(write(c"prof.active", true)?)
}
