//! What is known of each thread that has an alarm of its own: shared by its handler and the `profiler` thread.
//!
//! In: threads as the sweep finds them; stack pointers as handlers see them. Out: whether a thread is covered by its own
//! alarm, what its signals told, and the bounds of its stack. A fixed arena found by thread id, so that a handler needs no thread-local, no
//! allocation and no lock to get there; a thread that finds no slot is left to the process-wide timer.

use std::collections::TryReserveError;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::bounds::Bounds;
use super::stack::above_in_hook;

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
    /// Nanoseconds of CPU time between its alarm's signals.
    period: AtomicU64,
    /// Nanoseconds of CPU time that its own samples stand for; written by its handler.
    told: AtomicU64,
    /// Nanoseconds of CPU time that signals of its timer tell of, also those without a sample; written by its handler.
    timed: AtomicU64,
    /// Nanoseconds of CPU time that its timer found it in the kernel for, less what samples stand for; written by its
    /// handler.
    in_kernel: AtomicU64,
    /// How much less than by `timed` may still be told because the `profiler` thread made it good, in nanoseconds; written
    /// by that thread.
    made_good: AtomicI64,
    /// Periods without a signal that were counted as lost already; the next overrun tells of them again.
    written_off: AtomicU32,
    /// Readable stack of this thread, once it is known.
    stack: Bounds,
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
    /// An arena of free slots.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn new() -> Result<Self, TryReserveError> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(SLOTS)?;
        slots.resize_with(SLOTS, Slot::default);
        Ok(Self { slots: slots.into() })
    }

    /// A slot for thread `tid`, if there is a free one near the place of its id. Only the `profiler` thread calls this.
    pub(crate) fn insert(&self, tid: u32) -> Option<&Slot> {
        let slot = self.places(tid).find(|slot| slot.tid.load(Ordering::Relaxed) == 0)?;
        slot.event.store(NO_EVENT, Ordering::Relaxed);
        slot.signalled.store(false, Ordering::Relaxed);
        slot.told.store(0, Ordering::Relaxed);
        slot.timed.store(0, Ordering::Relaxed);
        slot.in_kernel.store(0, Ordering::Relaxed);
        slot.made_good.store(0, Ordering::Relaxed);
        slot.written_off.store(0, Ordering::Relaxed);
        slot.stack.set(&(0..0));
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

    /// Its alarm is set to so many nanoseconds between signals: each stands for as much from now on.
    pub(crate) fn set_period(&self, nanos: u64) {
        self.period.store(nanos, Ordering::Relaxed);
    }

    /// Nanoseconds of CPU time that a signal of its alarm stands for.
    pub(crate) fn period(&self) -> u64 {
        self.period.load(Ordering::Relaxed)
    }

    /// Whether this thread has a perf event at all.
    pub(crate) fn has_some_event(&self) -> bool {
        self.event.load(Ordering::Relaxed) != NO_EVENT
    }

    /// The handler takes a sample of this thread by the thread's own alarm, for `nanos` of CPU time.
    pub(crate) fn mark_signalled(&self, nanos: u64) {
        self.signalled.store(true, Ordering::Relaxed);
        add(&self.told, nanos);
    }

    /// The thread's timer has gone off for `nanos` of CPU time.
    pub(crate) fn mark_timed(&self, nanos: u64) {
        add(&self.timed, nanos);
    }

    /// The timer of a thread with a perf event has gone off for `nanos` of CPU time and found it in the kernel, where the
    /// event sees nothing: the periods of `period` nanoseconds that a sample may stand for.
    ///
    /// As many as the timer found in the kernel so far, and no more than its signals tell of beyond the event's.
    pub(crate) fn take_kernel_periods(&self, nanos: u64, period: u64) -> u64 {
        add(&self.in_kernel, nanos);
        let in_kernel = self.in_kernel.load(Ordering::Relaxed);
        let periods = in_kernel.min(u64::try_from(self.untold()).unwrap_or(0)) / period.max(1);
        self.in_kernel.fetch_sub(periods * period, Ordering::Relaxed);
        periods
    }

    /// The `profiler` thread has made good so many nanoseconds that no signal told of.
    pub(crate) fn make_good(&self, nanos: u64) {
        self.made_good.fetch_add(nanos.cast_signed(), Ordering::Relaxed);
    }

    /// The `profiler` thread has made good all that the timer's signals tell of beyond the event's.
    pub(crate) fn make_all_good(&self) {
        self.made_good.fetch_add(self.untold(), Ordering::Relaxed);
    }

    fn untold(&self) -> i64 {
        let told = self.timed.load(Ordering::Relaxed).wrapping_sub(self.told.load(Ordering::Relaxed));
        told.cast_signed().wrapping_sub(self.made_good.load(Ordering::Relaxed))
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

    /// What can be read directly of the stacks that a walk from `sp` comes by: the thread's own one, and that of the allocator's hook which it is amid, if it is.
    /// Called by the handler on the slot's thread.
    pub(crate) fn stacks(&self, sp: u64, thread_pointer: u64, is_first: bool) -> [Range<u64>; 2] {
        let Some(of_hook) = above_in_hook(sp) else { return [self.stack(sp, thread_pointer), 0..0] };
        // Where the thread called the hook from is not known here. All that is known of its own stack can be read, if that is its own: a late signal may come with
        // the slot of another one, whose stack is gone.
        let own = self.stack.whole().filter(|own| is_own(own, thread_pointer, is_first));
        [of_hook, own.unwrap_or_default()]
    }

    /// What can be read directly above `sp`: up to the end of this thread's stack if `sp` is on it, else nothing, and the
    /// `profiler` thread is asked to find out. Called on the slot's thread.
    pub(super) fn stack(&self, sp: u64, thread_pointer: u64) -> Range<u64> {
        if let Some(known) = self.stack.above(sp) {
            return known;
        }
        self.thread_pointer.store(thread_pointer, Ordering::Relaxed);
        // Release: pairs with the Acquire swap in `unknown_stack`.
        self.unknown_sp.store(sp, Ordering::Release);
        0..0
    }

    /// The one stack, for whoever found the slot by its own id alone, which a thread that has ended may have had before.
    #[cfg(feature = "heap")]
    pub(crate) fn stack_by_id(&self, sp: u64, thread_pointer: u64, is_first: bool) -> Range<u64> {
        let stack = self.stack(sp, thread_pointer);
        if is_own(&stack, thread_pointer, is_first) { stack } else { 0..0 }
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
        self.stack.set(stack);
    }
}

/// Whether a slot's stack is surely that of the calling thread: what the C library made as a thread's stack ends at the thread pointer, and only the first
/// thread has another one, which stays as long as the process.
fn is_own(stack: &Range<u64>, thread_pointer: u64, is_first: bool) -> bool {
    is_first || stack.end == thread_pointer
}

/// Adds to what the handler of the slot's thread writes: at once, for where a thread's id cannot be told, a late signal of a timer
/// whose slot has got another thread runs it there too.
fn add(counter: &AtomicU64, nanos: u64) {
    counter.fetch_add(nanos, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that threads are found by id and by address, and are gone once freed.
    #[test]
    fn threads_are_found_by_id_and_address() {
        let slots = Slots::new().unwrap();
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
        let slots = Slots::new().unwrap();
        let crowd = (0..PROBES as u32).filter(|n| slots.insert(7 + n * SLOTS as u32).is_some()).count();
        assert_eq!((crowd, slots.insert(7 + PROBES as u32 * SLOTS as u32).is_none()), (PROBES, true));
    }

    /// Check that periods written off are taken from the next overrun, once.
    #[test]
    fn what_was_written_off_is_not_told_again() {
        let slots = Slots::new().unwrap();
        let slot = slots.insert(1).unwrap();
        assert_eq!(slot.not_written_off(40), 40);
        slot.write_off(30);
        assert_eq!((slot.not_written_off(40), slot.not_written_off(40)), (10, 40));
        slot.write_off(30);
        assert_eq!((slot.not_written_off(0), slot.not_written_off(20), slot.not_written_off(20)), (0, 0, 10));
    }

    /// Check that time in the kernel is told of as long as the clock is ahead of the samples, and what could not be told at
    /// once is told later.
    #[test]
    fn kernel_time_is_told_up_to_the_clock() {
        let slots = Slots::new().unwrap();
        let slot = slots.insert(1).unwrap();
        let in_kernel = |nanos| {
            slot.mark_timed(nanos);
            slot.take_kernel_periods(nanos, 10)
        };
        assert_eq!(in_kernel(40), 4);
        slot.mark_signalled(40);
        // The event told of 20 of these; the other 20 stay to be told.
        slot.mark_signalled(20);
        assert_eq!(in_kernel(40), 2);
        slot.mark_signalled(20);
        slot.mark_timed(90);
        slot.make_good(50);
        assert_eq!(in_kernel(20), 4);
        slot.mark_signalled(40);
        slot.make_all_good();
        slot.mark_timed(100);
        assert_eq!(in_kernel(10), 1, "no more than was found in the kernel");
    }

    /// Check that a stack is asked about once and then known.
    #[test]
    fn an_unknown_stack_is_asked_about() {
        let slots = Slots::new().unwrap();
        let slot = slots.insert(1).unwrap();
        assert_eq!(slot.stack(0x5000, 0x9000), 0..0);
        assert_eq!(slot.unknown_stack(), Some(UnknownStack { sp: 0x5000, thread_pointer: 0x9000 }));
        assert_eq!(slot.unknown_stack(), None);
        slot.set_stack(&(0x4000..0x9000));
        assert_eq!((slot.stack(0x5000, 0x9000), slot.stack(0x3000, 0x9000)), (0x5000..0x9000, 0..0));
    }

    /// Check that the stack of a thread that has ended is not taken for that of one which has got its id, whose own ends somewhere else.
    #[cfg(feature = "heap")]
    #[test]
    fn an_id_alone_says_nothing_of_the_stack() {
        let slots = Slots::new().unwrap();
        let slot = slots.insert(1).unwrap();
        slot.set_stack(&(0x4000..0x9000));
        let stack = |thread_pointer, is_first| slot.stack_by_id(0x5000, thread_pointer, is_first);
        assert_eq!(
            [stack(0x9000, false), stack(0x8000, false), stack(0x8000, true)],
            [0x5000..0x9000, 0..0, 0x5000..0x9000]
        );
    }
}
