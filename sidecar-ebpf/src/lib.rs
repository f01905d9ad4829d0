//! What the kernel side and the user side of the sidecar share: the layout of a record, of maps' values, of counters.
//!
//! `no_std`, built for both. Every layout stands here once, with its size asserted. Numbers are in the byte order of the machine, for both
//! sides run on it.

#![no_std]

mod counter;
mod executable;
mod record;
mod setting;
mod target;

pub use counter::Counter;
pub use executable::{EXECUTABLE_WORDS, EXECUTABLES_KNOWN, Executable, Started};
pub use record::{
    ATTRIBUTES, Event, Exec, FRAMES, Flag, Head, KERNEL_FRAMES, KEY, Kind, LABELS, LabelHead, NO_FLAGS, RECORD, Sample,
    TOP, VALUE,
};
pub use setting::{SETTINGS, Setting};
pub use target::{G_BYTES, GO_WORDS, Go, LabelForm, TARGET_WORDS, Target, TargetFlag};

/// Two halves of a word, the first one first in memory.
const fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}
