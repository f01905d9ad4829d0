//! Arbitrary sets of profiles, as any capture could make them, for the property tests.
//!
//! A [`Plan`] is a heap of small numbers; [`Plan::build`] turns them into a set that is valid, but neither compact nor in
//! any particular order, with orphans and duplicates.

use profiler_proto::model::{
    Attribute, AttributeId, AttributeSetId, Dictionary, Double, Function, FunctionId, Kind, Line, Link, LinkId,
    Location, LocationId, Mapping, MappingId, Profile, ProfileSet, Sample, Scope, Stack, StackId, Value, ValueType,
};
use profiler_proto::resource::Resource;
use proptest::collection::vec;
use proptest::prelude::*;

/// What a set is built from; every number is taken modulo the size of the table it points into.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    strings: Vec<String>,
    attributes: Vec<(u8, Value, u8)>,
    mappings: Vec<(u32, u16, u8, Vec<u8>)>,
    functions: Vec<(u8, u8, u8, u32)>,
    locations: Vec<PlannedLocation>,
    stacks: Vec<Vec<u8>>,
    links: Vec<[u8; 24]>,
    profiles: Vec<(u8, Vec<PlannedSample>, Vec<u8>)>,
    resource: Vec<(String, Value)>,
}

/// Mapping, address, lines (function, line, column), attributes.
type PlannedLocation = (u8, u16, Vec<(u8, u16, u8)>, Vec<u8>);
/// Stack, attributes, link, value.
type PlannedSample = (u8, Vec<u8>, u8, i64);

/// Values as OTLP can hold them, lists and maps up to three levels deep.
pub(crate) fn values() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        4 => ".{0,8}".prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::Int),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => any::<u64>().prop_map(|bits| Value::Double(Double::new(f64::from_bits(bits)))),
        1 => vec(any::<u8>(), 0..4).prop_map(|bytes| Value::Bytes(bytes.into())),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(|values| Value::List(values.into())),
            vec((".{0,4}".prop_map(String::into_boxed_str), inner), 0..3).prop_map(|pairs| Value::Map(pairs.into())),
        ]
    })
    .boxed()
}

/// Values as pprof can hold them: texts and numbers, alone or several.
pub(crate) fn label_values() -> BoxedStrategy<Value> {
    let one = prop_oneof![".{1,8}".prop_map(Value::from), any::<i64>().prop_map(Value::Int)].boxed();
    prop_oneof![3 => one.clone(), 1 => vec(one, 2..4).prop_map(|values| Value::List(values.into()))].boxed()
}

/// Plans with attribute values out of `values`.
pub(crate) fn plans(values: BoxedStrategy<Value>) -> impl Strategy<Value = Plan> {
    let tables = (
        vec("[a-zA-Z_:<>]{1,12}", 1..12),
        vec((any::<u8>(), values.clone(), any::<u8>()), 0..8),
        vec((any::<u32>(), any::<u16>(), any::<u8>(), vec(any::<u8>(), 0..3)), 0..4),
        vec((any::<u8>(), any::<u8>(), any::<u8>(), any::<u32>()), 1..8),
        vec(
            (any::<u8>(), any::<u16>(), vec((any::<u8>(), any::<u16>(), any::<u8>()), 0..3), vec(any::<u8>(), 0..2)),
            1..10,
        ),
        vec(vec(any::<u8>(), 0..8), 1..8),
        vec(any::<[u8; 24]>(), 0..4),
    );
    let samples = vec((any::<u8>(), vec(any::<u8>(), 0..4), any::<u8>(), any::<i64>()), 1..12);
    let profiles = vec((any::<u8>(), samples, vec(any::<u8>(), 0..3)), 0..4);
    (tables, profiles, vec(("[a-z.]{1,8}", values), 0..4)).prop_map(|(tables, profiles, resource)| {
        let (strings, attributes, mappings, functions, locations, stacks, links) = tables;
        Plan { strings, attributes, mappings, functions, locations, stacks, links, profiles, resource }
    })
}

/// The ids that a plan's numbers point to; position 0 of each is the zero id.
struct Ids {
    attributes: Vec<AttributeId>,
    mappings: Vec<MappingId>,
    functions: Vec<FunctionId>,
    locations: Vec<LocationId>,
    stacks: Vec<StackId>,
    links: Vec<LinkId>,
}

fn pick<T: Copy>(ids: &[T], number: u8) -> T {
    ids[usize::from(number) % ids.len()]
}

impl Plan {
    /// The set; kinds are chosen among `kinds`, all with the window of the profile's position unless `one_window`.
    pub(crate) fn build(&self, one_window: bool) -> ProfileSet {
        let mut set = ProfileSet {
            scope: Scope { name: "profiler".into(), version: "1".into() },
            resource: self.resource.iter().fold(Resource::new(), |r, (key, value)| r.with(key.clone(), value.clone())),
            ..ProfileSet::default()
        };
        let ids = self.tables(&mut set.dictionary);
        for (position, (kind, samples, attributes)) in self.profiles.iter().enumerate() {
            let window = if one_window { 0 } else { position as u64 };
            let dictionary = &mut set.dictionary;
            let samples = samples.iter().map(|(stack, attributes, link, value)| Sample {
                stack: pick(&ids.stacks, *stack),
                attributes: self.set_of(attributes, &ids, dictionary),
                link: pick(&ids.links, *link),
                value: *value,
            });
            let samples = samples.collect();
            let profile = Profile {
                kind: self.kind(if one_window { position as u8 } else { *kind }, dictionary),
                time_unix_nanos: 1_700_000_000_000_000_000 + window,
                duration_nanos: 10_000_000_000,
                attributes: self.set_of(attributes, &ids, dictionary),
                samples,
            };
            set.profiles.push(profile);
        }
        set
    }

    /// The same, but with attributes on samples and profiles alone, and mappings that say of their symbols what a file does.
    pub(crate) fn without_frame_attributes(mut self) -> Self {
        self.locations.iter_mut().for_each(|location| location.3.clear());
        self.mappings.clear();
        self
    }

    fn kind(&self, number: u8, dictionary: &mut Dictionary) -> Kind {
        if number.is_multiple_of(4) {
            return Kind::cpu(dictionary, 10_000_000);
        }
        let name = format!("type{number}");
        Kind {
            sample_type: ValueType::new(dictionary, &name, "count"),
            period_type: ValueType::new(dictionary, "cpu", "nanoseconds"),
            period: 10_000_000,
        }
    }

    fn tables(&self, dictionary: &mut Dictionary) -> Ids {
        let mut ids = Ids {
            attributes: vec![AttributeId::ZERO],
            mappings: vec![MappingId::ZERO],
            functions: vec![FunctionId::ZERO],
            locations: vec![LocationId::ZERO],
            stacks: vec![StackId::ZERO],
            links: vec![LinkId::ZERO],
        };
        let texts: Vec<_> = self.strings.iter().map(|text| dictionary.strings.intern_str(text)).collect();
        for (key, value, unit) in &self.attributes {
            let (key, unit) = (pick(&texts, *key), pick(&texts, *unit));
            // Of zero, pprof has the key stand for no unit.
            let has_unit = matches!(value, Value::Int(number) if *number != 0 || unit != key);
            let unit = if has_unit { unit } else { Default::default() };
            let attribute = Attribute { key, value: value.clone(), unit };
            ids.attributes.push(dictionary.attributes.intern(attribute));
        }
        for (start, size, filename, attributes) in &self.mappings {
            let attributes = self.set_of(attributes, &ids, dictionary);
            let (start, limit) = (u64::from(*start), u64::from(*start) + 1 + u64::from(*size));
            let mapping = Mapping { start, limit, offset: start, filename: pick(&texts, *filename), attributes };
            ids.mappings.push(dictionary.mappings.intern(mapping));
        }
        for (name, system_name, filename, start_line) in &self.functions {
            let (name, system_name) = (pick(&texts, *name), pick(&texts, *system_name));
            let function = Function {
                name,
                system_name: if name == system_name { Default::default() } else { system_name },
                filename: pick(&texts, *filename),
                start_line: *start_line,
            };
            ids.functions.push(dictionary.functions.intern(function));
        }
        self.places(dictionary, &mut ids);
        ids
    }

    fn places(&self, dictionary: &mut Dictionary, ids: &mut Ids) {
        for (mapping, address, lines, attributes) in &self.locations {
            let line = |(function, line, column): &(u8, u16, u8)| Line {
                function: pick(&ids.functions, *function),
                line: (*line).into(),
                column: (*column).into(),
            };
            let location = Location {
                mapping: pick(&ids.mappings, *mapping),
                address: (*address).into(),
                lines: lines.iter().map(line).collect(),
                attributes: self.set_of(attributes, ids, dictionary),
            };
            ids.locations.push(dictionary.locations.intern(location));
        }
        for locations in &self.stacks {
            let locations = locations.iter().map(|location| pick(&ids.locations, *location)).collect();
            ids.stacks.push(dictionary.stacks.intern(Stack { locations }));
        }
        for mut link in self.links.iter().copied() {
            // All-zero ids are no link.
            link[0] |= 1;
            link[16] |= 1;
            let (trace_id, span_id) = (link[..16].try_into().unwrap(), link[16..].try_into().unwrap());
            ids.links.push(dictionary.links.intern(Link { trace_id, span_id }));
        }
    }

    fn set_of(&self, numbers: &[u8], ids: &Ids, dictionary: &mut Dictionary) -> AttributeSetId {
        dictionary.attribute_set(numbers.iter().map(|number| pick(&ids.attributes, *number)))
    }
}
