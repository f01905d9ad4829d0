//! What the kernel side and the user side of the sidecar share: the layout of a record, of maps' values, of counters.
//!
//! `no_std`, built for both. Every layout stands here once, with its size asserted. Numbers are in the byte order of the machine, for both
//! sides run on it.

#![no_std]

mod counter;
mod record;
mod setting;
mod target;

pub use counter::Counter;
pub use record::{
    ATTRIBUTES, Event, FRAMES, Flag, Head, KERNEL_FRAMES, KEY, Kind, LABELS, LabelHead, NO_FLAGS, RECORD, Sample, TOP,
    VALUE,
};
pub use setting::{SETTINGS, Setting};
pub use target::{G_BYTES, Go, LabelForm, TARGET_WORDS, Target, TargetFlag};
