//! Which capabilities there are, what works with them, and how they are dropped.
//!
//! In: what the kernel says of the calling thread. Out: a [`Tier`], said in the log at start with what to do; after set-up, a process
//! that cannot load or sample anything more. Missing capabilities never end the agent: it does what can be done.

mod caps;

use std::fmt;

pub use self::caps::{Capability, Set};
use crate::error::Error;

/// What is needed for everything; manifests under `deploy/` grant these and no others.
pub const WANTED: [Capability; 4] = [Capability::Bpf, Capability::Perfmon, Capability::SysPtrace, Capability::Syslog];

/// What is of no use any more once the programs run.
const ONLY_FOR_SETUP: [Capability; 4] =
    [Capability::Bpf, Capability::Perfmon, Capability::Syslog, Capability::SysAdmin];

/// How much can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Nothing from outside but what processes of the same user allow; receiving works.
    None,
    /// No eBPF: memory of other processes can be read (heap, goroutines), nothing is sampled.
    NoEbpf,
    /// Everything.
    Full,
}

/// What this process may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privilege {
    effective: Set,
}

impl Privilege {
    /// What the calling thread may do now.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn current() -> Result<Self, Error> {
        let effective = caps::read().map_err(|error| {
            Error::new("capget", error.to_string(), "allow it in the seccomp profile of the container")
        })?;
        Ok(Self { effective: effective.effective })
    }

    /// How much can be done. `CAP_SYS_ADMIN` stands for what was a part of it before Linux 5.8 (capabilities(7)).
    #[must_use]
    pub fn tier(self) -> Tier {
        let can_sample = self.has(Capability::Bpf) && self.has(Capability::Perfmon);
        match (can_sample, self.has(Capability::SysPtrace)) {
            (true, true) => Tier::Full,
            (_, true) => Tier::NoEbpf,
            // Without SYS_PTRACE no other process's memory, and few of its files, can be read: samples would stay nameless.
            (true, false) => Tier::Full,
            (false, false) => Tier::None,
        }
    }

    /// Whether `capability` is there, by itself or as a part of `CAP_SYS_ADMIN`.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        let old = [Capability::Bpf, Capability::Perfmon, Capability::Syslog];
        self.effective.has(capability) || (old.contains(&capability) && self.effective.has(Capability::SysAdmin))
    }

    /// What is missing, each with what is lost by that.
    #[must_use]
    pub fn missing(self) -> Vec<Missing> {
        WANTED.into_iter().filter(|wanted| !self.has(*wanted)).map(Missing).collect()
    }

    /// Says in the log how much can be done, and what to do about the rest.
    pub fn log(self) {
        match self.tier() {
            Tier::Full => tracing::info!("CPU sampling by eBPF, Go's runtime memory: possible"),
            Tier::NoEbpf => tracing::warn!("no eBPF: CPU is not sampled; heap and goroutines can be read"),
            Tier::None => tracing::warn!("neither eBPF nor others' memory: profiles are only received"),
        }
        self.missing().iter().for_each(|missing| tracing::warn!("{missing}"));
    }
}

/// A capability that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing(pub Capability);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = match self.0 {
            Capability::Bpf => "no eBPF program can be loaded: CPU is not sampled",
            Capability::Perfmon => "no perf event of other processes can be opened: CPU is not sampled",
            Capability::SysPtrace => {
                "memory and files of other users' processes cannot be read: no names, labels, heap"
            }
            Capability::Syslog => "addresses of the kernel are hidden: kernel frames have no names",
            Capability::SysAdmin => "nothing that is needed on Linux 5.8 and newer",
        };
        write!(f, "{} is missing, {lost}; add it to the container's securityContext.capabilities", self.0.name())
    }
}

/// Gives up, for the whole process, what only set-up needs: `BPF`, `PERFMON`, `SYSLOG`, `SYS_ADMIN`. To be called while there is one
/// thread, for capabilities are each thread's own and new threads take those of their maker (capabilities(7)).
///
/// # Errors
/// If there are more threads, or the kernel refuses.
pub fn drop_setup() -> Result<(), Error> {
    const REMEDY: &str = "this is a bug of ours, please report it";
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1);
    if threads != 1 {
        return Err(Error::new("capset", format!("there are {threads} threads, of which only one would drop"), REMEDY));
    }
    drop_in_this_thread().map_err(|error| Error::new("capset", error.to_string(), REMEDY))
}

/// The same for the calling thread alone: threads that it makes afterwards begin without.
fn drop_in_this_thread() -> std::io::Result<()> {
    let state = caps::read()?;
    let without = |set: Set| ONLY_FOR_SETUP.into_iter().fold(set, Set::without);
    caps::write(&caps::State {
        effective: without(state.effective),
        permitted: without(state.permitted),
        inheritable: without(state.inheritable),
    })
}

#[cfg(test)]
mod tests;
