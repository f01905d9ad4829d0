//! Libraries that are loaded, run and unloaded on several threads at once.
//!
//! In: `libraries`, paths of copies of one library in C with a comma between them. Out: how often one was used, and how
//! often the dynamic linker really unmapped one, by its own counters.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler::Profiler;
use profiler_tests::subject::Options;
use profiler_tests::workload::Random;
use profiler_tests::{Error, Result};
use serde_json::{Value, json};

use crate::bench::{on_threads, torture};

/// How long one of the threads keeps a library while others come and go.
const STAYS: Duration = Duration::from_millis(300);
/// How often samples come in, while none comes or goes, until the sampler is certain what it is: before, one may have been in
/// the place of another, and frames may keep their address for a name.
const CERTAIN: u32 = 4;

/// A library that stays loaded until this is dropped.
pub(crate) struct Library {
    handle: *mut libc::c_void,
}

impl Library {
    pub(crate) fn open(path: &CStr) -> Result<Self> {
        // SAFETY: dlopen(3) of the test's own library, which has no constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(format!("dlopen {path:?}").into()) } else { Ok(Self { handle }) }
    }

    /// Works in the library.
    pub(crate) fn work(&self, depth: u32, rounds: u32) -> Result<u64> {
        let work = self.symbol(c"library_work")?;
        // SAFETY: this is its signature in `library.c`; the library is loaded for as long as `self` is there.
        Ok(unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(u32, u32) -> u64>(work)(depth, rounds) })
    }

    /// Where it begins in memory.
    pub(crate) fn place(&self) -> Result<usize> {
        let work = self.symbol(c"library_work")?;
        // SAFETY: all zeros are a valid value of this structure of pointers.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: dladdr(3) with an address of a library that is loaded, and a place for what it finds.
        let known = unsafe { libc::dladdr(work, &raw mut found) };
        if known == 0 { Err("the library is nowhere".into()) } else { Ok(found.dli_fbase as usize) }
    }

    /// Runs a program in a child of vfork(2); its exit code.
    pub(crate) fn vfork(&self, program: &CStr) -> Result<i32> {
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
pub(crate) fn paths(options: &Options) -> Result<Vec<CString>> {
    let paths: String = options.value("libraries")?;
    paths.split(',').map(|path| CString::new(path).map_err(Error::from)).collect()
}

/// Loads, runs and unloads on three threads.
pub(crate) fn libraries(options: &Options) -> Result<Value> {
    let paths = paths(options)?;
    let quiet = AtomicBool::new(false);
    torture(options, |time, profiler| {
        let unloaded = unloaded();
        let used = on_threads(3, time, |index| {
            let mut random = Random::new(index as u64 + u64::from(time.left().subsec_nanos()));
            let path = &paths[random.below(paths.len() as u64) as usize];
            let worked = Library::open(path).and_then(|library| {
                let opened = Instant::now();
                library.work(random.below(20) as u32, 50_000)?;
                while index == 0 && opened.elapsed() < STAYS && time.is_left() || quiet.load(Ordering::Relaxed) {
                    library.work(random.below(20) as u32, 50_000)?;
                }
                if index == 0 {
                    quiet.store(true, Ordering::Relaxed);
                    let certain = work_until_certain(&library, profiler);
                    quiet.store(false, Ordering::Relaxed);
                    certain?;
                }
                Ok(())
            });
            assert!(worked.is_ok(), "{worked:?}");
        })?;
        Ok(json!({ "used": used, "unloaded": self::unloaded() - unloaded }))
    })
}

fn work_until_certain(library: &Library, profiler: &Profiler) -> Result<()> {
    let (mut weight, mut left) = (profiler.stats().weight, CERTAIN);
    while left > 0 {
        library.work(10, 50_000)?;
        let now = profiler.stats().weight;
        left -= u32::from(now != weight);
        weight = now;
    }
    Ok(())
}

/// How many modules the dynamic linker has ever unmapped.
fn unloaded() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, data: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a valid `info`, and `data` is the number below (dl_iterate_phdr(3)).
        unsafe { *data.cast::<u64>() = (*info).dlpi_subs };
        1
    }
    let mut count = 0_u64;
    // SAFETY: dl_iterate_phdr(3): the callback has the signature and gets the number.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}
