//! Which capabilities there are, what works with them, and how they are dropped.
//!
//! In: what the kernel says of the calling thread. Out: a [`Tier`], said in the log at start with what to do; after set-up, a process
//! that cannot load or sample anything more. Missing capabilities never end the agent: it does what can be done.

mod caps;
mod grant;

use std::time::{Duration, Instant};
use std::{fmt, thread};

pub use self::caps::{Capability, Set};
pub use self::grant::granted_by;
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
    /// Processes of the same user that may do no more than we: samples, and their memory.
    SameUser,
    /// Everything.
    Full,
}

impl fmt::Display for Tier {
    /// The word that `/stats` and the documentation have for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::SameUser => "same user",
            Self::NoEbpf => "no eBPF",
            Self::None => "none",
        })
    }
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
        Ok(Self::of(effective.effective))
    }

    /// What a thread may do that has these.
    #[must_use]
    pub fn of(effective: Set) -> Self {
        Self { effective }
    }

    /// How much can be done. `CAP_SYS_ADMIN` stands for what was a part of it before Linux 5.8 (capabilities(7)).
    #[must_use]
    pub fn tier(self) -> Tier {
        let can_sample = self.has(Capability::Bpf) && self.has(Capability::Perfmon);
        match (can_sample, self.has(Capability::SysPtrace)) {
            (true, true) => Tier::Full,
            (_, true) => Tier::NoEbpf,
            // Others' programs cannot be looked at.
            (true, false) => Tier::SameUser,
            (false, false) => Tier::None,
        }
    }

    /// Whether `capability` is there, by itself or as a part of `CAP_SYS_ADMIN`: the kernel's addresses ask for `CAP_SYSLOG` itself (kernel/ksyms_common.c, `kallsyms_show_value`).
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        let old = [Capability::Bpf, Capability::Perfmon, Capability::CheckpointRestore];
        self.effective.has(capability) || (old.contains(&capability) && self.effective.has(Capability::SysAdmin))
    }

    /// What is missing, each with what is lost by that.
    #[must_use]
    pub fn missing(self) -> Vec<Missing> {
        WANTED.into_iter().filter(|wanted| !self.has(*wanted)).map(Missing).collect()
    }

    /// Says in the log how much can be done, and what to do about the rest.
    pub fn log(self) {
        let tier = self.tier();
        let can = match tier {
            Tier::Full => "CPU sampling by eBPF, Go's runtime memory: possible",
            Tier::SameUser => {
                "CPU sampling by eBPF: possible, of processes of the same user that may do no more than we"
            }
            Tier::NoEbpf => "no eBPF: CPU is not sampled; heap and goroutines can be read",
            Tier::None => {
                "neither eBPF nor others' memory: profiles are received and pulled, and heap and goroutines read of programs of the same user"
            }
        };
        match tier {
            Tier::Full => tracing::info!("privilege `{tier}`: {can}"),
            _ => tracing::warn!("privilege `{tier}`: {can}"),
        }
        self.missing().iter().for_each(|missing| tracing::warn!("{missing}"));
    }
}

/// A capability that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing(pub Capability);

impl Missing {
    /// What is lost by that.
    #[must_use]
    pub fn lost(self) -> &'static str {
        match self.0 {
            Capability::Bpf => "no eBPF program can be loaded: CPU is not sampled",
            Capability::Perfmon => "no perf event of other processes can be opened: CPU is not sampled",
            Capability::SysPtrace => {
                "processes of other users, and those that may do more than we, cannot be looked at: they are not profiled"
            }
            Capability::Syslog => "addresses of the kernel are hidden: kernel frames have no names",
            Capability::DacReadSearch => "files of other users' that are their owners' alone cannot be opened",
            Capability::SysAdmin => "nothing that is needed on Linux 5.8 and newer",
            Capability::CheckpointRestore => "libraries that were deleted while in use have no names",
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.name();
        write!(f, "{name} is missing, {}; {}", self.lost(), granted_by(name))
    }
}

/// Gives up, for the whole process, what only set-up needs: `BPF`, `PERFMON`, `SYSLOG`, `SYS_ADMIN`. To be called while there is one
/// thread, for capabilities are each thread's own and new threads take those of their maker (capabilities(7)). Threads that are ending are
/// waited for; one that hangs in a look at a process keeps its capabilities, which is said: nothing can be done about it. What opens perf
/// events stays permitted, without effect, until [`drop_clock`]: the thread that samples takes it back to change the rate.
///
/// # Errors
/// If the kernel refuses.
pub fn drop_setup() -> Result<(), Error> {
    let others = other_threads(ENDING);
    if others > 0 {
        tracing::warn!(
            "{others} threads, which wait for processes that give no answer, keep CAP_BPF, CAP_PERFMON, CAP_SYSLOG and CAP_SYS_ADMIN until \
             they end; all others give them up"
        );
    }
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (release, off) = (text("/proc/sys/kernel/osrelease"), text("/proc/sys/kernel/unprivileged_bpf_disabled"));
    let permitted = caps::read().map_err(refused)?.permitted;
    let of_maps =
        needed_for_maps(&release, &off).then(|| of_these(permitted, [Capability::Bpf, Capability::SysAdmin])).flatten();
    let given_up: Vec<Capability> = ONLY_FOR_SETUP.into_iter().filter(|one| of_maps != Some(*one)).collect();
    drop_in_this_thread(&given_up, clock_of).map_err(refused)
}

/// Threads beside the calling one that are there for so long: one that was joined is shown for a moment more.
fn other_threads(patience: Duration) -> usize {
    let deadline = Instant::now() + patience;
    loop {
        let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1);
        if threads <= 1 || Instant::now() >= deadline {
            return threads.saturating_sub(1);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Gives up in the calling thread what [`drop_setup`] left: for all threads but the one that samples, and those that look at processes for it.
///
/// # Errors
/// If the kernel refuses.
pub fn drop_clock() -> Result<(), Error> {
    drop_in_this_thread(&[Capability::Bpf, Capability::Perfmon, Capability::SysAdmin], |_| None).map_err(refused)
}

/// Gives up in the calling thread what of it has no effect: for threads that look at processes. Before [`drop_setup`] that is nothing: who may do less than a process cannot look at it
/// (ptrace(2), "Ptrace access mode checking").
///
/// # Errors
/// If the kernel refuses.
pub fn drop_idle() -> Result<(), Error> {
    let effective = caps::read().map_err(refused)?.effective;
    let idle = [Capability::Perfmon, Capability::SysAdmin].into_iter().filter(|one| !effective.has(*one));
    drop_in_this_thread(&idle.collect::<Vec<_>>(), |_| None).map_err(refused)
}

/// Does `work` with what opens perf events in effect, if it is still permitted to the calling thread.
///
/// # Errors
/// If the kernel refuses.
pub fn with_clock<T>(work: impl FnOnce() -> T) -> Result<T, Error> {
    let before = caps::read().map_err(refused)?;
    let Some(clock) = clock_of(before.permitted).filter(|clock| !before.effective.has(*clock)) else {
        return Ok(work());
    };
    caps::write(&caps::State { effective: before.effective.with(clock), ..before }).map_err(refused)?;
    let done = work();
    caps::write(&before).map_err(refused)?;
    Ok(done)
}

/// How long threads may take to end.
const ENDING: Duration = Duration::from_secs(1);
const REMEDY: &str = "this is a bug of ours, please report it";

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn refused(error: std::io::Error) -> Error {
    Error::new("capset", error.to_string(), REMEDY)
}

/// What opens perf events, of these: `PERFMON`, or what it was a part of.
fn clock_of(permitted: Set) -> Option<Capability> {
    of_these(permitted, [Capability::Perfmon, Capability::SysAdmin])
}

/// The first of these that is permitted.
fn of_these(permitted: Set, which: [Capability; 2]) -> Option<Capability> {
    which.into_iter().find(|one| permitted.has(*one))
}

/// Whether every change of a map asks for `BPF`, or what that was a part of: on kernels before 5.19 where eBPF without privilege is off (Linux commit c8644cd0efe7,
/// "bpf: refine kernel.unprivileged_bpf_disabled behaviour").
fn needed_for_maps(release: &str, unprivileged_off: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version < (5, 19) && unprivileged_off.trim() != "0"
}

/// Gives `capabilities` up in the calling thread alone: threads that it makes afterwards begin without. What `stays` of those permitted
/// loses its effect alone.
fn drop_in_this_thread(capabilities: &[Capability], stays: fn(Set) -> Option<Capability>) -> std::io::Result<()> {
    let state = caps::read()?;
    let without = |set: Set| capabilities.iter().fold(set, |set, one| set.without(*one));
    let mut permitted = without(state.permitted);
    if let Some(stays) = stays(state.permitted) {
        permitted = permitted.with(stays);
    }
    let effective = without(state.effective);
    caps::write(&caps::State { effective, permitted, inheritable: without(state.inheritable) })
}

#[cfg(test)]
mod tests;
