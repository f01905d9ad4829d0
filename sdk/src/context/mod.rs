//! What the current thread is working for: tags, and later spans, in a record that the signal handler reads.
//!
//! In: scopes entered and left by the thread itself ([`tags`]). Out: the same record for the handler on that thread, at any
//! instruction (`signal`). Each thread owns two records: the one in force and a spare. A change fills the spare and
//! then makes it the one in force by a single store, so the handler sees the old record or the new one, never a mix.
//! Where the records are: `thread`; on systems without a sampler, `elsewhere`.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod elsewhere;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod signal;
pub(crate) mod tags;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod thread;
#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
mod tls_aarch64;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tls_x86_64;

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
use self::elsewhere::Thread;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use self::signal::{Current, covered, current_of_signal, mark_covered, once_at_a_time};
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use self::thread::Thread;

/// A thread's record, laid out as the OpenTelemetry thread context record, so that profilers outside can read it once it
/// is published; our tag-set id stands behind its attributes.
///
/// Source: OTEP 4947, "Thread Context: Sharing Thread-Level Information with the OpenTelemetry eBPF Profiler".
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Record {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    /// 1: the ids are valid.
    valid: u8,
    trace_flags: u8,
    /// Bytes of attributes between here and the tag set; none yet.
    attrs_data_size: u16,
    tag_set: u32,
}

const _: () = {
    assert!(size_of::<Record>() == 32);
    assert!(std::mem::offset_of!(Record, span_id) == 16);
    assert!(std::mem::offset_of!(Record, valid) == 24);
    assert!(std::mem::offset_of!(Record, trace_flags) == 25);
    assert!(std::mem::offset_of!(Record, attrs_data_size) == 26);
    assert!(std::mem::offset_of!(Record, tag_set) == 28);
};

impl Record {
    const EMPTY: Self =
        Self { trace_id: [0; 16], span_id: [0; 8], valid: 0, trace_flags: 0, attrs_data_size: 0, tag_set: 0 };
}

/// The tag set in force on the calling thread. Not callable from a signal handler.
pub(crate) fn tag_set() -> u32 {
    Thread::with_here(|thread| thread.record().tag_set)
}

/// Puts `tag_set` in force on the calling thread and returns the one that was. Not callable from a signal handler.
pub(crate) fn replace_tag_set(tag_set: u32) -> u32 {
    Thread::with_here(|thread| {
        let old = thread.record();
        thread.publish(Record { tag_set, ..old });
        old.tag_set
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a change is seen by this thread and by no other.
    #[test]
    fn a_change_belongs_to_its_thread() {
        assert_eq!(replace_tag_set(5), 0);
        assert_eq!((tag_set(), current_of_signal().tag_set), (5, 5));
        assert_eq!(std::thread::spawn(|| (tag_set(), current_of_signal().tag_set)).join().unwrap(), (0, 0));
        assert_eq!(replace_tag_set(0), 5);
        assert_eq!(current_of_signal(), Current::default());
    }
}
