//! Whose signal it is: ours are told from others', and from those of a timer that is gone.
//!
//! In: what the kernel says of a signal. Out: the alarm that sent it, and how often that was overrun. Callable from a signal handler: nothing here
//! allocates, locks or makes a system call.

use std::sync::atomic::Ordering;

use super::shared::Shared;
use super::slots::Slot;

/// Whose signal it is.
pub(super) enum Origin<'a> {
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

/// Whose signal `info` tells of.
///
/// # Safety
/// `info` must be what the kernel hands to a signal handler.
pub(super) unsafe fn origin(shared: &Shared, info: *const libc::siginfo_t) -> Origin<'_> {
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
