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

    /// Whether this is what [`Kind::cpu`] makes, with whatever period.
    #[must_use]
    pub fn is_cpu(&self, dictionary: &Dictionary) -> bool {
        let text = |id| dictionary.strings.text(id);
        (text(self.sample_type.kind), text(self.sample_type.unit)) == ("samples", "count")
            && (text(self.period_type.kind), text(self.period_type.unit)) == ("cpu", "nanoseconds")
    }

    /// Whether values say what is in use at the end of the window, whenever it was allocated: two such states are not
    /// summed, the later one holds.
    #[must_use]
    pub fn is_state(&self, dictionary: &Dictionary) -> bool {
        ["inuse_objects", "inuse_space"].contains(&dictionary.strings.text(self.sample_type.kind))
    }
}
