//! Libraries made of C for tests: loaded, called, unloaded.
//!
//! In: paths. Out: what their functions do; they stay loaded for as long as a [`Library`] is there.

use std::ffi::{CStr, CString};

use crate::subject::Options;
use crate::{Error, Result};

/// A library that stays loaded until this is dropped.
#[derive(Debug)]
pub struct Library {
    handle: *mut libc::c_void,
}

impl Library {
    /// Loads it.
    ///
    /// # Errors
    /// What the dynamic linker refuses; it does not say why.
    pub fn open(path: &CStr) -> Result<Self> {
        // SAFETY: dlopen(3) of the test's own library, which has no constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(format!("dlopen {path:?}").into()) } else { Ok(Self { handle }) }
    }

    /// Works in the library.
    ///
    /// # Errors
    /// Where it has no such function.
    pub fn work(&self, depth: u32, rounds: u32) -> Result<u64> {
        let work = self.symbol(c"library_work")?;
        // SAFETY: this is its signature in `library.c`; the library is loaded for as long as `self` is there.
        Ok(unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(u32, u32) -> u64>(work)(depth, rounds) })
    }

    /// Calls `back` from below functions of the library.
    ///
    /// # Errors
    /// Where it has no such function.
    pub fn call<F: FnMut()>(&self, depth: u32, back: &mut F) -> Result<()> {
        type Back = extern "C" fn(*mut libc::c_void);
        extern "C" fn call<F: FnMut()>(back: *mut libc::c_void) {
            // SAFETY: what the library got below, which nobody else uses meanwhile.
            unsafe { (*back.cast::<F>())() };
        }
        let calls = self.symbol(c"library_call")?;
        // SAFETY: this is its signature in `swapped.c`; the library is loaded for as long as `self` is there.
        let calls = unsafe {
            std::mem::transmute::<*mut libc::c_void, extern "C" fn(u32, Back, *mut libc::c_void) -> u64>(calls)
        };
        calls(depth, call::<F>, (&raw mut *back).cast());
        Ok(())
    }

    /// Where it begins in memory.
    ///
    /// # Errors
    /// Where it has no functions of ours.
    pub fn place(&self) -> Result<usize> {
        let work = self.symbol(c"library_work")?;
        // SAFETY: all zeros are a valid value of this structure of pointers.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: dladdr(3) with an address of a library that is loaded, and a place for what it finds.
        let known = unsafe { libc::dladdr(work, &raw mut found) };
        if known == 0 { Err("the library is nowhere".into()) } else { Ok(found.dli_fbase as usize) }
    }

    /// Runs a program in a child of vfork(2); its exit code.
    ///
    /// # Errors
    /// Where it has no such function.
    pub fn vfork(&self, program: &CStr) -> Result<i32> {
        let vfork = self.symbol(c"library_vfork")?;
        // SAFETY: this is its signature in `library.c`; the library is loaded for as long as `self` is there.
        let vfork =
            unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(*const libc::c_char) -> i32>(vfork) };
        Ok(vfork(program.as_ptr()))
    }

    fn symbol(&self, name: &CStr) -> Result<*mut libc::c_void> {
        // SAFETY: dlsym(3) with a handle that is open.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if symbol.is_null() { Err(format!("the library has no {name:?}").into()) } else { Ok(symbol) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: dlclose(3) of a handle that was opened once and is closed once.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// The paths in the option `libraries`.
///
/// # Errors
/// Where there is no such option.
pub fn paths(options: &Options) -> Result<Vec<CString>> {
    let paths: String = options.value("libraries")?;
    paths.split(',').map(|path| CString::new(path).map_err(Error::from)).collect()
}
