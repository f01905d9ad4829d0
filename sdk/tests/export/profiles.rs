//! Sets of profiles to send, and what a body that arrived says.

use std::io::Read;
use std::sync::Arc;

use profiler_proto::loss::{STACKS, stacks_of};
use profiler_proto::model::{Function, Kind, Line, Location, Mapping, Scope, Stack};
use profiler_proto::resource::Resource;
use profiler_proto::validate::validate_bytes;
use profiler_proto::{Dictionary, Limits, Profile, ProfileSet, Sample, otlp};

/// Nanoseconds between samples at 100 Hz.
const PERIOD: i64 = 10_000_000;

/// One on-CPU profile that says it stands for `stacks` stacks, of as many samples, each at a stack of its own.
pub(crate) fn set(stacks: u32) -> Arc<ProfileSet> {
    Arc::new(cpu_profile(stacks, stacks))
}

/// One on-CPU profile of `samples` samples that stands for `stacks` stacks.
pub(crate) fn cpu_profile(stacks: u32, samples: u32) -> ProfileSet {
    let mut dictionary = Dictionary::default();
    let kind = Kind::cpu(&mut dictionary, PERIOD);
    let build_id = dictionary.attribute("process.executable.build_id.gnu", "6b2f9c1e");
    let mapping = Mapping {
        start: 0x1000,
        limit: 0x1000_0000,
        filename: dictionary.strings.intern_str("/usr/bin/shop"),
        attributes: dictionary.attribute_set([build_id]),
        ..Mapping::default()
    };
    let mapping = dictionary.mappings.intern(mapping);
    let count = dictionary.attribute(STACKS, i64::from(stacks));
    let attributes = dictionary.attribute_set([count]);
    let samples = (0..samples).map(|index| {
        let name = dictionary.strings.intern_str(&format!("shop::handle::<{index}>"));
        let function = dictionary.functions.intern(Function { name, ..Function::default() });
        let lines = Box::new([Line { function, line: index + 1, column: 0 }]);
        let address = 0x2000 + u64::from(index) * 16;
        let location = dictionary.locations.intern(Location { mapping, address, lines, ..Location::default() });
        let stack = dictionary.stacks.intern(Stack { locations: Box::new([location]) });
        Sample { stack, value: i64::from(index) + 1, ..Sample::default() }
    });
    let samples = samples.collect();
    let profile = Profile {
        kind,
        time_unix_nanos: 1_795_262_400_000_000_000,
        duration_nanos: 10_000_000_000,
        attributes,
        samples,
    };
    ProfileSet {
        resource: Resource::new().with("service.name", "shop"),
        scope: Scope { name: "profiler_sdk".into(), version: "0".into() },
        dictionary,
        profiles: vec![profile],
    }
}

/// The four profiles of the heap, of `samples` samples each.
pub(crate) fn heap_profiles(samples: u32) -> ProfileSet {
    let mut set = cpu_profile(0, samples);
    let kinds = Kind::heap(&mut set.dictionary, 1 << 19);
    let attributes = set.dictionary.attribute_set([]);
    set.profiles = kinds.map(|kind| Profile { kind, attributes, ..set.profiles[0].clone() }).into();
    set
}

/// Checks that the message of a body that arrived keeps every rule of OTLP and of the backends.
pub(crate) fn assert_lawful(message: &[u8]) {
    assert_eq!(validate_bytes(message), [], "the body keeps every rule");
}

/// What the message of a body that arrived holds; the peers hold it to the rules when they end.
pub(crate) fn decode(message: &[u8]) -> ProfileSet {
    let mut sets = otlp::decode_bytes(message, &Limits::default()).expect("the body is OTLP");
    assert_eq!(sets.len(), 1, "one resource");
    sets.remove(0)
}

/// The on-CPU stacks that a body says it stands for.
pub(crate) fn stacks(message: &[u8]) -> u64 {
    let set = decode(message);
    set.profiles.iter().map(|profile| stacks_of(profile, &set.dictionary)).sum()
}

/// The bytes behind a gzip stream.
pub(crate) fn gunzip(compressed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).expect("the body is gzip");
    bytes
}
