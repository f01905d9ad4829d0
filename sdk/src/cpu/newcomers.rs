//! Threads that used CPU without an alarm of their own, as the handler met them.
//!
//! In: the handler, on such a thread. Out: their ids, taken by the `profiler` thread once a turn, which gives them an alarm.
//! Fixed size; where more are met than there is room for, the oldest are forgotten: they are met again.

use std::sync::atomic::{AtomicU32, Ordering};

const ROOM: usize = 64;

/// The ids met since they were taken last.
#[derive(Debug)]
pub(crate) struct Newcomers {
    /// 0: none.
    tids: [AtomicU32; ROOM],
    /// Counts those met, so that each goes to the next place.
    met: AtomicU32,
}

impl Newcomers {
    pub(crate) fn new() -> Self {
        Self { tids: [const { AtomicU32::new(0) }; ROOM], met: AtomicU32::new(0) }
    }

    /// Notes a thread; id 0 where it is not known. Callable from a signal handler.
    pub(crate) fn meet(&self, tid: u32) {
        let place = self.met.fetch_add(1, Ordering::Relaxed) as usize % ROOM;
        self.tids[place].store(tid, Ordering::Relaxed);
    }

    /// The ids of those met since the last call, each once; `None` if there was nobody. Ids that are not known are missing.
    pub(crate) fn take(&self) -> Option<Vec<u32>> {
        // A load first: the answer is mostly no, and a swap would take the cache line from the handlers. A thread whose
        // id arrives after its count is met again.
        if self.met.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.met.store(0, Ordering::Relaxed);
        let mut tids: Vec<u32> = self.tids.iter().map(|tid| tid.swap(0, Ordering::Relaxed)).collect();
        tids.sort_unstable();
        tids.dedup();
        tids.retain(|tid| *tid != 0);
        Some(tids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that threads are taken once each, whether or not their ids are known.
    #[test]
    fn threads_are_taken_once() {
        let newcomers = Newcomers::new();
        assert_eq!(newcomers.take(), None);
        newcomers.meet(0);
        assert_eq!(newcomers.take(), Some(vec![]));
        for tid in [7, 3, 7] {
            newcomers.meet(tid);
        }
        assert_eq!(newcomers.take(), Some(vec![3, 7]));
        assert_eq!(newcomers.take(), None);
        (1..=100).for_each(|tid| newcomers.meet(tid));
        assert_eq!(newcomers.take().unwrap().len(), ROOM);
    }
}
