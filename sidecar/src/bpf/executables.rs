//! What the kernel side is told of Go programs by their files (`sidecar-ebpf/programs/src/executable.rs`), so that it knows processes that run them from their first instruction.

use aya::maps::{HashMap, MapData};
use profiler_sidecar_ebpf::{EXECUTABLE_WORDS, Executable, GO_WORDS, Go, Started};

/// The map, and a way of its own to the numbers of programs.
pub(super) struct Executables {
    map: HashMap<MapData, [u64; EXECUTABLE_WORDS], [u64; GO_WORDS]>,
    programs: HashMap<MapData, u32, u64>,
}

impl Executables {
    pub(super) fn new(
        map: HashMap<MapData, [u64; EXECUTABLE_WORDS], [u64; GO_WORDS]>,
        programs: HashMap<MapData, u32, u64>,
    ) -> Self {
        Self { map, programs }
    }

    /// Notes what is known of the program that a process started, if it still runs that: what was read of the process since then is true of that file.
    pub(super) fn note(&mut self, pid: u32, started: Started, go: &Go) {
        let Started { program, executable } = started;
        if executable != Executable::default() && self.programs.get(&pid, 0).is_ok_and(|now| now == program) {
            // Without it, the next process waits for a look, too.
            let _full = self.map.insert(executable.words(), go.words(), 0);
        }
    }
}
