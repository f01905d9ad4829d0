//! The attempt: memory read as that of other processes is.
//!
//! In: nothing; the memory is our own, which no right is needed for, so that what refuses it is a filter. Out: one [`Check`].

use super::check::Check;
use crate::target::Memory;

const NAME: &str = "reading memory";

pub(super) fn attempt() -> Check {
    static WORD: u64 = 0x7072_6f66_696c_6572;
    match Memory::of(std::process::id()).read_u64((&raw const WORD).addr() as u64) {
        Ok(read) if read == WORD => Check::works(NAME, "process_vm_readv works"),
        Ok(_) => {
            Check::lacks(NAME, "process_vm_readv gives other bytes than there are", "use another kernel or sandbox")
        }
        Err(fault) => Check::lacks(
            NAME,
            format!(
                "process_vm_readv is refused ({fault}): no heap, goroutines, contention, published context and variables of processes"
            ),
            "allow it in the seccomp profile of the container",
        ),
    }
}
