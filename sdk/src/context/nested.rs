//! Work of ours that allocates, once at a time on each thread: an allocator that enters tags would begin it again from within, without end.
//!
//! In: the work, and a flag of the thread for its kind. Out: what came of it, or that this thread is at it. No lock, nothing that other
//! threads read. Not callable from a signal handler.

use std::cell::Cell;
use std::thread::LocalKey;

/// Does `work`, unless the calling thread is at work of this kind already.
pub(super) fn once<R>(kind: &'static LocalKey<Cell<bool>>, work: impl FnOnce() -> R) -> Option<R> {
    /// Also when `work` panics.
    struct Done(&'static LocalKey<Cell<bool>>);
    impl Drop for Done {
        fn drop(&mut self) {
            self.0.set(false);
        }
    }
    if kind.replace(true) {
        return None;
    }
    let _done = Done(kind);
    Some(work())
}
