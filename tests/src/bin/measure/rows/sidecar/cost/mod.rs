//! What the agent takes for itself: CPU time in user space and in the kernel, memory, bytes that it sends, and time until it knows a process; then some of that beside its
//! peer.
//!
//! One part after the other, each in a file that says how.

mod busy;
mod first;
mod memory;
mod payload;
mod peer;
mod ticks;

use profiler_tests::Result;

use super::super::Row;
use super::{Needs, on_pod};
use crate::lab::Lab;
use crate::pod::Pod;
use crate::report::Report;

const NAME: &str = "sidecar-cost";

/// The row.
pub(crate) const ROW: Row = Row {
    name: NAME,
    what: "what the sidecar takes for itself",
    measure: |lab, report| on_pod(lab, report, NAME, Needs::Ebpf, measure),
};

fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    busy::measure(pod, lab, report)?;
    memory::measure(pod, lab, report)?;
    payload::measure(pod, lab, report)?;
    first::measure(pod, lab, report)?;
    peer::measure(pod, lab, report)
}
