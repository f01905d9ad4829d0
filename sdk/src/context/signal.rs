//! What the signal handler asks of the thread that it runs on.
//!
//! In: the thread's record, as the thread left it at any instruction. Out: tags and span of a sample, and what the sampler
//! notes of a thread. Callable from a signal handler: nothing here allocates, locks or makes a system call.

use super::attributes::MAX_TAG_BYTES;
use super::records::Record;
use super::thread::Thread;

/// Most words of tags.
pub(crate) const TAG_WORDS: usize = MAX_TAG_BYTES.div_ceil(8);

/// What the handler reads of a thread, beside its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Current {
    /// Bytes of tags.
    pub(crate) tag_bytes: u16,
    /// Trace id as two big-endian halves; zero for none.
    pub(crate) trace_id: [u64; 2],
    /// Span id, big-endian; zero for none.
    pub(crate) span_id: u64,
}

/// What the calling thread is working for, for its signal handler; its tags go into `tags`, the last word filled up with
/// zeros.
pub(crate) fn current_of_signal(tags: &mut [u64; TAG_WORDS]) -> Current {
    Thread::of_signal(|thread| thread.look(|record| Current::read(record, tags))).flatten().unwrap_or_default()
}

/// The generation of the sampler in which the calling thread's own timer fired on it; `None` where that is not known.
/// For its signal handler.
pub(crate) fn covered() -> Option<u32> {
    Thread::of_signal(|thread| thread.covered().get())
}

/// The calling thread's own timer has fired on it in `generation`. For its signal handler.
pub(crate) fn mark_covered(generation: u32) {
    Thread::of_signal(|thread| thread.covered().set(generation));
}

impl Current {
    /// What a record says.
    pub(super) fn read(record: &Record, tags: &mut [u64; TAG_WORDS]) -> Self {
        let bytes = record.tags();
        for (word, chunk) in tags.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole.iter_mut().zip(chunk).for_each(|(place, byte)| *place = *byte);
            *word = u64::from_ne_bytes(whole);
        }
        let (trace_high, trace_low) = record.span.trace_id.split_at(8);
        Self {
            tag_bytes: bytes.len() as u16,
            trace_id: [big_endian(trace_high), big_endian(trace_low)],
            span_id: u64::from_be_bytes(record.span.span_id),
        }
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
