//! One on-CPU sample as it left the kernel: addresses and bytes, nothing looked up yet.
//!
//! Made by `drain`, taken by `naming` and `aggregate`.

mod labels;

use std::borrow::Cow;

pub use labels::Labels;

/// A sample of one thread on one processor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sample {
    /// Process and thread, as the sidecar's own pid namespace numbers them.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The processor it ran on.
    pub cpu: u32,
    /// Nanoseconds of CPU time that it stands for: the period in force when it was taken.
    pub period_nanos: u64,
    /// Which of the programs that the process runs one after the other: a number that no other one has ([`crate::bpf::Programs`]). 0: not
    /// known. An odd one: it was becoming another program.
    pub program: u64,
    /// The thread's name; none on the stack of a goroutine.
    pub comm: Comm,
    /// Whether it was in the kernel.
    pub in_kernel: bool,
    /// The kernel's addresses then, leaf first, if they were asked for.
    pub kernel: Vec<u64>,
    /// Addresses of user space, leaf first: `user[0]` is the interrupted instruction where it was in user space, the others are return addresses.
    pub user: Vec<u64>,
    /// Where the walk of user space ended.
    pub end: End,
    /// Of a goroutine that left its stack for the thread's, as it does for C and for a larger stack, and whose callers the walk did not find: where it left it, then return
    /// addresses.
    pub saved: Vec<u64>,
    /// Whether these are of a goroutine that is on its own stack again, where C that it called has called Go.
    pub is_outer: bool,
    /// Whether the kernel side knew where the process keeps goroutines.
    pub is_known: bool,
    /// Registers of user space.
    pub registers: Registers,
    /// Up to 128 bytes from `registers.sp` on.
    pub top: Vec<u8>,
    /// What Go's runtime says of the goroutine that ran.
    pub goroutine: Option<Goroutine>,
    /// Tags: Go's labels of `pprof.Do`.
    pub labels: Labels,
    /// Whether labels were more, or longer, than there is room for.
    pub labels_cut: bool,
    /// Tags: the attributes of a published thread context (OTEP 4947), each key as its number in the process context's
    /// `threadlocal.attribute_key_map`.
    pub attributes: Vec<(u8, Vec<u8>)>,
    /// The span of a published thread context.
    pub span: Option<Span>,
}

/// What a thread is called: `comm` of `struct task_struct`, 15 bytes with zeros behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Comm(pub [u8; 16]);

impl Comm {
    /// The name, without the zeros. What is no UTF-8 in it is replaced.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.0.split(|byte| *byte == 0).next().unwrap_or_default())
    }
}

/// As much of a text as there is room for.
impl From<&str> for Comm {
    fn from(text: &str) -> Self {
        let mut name = [0; 16];
        name.iter_mut().zip(text.bytes().take(15)).for_each(|(to, from)| *to = from);
        Self(name)
    }
}

/// Registers that a walk begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// Instruction.
    pub ip: u64,
    /// Stack.
    pub sp: u64,
    /// Frame: `rbp`, `x29`.
    pub fp: u64,
    /// Link register, of processors that have one.
    pub lr: u64,
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum End {
    /// At the root: a frame pointer of zero, or the goroutine's entry.
    #[default]
    Root,
    /// There are more frames than the kernel side walks.
    Cut,
    /// At memory that could not be read, or a frame pointer that leads nowhere.
    Lost,
}

/// A goroutine, as the kernel side reads it from `g`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Goroutine {
    /// `goid`.
    pub id: u64,
    /// `startpc`: its function, the root of its stack.
    pub start_pc: u64,
}

/// A span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Its trace.
    pub trace_id: [u8; 16],
    /// Itself.
    pub span_id: [u8; 8],
}
