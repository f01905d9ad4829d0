//! More mappings than the kernel lets a process have by default (65,530).
//!
//! The bound is the machine's (`vm.max_map_count`, proc_sys_vm(5)): it is raised, one test after the other, and set back when that is done. Needs root, and a
//! `/proc/sys` that can be written.

use std::fs::File;

const BOUND: &str = "/proc/sys/vm/max_map_count";

/// The bound, raised until this is dropped.
#[derive(Debug)]
pub(crate) struct Raised {
    before: String,
    /// Held by whoever has raised it, in whichever test program.
    _turn: File,
}

impl Raised {
    /// Lets processes have at least so many; `None`: they may already, or nobody may raise it here, which is said.
    pub(crate) fn to(mappings: usize) -> Option<Self> {
        let turn = File::create(std::env::temp_dir().join("profiler-max-map-count.lock")).unwrap();
        turn.lock().unwrap();
        if allowed() >= mappings {
            return None;
        }
        let before = allowed().to_string();
        match std::fs::write(BOUND, mappings.to_string()) {
            Ok(()) => Some(Self { before, _turn: turn }),
            Err(error) => {
                println!("NOT RUN: {mappings} mappings: {BOUND}: {error}");
                None
            }
        }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        std::fs::write(BOUND, &self.before).unwrap();
    }
}

/// How many a process may have.
pub(crate) fn allowed() -> usize {
    std::fs::read_to_string(BOUND).unwrap().trim().parse().unwrap()
}
