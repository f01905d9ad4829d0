//! Which file a program is, and what is known of Go programs by their files: at an exec, before the program has run.
//!
//! In: what the exec is of. Out: the key of the map `EXECUTABLES`, and what stands there. The user side puts there what it found out of a program that ran, and alone changes it.
//!
//! Source: `struct linux_binprm` (`include/linux/binfmts.h`), whose `file` is the program itself at `sched_process_exec`, the interpreter of a script's.

use aya_ebpf::macros::map;
use aya_ebpf::maps::HashMap;
use profiler_sidecar_ebpf::{EXECUTABLES_KNOWN, Executable, Go, Setting};

use crate::maps::{kernel_half, kernel_word, setting};

/// Bits that nanoseconds need: since Linux 6.13 one of the others says that somebody has asked for them (`I_CTIME_QUERIED`, `include/linux/fs.h`).
const NANOS: u64 = (1 << 30) - 1;

/// All of its memory is had at once, see `TARGETS`. The kernel's own order of use, as of `PROGRAMS`, would keep a part of the room for each processor that writes.
#[map]
static EXECUTABLES: HashMap<Executable, Go> = HashMap::with_max_entries(EXECUTABLES_KNOWN, 0);

/// The file that an exec is of.
#[inline(always)]
pub(crate) fn of(binprm: u64) -> Option<Executable> {
    if setting(Setting::Executables) == 0 {
        return None;
    }
    let file = kernel_word(binprm + setting(Setting::BinprmFile))?;
    let inode = kernel_word(file + setting(Setting::FileInode))?;
    let super_block = kernel_word(inode + setting(Setting::InodeSuperBlock))?;
    let seconds = kernel_word(inode + setting(Setting::InodeChanged))?;
    let nanos = u64::from(kernel_half(inode + setting(Setting::InodeChangedNanos))?) & NANOS;
    Some(Executable {
        inode: kernel_word(inode + setting(Setting::InodeNumber))?,
        size: kernel_word(inode + setting(Setting::InodeSize))?,
        changed_nanos: seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos),
        device: kernel_half(super_block + setting(Setting::SuperBlockDevice))?,
        generation: kernel_half(inode + setting(Setting::InodeGeneration))?,
    })
}

/// What is known of it.
#[inline(always)]
pub(crate) fn known(executable: &Executable) -> Option<Go> {
    // SAFETY: a value of the map, which can become another one's while it is read; what it says of a process holds until the user side has looked at that.
    EXECUTABLES.get_ptr(executable).map(|go| unsafe { go.read() })
}
