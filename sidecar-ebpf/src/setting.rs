//! What the user side tells the kernel side once, at load: read-only data that the verifier takes for constants.

/// Index of a number in `SETTINGS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Setting {
    /// 1: ours is the initial pid namespace.
    InitialNamespace = 0,
    /// `st_dev` of `/proc/self/ns/pid`, as the kernel's `dev_t`.
    NamespaceDevice = 1,
    /// `st_ino` of `/proc/self/ns/pid`.
    NamespaceInode = 2,
    /// 1: frames of the kernel are wanted.
    KernelStacks = 3,
    /// 1: the offsets below are those of the running kernel; 0: there is no BTF, so nothing that stands on them works.
    Offsets = 4,
    /// `task_struct.flags`.
    TaskFlags = 5,
    /// `task_struct.thread_pid`.
    TaskThreadPid = 6,
    /// `task_struct.tgid`.
    TaskTgid = 7,
    /// `task_struct.signal`.
    TaskSignal = 8,
    /// `signal_struct.live`.
    SignalLive = 9,
    /// `pid.level`.
    PidLevel = 10,
    /// `pid.numbers`, each of them `upid`: a number and, 8 bytes on, its namespace.
    PidNumbers = 11,
    /// `signal_struct.pids`: a pointer to a `pid` for each `pid_type`.
    SignalPids = 12,
    /// The thread pointer: `task_struct.thread.fsbase` on x86_64, `task_struct.thread.uw.tp_value` on aarch64.
    ThreadPointer = 13,
    /// Bytes in the ring from which on the reader is woken up.
    WakeAt = 14,
    /// `linux_binprm.file`.
    BinprmFile = 15,
    /// `file.f_inode`.
    FileInode = 16,
    /// `inode.i_ino`.
    InodeNumber = 17,
    /// `inode.i_size`.
    InodeSize = 18,
    /// `inode.i_generation`.
    InodeGeneration = 19,
    /// `inode.i_sb`.
    InodeSuperBlock = 20,
    /// `super_block.s_dev`.
    SuperBlockDevice = 21,
    /// The seconds of `inode.i_ctime`.
    InodeChanged = 22,
    /// Its nanoseconds, 4 bytes.
    InodeChangedNanos = 23,
    /// 1: the offsets for files of programs are known, those above from [`Setting::BinprmFile`] on.
    Executables = 24,
}

/// How many there are.
pub const SETTINGS: usize = 28;
