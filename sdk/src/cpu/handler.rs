//! The SIGPROF handler: one signal in, one record out.
//!
//! In: the signal's origin and registers from the kernel. Out: a record in the ring, or a count of why there is none. It
//! runs on any thread, at any instruction, on that thread's own stack, of which it takes little: the walk has a stack of
//! its own. It does not allocate, lock, print, touch `errno` or call into the dynamic linker; its one system call is
//! `process_vm_readv` (in `unwind::memory`).

use std::collections::TryReserveError;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Unfinished;
use super::action;
use super::newcomers::Newcomers;
use super::pool::Pool;
use super::record::Head;
use super::ring::Ring;
use super::scratch::{self, Held, Work};
use super::slots::{Slot, Slots};
use super::thread_id::IdPlace;
use crate::context::{self, TAG_WORDS};
use crate::error::Error;
use crate::unwind::arch::{Registers, thread_pointer};
use crate::unwind::memory::StackMemory;
use crate::unwind::walk::Snapshot;

/// CPU time in nanoseconds that one overrun may stand for, on each processor; beyond it the signal was blocked, and the stack found
/// at last says nothing of that time.
pub(crate) const BLOCKED_NANOS: u64 = 250_000_000;

/// What handlers and the `profiler` thread share. One per process, made by the first `start` and never freed, for a late
/// signal may come at any time. A forked child gets one of its own: in its copy of the parent's, handlers that ran while
/// it was made would never end.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ring: Ring,
    pub(crate) pool: Pool<Work>,
    pub(crate) slots: Slots,
    /// The unwinder in force; handlers read it while they hold a scratch.
    pub(crate) snapshot: AtomicPtr<Snapshot>,
    /// Counts starts and resumes; 0 while no sample is to be taken.
    pub(crate) generation: AtomicU32,
    /// Nanoseconds of CPU time between samples; each slot has its own, which follows when its alarm is set.
    pub(crate) period_nanos: AtomicU64,
    /// This process.
    pid: u32,
    /// Processors of the machine: its threads may run on other ones than the one that starts.
    processors: u64,
    /// Threads without an alarm of their own that used CPU.
    pub(crate) newcomers: Newcomers,
    /// Nanoseconds of CPU time that signals of the process-wide alarm stood for, on threads without one of their own.
    pub(crate) process_told: AtomicU64,
    /// Signals of `setitimer` are ours.
    pub(crate) interval_timer: AtomicBool,
    /// Where a thread finds its id.
    pub(crate) id_place: IdPlace,
    /// What the last sampler left; never touched by a handler.
    unfinished: Mutex<Unfinished>,
}

impl Shared {
    pub(crate) fn new(ring_words: usize) -> Result<Self, Error> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let no_memory = |error: TryReserveError| {
            let what = "allocate the ring of samples (4 MiB) and the table of threads";
            Error::environment(what, io::Error::new(io::ErrorKind::OutOfMemory, error), "raise the memory limit")
        };
        Ok(Self {
            ring: Ring::new(ring_words).map_err(no_memory)?,
            pool: scratch::pool(processors)?,
            slots: Slots::new().map_err(no_memory)?,
            snapshot: AtomicPtr::new(std::ptr::null_mut()),
            generation: AtomicU32::new(0),
            period_nanos: AtomicU64::new(0),
            pid: std::process::id(),
            // SAFETY: sysconf(3) with a number only; −1, where it does not know, is none of them.
            processors: u64::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(0).max(1),
            newcomers: Newcomers::new(),
            process_told: AtomicU64::new(0),
            interval_timer: AtomicBool::new(false),
            unfinished: Mutex::default(),
            id_place: IdPlace::default(),
        })
    }

    /// What the last sampler left to the next. Not callable from a signal handler.
    pub(crate) fn unfinished(&self) -> MutexGuard<'_, Unfinished> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation, and the nanoseconds between its samples; `None` while none is to be taken.
    fn in_force(&self) -> Option<(u32, u64)> {
        // Acquire: pairs with the Release store in `Sampler::resume`; who sees the generation sees period and snapshot.
        let generation = self.generation.load(Ordering::Acquire);
        (generation != 0).then(|| (generation, self.period_nanos.load(Ordering::Relaxed)))
    }

    /// The value by which the process-wide timer's signals are known: an address that is no slot's.
    pub(crate) fn process_marker(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

/// What handlers and the `profiler` thread of this process share, made on the first call with a ring of `ring_words`. Only
/// one thread at a time calls this: the one that has the claim to start.
///
/// # Errors
/// When there is no memory for it.
pub(crate) fn shared(ring_words: usize) -> Result<&'static Shared, Error> {
    match made() {
        Some(shared) if shared.pid == std::process::id() => Ok(shared),
        _ => {
            let shared = Box::leak(Box::new(Shared::new(ring_words)?));
            // Release: pairs with the Acquire load in `made`.
            SHARED.store(shared, Ordering::Release);
            Ok(shared)
        }
    }
}

/// What was made last, here or in the parent of this process.
fn made() -> Option<&'static Shared> {
    // SAFETY: null, or from a Box that is never freed. Acquire: pairs with the Release store in `shared`.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// The part of `siginfo_t` that a timer's signal fills.
///
/// Source: Linux, include/uapi/asm-generic/siginfo.h, `__sifields._timer`, on 64-bit machines.
#[repr(C)]
struct TimerInfo {
    signo: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    timer: i32,
    overrun: i32,
    value: usize,
}

const _: () = {
    assert!(std::mem::offset_of!(TimerInfo, code) == std::mem::offset_of!(libc::siginfo_t, si_code));
    assert!(std::mem::offset_of!(TimerInfo, overrun) == 20);
    assert!(std::mem::offset_of!(TimerInfo, value) == 24);
    assert!(size_of::<TimerInfo>() <= size_of::<libc::siginfo_t>());
};

/// The part of `siginfo_t` that a descriptor's signal fills.
///
/// Source: Linux, include/uapi/asm-generic/siginfo.h, `__sifields._sigpoll`, on 64-bit machines.
#[repr(C)]
struct DescriptorInfo {
    signo: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    band: i64,
    descriptor: i32,
}

const _: () = {
    assert!(std::mem::offset_of!(DescriptorInfo, code) == std::mem::offset_of!(libc::siginfo_t, si_code));
    assert!(std::mem::offset_of!(DescriptorInfo, descriptor) == 24);
    assert!(size_of::<DescriptorInfo>() <= size_of::<libc::siginfo_t>());
};

/// `POLL_IN`: a perf event has overflown. Source: Linux, include/uapi/asm-generic/siginfo.h.
const POLL_IN: i32 = 1;

/// Whose signal it is.
enum Origin<'a> {
    /// The thread's own timer, overrun so many times.
    Thread(&'a Slot, u64),
    /// The thread's own perf event.
    Event(&'a Slot),
    /// The process-wide timer.
    Process(u64),
    /// A timer of ours that is gone: its slot is another thread's by now, or nobody's.
    Late,
    Foreign,
}

pub(super) extern "C" fn on_sigprof(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(shared) = made() else { return };
    // SAFETY: an SA_SIGINFO handler gets a valid siginfo_t and a valid ucontext_t (sigaction(2)), all of whose bytes the
    //         kernel has initialized.
    let (origin, registers) =
        unsafe { (origin(shared, info), Registers::of_signal_frame(&*context.cast::<libc::ucontext_t>())) };
    match origin {
        Origin::Thread(slot, overrun) => on_timer(shared, slot, &registers, overrun),
        Origin::Event(slot) => on_event(shared, slot, &registers),
        Origin::Process(overrun) => on_process_timer(shared, &registers, overrun),
        Origin::Late => {}
        Origin::Foreign => action::chain(signal, info, context),
    }
}

/// Whose signal `info` tells of.
///
/// # Safety
/// `info` must be what the kernel hands to a signal handler.
unsafe fn origin(shared: &Shared, info: *const libc::siginfo_t) -> Origin<'_> {
    // SAFETY: contract; both structures lie within siginfo_t, and which of them holds is said by the code.
    let (timer, descriptor) = unsafe { (&*info.cast::<TimerInfo>(), &*info.cast::<DescriptorInfo>()) };
    let overrun = || u64::try_from(timer.overrun).unwrap_or(0);
    match timer.code {
        libc::SI_TIMER if timer.value == shared.process_marker() => Origin::Process(overrun()),
        libc::SI_TIMER => match shared.slots.at(timer.value) {
            Some(slot) if shared.id_place.own_id().is_some_and(|tid| tid != slot.tid()) => Origin::Late,
            Some(slot) => Origin::Thread(slot, overrun()),
            None => Origin::Foreign,
        },
        POLL_IN => {
            let slot = shared.id_place.own_id().and_then(|tid| shared.slots.find(tid));
            let slot = slot.filter(|slot| slot.has_event(descriptor.descriptor));
            slot.map_or(Origin::Foreign, Origin::Event)
        }
        // setitimer(2) sends its signal as the kernel.
        libc::SI_KERNEL if shared.interval_timer.load(Ordering::Relaxed) => Origin::Process(0),
        _ => Origin::Foreign,
    }
}

fn on_timer(shared: &Shared, slot: &Slot, registers: &Registers, overrun: u64) {
    let Some((generation, _)) = shared.in_force() else { return };
    context::mark_covered(generation);
    let period = slot.period();
    let mut periods = 1 + slot.not_written_off(overrun);
    let nanos = periods.saturating_mul(period);
    slot.mark_timed(nanos);
    if slot.has_some_event() {
        // The event tells of the time in the program's code; what the kernel worked for the thread, the timer alone sees.
        periods = if registers.in_system_call(slot.tid()) { slot.take_kernel_periods(nanos, period) } else { 0 };
    }
    if periods > 0 {
        sample_own(shared, slot, registers, Weight { periods, period });
    }
}

fn on_event(shared: &Shared, slot: &Slot, registers: &Registers) {
    let Some((generation, _)) = shared.in_force() else { return };
    context::mark_covered(generation);
    sample_own(shared, slot, registers, Weight { periods: 1, period: slot.period() });
}

/// A sample by the thread's own alarm.
fn sample_own(shared: &Shared, slot: &Slot, registers: &Registers, mut weight: Weight) {
    slot.mark_signalled(weight.nanos());
    let Some(held) = shared.pool.hold(scratch_hint(registers.sp)) else { return };
    count(&held, weight.write_off(BLOCKED_NANOS));
    sample(shared, held, Some(slot), registers, weight);
}

fn on_process_timer(shared: &Shared, registers: &Registers, overrun: u64) {
    let Some((generation, period)) = shared.in_force() else { return };
    if is_covered(shared, generation) {
        return;
    }
    shared.newcomers.meet(shared.id_place.own_id().unwrap_or(0));
    let mut weight = Weight { periods: 1 + overrun, period };
    shared.process_told.fetch_add(weight.nanos(), Ordering::Relaxed);
    let Some(held) = shared.pool.hold(scratch_hint(registers.sp)) else { return };
    count(&held, weight.write_off(shared.processors.saturating_mul(BLOCKED_NANOS)));
    sample(shared, held, None, registers, weight);
}

/// Counts a stack, and so many beside it that it says nothing of.
fn count(held: &Held<'_>, blocked: u64) {
    held.count_taken(1 + blocked);
    if blocked > 0 {
        held.count_blocked(blocked);
    }
}

/// What a sample stands for.
#[derive(Clone, Copy)]
struct Weight {
    periods: u64,
    /// Nanoseconds of each.
    period: u64,
}

impl Weight {
    fn nanos(self) -> u64 {
        self.periods.saturating_mul(self.period)
    }

    /// Leaves one period where the others come to `bound` nanoseconds: how many are to be written off.
    fn write_off(&mut self, bound: u64) -> u64 {
        let overrun = self.periods.saturating_sub(1);
        if overrun.saturating_mul(self.period) < bound {
            return 0;
        }
        self.periods -= overrun;
        overrun
    }
}

/// The scratch that this thread tries first, the same one each time while it works on one stack, so that it finds its
/// rules there. Stacks lie at even distances; the multiplication (Knuth, "The Art of Computer Programming" 6.4) spreads
/// them.
fn scratch_hint(sp: u64) -> u64 {
    (sp >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Whether the calling thread's own timer takes its samples, so that the process-wide one must not.
fn is_covered(shared: &Shared, generation: u32) -> bool {
    let marked = context::covered();
    if marked == Some(generation) {
        return true;
    }
    // A slot that was never signalled belongs to a timer that is armed but has not fired yet: covered. One that was
    // signalled would have marked this thread, if it can be marked; so it belongs to a thread that has ended and whose id
    // this one has got.
    let slot = shared.id_place.own_id().and_then(|tid| shared.slots.find(tid));
    slot.is_some_and(|slot| marked.is_none() || !slot.is_signalled())
}

/// The calling thread's own stack from `sp` on, where it is known, else nothing; and its id. For hooks of the allocator, on the thread itself.
#[cfg(feature = "heap")]
pub(crate) fn own_stack(sp: u64) -> (std::ops::Range<u64>, u32) {
    let known = made().and_then(|shared| Some((shared, shared.id_place.own_id()?)));
    let Some((shared, tid)) = known else { return (0..0, super::thread_id::own_id()) };
    let slot = shared.slots.find(tid);
    let stack = |slot: &Slot| slot.stack_by_id(sp, thread_pointer(), tid == shared.pid);
    (slot.map_or(0..0, stack), tid)
}

fn sample(shared: &Shared, mut held: Held<'_>, slot: Option<&Slot>, registers: &Registers, weight: Weight) {
    let stack = slot.map_or(0..0, |slot| slot.stack(registers.sp, thread_pointer()));
    let epoch = held.epoch();
    // SeqCst: pairs with the swap in `Sampler::put_in_force`; see `pool` for why what is loaded here stays alive
    // while the scratch is held.
    // SAFETY: the pointer is null or comes from a Box that is freed only after the epoch in which it was replaced.
    let Some(snapshot) = (unsafe { shared.snapshot.load(Ordering::SeqCst).as_ref() }) else {
        // Not while a generation is in force; a stack that was counted as taken must not vanish all the same.
        held.count_ring_full();
        return;
    };
    let Work { cache, frames, window, stack: own_stack, tags } = held.work();
    frames.clear();
    // By the thread itself, not by the process: once the first thread of that has ended, its memory is found no more.
    let tid = slot.map(Slot::tid).or_else(|| shared.id_place.own_id()).unwrap_or(shared.pid);
    let mut written = false;
    // All that takes room happens on the scratch's stack.
    own_stack.run(|| {
        // SAFETY: `stack` reaches from this thread's stack pointer to the end of its own stack, checked by `Slot::stack`;
        //         while the handler runs, on whichever stack, it stays.
        let mut memory = unsafe { StackMemory::new(stack.clone(), window, tid) };
        let end = snapshot.walk(registers, cache, &mut memory, frames);
        let head = Head {
            epoch,
            modules: snapshot.number(),
            end,
            elided: frames.elided(),
            leaf_frames: frames.leaf_frames(),
            weight: u32::try_from(weight.periods).unwrap_or(u32::MAX),
            period: u32::try_from(weight.period).unwrap_or(u32::MAX),
            tid: slot.map_or_else(|| shared.id_place.own_id().unwrap_or(0), Slot::tid),
            own_alarm: slot.is_some(),
            scaled: false,
            context: context::current_of_signal(tags),
        };
        let [leaf, root, rest] = frames.parts();
        let tags = &tags[..head.tag_words().min(TAG_WORDS)];
        written = shared.ring.write(&[&head.to_words(), tags, leaf, root, rest]).is_ok();
    });
    if !written {
        held.count_ring_full();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what stands for too long is one period, and that nothing goes without being counted.
    #[test]
    fn what_was_blocked_is_written_off() {
        for (periods, left, blocked) in [(1, 1, 0), (25, 25, 0), (26, 1, 25), (430, 1, 429)] {
            let mut weight = Weight { periods, period: 10_000_000 };
            assert_eq!((weight.write_off(BLOCKED_NANOS), weight.periods), (blocked, left));
        }
    }
}
