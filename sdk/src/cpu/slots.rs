//! What is known of each thread that has an alarm of its own: shared by its handler and the `profiler` thread.
//!
//! In: threads as the sweep finds them; stack pointers as handlers see them. Out: whether a thread is covered by its own
//! alarm, what its signals told, and the bounds of its stack. A fixed arena found by thread id, so that a handler needs no thread-local, no
//! allocation and no lock to get there; a thread that finds no slot is left to the process-wide timer.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Slots of a process.
const SLOTS: usize = 4096;
/// How far a thread's slot may be from the place that its id gives.
const PROBES: usize = 16;

/// Stands for the descriptor of a thread that has no perf event.
pub(crate) const NO_EVENT: i32 = -1;

/// A thread with an alarm of its own. Invariant: everything but `tid` is meaningful only while `tid` is not 0.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    /// Thread id in our pid namespace; 0: free.
    tid: AtomicU32,
    /// Descriptor of its perf event; [`NO_EVENT`]: it has none.
    event: AtomicI32,
    /// Its own alarm has gone off on it.
    signalled: AtomicBool,
    /// Nanoseconds of CPU time that its own signals stood for; written by its handler.
    told: AtomicU64,
    /// Periods without a signal that were counted as lost already; the next overrun tells of them again.
    written_off: AtomicU32,
    /// Readable stack of this thread: from here …
    stack_start: AtomicU64,
    /// … to here; 0 while unknown.
    stack_end: AtomicU64,
    /// A stack pointer seen outside the known stack; 0: nothing to find out.
    unknown_sp: AtomicU64,
    /// The thread's control block; see [`crate::unwind::arch::thread_pointer`].
    thread_pointer: AtomicU64,
}

/// The arena.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
}

/// A request of a handler: on which stack is this?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownStack {
    pub(crate) sp: u64,
    pub(crate) thread_pointer: u64,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| Slot::default()).collect() }
    }

    /// A slot for thread `tid`, if there is a free one near the place of its id. Only the `profiler` thread calls this.
    pub(crate) fn insert(&self, tid: u32) -> Option<&Slot> {
        let slot = self.places(tid).find(|slot| slot.tid.load(Ordering::Relaxed) == 0)?;
        slot.event.store(NO_EVENT, Ordering::Relaxed);
        slot.signalled.store(false, Ordering::Relaxed);
        slot.told.store(0, Ordering::Relaxed);
        slot.written_off.store(0, Ordering::Relaxed);
        slot.stack_end.store(0, Ordering::Relaxed);
        slot.unknown_sp.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `find`.
        slot.tid.store(tid, Ordering::Release);
        Some(slot)
    }

    /// The slot of thread `tid`. Callable from a signal handler.
    pub(crate) fn find(&self, tid: u32) -> Option<&Slot> {
        // Acquire: pairs with the Release store in `insert`.
        self.places(tid).find(|slot| slot.tid.load(Ordering::Acquire) == tid)
    }

    /// The slot that a timer's value points to, if it is one of ours. Callable from a signal handler.
    pub(crate) fn at(&self, address: usize) -> Option<&Slot> {
        let offset = address.checked_sub(self.slots.as_ptr() as usize)?;
        offset.is_multiple_of(size_of::<Slot>()).then(|| self.slots.get(offset / size_of::<Slot>())).flatten()
    }

    fn places(&self, tid: u32) -> impl Iterator<Item = &Slot> + '_ {
        (0..PROBES).map(move |probe| &self.slots[(tid as usize + probe) % SLOTS])
    }
}

impl Slot {
    /// Frees the slot of a thread whose alarm is gone.
    pub(crate) fn free(&self) {
        self.tid.store(0, Ordering::Release);
    }

    /// The thread's id.
    pub(crate) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Makes the descriptor of this thread's perf event known to its handler.
    pub(crate) fn set_event(&self, descriptor: i32) {
        self.event.store(descriptor, Ordering::Relaxed);
    }

    /// Whether this is the descriptor of this thread's perf event.
    pub(crate) fn has_event(&self, descriptor: i32) -> bool {
        descriptor != NO_EVENT && self.event.load(Ordering::Relaxed) == descriptor
    }

    /// Whether this thread has a perf event at all.
    pub(crate) fn has_some_event(&self) -> bool {
        self.event.load(Ordering::Relaxed) != NO_EVENT
    }

    /// The handler runs on this thread by the thread's own alarm, for `nanos` of CPU time.
    pub(crate) fn mark_signalled(&self, nanos: u64) {
        self.signalled.store(true, Ordering::Relaxed);
        // Only this thread's handler writes it, one at a time.
        self.told.store(self.told.load(Ordering::Relaxed).wrapping_add(nanos), Ordering::Relaxed);
    }

    /// Nanoseconds of CPU time that this thread's own signals stood for.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// Notes that `periods` without a signal were counted as lost.
    pub(crate) fn write_off(&self, periods: u32) {
        self.written_off.fetch_add(periods, Ordering::Relaxed);
    }

    /// The part of `overrun` that was not counted as lost before.
    pub(crate) fn not_written_off(&self, overrun: u64) -> u64 {
        let written_off = self.written_off.load(Ordering::Relaxed);
        let again = overrun.min(written_off.into()) as u32;
        if again > 0 {
            // What is left stands for overruns that another signal tells of.
            self.written_off.fetch_sub(again, Ordering::Relaxed);
        }
        overrun - u64::from(again)
    }

    /// Whether this thread's own alarm has gone off on it.
    pub(crate) fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Relaxed)
    }

    /// What can be read directly above `sp`: up to the end of this thread's stack if `sp` is on it, else nothing, and the
    /// `profiler` thread is asked to find out. Called by the handler on the slot's thread.
    pub(crate) fn stack(&self, sp: u64, thread_pointer: u64) -> Range<u64> {
        // Acquire: pairs with the Release store in `set_stack`; who sees the end sees the start that belongs to it.
        let end = self.stack_end.load(Ordering::Acquire);
        let start = self.stack_start.load(Ordering::Relaxed);
        if (start..end).contains(&sp) {
            return sp..end;
        }
        self.thread_pointer.store(thread_pointer, Ordering::Relaxed);
        // Release: pairs with the Acquire swap in `unknown_stack`.
        self.unknown_sp.store(sp, Ordering::Release);
        0..0
    }

    /// What the handler asked since the last call.
    pub(crate) fn unknown_stack(&self) -> Option<UnknownStack> {
        // A load first: the answer is nearly always no, and a swap would take the cache line from the handler.
        if self.unknown_sp.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Acquire: pairs with the Release store in `stack`; the thread pointer stored before it is seen.
        let sp = self.unknown_sp.swap(0, Ordering::Acquire);
        Some(UnknownStack { sp, thread_pointer: self.thread_pointer.load(Ordering::Relaxed) })
    }

    /// Makes the stack of this thread known.
    pub(crate) fn set_stack(&self, stack: &Range<u64>) {
        // A handler between these stores sees an end of 0 and reads nothing directly.
        self.stack_end.store(0, Ordering::Release);
        self.stack_start.store(stack.start, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `stack`.
        self.stack_end.store(stack.end, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that threads are found by id and by address, and are gone once freed.
    #[test]
    fn threads_are_found_by_id_and_address() {
        let slots = Slots::new();
        let (a, b) = (slots.insert(100).unwrap(), slots.insert(100 + SLOTS as u32).unwrap());
        assert!(std::ptr::eq(slots.find(100).unwrap(), a) && !std::ptr::eq(a, b));
        assert!(std::ptr::eq(slots.at(std::ptr::from_ref(b) as usize).unwrap(), b));
        assert!(slots.at(0).is_none() && slots.at(std::ptr::from_ref(b) as usize + 8).is_none());
        a.free();
        assert!(slots.find(100).is_none() && slots.find(100 + SLOTS as u32).is_some());
    }

    /// Check that a crowded place refuses instead of searching on.
    #[test]
    fn a_crowded_place_refuses() {
        let slots = Slots::new();
        let crowd = (0..PROBES as u32).filter(|n| slots.insert(7 + n * SLOTS as u32).is_some()).count();
        assert_eq!((crowd, slots.insert(7 + PROBES as u32 * SLOTS as u32).is_none()), (PROBES, true));
    }

    /// Check that periods written off are taken from the next overrun, once.
    #[test]
    fn what_was_written_off_is_not_told_again() {
        let slots = Slots::new();
        let slot = slots.insert(1).unwrap();
        assert_eq!(slot.not_written_off(40), 40);
        slot.write_off(30);
        assert_eq!((slot.not_written_off(40), slot.not_written_off(40)), (10, 40));
        slot.write_off(30);
        assert_eq!((slot.not_written_off(0), slot.not_written_off(20), slot.not_written_off(20)), (0, 0, 10));
    }

    /// Check that a stack is asked about once and then known.
    #[test]
    fn an_unknown_stack_is_asked_about() {
        let slots = Slots::new();
        let slot = slots.insert(1).unwrap();
        assert_eq!(slot.stack(0x5000, 0x9000), 0..0);
        assert_eq!(slot.unknown_stack(), Some(UnknownStack { sp: 0x5000, thread_pointer: 0x9000 }));
        assert_eq!(slot.unknown_stack(), None);
        slot.set_stack(&(0x4000..0x9000));
        assert_eq!((slot.stack(0x5000, 0x9000), slot.stack(0x3000, 0x9000)), (0x5000..0x9000, 0..0));
    }
}
