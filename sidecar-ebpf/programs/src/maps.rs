//! The maps, and small accesses to them.

use core::ptr::{addr_of, addr_of_mut};

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_probe_read_user, bpf_ringbuf_output, bpf_ringbuf_query};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, RingBuf};
use profiler_sidecar_ebpf::{Counter, Go, RECORD, SETTINGS, Sample, Setting, Target, TargetFlag};

/// `BPF_RB_NO_WAKEUP`.
const NO_WAKEUP: u64 = 1;
/// `BPF_RB_FORCE_WAKEUP`.
const FORCE_WAKEUP: u64 = 2;

/// To the reader; its size is set at load.
#[map]
static RECORDS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);
/// A record under construction.
#[map]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);
/// By [`Counter`].
#[map]
static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::COUNT, 0);
/// What is known of processes, by pid; its size is set at load. All of its memory is had at once: before Linux 6.1, programs of perf events
/// may have no other maps (kernel/bpf/verifier.c, `check_map_prog_compatibility`).
#[map]
static TARGETS: HashMap<u32, Target> = HashMap::with_max_entries(10240, 0);
/// By [`Setting`]: set at load, never changed, so the verifier knows the numbers.
#[unsafe(no_mangle)]
static SETTINGS_OF_LOAD: [u64; SETTINGS] = [0; SETTINGS];
/// Our pid namespace, all zero until a process of ours was seen.
#[map]
static OURS: Array<Namespace> = Array::with_max_entries(1, 0);

/// Bytes behind the fixed part of a record.
pub(crate) const BODY: usize = RECORD - size_of::<Sample>();
/// Bytes to read tables of a process into: 32 pairs of strings, or a bucket of a map.
pub(crate) const WORK: usize = 1024;

/// A pid namespace.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Namespace {
    /// How many are above it.
    pub(crate) level: u64,
    /// Where its `pid_namespace` is.
    pub(crate) address: u64,
}

/// A part of the stack that was read.
#[repr(C)]
pub(crate) struct Chunk {
    /// Where it begins.
    pub(crate) base: u64,
    /// Its bytes.
    pub(crate) length: u64,
}

/// What a processor keeps while it makes a record.
#[repr(C)]
pub(crate) struct Scratch {
    /// Bytes of `body` in use.
    pub(crate) length: u32,
    /// Which bucket of a map is next.
    pub(crate) bucket: u64,
    /// The bucket that the last one names as its overflow.
    pub(crate) overflow: u64,
    /// Head of a map: where its buckets are.
    pub(crate) map: [u64; 4],
    /// `g.labels`.
    pub(crate) labels: u64,
    /// 1: the thread was on the stack of its goroutine, where there is Go alone: C has the thread's own.
    pub(crate) is_on_goroutine: u64,
    /// The register that Go keeps `g` in, of processors that have one.
    pub(crate) g: u64,
    /// The thread pointer.
    pub(crate) thread_pointer: u64,
    /// The instruction at which the goroutine left its stack, 0: it did not, or the walk has come by there; with stack pointer, frame, and its caller where a register
    /// had that.
    pub(crate) left: u64,
    pub(crate) left_sp: u64,
    pub(crate) left_fp: u64,
    pub(crate) left_lr: u64,
    /// The stack of the goroutine that runs: where it begins, and its bytes, 0: none is known.
    pub(crate) stack: u64,
    pub(crate) stack_bytes: u64,
    /// The frame on it from which the walk went on elsewhere, 0: there is none, or the walk is back.
    pub(crate) departed: u64,
    /// How the last walk ended: bits of flags.
    pub(crate) end: u64,
    /// The head of a slice.
    pub(crate) slice: [u64; 2],
    /// The stack in `work`.
    pub(crate) chunk: Chunk,
    /// The record's fixed part.
    pub(crate) sample: Sample,
    /// What follows it.
    pub(crate) body: [u8; BODY],
    /// Tables of the process.
    pub(crate) work: [u64; WORK / 8],
}

#[inline(always)]
pub(crate) fn scratch() -> Option<*mut Scratch> {
    SCRATCH.get_ptr_mut(0)
}

#[inline(always)]
pub(crate) fn setting(which: Setting) -> u64 {
    // SAFETY: an element of an array; volatile, for the loader writes other numbers than the compiler sees.
    unsafe { addr_of!(SETTINGS_OF_LOAD).cast::<u64>().add(which as usize).read_volatile() }
}

#[inline(always)]
pub(crate) fn count(what: Counter) {
    if let Some(slot) = COUNTERS.get_ptr_mut(what as u32) {
        // SAFETY: this processor's slot. Ticks and events count in slots of their own, and neither interrupts its like.
        unsafe { *slot += 1 };
    }
}

/// Where [`OURS`] is kept.
#[inline(always)]
pub(crate) fn namespace() -> Option<*mut Namespace> {
    OURS.get_ptr_mut(0)
}

#[inline(always)]
pub(crate) fn target(pid: u32) -> Option<*const Target> {
    TARGETS.get_ptr(pid)
}

/// What is known of a process holds no more: it is sampled like one that nobody was told of, until the user side has looked at it.
#[inline(always)]
pub(crate) fn begins_anew(pid: u32) {
    if target(pid).is_some() {
        let _gone = TARGETS.remove(pid);
    }
}

/// The same, of a process that runs a Go program which is known: it is taken for one of that until the user side has looked at it.
#[inline(always)]
pub(crate) fn begins_as(pid: u32, go: Go) {
    let flags = TargetFlag::Go as u32 | TargetFlag::ByExecutable as u32;
    if TARGETS.insert(pid, Target { flags, padding: 0, context_offset: 0, go }, 0).is_err() {
        begins_anew(pid);
    }
}

/// A process has ended: what the user side has not told is not kept.
#[inline(always)]
pub(crate) fn ends(pid: u32) {
    // SAFETY: a value of the map.
    if target(pid).is_some_and(|target| unsafe { (*target).flags } & TargetFlag::ByExecutable as u32 != 0) {
        let _gone = TARGETS.remove(pid);
    }
}

/// How the reader is told of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Now.
    Now,
    /// Now, if it has read all that came before.
    Soon,
    /// When there is enough to read.
    WhenFull,
}

/// Puts a record into the ring; `false` if there is no room.
#[inline(always)]
pub(crate) fn send(record: *const u8, length: usize, wake: Wake) -> bool {
    // SAFETY: the map is a ring; `record` has `length` bytes, as the verifier proves.
    unsafe {
        let ring = addr_of!(RECORDS).cast_mut().cast();
        let flags = match wake {
            Wake::Now => FORCE_WAKEUP,
            Wake::Soon => 0,
            Wake::WhenFull if bpf_ringbuf_query(ring, 0) < setting(Setting::WakeAt) => NO_WAKEUP,
            Wake::WhenFull => FORCE_WAKEUP,
        };
        bpf_ringbuf_output(ring, record.cast_mut().cast(), length as u64, flags) == 0
    }
}

/// A word of the process's memory.
#[inline(always)]
pub(crate) fn user_word(at: u64) -> Option<u64> {
    let mut word = 0_u64;
    // SAFETY: the helper checks the address.
    let read = unsafe { bpf_probe_read_user(addr_of_mut!(word).cast(), 8, at as *const _) };
    (read == 0).then_some(word)
}

/// A word of the kernel's memory.
#[inline(always)]
pub(crate) fn kernel_word(at: u64) -> Option<u64> {
    let mut word = 0_u64;
    // SAFETY: the helper checks the address.
    let read = unsafe { bpf_probe_read_kernel(addr_of_mut!(word).cast(), 8, at as *const _) };
    (read == 0).then_some(word)
}

/// Four bytes of the kernel's memory.
#[inline(always)]
pub(crate) fn kernel_half(at: u64) -> Option<u32> {
    let mut half = 0_u32;
    // SAFETY: the helper checks the address.
    let read = unsafe { bpf_probe_read_kernel(addr_of_mut!(half).cast(), 4, at as *const _) };
    (read == 0).then_some(half)
}
