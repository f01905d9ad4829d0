//! The kernel's own account of eBPF programs: how often one ran, and for how long in all (`bpf_stats`).
//!
//! It reads a clock before and after each run; the interrupt around it is not in it. Off but while it is asked for.

use std::fs;

use profiler_tests::Result;

use super::watched::field;

/// What turns the account on (`Documentation/admin-guide/sysctl/kernel.rst`).
const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// `BPF_PROG_TYPE_PERF_EVENT`, as fdinfo has it.
const PERF_EVENT: &str = "7";

/// How often the kernel side ran, and for how long in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    pub(crate) count: f64,
    pub(crate) nanos: f64,
}

impl Runs {
    /// Those of all programs of perf events among descriptors (`bpf_prog_show_fdinfo` in `kernel/bpf/syscall.c`). One that another one goes on in has none of its own:
    /// its time is the first one's.
    pub(super) fn of(fdinfo: &[String]) -> Result<Self> {
        let programs: Vec<_> = fdinfo.iter().filter(|info| field(info, "prog_type") == Some(PERF_EVENT)).collect();
        if programs.is_empty() {
            return Err("it has no eBPF program of perf events".into());
        }
        let sum =
            |name| -> Option<f64> { programs.iter().map(|program| field(program, name)?.parse::<f64>().ok()).sum() };
        let missing = || "the kernel does not say run times: bpf_stats_enabled";
        Ok(Self { count: sum("run_cnt").ok_or_else(missing)?, nanos: sum("run_time_ns").ok_or_else(missing)? })
    }

    /// Nanoseconds of each run since `before`.
    pub(crate) fn mean_since(self, before: Self) -> Result<f64> {
        let count = self.count - before.count;
        if count > 0.0 { Ok((self.nanos - before.nanos) / count) } else { Err("the program did not run".into()) }
    }
}

/// The account, while this lives; as it was, afterwards.
#[derive(Debug)]
pub(crate) struct BpfStats(String);

impl BpfStats {
    pub(crate) fn on() -> Result<Self> {
        let before = fs::read_to_string(BPF_STATS)?;
        fs::write(BPF_STATS, "1").map_err(|error| format!("{BPF_STATS}: {error}: run this as root"))?;
        Ok(Self(before))
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _restored = fs::write(BPF_STATS, self.0.trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the account is that of the program of perf events, and what a run took since an earlier look.
    #[test]
    fn runs_are_those_of_the_sampling_program() {
        let info =
            |kind: &str, count: u32| format!("prog_type:\t{kind}\nrun_time_ns:\t{}\nrun_cnt:\t{count}\n", 500 * count);
        let early = Runs::of(&[info("17", 7), info("7", 10), info("7", 0)]).unwrap();
        let late = Runs { count: 14.0, nanos: early.nanos + 8000.0 };
        assert_eq!((early.count, late.mean_since(early).unwrap()), (10.0, 2000.0));
        assert!(late.mean_since(late).is_err() && Runs::of(&[info("17", 7)]).is_err());
    }
}
