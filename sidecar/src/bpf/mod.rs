//! The kernel side's other half: loads the eBPF object, fills its maps, opens one perf event for each processor.
//!
//! In: what to leave out, what is known of targets. Out: records of the ring buffer, counters by cause. Owner of the descriptors.
