//! What can be asked of jemalloc, and said to it: `mallctl(3)`.
//!
//! In: names. Out: values, or the error that jemalloc gives. Nothing here knows what a value means.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::io;
use std::ptr;

/// Called for each sampled block: address, size asked for, stack, its length, usable size.
///
/// Source: jemalloc 5.3.1, include/jemalloc/internal/prof_hook.h, `prof_sample_hook_t`; the others there too.
pub(super) type SampleHook = unsafe extern "C" fn(*const c_void, usize, *mut *mut c_void, c_uint, usize);
/// Called when a sampled block is freed: address, usable size.
pub(super) type FreeHook = unsafe extern "C" fn(*const c_void, usize);
/// Takes a stack: where to, how many it took, how many there is room for.
pub(super) type BacktraceHook = unsafe extern "C" fn(*mut *mut c_void, *mut c_uint, c_uint);

pub(super) const SAMPLE_HOOK: &CStr = c"experimental.hooks.prof_sample";
pub(super) const FREE_HOOK: &CStr = c"experimental.hooks.prof_sample_free";
pub(super) const BACKTRACE_HOOK: &CStr = c"experimental.hooks.prof_backtrace";

/// A type of `mallctl`'s values.
///
/// # Safety
/// Every value that jemalloc writes for a name that is read as this type is a valid one, and so is its default.
pub(super) unsafe trait Value: Copy {
    /// What stands there before jemalloc writes.
    const BLANK: Self;
}

// SAFETY: jemalloc writes C's `bool`, which is `true` or `false`.
unsafe impl Value for bool {
    const BLANK: Self = false;
}
// SAFETY: any bits are a number.
unsafe impl Value for usize {
    const BLANK: Self = 0;
}
// SAFETY: any bits are a number.
unsafe impl Value for u64 {
    const BLANK: Self = 0;
}
// SAFETY: any bits are a pointer, which nobody follows unasked.
unsafe impl Value for *const c_char {
    const BLANK: Self = ptr::null();
}
// SAFETY: a null pointer is `None` (Rust reference, "Representation of Option"); another one was set by somebody as a hook of this type.
unsafe impl Value for Option<SampleHook> {
    const BLANK: Self = None;
}
// SAFETY: as above.
unsafe impl Value for Option<FreeHook> {
    const BLANK: Self = None;
}
// SAFETY: as above.
unsafe impl Value for Option<BacktraceHook> {
    const BLANK: Self = None;
}

/// The value of this name.
pub(super) fn read<T: Value>(name: &CStr) -> io::Result<T> {
    let mut value = T::BLANK;
    let mut length = size_of::<T>();
    // SAFETY: mallctl(3) writes `length` bytes to `value`, or gives an error where that is not the size that `name` has.
    let outcome = unsafe {
        tikv_jemalloc_sys::mallctl(name.as_ptr(), (&raw mut value).cast(), &raw mut length, ptr::null_mut(), 0)
    };
    done(outcome).map(|()| value)
}

/// A number that jemalloc keeps, by the place of its name: some dozens of nanoseconds, and no lock (5.3.1, src/ctl.c, `ctl_bymib`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    place: [usize; 2],
}

impl Number {
    /// The one of this name, of two parts.
    ///
    /// # Errors
    /// What jemalloc says of the name, or of reading a number there.
    pub(super) fn named(name: &CStr) -> io::Result<Self> {
        let mut place = [0; 2];
        let mut length = place.len();
        // SAFETY: mallctlnametomib(3) writes `length` numbers at most, and says in `length` how many.
        let outcome =
            unsafe { tikv_jemalloc_sys::mallctlnametomib(name.as_ptr(), place.as_mut_ptr(), &raw mut length) };
        done(outcome)?;
        let number = Self { place };
        number.try_read().map(|_| number)
    }

    /// What it is now.
    pub(super) fn read(&self) -> usize {
        // It could be read when its name was looked up.
        self.try_read().unwrap_or(0)
    }

    fn try_read(&self) -> io::Result<usize> {
        let (mut value, mut length) = (0_usize, size_of::<usize>());
        // SAFETY: mallctlbymib(3) writes `length` bytes to `value`, or gives an error where that is not the size that the place has.
        let outcome = unsafe {
            tikv_jemalloc_sys::mallctlbymib(
                self.place.as_ptr(),
                self.place.len(),
                (&raw mut value).cast(),
                &raw mut length,
                ptr::null_mut(),
                0,
            )
        };
        done(outcome).map(|()| value)
    }
}

/// Sets the value of this name.
pub(super) fn write<T: Value>(name: &CStr, value: T) -> io::Result<()> {
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
    done(outcome)
}

/// Sets this name to a text.
pub(super) fn write_text(name: &CStr, text: &CStr) -> io::Result<()> {
    // jemalloc follows the pointer during the call, or keeps a copy (jemalloc(3), `prof.dump`, `prof.prefix`).
    write(name, text.as_ptr())
}

/// The text of this name; none where it is not set.
pub(super) fn text(name: &CStr) -> Option<String> {
    let text: *const c_char = read(name).ok()?;
    // SAFETY: null, or a string that ends, which jemalloc keeps for as long as the process lives (its options).
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

fn done(outcome: i32) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(outcome)) }
}
