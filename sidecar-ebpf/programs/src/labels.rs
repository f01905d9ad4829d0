//! Labels of `pprof.Do`, in either form, as pairs behind the record's frames.
//!
//! Source: `runtime/pprof/label.go`: `labelMap` is a `map[string]string` up to Go 1.23, from 1.24 on a struct that begins with a slice of
//! pairs; `runtime/map.go` of Go 1.23 (`hmap`, `bmap`) for the map's layout. Functions of their own for the verifier.

use core::ptr::{addr_of, addr_of_mut};

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_sidecar_ebpf::{Flag, KEY, LABELS, LabelHead, VALUE};

use crate::maps::{BODY, Scratch, WORK, scratch};

/// Bytes of a pair of strings, each pointer and length.
const PAIR: usize = 32;
/// Slots of a bucket.
const SLOTS: usize = 8;
/// Bytes of a bucket: a byte of hash, a key and a value each, and a pointer.
const BUCKET: usize = SLOTS * (1 + PAIR) + 8;
/// `minTopHash`: smaller ones say that a slot is empty, or that its content has moved.
const MIN_TOP_HASH: u8 = 5;
/// Buckets that are looked at; 32 labels fill 8, and may have 4 old ones.
const BUCKETS: usize = 24;
/// Most of what a pair takes in the record.
const ROOM: usize = size_of::<LabelHead>() + KEY + VALUE;

/// `[]label` behind the pointer in the scratch.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn read_slice() -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    // SAFETY: this processor's scratch; the table has room for LABELS pairs.
    unsafe {
        let slice = addr_of_mut!((*scratch).slice).cast::<u64>();
        if bpf_probe_read_user(slice.cast(), 16, (*scratch).labels as *const _) != 0 {
            return cut(scratch);
        }
        let (list, mut length) = (slice.read_volatile(), slice.add(1).read_volatile());
        if length > LABELS as u64 {
            length = LABELS as u64;
            cut(scratch);
        }
        let table = addr_of_mut!((*scratch).work);
        if bpf_probe_read_user(table.cast(), (length as u32) * PAIR as u32, list as *const _) != 0 {
            return cut(scratch);
        }
        let words = table.cast::<u64>();
        for pair in 0..LABELS {
            if pair as u64 >= length {
                break;
            }
            let word = |index: usize| words.add(pair * 4 + index).read_volatile();
            put_label(word(0), word(1), word(2), word(3));
        }
    }
    0
}

/// `*map[string]string` behind the pointer in the scratch.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn read_map() -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    // SAFETY: this processor's scratch; `hmap` has 4 words and more.
    unsafe {
        let map = addr_of_mut!((*scratch).map).cast::<u64>();
        if bpf_probe_read_user(map.cast(), 8, (*scratch).labels as *const _) != 0 {
            return cut(scratch);
        }
        let head = map.read_volatile();
        // One that nothing was ever put into may have no memory, and one without labels none for buckets.
        if head == 0 {
            return 0;
        }
        if bpf_probe_read_user(map.cast(), 32, head as *const _) != 0 {
            return cut(scratch);
        }
        if map.read_volatile() == 0 {
            return 0; // hmap.count
        }
        addr_of_mut!((*scratch).bucket).write_volatile(0);
        addr_of_mut!((*scratch).overflow).write_volatile(0);
        for _ in 0..BUCKETS {
            if next_bucket() == 0 {
                return 0;
            }
            read_bucket();
        }
        cut(scratch)
    }
}

/// Reads the next bucket into the table; 0 if there is none.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn next_bucket() -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    // SAFETY: this processor's scratch; a bucket fits into the table.
    unsafe {
        let map = addr_of!((*scratch).map).cast::<u64>();
        let mut bucket = (*scratch).overflow;
        if bucket == 0 {
            let buckets = 1_u64 << ((map.add(1).read_volatile() >> 8) & 31); // hmap.B
            let (new, old) = (map.add(2).read_volatile(), map.add(3).read_volatile());
            let index = (*scratch).bucket;
            (*scratch).bucket = index + 1;
            bucket = match index {
                _ if index < buckets => new + index * BUCKET as u64,
                _ if old != 0 && index - buckets < buckets / 2 => old + (index - buckets) * BUCKET as u64,
                _ => return 0,
            };
        }
        let table = addr_of_mut!((*scratch).work);
        if bpf_probe_read_user(table.cast(), BUCKET as u32, bucket as *const _) != 0 {
            cut(scratch);
            return 0;
        }
        (*scratch).overflow = table.cast::<u64>().add(BUCKET / 8 - 1).read_volatile();
    }
    1
}

/// Takes over the bucket in the table.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn read_bucket() -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    // SAFETY: a bucket is in the table.
    unsafe {
        let words = addr_of!((*scratch).work).cast::<u64>();
        for slot in 0..SLOTS {
            if addr_of!((*scratch).work).cast::<u8>().add(slot).read_volatile() < MIN_TOP_HASH {
                continue;
            }
            let key = words.add(1 + 2 * slot);
            let value = words.add(1 + 2 * SLOTS + 2 * slot);
            put_label(key.read_volatile(), key.add(1).read_volatile(), value.read_volatile(), value.add(1).read_volatile());
        }
    }
    0
}

/// Appends a pair to the record, cut to what there is room for.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn put_label(key: u64, key_length: u64, value: u64, value_length: u64) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    let key_room = if key_length > KEY as u64 { KEY as u64 } else { key_length };
    let value_room = if value_length > VALUE as u64 { VALUE as u64 } else { value_length };
    // SAFETY: this processor's scratch; there is room for the longest pair.
    unsafe {
        let length = addr_of!((*scratch).length).read_volatile() as usize;
        if length > BODY - ROOM || (*scratch).sample.labels >= LABELS as u16 {
            return cut(scratch);
        }
        let at = addr_of_mut!((*scratch).body).cast::<u8>().add(length);
        if bpf_probe_read_user(at.add(4).cast(), key_room as u32, key as *const _) != 0
            || bpf_probe_read_user(at.add(4 + key_room as usize).cast(), value_room as u32, value as *const _) != 0
        {
            return cut(scratch);
        }
        at.write_volatile(key_room as u8);
        at.add(1).write_volatile(0);
        at.add(2).write_volatile(value_room as u8);
        at.add(3).write_volatile((value_room >> 8) as u8);
        if key_room != key_length || value_room != value_length {
            cut(scratch);
        }
        (*scratch).sample.labels += 1;
        (*scratch).length = (length + 4 + key_room as usize + value_room as usize) as u32;
    }
    0
}

/// Notes that labels are not whole.
#[inline(always)]
unsafe fn cut(scratch: *mut Scratch) -> u32 {
    // SAFETY: this processor's scratch.
    unsafe { (*scratch).sample.flags |= Flag::LabelsCut as u32 };
    0
}

const _: () = assert!(LABELS * PAIR <= WORK && BUCKET <= WORK && BUCKET == 272);
