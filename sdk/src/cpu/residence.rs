//! Keeps the library that holds the handler in memory, for good.
//!
//! In: nothing. Out: a library (a plugin, a Python extension) that `dlclose` no longer unmaps: a late signal finds the
//! handler, and our threads find their code. Called by `start`; an executable needs none of it.

use std::ffi::CStr;
use std::io;
#[cfg(not(target_feature = "crt-static"))]
use std::mem::MaybeUninit;

use crate::error::Error;

/// Pins the library that this code is in, if it is in one.
///
/// # Errors
/// When the dynamic linker does not know it by the name that it gives it.
pub(crate) fn pin() -> Result<(), Error> {
    let Some(library) = own_library() else { return Ok(()) };
    // SAFETY: dlopen(3) of a library that is loaded: RTLD_NOLOAD loads nothing and runs nothing, RTLD_NODELETE keeps it
    //         loaded. The handle is never closed.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    if handle.is_null() {
        let what = format!("dlopen({:?}, RTLD_NOLOAD | RTLD_NODELETE)", library.to_string_lossy());
        let why = io::Error::other("the dynamic linker does not know this library by its own name");
        return Err(Error::environment(what, why, "load the library that holds the profiler by its path"));
    }
    Ok(())
}

/// The name of the library that this code is in; `None` in the executable.
#[cfg(not(target_feature = "crt-static"))]
fn own_library() -> Option<&'static CStr> {
    let here = module_at(pin as *const libc::c_void)?;
    // SAFETY: getauxval(3) only reads the auxiliary vector; AT_PHDR is the address of the executable's program headers.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as *const libc::c_void;
    if module_at(headers).is_some_and(|executable| executable.dli_fbase == here.dli_fbase) || here.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dli_fname` of a loaded module is a C string that lives as long as the module, which is this one (dladdr(3)).
    Some(unsafe { CStr::from_ptr(here.dli_fname) })
}

/// A static executable loads no libraries.
#[cfg(target_feature = "crt-static")]
fn own_library() -> Option<&'static CStr> {
    None
}

#[cfg(not(target_feature = "crt-static"))]
fn module_at(address: *const libc::c_void) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr(3) takes any address and writes to the structure, for which zero is valid.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zero or written by dladdr(3).
    (found != 0).then(|| unsafe { info.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an executable is not taken for a library. That a library stays is tried where there is one: the
    /// end-to-end tests load one.
    #[test]
    fn an_executable_needs_no_pin() {
        assert_eq!(own_library(), None);
        assert!(pin().is_ok());
    }
}
