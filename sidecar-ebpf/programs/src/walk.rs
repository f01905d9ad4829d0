//! The stack of user space by frame pointers, leaf first.
//!
//! A frame pointer points to the caller's, behind which stands the return address: System V ABI of x86_64 §3.2.2, AAPCS64 §6.4.6. The
//! kernel's own walk (`bpf_get_stack`) stops at 127 frames and does not say why it ended.

use core::ptr::addr_of_mut;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_sidecar_ebpf::{FRAMES, Flag};

use crate::maps::scratch;

/// Bits of a return address that are an address: on aarch64 the others may hold a signature.
#[cfg(bpf_target_arch = "aarch64")]
const ADDRESS: u64 = (1 << 48) - 1;
#[cfg(not(bpf_target_arch = "aarch64"))]
const ADDRESS: u64 = u64::MAX;

/// Walks from the registers in the scratch; writes frames, their number and how the walk ended there. A function of its own for the
/// verifier, which proves its 512 turns once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn walk_user() -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    // SAFETY: fields of this processor's scratch; the indexes are below FRAMES, whose words the body has room for.
    unsafe {
        let frames = addr_of_mut!((*scratch).body).cast::<u64>();
        let frame = addr_of_mut!((*scratch).frame).cast::<u64>();
        frames.write_volatile((*scratch).sample.ip);
        let mut at = (*scratch).sample.fp;
        let mut found = 1;
        let mut end = 0;
        while found < FRAMES {
            if at == 0 {
                break;
            }
            if at & 7 != 0 || bpf_probe_read_user(frame.cast(), 16, at as *const _) != 0 {
                end = Flag::Lost as u32;
                break;
            }
            let back = frame.add(1).read_volatile() & ADDRESS;
            if back == 0 {
                break;
            }
            frames.add(found).write_volatile(back);
            found += 1;
            let next = frame.read_volatile();
            if next == at {
                end = Flag::Lost as u32;
                break;
            }
            at = next;
        }
        if found == FRAMES && at != 0 {
            end = Flag::Cut as u32;
        }
        (*scratch).sample.user = found as u16;
        (*scratch).sample.flags |= end;
        (*scratch).length = found as u32 * 8;
    }
    0
}
