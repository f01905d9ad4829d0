//! Where the calling thread's variable is.
//!
//! In: the descriptor by which the loader says where it put the variable (`tls`): at one distance from every thread's pointer, as in every
//! executable and in most libraries, or anywhere. Out: its address, for the thread ([`fixed`], [`locate`]) and for its signal handler
//! ([`of_signal`]), which never asks the descriptor: in a library that is loaded with `dlopen` the first time may allocate and lock. Where there
//! is no such distance, a thread leaves the address under a `pthread` key ([`leave_word`]), and a handler that finds none knows that there is nothing to
//! read.

use std::io;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

#[cfg(target_arch = "aarch64")]
use super::tls_aarch64 as arch;
#[cfg(target_arch = "x86_64")]
use super::tls_x86_64 as arch;
use crate::error::Error;

/// Distance of the variable from the thread pointer, the same in every thread; 0 while it is not known or there is none.
static DISTANCE: AtomicIsize = AtomicIsize::new(0);

/// The key under which threads leave the address where there is no such distance; [`NO_KEY`]: none.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// Values of keys below this one stand in the thread's descriptor itself, where reading them is a load. Beyond, they stand
/// in a block that is freed when the thread ends.
///
/// Source: glibc, nptl/descr.h, `PTHREAD_KEY_2NDLEVEL_SIZE`; musl keeps all of its 128 in the descriptor's own mapping.
const PLAIN_KEYS: u32 = 32;

/// Finds out how handlers get to the records. Called by `start`, before there is a handler.
///
/// # Errors
/// When the loader put the variable anywhere, and no key can be had.
pub(crate) fn prepare() -> Result<(), Error> {
    locate();
    if distance().is_some() || key().is_some() {
        return Ok(());
    }
    let mut key = 0;
    // SAFETY: pthread_key_create(3) writes the key; without a destructor nothing is ever run for it.
    let outcome = unsafe { libc::pthread_key_create(&raw mut key, None) };
    let remedy = "let the program that loads this library create fewer keys before it";
    if outcome != 0 {
        return Err(Error::environment("pthread_key_create", io::Error::from_raw_os_error(outcome), remedy));
    }
    if key >= PLAIN_KEYS {
        // SAFETY: the key was made above and nobody else knows it (pthread_key_delete(3)).
        unsafe { libc::pthread_key_delete(key) };
        return Err(Error::environment("pthread_key_create", io::Error::other("no key below 32 is left"), remedy));
    }
    KEY.store(key, Ordering::Relaxed);
    // Where this library is bound lazily, the dynamic linker looks for the function at its first call, which is not to be the handler's.
    _ = of_signal();
    Ok(())
}

/// Distance in bytes of the pointer to the record in force from the thread pointer, the same in every thread: below it on
/// x86_64, above it on aarch64. `None` where there is no such distance, and before [`prepare`].
#[inline]
pub(crate) fn distance() -> Option<isize> {
    Some(DISTANCE.load(Ordering::Relaxed)).filter(|distance| *distance != 0)
}

/// The calling thread's variable where it is at a fixed distance that is known.
#[inline]
pub(super) fn fixed() -> Option<*const u8> {
    distance().map(|distance| arch::thread_pointer().wrapping_byte_offset(distance))
}

/// The calling thread's variable by its descriptor, which may allocate: not callable from a signal handler.
#[cold]
pub(super) fn locate() -> *const u8 {
    let place = arch::tls_place();
    // The linker of an executable replaces the descriptor by the distance. Otherwise its second word is the distance
    // where the loader found room for the variable in the memory that every thread has from its birth; where it did
    // not, it is a pointer, which no distance equals.
    let is_fixed = place.descriptor == place.distance || {
        // SAFETY: not replaced, so it is the address of a descriptor: two words in the library's own table, written by
        //         the loader before the call above returned (Oliva, "Thread-Local Storage Descriptors").
        let argument = unsafe { (place.descriptor as *const isize).add(1).read_volatile() };
        argument == place.distance
    };
    #[cfg(test)]
    let is_fixed = is_fixed && !IS_ANYWHERE.load(Ordering::Relaxed);
    if is_fixed {
        DISTANCE.store(place.distance, Ordering::Relaxed);
    }
    arch::thread_pointer().wrapping_byte_offset(place.distance)
}

/// The calling thread's variable for its signal handler; `None` where nobody can tell, null where the thread left no word.
pub(super) fn of_signal() -> Option<*const u8> {
    fixed().or_else(|| {
        // SAFETY: the key was made by `prepare` and is never deleted. Reading it is a load (see `PLAIN_KEYS`).
        Some(unsafe { libc::pthread_getspecific(key()?) }.cast_const().cast())
    })
}

/// Leaves the address of the calling thread's variable under the key, if there is one; whether it is there.
#[cold]
pub(super) fn leave_word(place: *const u8) -> bool {
    // SAFETY: the key exists; the value is only a pointer to it (pthread_setspecific(3)).
    key().is_some_and(|key| unsafe { libc::pthread_setspecific(key, place.cast()) } == 0)
}

/// Tests: see [`put_anywhere`].
#[cfg(test)]
static IS_ANYWHERE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Tests: from now on all is as in a library whose variable the loader put anywhere. For a process that has not asked for a place yet.
#[cfg(all(test, feature = "opentelemetry", feature = "tracing-layer", target_arch = "x86_64", target_env = "gnu"))]
pub(crate) fn put_anywhere() {
    IS_ANYWHERE.store(true, Ordering::Relaxed);
    assert_eq!(distance(), None);
}

fn key() -> Option<u32> {
    Some(KEY.load(Ordering::Relaxed)).filter(|key| *key != NO_KEY)
}
