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
    /// The crate `pprof`.
    Pprof,
    /// The crate `pyroscope`.
    Pyroscope,
    /// jemalloc's own profiling, of the heap alone.
    Jemalloc,
    /// The crate `jemalloc_pprof`, which makes files of the former.
    JemallocPprof,
}

impl Who {
    /// All that are measured at the CPU.
    pub(crate) const ALL: [Self; 4] = [Self::Nobody, Self::Ours, Self::Pprof, Self::Pyroscope];
    /// All that are measured at the heap: one program, on jemalloc.
    pub(crate) const OF_THE_HEAP: [Self; 4] = [Self::Nobody, Self::Ours, Self::Jemalloc, Self::JemallocPprof];
    /// Those at the CPU that are profilers.
    pub(crate) const PROFILERS: [Self; 3] = [Self::Ours, Self::Pprof, Self::Pyroscope];

    /// Its column in the table and its key in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nobody => "none",
            Self::Ours => "profiler",
            Self::Pprof => "pprof",
            Self::Pyroscope => "pyroscope",
            Self::Jemalloc => "jemalloc",
            Self::JemallocPprof => "jemalloc_pprof",
        }
    }

    /// The program that does the tasks under it, at the CPU where there are two.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Nobody => "subject_none",
            Self::Ours => "subject_ours",
            Self::Pprof => "subject_pprof",
            Self::Pyroscope => "subject_pyroscope",
            Self::Jemalloc | Self::JemallocPprof => "subject_heap",
        }
    }

    /// The package that a user adds to their own; none for nobody.
    pub(crate) fn package(self) -> Option<&'static str> {
        match self {
            Self::Nobody => None,
            Self::Ours => Some("profiler-sdk"),
            Self::Pprof => Some("pprof"),
            Self::Pyroscope => Some("pyroscope"),
            Self::Jemalloc => Some("tikv-jemalloc-sys"),
            Self::JemallocPprof => Some("jemalloc_pprof"),
        }
    }
}
