//! The memory by which readers in other processes find what this one publishes.
//!
//! In: a payload, again and again. Out: a mapping named `OTEL_CTX` that begins with a header, which points to the payload.
//! Readers look at any moment, without a lock: they take what they read if the header's time is the same before and after,
//! and not zero. One thread writes. A forked child does not have the mapping.
//!
//! Source: OTEP 4719, "Publication Protocol" and "Updating Protocol".

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Most bytes of a payload: readers take no more.
pub(super) const AREA: usize = 64 << 10;

const NAME: &CStr = c"OTEL_CTX";
const VERSION: u32 = 2;
/// Room for the header, and the start of the first of two areas: a payload stays where it is while the next one is written.
const HEAD: usize = 4096;
const LENGTH: usize = HEAD + 2 * AREA;

/// What the mapping begins with.
#[repr(C)]
struct Header {
    signature: AtomicU64,
    version: AtomicU32,
    payload_size: AtomicU32,
    /// Nanoseconds of the clock that goes on while the machine sleeps; 0: being changed.
    published_at: AtomicU64,
    payload: AtomicU64,
}

const _: () = {
    assert!(size_of::<Header>() == 32 && size_of::<Header>() <= HEAD);
    assert!(std::mem::offset_of!(Header, payload_size) == 12);
    assert!(std::mem::offset_of!(Header, published_at) == 16);
    assert!(std::mem::offset_of!(Header, payload) == 24);
};

/// The mapping. Invariant: `LENGTH` bytes from `start` on are mapped, readable and writable, and nobody else's.
#[derive(Debug)]
pub(super) struct Region {
    start: *mut u8,
    /// By its file or by a name of its own, readers can find it.
    has_file: bool,
    /// The area of the payload in force.
    area: usize,
}

// SAFETY: the pointer is to a mapping that belongs to this value alone, whichever thread has it.
unsafe impl Send for Region {}

impl Region {
    /// Maps it, without a payload. `memfd`: `memfd_create` may be tried.
    ///
    /// # Errors
    /// When there is no memory to be had.
    pub(super) fn map(memfd: bool) -> io::Result<Self> {
        let file = if memfd { file() } else { None };
        let flags = libc::MAP_PRIVATE | if file.is_some() { 0 } else { libc::MAP_ANONYMOUS };
        let descriptor = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a new mapping at an address of the kernel's choice (mmap(2)); a file has `LENGTH` bytes.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), LENGTH, libc::PROT_READ | libc::PROT_WRITE, flags, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let this = Self { start: start.cast(), has_file: file.is_some(), area: 0 };
        // SAFETY: the mapping that was just made (madvise(2)).
        if unsafe { libc::madvise(start, LENGTH, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let header = this.header();
        header.signature.store(u64::from_ne_bytes(*b"OTEL_CTX"), Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        Ok(this)
    }

    /// Puts a payload in force.
    ///
    /// # Errors
    /// When it is too long, and where readers could not find it.
    pub(super) fn put(&mut self, payload: &[u8]) -> io::Result<()> {
        if payload.len() > AREA {
            return Err(io::Error::other(format!("{} bytes are more than readers take", payload.len())));
        }
        let area = 1 - self.area;
        // SAFETY: the area that is not in force has `AREA` bytes in the mapping, and this process does not read it.
        let at = unsafe {
            let at = self.start.add(HEAD + area * AREA);
            ptr::copy_nonoverlapping(payload.as_ptr(), at, payload.len());
            at
        };
        let header = self.header();
        // Partner: readers of other processes, who take `published_at` before and after (OTEP 4719, "Reading Protocol"). The first fence keeps what
        // follows, also the next call's copy into the other area, behind the 0; the second keeps the new time behind the rest.
        let before = header.published_at.swap(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        header.payload.store(at as u64, Ordering::Relaxed);
        header.payload_size.store(payload.len() as u32, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        header.published_at.store(now().max(before + 1), Ordering::Relaxed);
        self.area = area;
        // Where the kernel has no names for mappings, the call still tells those who watch for it.
        let is_named = name(self.start);
        if is_named || self.has_file { Ok(()) } else { Err(io::Error::other("the kernel gives mappings no names")) }
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is as long, page-aligned and initialized; who writes the header does so by atomic stores.
        unsafe { &*self.start.cast() }
    }

    #[cfg(test)]
    pub(super) fn payload(&self) -> &[u8] {
        let header = self.header();
        assert_ne!(header.published_at.load(Ordering::Relaxed), 0);
        let (at, length) = (header.payload.load(Ordering::Relaxed), header.payload_size.load(Ordering::Relaxed));
        // SAFETY: what `put` wrote; it takes `self` for itself.
        unsafe { std::slice::from_raw_parts(at as *const u8, length as usize) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // 0 before the memory goes: who reads now discards it.
        self.header().published_at.store(0, Ordering::SeqCst);
        // SAFETY: unmaps what `map` mapped; nothing borrowed from it is left.
        unsafe { libc::munmap(self.start.cast(), LENGTH) };
    }
}

/// A file in memory of the name and the length, where one can be had.
fn file() -> Option<OwnedFd> {
    let file = memory_file(NAME).ok()?;
    // SAFETY: ftruncate(2) of our own descriptor.
    (unsafe { libc::ftruncate(file.as_raw_fd(), LENGTH as libc::off_t) } == 0).then_some(file)
}

/// A file of this name that is nowhere but in memory, and not inherited by programs that this one runs.
///
/// # Errors
/// Where the kernel has none, or a filter refuses it.
pub(crate) fn memory_file(name: &CStr) -> io::Result<OwnedFd> {
    let plain = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Older kernels do not know the flag by which it can never be run.
    for flags in [plain | libc::MFD_NOEXEC_SEAL, plain] {
        // SAFETY: memfd_create(2) with a text that ends with a zero.
        let descriptor = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if descriptor >= 0 {
            // SAFETY: a new descriptor, which nobody else has.
            return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    Err(io::Error::last_os_error())
}

/// Names the mapping; whether the kernel took it.
fn name(start: *mut u8) -> bool {
    // SAFETY: prctl(2) with a mapping of ours and a text that ends with a zero, which the kernel copies.
    let outcome = unsafe {
        libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME as libc::c_ulong, start, LENGTH, NAME.as_ptr())
    };
    outcome == 0
}

/// Whether the kernel gives mappings names, which is a choice of its build: asked of it with another mapping and name than the above.
#[cfg(test)]
pub(super) fn kernel_has_names() -> bool {
    let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of one byte at an address of the kernel's choice, named and unmapped again, which nobody else knows of.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), 1, protection, flags, -1, 0);
        let key = libc::PR_SET_VMA_ANON_NAME as libc::c_ulong;
        libc::prctl(libc::PR_SET_VMA, key, start, 4096, c"probe".as_ptr());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        libc::munmap(start, 1);
        maps.contains("[anon:probe]")
    }
}

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
pub(super) mod tests;
