//! What the kernel side knows of programs: the map `EXECUTABLES`, from the file of a program to where Go keeps what in processes that run it.
//!
//! So a process that runs a program which ran before has goroutines and labels from its first sample on, however late the user side comes to look at it.

/// Most programs that are known by their files.
pub const EXECUTABLES_KNOWN: u32 = 512;
/// Words of an [`Executable`].
pub const EXECUTABLE_WORDS: usize = size_of::<Executable>() / 8;

/// The file of a program, as the kernel tells files apart: the inode that was opened for the exec. Only the kernel side makes them; the user side gives back what an exec
/// said, so it does not matter that `stat` says other numbers of files of an overlay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Executable {
    /// `inode.i_ino`.
    pub inode: u64,
    /// `inode.i_size`.
    pub size: u64,
    /// When it was changed or written last, in nanoseconds since 1970: `i_ctime`, which nobody can set.
    pub changed_nanos: u64,
    /// `super_block.s_dev`.
    pub device: u32,
    /// `inode.i_generation`: another one where the number of an inode is used again, on file systems that have it; overlays have 0.
    pub generation: u32,
}

/// A program that a process became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Started {
    /// Its number, as that of [`crate::Sample::program`].
    pub program: u64,
    /// Its file; all zeros: not known.
    pub executable: Executable,
}

const _: () = assert!(size_of::<Executable>() == 32 && size_of::<Started>() == 40);

impl Executable {
    /// As the map takes it.
    #[must_use]
    pub const fn words(&self) -> [u64; EXECUTABLE_WORDS] {
        [self.inode, self.size, self.changed_nanos, crate::pair(self.device, self.generation)]
    }
}
