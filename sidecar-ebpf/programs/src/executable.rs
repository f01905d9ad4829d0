//! Which file a program is, and what is known of Go programs by their files: at an exec, before the program has run.
//!
//! In: what the exec is of. Out: the key of the map `EXECUTABLES`, and what stands there. The user side puts there what it found out of a program that ran; of a file that
//! has been written anew meanwhile, with as many bytes, it holds until the user side has looked at the process.
//!
//! Source: `struct linux_binprm` (`include/linux/binfmts.h`), whose `file` is the program itself at `sched_process_exec`, the interpreter of a script's.

use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;
use profiler_sidecar_ebpf::{Executable, Go, Setting};

use crate::maps::{kernel_half, kernel_word, setting};

/// What was not asked for longest makes room. All of its memory is had at once, see `TARGETS`.
#[map]
static EXECUTABLES: LruHashMap<Executable, Go> = LruHashMap::with_max_entries(512, 0);

/// The file that an exec is of.
#[inline(always)]
pub(crate) fn of(binprm: u64) -> Option<Executable> {
    if setting(Setting::Offsets) == 0 {
        return None;
    }
    let file = kernel_word(binprm + setting(Setting::BinprmFile))?;
    let inode = kernel_word(file + setting(Setting::FileInode))?;
    let super_block = kernel_word(inode + setting(Setting::InodeSuperBlock))?;
    Some(Executable {
        inode: kernel_word(inode + setting(Setting::InodeNumber))?,
        size: kernel_word(inode + setting(Setting::InodeSize))?,
        device: kernel_half(super_block + setting(Setting::SuperBlockDevice))?,
        generation: kernel_half(inode + setting(Setting::InodeGeneration))?,
    })
}

/// What is known of it.
#[inline(always)]
pub(crate) fn known(executable: &Executable) -> Option<Go> {
    // SAFETY: a value of the map, which can become another one's while it is read; the user side corrects what it says of a process.
    EXECUTABLES.get_ptr(executable).map(|go| unsafe { go.read() })
}
