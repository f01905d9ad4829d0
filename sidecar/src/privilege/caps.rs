//! The capabilities of the calling thread: `capget` and `capset`, which the C library has no wrapper for.
//!
//! In: sets. Out: sets, or the kernel's error. Version 3 of the interface: two words of 32 bits for each set.
//!
//! Source: capabilities(7), capget(2), `include/uapi/linux/capability.h`.

use std::io;

/// What the sidecar has to do with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Reading files and folders whatever their modes.
    DacReadSearch = 2,
    /// Looking at processes of others: their memory, what their folders of `/proc` lead to.
    SysPtrace = 19,
    /// What `Perfmon`, `Bpf` and `Syslog` were a part of.
    SysAdmin = 21,
    /// Addresses of the kernel.
    Syslog = 34,
    /// Perf events of others, tracing programs.
    Perfmon = 38,
    /// Programs and maps.
    Bpf = 39,
    /// Opening what `/proc/PID/map_files` leads to.
    CheckpointRestore = 40,
}

impl Capability {
    /// Its name, as the kernel's documentation has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Syslog => "CAP_SYSLOG",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
            Self::CheckpointRestore => "CAP_CHECKPOINT_RESTORE",
        }
    }
}

/// A set of capabilities, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Set(u64);

impl Set {
    /// Those whose bits are set, as `/proc/PID/status` has them.
    #[must_use]
    pub fn of(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether `capability` is in it.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u8) != 0
    }

    /// It without `capability`.
    #[must_use]
    pub fn without(self, capability: Capability) -> Self {
        Self(self.0 & !(1 << capability as u8))
    }

    /// It with `capability`.
    #[must_use]
    pub fn with(self, capability: Capability) -> Self {
        Self(self.0 | 1 << capability as u8)
    }
}

/// The three sets of a thread that `capset` changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    pub(super) effective: Set,
    pub(super) permitted: Set,
    pub(super) inheritable: Set,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION_3: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`; pid 0 is the calling thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const _: () = assert!(size_of::<Header>() == 8 && size_of::<Data>() == 12);

/// The sets of the calling thread.
pub(super) fn read() -> io::Result<State> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: capget(2) writes the header's version and, for version 3, two elements of data; both live and are ours alone.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let [low, high] = data;
    let joined = |low: u32, high: u32| Set(u64::from(low) | u64::from(high) << 32);
    Ok(State {
        effective: joined(low.effective, high.effective),
        permitted: joined(low.permitted, high.permitted),
        inheritable: joined(low.inheritable, high.inheritable),
    })
}

/// Gives the calling thread these sets.
pub(super) fn write(state: &State) -> io::Result<()> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let word = |shift: u32| Data {
        effective: word_of(state.effective, shift),
        permitted: word_of(state.permitted, shift),
        inheritable: word_of(state.inheritable, shift),
    };
    let data = [word(0), word(32)];
    // SAFETY: capset(2) reads the header and, for version 3, two elements of data; it may write the header's version.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[expect(clippy::cast_possible_truncation, reason = "one word of 32 bits of the two is meant")]
fn word_of(set: Set, shift: u32) -> u32 {
    (set.0 >> shift) as u32
}
