//! Whether the end of a terminal is to end us.
//!
//! In: `/proc/self/status` (proc(5)). Out: a yes or no, before a handler of ours takes the signal over.

/// Whether who started us wants us to outlive the terminal, as `nohup` does: SIGHUP, number 1, is in the set of signals that are ignored, which is hexadecimal.
pub(crate) fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|ignored| ignored & 1 != 0)
}
