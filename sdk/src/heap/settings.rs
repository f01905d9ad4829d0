//! What is asked of the heap profiler, on every system. Leaf module.

/// What is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeapSettings {
    /// `None`: if it can be had.
    pub(crate) wanted: Option<bool>,
    /// Bytes between samples, as a power of two; `None`: as jemalloc has it.
    pub(crate) lg_interval: Option<u32>,
    /// Most live samples, for tests of what does not fit.
    pub(crate) most_live: Option<usize>,
}
