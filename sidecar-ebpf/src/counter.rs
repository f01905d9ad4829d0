//! What the kernel side counts, each in a slot of its own of one per-CPU array.
//!
//! Of the ticks that hit a process of ours: `Seen` = records put into the ring + `RingFull`. The others stand outside of that equation.

/// A slot of the array `COUNTERS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Counter {
    /// Ticks that hit a process to be profiled.
    Seen = 0,
    /// Samples put into the ring.
    Sent = 1,
    /// Samples for which the ring had no room.
    RingFull = 2,
    /// Ticks that hit a process in a pid namespace below ours, whose pids mean nothing here.
    ForeignPidns = 3,
    /// Ticks that hit what is left out by its number.
    Excluded = 4,
    /// Ticks that hit what is none of our business: kernel threads, processes outside of our pid namespace.
    Outside = 5,
    /// Events (exec, exit, fork) put into the ring.
    Events = 6,
    /// Events for which the ring had no room.
    EventsLost = 7,
    /// Go processes whose `g` could not be read, a sample each.
    NoGoroutine = 8,
}

impl Counter {
    /// How many there are.
    pub const COUNT: u32 = 9;
}
