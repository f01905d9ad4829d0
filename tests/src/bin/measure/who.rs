//! Who is measured.
//!
//! The profilers in the order of the table's columns, with the program of each and the package that a user adds.

/// A profiler, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// No profiler: what the work costs by itself.
    Nobody,
    /// This one.
    Ours,
    /// This one's program, with the profiler turned off by the environment: what differs from it is the profiler's work alone, not where
    /// a linker placed the program's own code.
    Off,
    /// The crate `pprof`.
    Pprof,
    /// The crate `pyroscope`.
    Pyroscope,
    /// jemalloc's own profiling, of the heap alone.
    Jemalloc,
    /// The crate `jemalloc_pprof`, which makes files of the former.
    JemallocPprof,
    /// jemalloc's sampling with hooks that do nothing: the least that one by its hooks can cost.
    BareHooks,
    /// The OpenTelemetry eBPF profiler, beside Go programs.
    OpenTelemetry,
}

impl Who {
    /// All that are measured at the CPU.
    pub(crate) const ALL: [Self; 4] = [Self::Nobody, Self::Ours, Self::Pprof, Self::Pyroscope];
    /// All that are measured at the heap: one program, on jemalloc.
    pub(crate) const OF_THE_HEAP: [Self; 5] =
        [Self::Nobody, Self::BareHooks, Self::Ours, Self::Jemalloc, Self::JemallocPprof];
    /// All that profile other processes from outside.
    pub(crate) const FROM_OUTSIDE: [Self; 2] = [Self::Ours, Self::OpenTelemetry];
    /// Those at the CPU that are profilers.
    pub(crate) const PROFILERS: [Self; 3] = [Self::Ours, Self::Pprof, Self::Pyroscope];

    /// Its column in the table and its key in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nobody => "none",
            Self::Ours => "profiler",
            Self::Off => "off",
            Self::Pprof => "pprof",
            Self::Pyroscope => "pyroscope",
            Self::Jemalloc => "jemalloc",
            Self::JemallocPprof => "jemalloc_pprof",
            Self::BareHooks => "bare_hooks",
            Self::OpenTelemetry => "opentelemetry",
        }
    }

    /// The program that does the tasks under it, at the CPU where there are two; that of one that profiles from outside is its own.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Nobody => "subject_none",
            Self::Ours | Self::Off => "subject_ours",
            Self::Pprof => "subject_pprof",
            Self::Pyroscope => "subject_pyroscope",
            Self::Jemalloc | Self::JemallocPprof | Self::BareHooks => "subject_heap",
            Self::OpenTelemetry => "otel_agent",
        }
    }

    /// The package that a user adds to their own; none for who is no profiler.
    pub(crate) fn package(self) -> Option<&'static str> {
        match self {
            Self::Nobody | Self::Off | Self::BareHooks | Self::OpenTelemetry => None,
            Self::Ours => Some("profiler-sdk"),
            Self::Pprof => Some("pprof"),
            Self::Pyroscope => Some("pyroscope"),
            Self::Jemalloc => Some("tikv-jemalloc-sys"),
            Self::JemallocPprof => Some("jemalloc_pprof"),
        }
    }
}
