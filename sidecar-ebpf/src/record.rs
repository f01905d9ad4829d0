//! A record as it crosses the ring: a head, the fixed part of a sample, then as many bytes as it has frames and labels.
//!
//! Behind [`Sample`] follow, without gaps: [`TOP`] bytes, the first `top` of which are those of the stack from `sp` on; `user` frames of 8
//! bytes (leaf first); `kernel` frames of 8 bytes; `saved` frames of 8 bytes; `labels` pairs (a [`LabelHead`], the key, the value); `attributes` bytes of an OTEP 4947
//! record.

use crate::executable::Started;

/// Most frames of user space.
pub const FRAMES: usize = 512;
/// Most frames of the kernel: `PERF_MAX_STACK_DEPTH` of Linux is 127.
pub const KERNEL_FRAMES: usize = 127;
/// Bytes of the stack from `sp` on.
pub const TOP: usize = 128;
/// Most labels.
pub const LABELS: usize = 32;
/// Most bytes of a label's key.
pub const KEY: usize = 64;
/// Most bytes of a label's value.
pub const VALUE: usize = 256;
/// Most bytes of a thread context's attributes: OTEP 4947 bounds the record to 640 bytes, 28 of which are its head.
pub const ATTRIBUTES: usize = 612;
/// The longest record.
pub const RECORD: usize = size_of::<Sample>()
    + 8 * (2 * FRAMES + 1 + KERNEL_FRAMES)
    + TOP
    + LABELS * (size_of::<LabelHead>() + KEY + VALUE)
    + ATTRIBUTES;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A [`Sample`].
    Sample = 1,
    /// A process runs another program now: an [`Exec`].
    Exec = 2,
    /// A process has ended.
    Exit = 3,
    /// A process has made another one.
    Fork = 4,
}

/// What every record begins with.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Head {
    /// A [`Kind`].
    pub kind: u32,
    /// The process, as the sidecar's pid namespace numbers it.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The processor.
    pub cpu: u32,
}

const _: () = assert!(size_of::<Head>() == 16);

/// A process has become another program.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Exec {
    /// Which process.
    pub head: Head,
    /// Which program.
    pub started: Started,
}

const _: () = assert!(size_of::<Exec>() == 56);

/// Something else that happened to a process.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Event {
    /// Of which process.
    pub head: Head,
    /// The new process, of a fork.
    pub child: u32,
    /// Nothing.
    pub padding: u32,
}

const _: () = assert!(size_of::<Event>() == 24);

/// No [`Flag`].
pub const NO_FLAGS: u32 = 0;

/// A bit of [`Sample::flags`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Flag {
    /// There are more frames than [`FRAMES`].
    Cut = 1,
    /// The walk ended at memory that could not be read, or at a frame pointer that leads nowhere.
    Lost = 2,
    /// A goroutine ran: `goroutine` and `start_pc` mean something.
    Goroutine = 4,
    /// A thread context was in force: `trace_id` and `span_id` mean something.
    Context = 8,
    /// Labels were more, or longer, than there is room for.
    LabelsCut = 16,
    /// The kernel was interrupted, not the program.
    Kernel = 32,
    /// The second stack is what called C that has called Go on the same goroutine's stack, not what the goroutine left for C or for room.
    Outer = 64,
    /// It was known where its Go keeps goroutines.
    Known = 128,
}

/// The fixed part of a sample.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Sample {
    /// Whose, where.
    pub head: Head,
    /// Nanoseconds between two ticks when it was taken.
    pub period_nanos: u64,
    /// Which of the programs that the process runs one after the other: a number that no other one has. 0: not known. An odd one: it was
    /// becoming another program, and has no stack of user space.
    pub program: u64,
    /// The thread's name, zeros behind it; all zeros on the stack of a goroutine.
    pub comm: [u8; 16],
    /// Registers of user space: instruction, stack, frame, link (of processors that have one).
    pub ip: u64,
    /// Stack.
    pub sp: u64,
    /// Frame.
    pub fp: u64,
    /// Link.
    pub lr: u64,
    /// `goid`.
    pub goroutine: u64,
    /// `startpc`.
    pub start_pc: u64,
    /// The trace of the thread context.
    pub trace_id: [u8; 16],
    /// The span of the thread context.
    pub span_id: [u8; 8],
    /// Bits of [`Flag`].
    pub flags: u32,
    /// How many frames of user space follow.
    pub user: u16,
    /// How many frames of the kernel follow these.
    pub kernel: u16,
    /// How many bytes of the stack stand before them.
    pub top: u16,
    /// How many labels follow these frames.
    pub labels: u16,
    /// How many bytes of attributes follow these.
    pub attributes: u16,
    /// How many frames stand before the labels: of the goroutine's own stack, which it left for the thread's, of which `user` says nothing. The first is where it left
    /// it, the second who called that, where it is known. No more than [`FRAMES`] and one.
    pub saved: u16,
}

const _: () = {
    assert!(size_of::<Sample>() == 136);
    assert!(core::mem::offset_of!(Sample, program) == 24);
    assert!(core::mem::offset_of!(Sample, ip) == 48);
    assert!(core::mem::offset_of!(Sample, trace_id) == 96);
    assert!(core::mem::offset_of!(Sample, flags) == 120);
};

/// What stands before a label's key and value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LabelHead {
    /// Bytes of the key.
    pub key: u16,
    /// Bytes of the value.
    pub value: u16,
}

const _: () = assert!(size_of::<LabelHead>() == 4);
