//! What the kernel side knows of a process: the value of the map `TARGETS`, whose key is the pid.

use crate::pair;

/// Words of a [`Target`].
pub const TARGET_WORDS: usize = size_of::<Target>() / 8;
/// Words of a [`Go`].
pub const GO_WORDS: usize = size_of::<Go>() / 8;

/// A bit of [`Target::flags`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum TargetFlag {
    /// No samples of it.
    Excluded = 1,
    /// [`Target::go`] holds.
    Go = 2,
    /// [`Target::context_offset`] holds.
    Context = 4,
    /// The kernel side put it there, at an exec of a program that it knew: it takes it away at the end of the process.
    ByExecutable = 8,
}

/// A process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Target {
    /// Bits of [`TargetFlag`].
    pub flags: u32,
    /// Nothing.
    pub padding: u32,
    /// From the thread pointer to the word that points to the thread's context record (OTEP 4947).
    pub context_offset: i64,
    /// Where Go keeps what.
    pub go: Go,
}

/// How labels of `pprof.Do` are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum LabelForm {
    /// Not read.
    None = 0,
    /// `*map[string]string`, of Go's maps before 1.24.
    Map = 1,
    /// A pointer to a slice of pairs of strings.
    Slice = 2,
}

/// Offsets in Go's runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Go {
    /// From the thread pointer to the word that points to `g`.
    pub tls_offset: i64,
    /// 1: `g` is in its register (`x28` of aarch64), not behind the thread pointer.
    pub in_register: u32,
    /// `g.m`.
    pub g_m: u32,
    /// `m.curg`.
    pub m_curg: u32,
    /// `g.goid`.
    pub g_goid: u32,
    /// `g.startpc`.
    pub g_startpc: u32,
    /// `g.labels`.
    pub g_labels: u32,
    /// A [`LabelForm`].
    pub labels: u32,
    /// Bytes of a `g` from its beginning to the end of the last of the fields above: they are read at once.
    pub g_bytes: u32,
    /// `g.sched.sp`.
    pub g_sched_sp: u32,
    /// `g.sched.bp`.
    pub g_sched_bp: u32,
}

/// Most bytes of a `g` that are read.
pub const G_BYTES: usize = 512;

const _: () = {
    assert!(size_of::<Go>() == 48);
    assert!(size_of::<Target>() == 64);
};

impl Go {
    /// As maps take it.
    #[must_use]
    pub const fn words(&self) -> [u64; GO_WORDS] {
        [
            self.tls_offset.cast_unsigned(),
            pair(self.in_register, self.g_m),
            pair(self.m_curg, self.g_goid),
            pair(self.g_startpc, self.g_labels),
            pair(self.labels, self.g_bytes),
            pair(self.g_sched_sp, self.g_sched_bp),
        ]
    }
}

impl Target {
    /// As the map takes it.
    #[must_use]
    pub const fn words(&self) -> [u64; TARGET_WORDS] {
        let [a, b, c, d, e, f] = self.go.words();
        [pair(self.flags, self.padding), self.context_offset.cast_unsigned(), a, b, c, d, e, f]
    }
}
