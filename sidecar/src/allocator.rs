//! What the C library's allocator keeps for the agent: as little as can be, for it stands beside others in a pod.
//!
//! In: nothing. Out: settings of the allocator of this process. Called on the main thread before and after what takes much, and by the
//! thread that samples when it lets go of names. Does nothing where the C library is not glibc. Leaf module.

/// All threads share one heap: they are few, allocate seldom at the same time, and what one frees serves the others. A heap each kept
/// 3 MB more resident beside ten programs.
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) sets a number.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives memory that was freed back to the system.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
