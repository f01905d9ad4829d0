//! Names of engines: what a user can ask for, on every system.
//!
//! In: `Config::engine`, `PROFILER_ENGINE`. Out: [`EngineChoice`]. What the engines are, `cpu::engine` knows. Leaf module.

/// The engine that is asked for. Where it cannot be had, the next better one that can is used, and why is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EngineChoice {
    /// `timer`; `perf` for rates above the kernel's tick, which timers cannot follow.
    #[default]
    Auto,
    /// A perf event per thread (`perf_event_open(2)`, software CPU clock) for the time in its own code, and its timer for
    /// the time in the kernel: follows any rate, costs a few microseconds per context switch and a file descriptor per
    /// thread.
    Perf,
    /// A POSIX timer per thread (`timer_create(2)`) on the thread's CPU clock.
    Timer,
    /// One POSIX timer for the process.
    ProcessTimer,
    /// `setitimer(2)`: one timer for the process, which survives `exec` and would end the new program.
    Setitimer,
}

impl EngineChoice {
    /// The names that `PROFILER_ENGINE` takes.
    pub(crate) const NAMES: &[(&str, Self)] = &[
        ("auto", Self::Auto),
        ("perf", Self::Perf),
        ("timer", Self::Timer),
        ("process_timer", Self::ProcessTimer),
        ("setitimer", Self::Setitimer),
    ];
}
