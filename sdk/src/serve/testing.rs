//! Profile sets that a test can write in one line. Compiled for tests only.
//!
//! In: folded stacks with weights and tags. Out: the sets that the sampler would have made of them.

use std::sync::Arc;

use profiler_proto::loss::STACKS;
use profiler_proto::model::{Function, Kind, Line, Location, Mapping, Stack};
use profiler_proto::{Profile, ProfileSet, Sample};

use super::frames::Frames;
use super::nodes::{Nodes, Places};
use super::source::{CaptureError, CaptureFuture, Source, Target};
use super::weight::weighted;
use crate::stats::Stats;

/// Period of all of them: 100 Hz.
pub(crate) const PERIOD: i64 = 10_000_000;

/// Bytes of a block of [`Stacks::heap`].
pub(crate) const BLOCK: i64 = 1024;
/// Bytes between samples there.
pub(crate) const INTERVAL: i64 = 1 << 19;

/// A set that grows sample by sample.
pub(crate) struct Stacks {
    set: ProfileSet,
    profile: Profile,
}

impl Stacks {
    /// One CPU profile of ten seconds that starts at second 1,000, without samples.
    pub(crate) fn new() -> Self {
        let mut set = ProfileSet::default();
        set.resource.set("process.executable.path", "/usr/bin/shop");
        let mapping = Mapping {
            start: 0x1000,
            limit: 0x100_0000,
            offset: 0,
            filename: set.dictionary.strings.intern_str("/usr/bin/shop"),
            ..Mapping::default()
        };
        set.dictionary.mappings.intern(mapping);
        let kind = Kind::cpu(&mut set.dictionary, PERIOD);
        Self { set, profile: Profile { kind, ..Profile::default() } }.at(1000, 10)
    }

    /// Sets the window, in seconds.
    pub(crate) fn at(mut self, start: u64, duration: u64) -> Self {
        self.profile.time_unix_nanos = start * 1_000_000_000;
        self.profile.duration_nanos = duration * 1_000_000_000;
        self
    }

    /// Says how many stacks were taken.
    pub(crate) fn stacks(mut self, stacks: i64) -> Self {
        let attribute = self.set.dictionary.attribute(STACKS, stacks);
        self.profile.attributes = self.set.dictionary.attribute_set([attribute]);
        self
    }

    /// Adds `weight` at a stack `root;…;leaf` without tags.
    pub(crate) fn sample(self, path: &str, weight: i64) -> Self {
        self.tagged(path, weight, &[])
    }

    /// Adds `weight` at a stack `root;…;leaf`; `a|b` is b inlined into a,
    /// `a@src/a.rs:9` stands at that line (7 if none is said).
    pub(crate) fn tagged(mut self, path: &str, weight: i64, tags: &[(&str, &str)]) -> Self {
        let locations = path.rsplit(';').map(|names| self.location(names)).collect();
        let dictionary = &mut self.set.dictionary;
        let stack = dictionary.stacks.intern(Stack { locations });
        let tags: Vec<_> = tags.iter().map(|(key, value)| dictionary.attribute(key, *value)).collect();
        let attributes = dictionary.attribute_set(tags);
        self.profile.samples.push(Sample { stack, attributes, value: weight, ..Sample::default() });
        self
    }

    fn location(&mut self, names: &str) -> profiler_proto::model::LocationId {
        let dictionary = &mut self.set.dictionary;
        let mut lines = Vec::new();
        for name in names.rsplit('|') {
            let (name, file) = name.split_once('@').unwrap_or((name, ""));
            let (file, line) = file.rsplit_once(':').unwrap_or((file, "7"));
            let line = line.parse().unwrap_or(0);
            let function = Function {
                name: dictionary.strings.intern_str(name),
                filename: dictionary.strings.intern_str(file),
                ..Function::default()
            };
            let function = dictionary.functions.intern(function);
            lines.push(Line { function, line, column: 0 });
        }
        let mapping = profiler_proto::model::Id::from_index(1);
        let address = 0x1000 + dictionary.functions.len() as u64;
        dictionary.locations.intern(Location { mapping, address, lines: lines.into(), ..Location::default() })
    }

    /// The set, with its one profile.
    pub(crate) fn set(mut self) -> ProfileSet {
        self.set.profiles.push(self.profile);
        self.set
    }

    /// The same, shared.
    pub(crate) fn shared(self) -> Arc<ProfileSet> {
        Arc::new(self.set())
    }

    /// A heap in the place of the CPU time: so many bytes in use in blocks of [`BLOCK`], twice as many allocated.
    pub(crate) fn heap(mut self) -> ProfileSet {
        let kinds = Kind::heap(&mut self.set.dictionary, INTERVAL);
        let profiles = kinds.into_iter().zip([(2, BLOCK), (2, 1), (1, BLOCK), (1, 1)]).map(|(kind, (times, size))| {
            let mut profile = Profile { kind, ..self.profile.clone() };
            profile.samples.iter_mut().for_each(|sample| sample.value = times * sample.value / size);
            profile
        });
        self.set.profiles.extend(profiles);
        self.set
    }
}

/// All samples of `sets` as a grown tree.
pub(crate) fn nodes_of(sets: &[ProfileSet]) -> (Nodes, Frames) {
    let (mut nodes, mut frames) = (Nodes::new(), Frames::new());
    for set in sets {
        frames.note_executable(set);
        let mut places = Places::new(set, 0);
        for profile in &set.profiles {
            nodes.add(set, weighted(profile, set, None), &mut places, &mut frames);
        }
    }
    (nodes, frames)
}

/// A source that captures nothing, and counts how often it is asked for its figures.
#[derive(Default)]
pub(crate) struct Idle {
    pub(crate) asked: std::sync::atomic::AtomicUsize,
}

impl Source for Idle {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new("idle", std::process::id())]
    }

    fn capture(&self, _: std::time::Duration, _: Option<u32>) -> CaptureFuture {
        Box::pin(std::future::ready(Err(CaptureError::Off)))
    }

    fn stats(&self) -> Stats {
        self.asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Stats::default()
    }
}
