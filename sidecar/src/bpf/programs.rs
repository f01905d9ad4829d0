//! Which program each process runs, as the kernel side numbers them (`sidecar-ebpf/programs/src/program.rs`).
//!
//! In: a pid. Out: a number that changes with each exec before anybody can look at the new program. What was read of a process between two
//! equal answers was all of the program of this number, and so is what samples with this number say. Belongs to the thread that samples.

use aya::maps::{HashMap, MapData, MapError};

use crate::error::Error;

/// `BPF_NOEXIST`: only if there is none (`include/uapi/linux/bpf.h`).
const NEW: u64 = 1;

/// The numbers.
pub struct Programs {
    map: HashMap<MapData, u32, u64>,
    /// Given to a process that was neither sampled nor seen in an exec; far below those that the kernel side gives, which are times.
    next: u64,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Programs").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Programs {
    pub(super) fn new(map: HashMap<MapData, u32, u64>) -> Self {
        Self { map, next: 2 }
    }

    /// The number of the program that a process runs. `None`: it is becoming another one.
    ///
    /// # Errors
    /// The kernel refused to tell.
    pub fn of(&mut self, pid: u32) -> Result<Option<u64>, Error> {
        let number = match self.known(pid)? {
            Some(number) => number,
            None => self.give(pid)?,
        };
        Ok((number & 1 == 0).then_some(number))
    }

    fn known(&self, pid: u32) -> Result<Option<u64>, Error> {
        match self.map.get(&pid, 0) {
            Ok(number) => Ok(Some(number)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(refused(&error)),
        }
    }

    /// Gives a process a number, unless the kernel side did so meanwhile.
    fn give(&mut self, pid: u32) -> Result<u64, Error> {
        let number = self.next;
        self.next += 2;
        let given = self.map.insert(pid, number, NEW);
        match self.known(pid)? {
            Some(number) => Ok(number),
            // Another process took its place at once: it is as good as any number, for no sample has it.
            None => given.map(|()| number).map_err(|error| refused(&error)),
        }
    }
}

fn refused(error: &MapError) -> Error {
    let remedy = "let the sidecar keep CAP_BPF, or take Linux 5.19 or newer, which lets it use what it opened";
    Error::new("the kernel side's table of programs", error.to_string(), remedy)
}
