//! How fast the clock runs in which the runtime counts waiting: the processor's time stamp counter on amd64, nanoseconds on arm64.
//!
//! In: `runtime.ticks`, where the runtime has measured it. Where it has not, it is measured here, which takes [`MEASURED`]. What was found first holds for
//! the process: another figure for the same ticks would have time go back. On the thread that captures.
//!
//! Sources: runtime/runtime.go (`ticksPerSecond`), runtime/os_linux_arm64.go (`cputicks` is `nanotime`).

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::elf::Machine;
use crate::go::layouts::Ticks;
use crate::target::Fault;

use super::memory::Memory;

/// For how long the clock is measured.
const MEASURED: Duration = Duration::from_millis(20);
/// Clocks that there are: 1 MHz to 100 GHz. Anything else was not written by the runtime.
const SPEEDS: std::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000;

/// The speed of the clock of one process, once it is known.
#[derive(Debug, Default)]
pub struct Speed(OnceLock<u64>);

impl Speed {
    /// Ticks of `cputicks` in a second.
    pub(super) fn ticks(
        &self,
        memory: &impl Memory,
        machine: Machine,
        variable: Option<u64>,
        layout: Ticks,
    ) -> Result<u64, Fault> {
        if let Some(known) = self.0.get() {
            return Ok(*known);
        }
        if machine == Machine::Aarch64 {
            return Ok(1_000_000_000);
        }
        let told = variable.map(|at| memory.word(at.wrapping_add(layout.rate() as u64))).transpose()?.flatten();
        let found = told.filter(|speed| SPEEDS.contains(speed)).unwrap_or_else(measured);
        Ok(*self.0.get_or_init(|| found))
    }
}

/// The speed of our own time stamp counter, which is that of all processes.
fn measured() -> u64 {
    let (began, from) = (Instant::now(), counter());
    std::thread::sleep(MEASURED);
    let (took, ticks) = (began.elapsed(), counter().wrapping_sub(from));
    ((ticks as f64 / took.as_secs_f64()) as u64).clamp(*SPEEDS.start(), *SPEEDS.end())
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: RDTSC has no precondition in user space on Linux, where CR4.TSD is clear unless a process asks for it (prctl(2),
    // PR_SET_TSC); it touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Only a target of amd64 counts in ticks, and none runs here.
#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}
