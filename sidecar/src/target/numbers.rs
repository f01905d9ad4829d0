//! Whose numbers `/proc` has.
//!
//! In: `/proc/self` (proc(5)), or another root's. Out: whether its numbers are those of the pid namespace that we are in. Where they are not (`nsenter --pid`, `unshare --pid`,
//! without a mount of `/proc` behind it), each number is another process's, of whom nothing may be read.

use std::path::Path;

use crate::error::Error;

/// Inode of the machine's own pid namespace: `PROC_PID_INIT_INO`, include/linux/proc_ns.h.
pub const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Whether a link `/proc/PID/ns/pid`, namespaces(7), leads to that one.
#[must_use]
pub fn leads_to_initial(link: &[u8]) -> bool {
    link == format!("pid:[{INITIAL_NAMESPACE}]").as_bytes()
}

/// What is wrong where they are others,
pub const FOREIGN: &str = "it shows another pid namespace than the one we are in: its numbers are other processes'";
/// and what to do about it.
pub const REMEDY: &str = "mount a /proc of the pod's pid namespace: mount -t proc proc /proc";

/// Whether `/proc` below `root` knows us, number `pid`, by another number, or not at all.
#[must_use]
pub fn are_foreign(root: &Path, pid: u32) -> bool {
    std::fs::read_link(root.join("proc/self")).ok().as_deref().and_then(Path::to_str) != Some(&pid.to_string())
}

/// Refuses to look at any process where the numbers are others'. Without any `/proc`, who looks says what is missing.
///
/// # Errors
/// When they are.
pub fn check() -> Result<(), Error> {
    // The link is in each of them, even where it leads nowhere.
    let is_there = std::fs::symlink_metadata("/proc/self").is_ok();
    if is_there && are_foreign(Path::new("/"), std::process::id()) {
        return Err(Error::new("/proc", FOREIGN, REMEDY));
    }
    Ok(())
}
