//! The goroutine that runs: `g` by the thread pointer or its register, then its number, its function, its labels.
//!
//! Source: `runtime/runtime2.go`; offsets by version from the user side. On the scheduler's stack `g` is `g0`, so it goes by `g.m.curg`.

use core::ptr::addr_of_mut;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_sidecar_ebpf::{Counter, Flag, G_BYTES, Go, LabelForm};

use crate::labels;
use crate::maps::{Scratch, WORK, count, user_word};

/// Reads the goroutine into the scratch.
#[inline(always)]
pub(crate) unsafe fn read(scratch: *mut Scratch, go: &Go) {
    // SAFETY: this processor's scratch.
    unsafe {
        let g = if go.in_register != 0 {
            Some((*scratch).g)
        } else {
            user_word((*scratch).thread_pointer.wrapping_add(go.tls_offset as u64))
        };
        match g.map(|g| running(scratch, g, go)) {
            // A thread that Go has not seen, or one that runs none.
            Some(Some(false)) => {}
            Some(Some(true)) => describe(scratch, go),
            _ => count(Counter::NoGoroutine),
        }
    }
}

/// Reads the goroutine of the thread that `g` is of into the table; `false` if it runs none. What is no `g` hardly names an `m` whose
/// goroutine names that `m`.
#[inline(always)]
unsafe fn running(scratch: *mut Scratch, g: u64, go: &Go) -> Option<bool> {
    if g == 0 {
        return Some(false);
    }
    // SAFETY: this processor's scratch.
    unsafe {
        let m = load(scratch, g, go)?;
        let current = user_word(m + u64::from(go.m_curg))?;
        if current != 0 && current != g && load(scratch, current, go)? != m {
            return None;
        }
        Some(current != 0)
    }
}

/// Reads a `g` into the table, all that is wanted of it at once; its `m`.
#[inline(always)]
unsafe fn load(scratch: *mut Scratch, g: u64, go: &Go) -> Option<u64> {
    // SAFETY: this processor's scratch, whose table has room for it.
    unsafe {
        let bytes = if go.g_bytes > G_BYTES as u32 { G_BYTES as u32 } else { go.g_bytes };
        let read = bpf_probe_read_user(addr_of_mut!((*scratch).work).cast(), bytes, g as *const _);
        (read == 0).then(|| field(scratch, go.g_m))
    }
}

/// A word of the `g` in the table.
#[inline(always)]
unsafe fn field(scratch: *mut Scratch, offset: u32) -> u64 {
    // SAFETY: this processor's scratch; the index is within the table.
    unsafe { addr_of_mut!((*scratch).work).cast::<u64>().add(offset as usize / 8 % (G_BYTES / 8)).read_volatile() }
}

#[inline(always)]
unsafe fn describe(scratch: *mut Scratch, go: &Go) {
    // SAFETY: this processor's scratch.
    unsafe {
        (*scratch).sample.goroutine = field(scratch, go.g_goid);
        (*scratch).sample.start_pc = field(scratch, go.g_startpc);
        (*scratch).sample.flags |= Flag::Goroutine as u32;
        (*scratch).labels = if go.labels == LabelForm::None as u32 { 0 } else { field(scratch, go.g_labels) };
        if (*scratch).labels == 0 {
            return;
        }
    }
    if go.labels == LabelForm::Slice as u32 {
        labels::read_slice();
    } else {
        labels::read_map();
    }
}

const _: () = assert!(G_BYTES <= WORK);
