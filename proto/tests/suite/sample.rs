//! One small set that has something of everything, for tests that change a single thing and for the goldens.

use profiler_proto::model::{
    Attribute, Dictionary, Function, FunctionId, Kind, Line, Link, Location, LocationId, Mapping, MappingId, Profile,
    ProfileSet, Sample, Scope, Stack, StackId, Value, ValueType,
};
use profiler_proto::resource::Resource;

/// Two on-CPU samples of a checkout service, under tags, one in a span, with an inlined frame; and live memory.
pub(crate) fn checkout() -> ProfileSet {
    let mut set = ProfileSet {
        resource: Resource::new().with("service.name", "checkout").with("process.pid", 4711_i64),
        scope: Scope { name: "profiler".into(), version: "0.1.0".into() },
        ..ProfileSet::default()
    };
    let (price, sort) = stacks(&mut set.dictionary);
    set.profiles = vec![cpu(&mut set.dictionary, price, sort), memory(&mut set.dictionary, sort)];
    set
}

fn stacks(d: &mut Dictionary) -> (StackId, StackId) {
    let build_id = d.attribute("process.executable.build_id.gnu", "c0ffee");
    let mapping = Mapping {
        start: 0x5000_0000,
        limit: 0x5010_0000,
        offset: 0x1000,
        filename: d.strings.intern_str("/usr/bin/checkout"),
        attributes: d.attribute_set([build_id]),
    };
    let mapping = d.mappings.intern(mapping);
    let [main, handle, price, sort] = [
        function(d, "checkout::main", "src/main.rs", 1),
        function(d, "checkout::handle", "src/main.rs", 20),
        function(d, "checkout::price", "src/price.rs", 7),
        function(d, "core::slice::sort", "sort.rs", 100),
    ];
    let main = location(d, mapping, 0x5000_0010, &[(main, 5)]);
    let handle = location(d, mapping, 0x5000_0200, &[(price, 9), (handle, 22)]);
    let sort = location(d, mapping, 0x5000_0300, &[(sort, 120)]);
    (stack(d, &[handle, main]), stack(d, &[sort, handle, main]))
}

fn cpu(d: &mut Dictionary, price: StackId, sort: StackId) -> Profile {
    let [endpoint, thread] = [d.attribute("endpoint", "/orders"), d.attribute("thread.id", 7_i64)];
    let tags = d.attribute_set([endpoint, thread]);
    let link = d.links.intern(Link { trace_id: [0xab; 16], span_id: [0xcd; 8] });
    let [taken, lost] = [d.attribute("profiler.stacks", 8_i64), d.attribute("profiler.lost.ring_full", 3_i64)];
    Profile {
        kind: Kind::cpu(d, 10_000_000),
        time_unix_nanos: 1_763_700_000_000_000_000,
        duration_nanos: 10_000_000_000,
        attributes: d.attribute_set([taken, lost]),
        samples: vec![
            Sample { stack: price, attributes: tags, link, value: 5 },
            Sample { stack: sort, attributes: tags, value: 4, ..Sample::default() },
        ],
    }
}

fn memory(d: &mut Dictionary, stack: StackId) -> Profile {
    let bytes = d.strings.intern_str("By");
    let key = d.strings.intern_str("size");
    let size = d.attributes.intern(Attribute { key, value: Value::Int(512), unit: bytes });
    Profile {
        kind: Kind {
            sample_type: ValueType::new(d, "inuse_space", "bytes"),
            period_type: ValueType::new(d, "space", "bytes"),
            period: 524_288,
        },
        time_unix_nanos: 1_763_700_000_000_000_000,
        duration_nanos: 10_000_000_000,
        attributes: Default::default(),
        samples: vec![Sample { stack, attributes: d.attribute_set([size]), value: 65_536, ..Sample::default() }],
    }
}

fn function(d: &mut Dictionary, name: &str, file: &str, start_line: u32) -> FunctionId {
    let (name, filename) = (d.strings.intern_str(name), d.strings.intern_str(file));
    d.functions.intern(Function { name, filename, start_line, ..Function::default() })
}

fn location(d: &mut Dictionary, mapping: MappingId, address: u64, lines: &[(FunctionId, u32)]) -> LocationId {
    let lines = lines.iter().map(|&(function, line)| Line { function, line, column: 0 }).collect();
    let frame_type = d.attribute("profile.frame.type", "rust");
    let attributes = d.attribute_set([frame_type]);
    d.locations.intern(Location { mapping, address, lines, attributes })
}

fn stack(d: &mut Dictionary, locations: &[LocationId]) -> StackId {
    d.stacks.intern(Stack { locations: locations.into() })
}
