//! The threads of this process as the kernel lists them.
//!
//! In: `/proc/self/task`. Out: thread ids and names. Used by the `profiler` thread.

use std::ffi::CStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::own_file::OwnFile;

/// The name of a thread of this process.
pub(super) fn name_of(tid: u32) -> Option<Arc<str>> {
    // All of it comes at once: 16 bytes at most, and 64 of a thread of the kernel (Linux, fs/proc/array.c, `proc_task_name`).
    let mut name = [0; 64];
    let length = OwnFile::open(format!("/proc/self/task/{tid}/comm").as_ref()).ok()?.read(&mut name).ok()?;
    let name = &name[..length];
    let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(name));
    (!name.is_empty()).then(|| name.into())
}

/// The ids of this process's threads.
///
/// Not by `std::fs::read_dir`, which panics where the host closes all descriptors while it reads.
pub(super) fn thread_ids() -> io::Result<Vec<u32>> {
    let mut tids = Vec::new();
    // SAFETY: opendir(3) gives a stream that only this function has, until closedir(3), which frees it also where it fails;
    //         the entry that readdir(3) gives, with its name, stays until the next call on the stream.
    unsafe {
        let directory = libc::opendir(c"/proc/self/task".as_ptr());
        if directory.is_null() {
            return Err(io::Error::last_os_error());
        }
        while let Some(entry) = libc::readdir(directory).as_ref() {
            let name = CStr::from_ptr(entry.d_name.as_ptr());
            tids.extend(name.to_str().ok().and_then(|name| name.parse::<u32>().ok()));
        }
        libc::closedir(directory);
    }
    Ok(tids)
}

/// How many threads this process has; `None` where it cannot be known. Cheaper than their list.
///
/// Source: Linux, fs/proc/base.c, `proc_task_getattr`: the directory has a link for each thread, and two of its own.
pub(super) fn thread_count() -> Option<u64> {
    fs::metadata("/proc/self/task").ok()?.nlink().checked_sub(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the thread list holds the calling thread, and that its name is found.
    #[test]
    fn this_thread_is_listed_and_named() {
        let named = std::thread::Builder::new().name("a-name".to_owned());
        // SAFETY: gettid(2) has no argument and cannot fail.
        let tid = || unsafe { libc::gettid() }.cast_unsigned();
        let found = named.spawn(move || (thread_ids().unwrap().contains(&tid()), name_of(tid()))).unwrap().join();
        assert_eq!(found.unwrap(), (true, Some("a-name".into())));
        // Other tests begin and end theirs meanwhile.
        let is_counted = || (thread_count().unwrap(), thread_ids().unwrap().len() as u64, thread_count().unwrap());
        assert!(
            (0..1000).any(|_| matches!(is_counted(), (before, listed, after) if before == listed && listed == after))
        );
        assert_eq!(name_of(1 << 23), None);
    }
}
