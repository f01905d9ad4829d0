//! What a profile measures: sample type, period type and period.

use super::Dictionary;
use super::table::StringId;

/// A type with its unit, as `samples`/`count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ValueType {
    /// `cpu`, `samples`, `alloc_space`, …
    pub kind: StringId,
    /// `nanoseconds`, `count`, `bytes`, …
    pub unit: StringId,
}

impl ValueType {
    /// The pair of these two texts.
    pub fn new(dictionary: &mut Dictionary, kind: &str, unit: &str) -> Self {
        Self { kind: dictionary.strings.intern_str(kind), unit: dictionary.strings.intern_str(unit) }
    }
}

/// What a profile measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Kind {
    /// Type and unit of a sample's value.
    pub sample_type: ValueType,
    /// Type and unit of the period.
    pub period_type: ValueType,
    /// One sample is taken every `period` units of `period_type`; positive on the wire.
    pub period: i64,
}

impl Kind {
    /// On-CPU samples: `samples`/`count` per `cpu`/`nanoseconds`; a sample's value is its weight in periods.
    ///
    /// This pair, and no other, is what Pyroscope stores as `process_cpu:cpu:nanoseconds:cpu:nanoseconds`.
    pub fn cpu(dictionary: &mut Dictionary, period_nanos: i64) -> Self {
        Self {
            sample_type: ValueType::new(dictionary, "samples", "count"),
            period_type: ValueType::new(dictionary, "cpu", "nanoseconds"),
            period: period_nanos,
        }
    }

    /// The heap, in Go's names and order: `alloc_objects`/`count`, `alloc_space`/`bytes`, `inuse_objects`/`count`, `inuse_space`/`bytes`, one
    /// sample per `period_bytes` of `space`/`bytes`.
    pub fn heap(dictionary: &mut Dictionary, period_bytes: i64) -> [Self; 4] {
        let period_type = ValueType::new(dictionary, "space", "bytes");
        let types = [
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ];
        types.map(|(kind, unit)| Self {
            sample_type: ValueType::new(dictionary, kind, unit),
            period_type,
            period: period_bytes,
        })
    }

    /// Goroutines that there are, in Go's name: `goroutine`/`count`. A state: the latest holds.
    pub fn goroutine(dictionary: &mut Dictionary) -> Self {
        let goroutine = ValueType::new(dictionary, "goroutine", "count");
        Self { sample_type: goroutine, period_type: goroutine, period: 1 }
    }

    /// Where goroutines waited, in Go's names and order: `contentions`/`count`, `delay`/`nanoseconds`. Values stand for all that happened in
    /// the window.
    ///
    /// Go gives its block and its mutex profile the same types (`runtime/pprof`, `printCountCycleProfile`), and tells them apart by the names of files.
    /// Here the period type does, `block`/`count` or `mutex`/`count`: backends make the name of a profile of it.
    pub fn contention(dictionary: &mut Dictionary, of: Contention) -> [Self; 2] {
        let period_type = ValueType::new(dictionary, of.name(), "count");
        [("contentions", "count"), ("delay", "nanoseconds")].map(|(kind, unit)| Self {
            sample_type: ValueType::new(dictionary, kind, unit),
            period_type,
            period: 1,
        })
    }

    /// Threads that there are: `threads`/`count`. A state: the latest holds.
    pub fn threads(dictionary: &mut Dictionary) -> Self {
        let threads = ValueType::new(dictionary, "threads", "count");
        Self { sample_type: threads, period_type: threads, period: 1 }
    }

    /// Whether this is what [`Kind::cpu`] makes, with whatever period.
    #[must_use]
    pub fn is_cpu(&self, dictionary: &Dictionary) -> bool {
        let text = |id| dictionary.strings.text(id);
        (text(self.sample_type.kind), text(self.sample_type.unit)) == ("samples", "count")
            && (text(self.period_type.kind), text(self.period_type.unit)) == ("cpu", "nanoseconds")
    }

    /// Whether values say what there is at the end of the window, whenever it came: two such states are not summed, the later one holds.
    #[must_use]
    pub fn is_state(&self, dictionary: &Dictionary) -> bool {
        STATES.contains(&dictionary.strings.text(self.sample_type.kind))
    }
}

/// Sample types of states.
const STATES: [&str; 4] = ["inuse_objects", "inuse_space", "goroutine", "threads"];

/// What goroutines waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Contention {
    /// Channels, conditions, semaphores: Go's block profile, by where the one that waited stood.
    Block,
    /// Locks: Go's mutex profile, by where the one that made others wait gave the lock back.
    Mutex,
}

impl Contention {
    /// The name of the profile and of its period type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Mutex => "mutex",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that block and mutex profiles are told apart, and that what there is at a moment is told from what happened.
    #[test]
    fn kinds_of_go_are_told_apart() {
        let mut dictionary = Dictionary::default();
        let block = Kind::contention(&mut dictionary, Contention::Block);
        let mutex = Kind::contention(&mut dictionary, Contention::Mutex);
        assert_eq!(block.map(|kind| kind.sample_type), mutex.map(|kind| kind.sample_type));
        assert_ne!(block[1], mutex[1]);
        let states = [Kind::goroutine(&mut dictionary), Kind::threads(&mut dictionary)];
        assert!(states.iter().all(|kind| kind.is_state(&dictionary) && kind.period == 1));
        assert!(block.iter().chain(&mutex).all(|kind| !kind.is_state(&dictionary) && !kind.is_cpu(&dictionary)));
    }
}
