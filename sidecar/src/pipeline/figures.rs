//! What the sampling thread counts beside the ledger.

use crate::bpf::Counters;
use crate::naming::Stats;

/// Figures since the start. Of samples that came out of the ring: `sampled + left_out + gone + unreadable + late`, which is what the kernel side
/// sent, but for what is still in the ring.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// What the kernel side counted.
    pub kernel: Counters,
    /// Samples that were named.
    pub sampled: u64,
    /// Of these, samples of Go programs without goroutine and labels, for the kernel side did not know yet where their version keeps them, or nobody knows.
    pub goroutines_unknown: u64,
    /// Samples of processes that are not to be profiled, taken before the kernel side knew that.
    pub left_out: u64,
    /// Samples of processes that had ended before anybody looked, or gave no answer.
    pub gone: u64,
    /// Looks at processes for which there was no room: their samples count as `gone`.
    pub crowded: u64,
    /// Samples whose record could not be read.
    pub unreadable: u64,
    /// Samples that nobody could look at any more when sampling ended.
    pub late: u64,
    /// What became of stacks.
    pub naming: Stats,
    /// Bytes of names.
    pub names_bytes: u64,
}
