//! What a program says to jemalloc itself: hosts of their own mind, and whoever counts what jemalloc does.
//!
//! In: names and values. Out: what jemalloc does with them.

use std::ffi::{CStr, c_uint, c_void};
use std::io;
use std::ptr;

/// Called for each sampled block: address, size, stack, its length, usable size.
pub type SampleHook = unsafe extern "C" fn(*const c_void, usize, *mut *mut c_void, c_uint, usize);
/// Called when one is freed.
pub type FreeHook = unsafe extern "C" fn(*const c_void, usize);

/// Called for the stack in jemalloc's own profile: where it goes, where its length goes, and the longest.
pub type StackHook = unsafe extern "C" fn(*mut *mut c_void, *mut c_uint, c_uint);

/// The name of the hook for sampled blocks.
pub const SAMPLE_HOOK: &CStr = c"experimental.hooks.prof_sample";
/// That of the hook for their frees.
pub const FREE_HOOK: &CStr = c"experimental.hooks.prof_sample_free";

/// That of the hook for stacks.
pub const STACK_HOOK: &CStr = c"experimental.hooks.prof_backtrace";

/// Sets a value.
///
/// # Errors
/// What jemalloc says.
pub fn write<T: Copy>(name: &CStr, value: T) -> io::Result<()> {
    let mut value = value;
    // SAFETY: mallctl(3) reads a value of the size that is said, which is the one that `name` has or an error.
    let outcome = unsafe {
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            (&raw mut value).cast(),
            size_of::<T>(),
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(outcome)) }
}

/// The address of a hook that is set, 0 for none.
///
/// # Errors
/// What jemalloc says.
pub fn hook(name: &CStr) -> io::Result<usize> {
    read(name)
}

/// Whether jemalloc takes samples.
///
/// # Errors
/// What jemalloc says.
pub fn is_active() -> io::Result<bool> {
    // C's `bool` is a byte.
    Ok(read::<u8>(c"prof.active")? != 0)
}

/// A number.
fn read<T: Copy + Default>(name: &CStr) -> io::Result<T> {
    let (mut value, mut length) = (T::default(), size_of::<T>());
    // SAFETY: mallctl(3) writes `length` bytes to `value`, or gives an error where that is not the size that `name` has.
    let outcome = unsafe {
        tikv_jemalloc_sys::mallctl(name.as_ptr(), (&raw mut value).cast(), &raw mut length, ptr::null_mut(), 0)
    };
    if outcome == 0 { Ok(value) } else { Err(io::Error::from_raw_os_error(outcome)) }
}
