//! The SIGPROF handler: one signal in, one record out.
//!
//! In: the signal's origin and registers from the kernel. Out: a record in the ring, or a count of why there is none. It
//! runs on any thread, at any instruction, on that thread's own stack, of which it takes little: the walk has a stack of
//! its own. It does not allocate, lock, print, touch `errno` or call into the dynamic linker; its system calls are
//! one that asks whether memory can be read, and `process_vm_readv` (in `unwind::memory`).

use std::sync::atomic::Ordering;

use super::action;
use super::origin::{Origin, origin};
use super::record::Head;
use super::scratch::{Held, Work};
use super::shared::{Shared, made};
use super::slots::Slot;
use crate::context::{self, TAG_WORDS};
use crate::unwind::arch::{Registers, stack_pointer, thread_pointer};
use crate::unwind::memory::StackMemory;

/// CPU time in nanoseconds that one overrun may stand for, on each processor; beyond it the signal was blocked, and the stack found
/// at last says nothing of that time.
pub(crate) const BLOCKED_NANOS: u64 = 250_000_000;

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
    let stacks = |slot: &Slot| slot.stacks(registers.sp, thread_pointer(), slot.tid() == shared.pid);
    let stacks = slot.map_or([0..0, 0..0], stacks);
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
    let here = stack_pointer() as u64;
    // All that takes room happens on the scratch's stack.
    own_stack.run(|| {
        let [stack, other] = stacks.clone();
        // SAFETY: both are readable parts of this thread's own stack, or of one of ours, by `Slot::stacks`; while the handler runs, on whichever stack,
        //         they stay.
        let memory = unsafe { StackMemory::new(stack, window, tid).with(other) };
        let mut memory = memory.standing_on(registers.sp, here);
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
