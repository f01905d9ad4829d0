//! The stack of user space by frame pointers, leaf first.
//!
//! A frame pointer points to the caller's, behind which stands the return address: System V ABI of x86_64 §3.2.2, AAPCS64 §6.4.6. The
//! kernel's own walk (`bpf_get_stack`) stops at 127 frames and does not say why it ended.

use core::ffi::c_void;
use core::ptr::{addr_of, addr_of_mut};

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_sidecar_ebpf::{FRAMES, Flag, TOP};

use crate::maps::{BODY, Scratch, WORK, scratch, user_word};

/// Bits of a return address that are an address: on aarch64 the others may hold a signature.
#[cfg(bpf_target_arch = "aarch64")]
const ADDRESS: u64 = (1 << 48) - 1;
#[cfg(not(bpf_target_arch = "aarch64"))]
const ADDRESS: u64 = u64::MAX;

/// Where user space ends at the latest: x86_64 with five levels of page tables (Linux, Documentation/arch/x86/x86_64/mm.rst); aarch64 before that.
const END: u64 = 1 << 56;

/// Whether a call leaves its return address in a register.
const HAS_LINK: bool = cfg!(bpf_target_arch = "aarch64");

/// Bytes of stack that are read at once: some twenty frames of Go, for the call to read costs more than the bytes.
const CHUNK: u64 = 1024;
/// Bytes of a frame: a frame pointer, a return address.
const FRAME: u64 = 16;
/// On x86_64, from the frame of `cgocallbackg` to the one that `asmcgocall` made on the same stack before it left that for C: two words of `cgocallbackg`, three that
/// `cgocallback` has on C's stack and keeps free on this one, its frame pointer, and the instruction at which the goroutine left its stack. Source: runtime/asm_amd64.s.
const CALLBACK: u64 = FRAME + 24 + 16;

/// Walks from the registers in the scratch; writes the top of the stack, frames, their number and how the walk ended there.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn walk_user() -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    // SAFETY: fields of this processor's scratch; the indexes are below FRAMES, whose words the body has room for behind the top.
    unsafe {
        top(scratch);
        let frames = addr_of_mut!((*scratch).body).cast::<u8>().add(TOP).cast::<u64>();
        frames.write_volatile((*scratch).sample.ip);
        let found = follow((*scratch).sample.fp, TOP as u32);
        if found as usize >= FRAMES {
            return 0;
        }
        (*scratch).sample.user = found as u16 + 1;
        (*scratch).sample.flags |= (*scratch).end as u32;
        (*scratch).length = TOP as u32 + found * 8 + 8;
        outer(scratch);
    }
    0
}

/// Where C that Go called has called Go, which is then on the same goroutine's stack, and the walk has not come back from C: what called C is there, behind the frame from which
/// the walk departed.
#[inline(always)]
unsafe fn outer(scratch: *mut Scratch) {
    // SAFETY: fields of this processor's scratch.
    unsafe {
        let departed = addr_of!((*scratch).departed).read_volatile();
        if HAS_LINK || departed == 0 || addr_of!((*scratch).left).read_volatile() != 0 {
            return;
        }
        let frame = departed.wrapping_add(CALLBACK);
        if let (Some(left), Some(fp)) = (user_word(frame.wrapping_sub(8)), user_word(frame)) {
            (*scratch).left = left;
            (*scratch).left_sp = frame.wrapping_add(8);
            (*scratch).left_fp = fp;
            (*scratch).left_lr = 0;
            (*scratch).sample.flags |= Flag::Outer as u32;
        }
    }
}

/// The stack that the goroutine left, where the walk from the registers has not come by there: behind the frames of the kernel. First where it left it, then where
/// that was called, then what the frames say.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn walk_saved() -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    // SAFETY: fields of this processor's scratch; the offset is checked, and there is room for as many frames as `follow` finds.
    unsafe {
        let left = addr_of!((*scratch).left).read_volatile();
        let length = addr_of!((*scratch).length).read_volatile() as usize;
        if left == 0 || (*scratch).sample.flags & Flag::Cut as u32 != 0 || length > BODY - 8 * FRAMES - 8 {
            return 0;
        }
        // What asks `morestack` for room has no frame yet. Of `asmcgocall` this is something else, which the frames lead past.
        let called = match (*scratch).left_lr {
            0 if !HAS_LINK => user_word((*scratch).left_sp).unwrap_or(0),
            caller => caller,
        };
        let words = addr_of_mut!((*scratch).body).cast::<u8>().add(length).cast::<u64>();
        words.write_volatile(left);
        words.add(1).write_volatile(called & ADDRESS);
        addr_of_mut!((*scratch).left).write_volatile(0);
        // The table has been used for other things.
        addr_of_mut!((*scratch).chunk.length).write_volatile(0);
        let found = follow(addr_of!((*scratch).left_fp).read_volatile(), length as u32 + 8);
        if found as usize >= FRAMES {
            return 0;
        }
        (*scratch).sample.saved = found as u16 + 2;
        (*scratch).length = length as u32 + found * 8 + 16;
    }
    0
}

/// Follows frame pointers from `at` on, and writes return addresses behind the first frame at `length` of the body; gives how many, and notes how it ended. A
/// function of its own for the verifier, which proves its 512 turns once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn follow(mut at: u64, length: u32) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    if length as usize > BODY - 8 * FRAMES {
        return 0;
    }
    // SAFETY: fields of this processor's scratch; there is room for FRAMES behind `length`, as is checked, and the indexes are below that.
    unsafe {
        let frames = addr_of_mut!((*scratch).body).cast::<u8>().add(length as usize).cast::<u64>();
        let mut found = 1;
        let mut end = 0_u32;
        while found < FRAMES {
            if at == 0 {
                break;
            }
            if at == addr_of!((*scratch).left_fp).read_volatile() {
                addr_of_mut!((*scratch).left).write_volatile(0);
            }
            let Some((next, back)) = frame(scratch, at) else {
                end = Flag::Lost as u32;
                break;
            };
            let back = back & ADDRESS;
            if back == 0 {
                break;
            }
            // The register was used for something else than frames.
            if back >= END {
                end = Flag::Lost as u32;
                break;
            }
            frames.add(found).write_volatile(back);
            found += 1;
            if !HAS_LINK {
                depart(scratch, at, next);
            }
            if next == at {
                end = Flag::Lost as u32;
                break;
            }
            at = next;
        }
        if found == FRAMES && at != 0 {
            end = Flag::Cut as u32;
        }
        (*scratch).end = end.into();
        found as u32 - 1
    }
}

/// Notes that the walk leaves the goroutine's stack behind this frame, or that it is back where it left. Some four conditions more in the loop, and the verifier has more to keep
/// than it can (8,192 states, `BPF_COMPLEXITY_LIMIT_JMP_SEQ`).
#[inline(always)]
unsafe fn depart(scratch: *mut Scratch, at: u64, next: u64) {
    // SAFETY: fields of this processor's scratch.
    unsafe {
        let (stack, bytes) = (addr_of!((*scratch).stack), addr_of!((*scratch).stack_bytes));
        let is_there = |frame: u64| frame.wrapping_sub(stack.read_volatile()) < bytes.read_volatile();
        let departed = addr_of_mut!((*scratch).departed);
        if at == departed.read_volatile().wrapping_add(CALLBACK) {
            departed.write_volatile(0);
        }
        if departed.read_volatile() == 0 && is_there(at) && next != 0 && !is_there(next) {
            departed.write_volatile(at);
        }
    }
}

/// The bytes from the stack pointer on, with those that the first frames are in.
#[inline(always)]
unsafe fn top(scratch: *mut Scratch) {
    // SAFETY: fields of this processor's scratch, which has room for as many bytes.
    unsafe {
        let read = chunk(scratch, (*scratch).sample.sp, TOP as u64);
        if read == 0 {
            return;
        }
        let words = addr_of_mut!((*scratch).work).cast::<u64>();
        let top = addr_of_mut!((*scratch).body).cast::<u64>();
        let mut word = 0;
        while word < TOP / 8 {
            top.add(word).write_volatile(words.add(word).read_volatile());
            word += 1;
        }
        (*scratch).sample.top = TOP as u16;
    }
}

/// The two words at a frame pointer, of the chunk that was read last if they are in it.
#[inline(always)]
unsafe fn frame(scratch: *mut Scratch, at: u64) -> Option<(u64, u64)> {
    if at & 7 != 0 {
        return None;
    }
    // SAFETY: fields of this processor's scratch; the offset is checked.
    unsafe {
        let read = addr_of_mut!((*scratch).chunk);
        // In memory, so that the verifier knows nothing of them: it would go every way through the loop for each.
        let (base, length) = (addr_of_mut!((*read).base), addr_of_mut!((*read).length));
        let mut offset = at.wrapping_sub(base.read_volatile());
        if offset > length.read_volatile().wrapping_sub(FRAME) || length.read_volatile() == 0 {
            if chunk(scratch, at, FRAME) == 0 {
                return None;
            }
            offset = 0;
        }
        if offset > CHUNK - FRAME {
            return None;
        }
        let words = addr_of_mut!((*scratch).work).cast::<u8>().add(offset as usize).cast::<u64>();
        Some((words.read_volatile(), words.add(1).read_volatile()))
    }
}

/// Reads the stack from `at` on, a chunk of it, or where it ends before that only the bytes that must be had; how many, 0 for none.
#[inline(always)]
unsafe fn chunk(scratch: *mut Scratch, at: u64, least: u64) -> u64 {
    // SAFETY: fields of this processor's scratch, which has room for a chunk.
    unsafe {
        let into = addr_of_mut!((*scratch).work).cast::<c_void>();
        let read = match () {
            () if bpf_probe_read_user(into, CHUNK as u32, at as *const _) == 0 => CHUNK,
            () if bpf_probe_read_user(into, least as u32, at as *const _) == 0 => least,
            () => 0,
        };
        let chunk = addr_of_mut!((*scratch).chunk);
        addr_of_mut!((*chunk).base).write_volatile(at);
        addr_of_mut!((*chunk).length).write_volatile(read);
        read
    }
}

const _: () = assert!(CHUNK as usize <= WORK && TOP as u64 <= CHUNK);
