//! What the kernel side is told of Go programs by their files (`sidecar-ebpf/programs/src/executable.rs`), so that it knows processes that run them from their first instruction.
//!
//! In: what a process started, as the record of its exec says, and what was found out of that program. Out: entries of the map `EXECUTABLES`, of those programs that were told
//! last. Belongs to the thread that samples.

use std::collections::HashMap;

use aya::maps::{self, MapData};
use profiler_sidecar_ebpf::{EXECUTABLE_WORDS, EXECUTABLES_KNOWN, Executable, GO_WORDS, Go, Started};

/// The map, and a way of its own to the numbers of programs.
pub(super) struct Executables {
    map: maps::HashMap<MapData, [u64; EXECUTABLE_WORDS], [u64; GO_WORDS]>,
    programs: maps::HashMap<MapData, u32, u64>,
    /// What is in the map, and when it was noted last, as a count.
    known: HashMap<Executable, (Go, u64)>,
    noted: u64,
}

impl Executables {
    pub(super) fn new(
        map: maps::HashMap<MapData, [u64; EXECUTABLE_WORDS], [u64; GO_WORDS]>,
        programs: maps::HashMap<MapData, u32, u64>,
    ) -> Self {
        Self { map, programs, known: HashMap::new(), noted: 0 }
    }

    /// Whether a process has another number than that of this program: it has become yet another one, or there was no more room for its number.
    pub(super) fn has_left(&self, pid: u32, started: Started) -> bool {
        self.programs.get(&pid, 0).is_ok_and(|now| now != started.program)
    }

    /// Notes what is known of the program that a process started, if it still runs that: what was read of the process since then is true of that file. `None`: it is no
    /// Go program, or keeps things nobody knows where. Where there is no more room, the program makes some of which no process was told for longest.
    pub(super) fn note(&mut self, pid: u32, started: Started, go: Option<&Go>) {
        let Started { program, executable } = started;
        if executable == Executable::default() || !self.programs.get(&pid, 0).is_ok_and(|now| now == program) {
            return;
        }
        let Some(go) = go else { return self.forget(executable) };
        self.noted += 1;
        match self.known.get_mut(&executable) {
            Some((known, noted)) if known == go => *noted = self.noted,
            _ => {
                if self.known.len() >= EXECUTABLES_KNOWN as usize
                    && let Some((oldest, _)) = self.known.iter().min_by_key(|(_, (_, noted))| *noted)
                {
                    self.forget(*oldest);
                }
                if self.map.insert(executable.words(), go.words(), 0).is_ok() {
                    self.known.insert(executable, (*go, self.noted));
                }
            }
        }
    }

    fn forget(&mut self, executable: Executable) {
        if self.known.remove(&executable).is_some() {
            // It was there: nobody else removes any.
            let _gone = self.map.remove(&executable.words());
        }
    }
}
