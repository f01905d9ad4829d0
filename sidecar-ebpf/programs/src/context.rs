//! The thread context that a process publishes: trace, span, attributes.
//!
//! Source: OTEP 4947: `trace_id` 16 bytes, `span_id` 8, `valid`, `trace_flags`, `attrs_data_size` (2 bytes), `attrs_data`. It is read while its
//! thread stands still, as the specification demands: the tick interrupts that very thread.

use core::ptr::addr_of_mut;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_sidecar_ebpf::{ATTRIBUTES, Flag};

use crate::maps::{BODY, scratch, user_word};

/// Bytes before the attributes.
const HEAD: u64 = 28;

/// Reads the record that the word at `pointer` points to.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn read_context(pointer: u64) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    let Some(record @ 1..) = user_word(pointer) else { return 0 };
    // SAFETY: this processor's scratch; the table has room for the head, the body for the longest attributes, as is checked.
    unsafe {
        let words = addr_of_mut!((*scratch).work).cast::<u64>();
        if bpf_probe_read_user(words.cast(), HEAD as u32, record as *const _) != 0 {
            return 0;
        }
        let state = words.add(3).read_volatile();
        if state & 0xff != 1 {
            return 0;
        }
        let trace = addr_of_mut!((*scratch).sample.trace_id).cast::<u64>();
        trace.write_volatile(words.read_volatile());
        trace.add(1).write_volatile(words.add(1).read_volatile());
        addr_of_mut!((*scratch).sample.span_id).cast::<u64>().write_volatile(words.add(2).read_volatile());
        (*scratch).sample.flags |= Flag::Context as u32;
        let size = (state >> 16) & 0xffff;
        let length = addr_of_mut!((*scratch).length).read_volatile() as usize;
        if size > ATTRIBUTES as u64 || length > BODY - ATTRIBUTES {
            return 0;
        }
        let at = addr_of_mut!((*scratch).body).cast::<u8>().add(length);
        if bpf_probe_read_user(at.cast(), size as u32, (record + HEAD) as *const _) == 0 {
            (*scratch).sample.attributes = size as u16;
            (*scratch).length = length as u32 + size as u32;
        }
    }
    0
}
