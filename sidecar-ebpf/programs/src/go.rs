//! The goroutine that runs: `g` by the thread pointer or its register, then its number, its function, its labels.
//!
//! Source: `runtime/runtime2.go`; offsets by version from the user side. On the scheduler's stack `g` is `g0`, so it goes by `g.m.curg`.

use profiler_sidecar_ebpf::{Counter, Flag, Go, LabelForm};

use crate::labels;
use crate::maps::{Scratch, count, user_word};

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
        match g.map(|g| running(g, go)) {
            // A thread that Go has not seen.
            Some(Some(0)) => {}
            Some(Some(g)) => describe(scratch, go, g),
            _ => count(Counter::NoGoroutine),
        }
    }
}

/// The goroutine of the thread that `g` is of; 0 if it runs none. What is no `g` hardly names an `m` whose goroutine names that `m`.
#[inline(always)]
fn running(g: u64, go: &Go) -> Option<u64> {
    if g == 0 {
        return Some(0);
    }
    let m = user_word(g + u64::from(go.g_m))?;
    let current = user_word(m + u64::from(go.m_curg))?;
    if current != 0 && current != g && user_word(current + u64::from(go.g_m))? != m {
        return None;
    }
    Some(current)
}

#[inline(always)]
unsafe fn describe(scratch: *mut Scratch, go: &Go, g: u64) {
    let of = |offset: u32| user_word(g + u64::from(offset)).unwrap_or(0);
    // SAFETY: this processor's scratch.
    unsafe {
        (*scratch).sample.goroutine = of(go.g_goid);
        (*scratch).sample.start_pc = of(go.g_startpc);
        (*scratch).sample.flags |= Flag::Goroutine as u32;
        (*scratch).labels = if go.labels == LabelForm::None as u32 { 0 } else { of(go.g_labels) };
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
