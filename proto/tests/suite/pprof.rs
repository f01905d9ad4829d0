//! pprof there and back, and what is refused.

use profiler_proto::model::{
    Attribute, Dictionary, FunctionId, Kind, Line, Link, Location, LocationId, Mapping, Profile, Sample, Stack, Value,
    ValueType,
};
use profiler_proto::resource::Resource;
use profiler_proto::{DecodeError, Limits, ProfileSet, fuzz, pprof};
use proptest::prelude::*;

use crate::arbitrary::{label_values, plans};
use crate::sample::checkout;

/// The part of a set that pprof can hold: every profile has a sample for every stack, and only samples have attributes.
fn what_pprof_holds(mut set: ProfileSet) -> ProfileSet {
    set.resource = Resource::new();
    set.scope = Default::default();
    set = set.compacted();
    let Some(first) = set.profiles.first().cloned() else { return set };
    set.profiles.truncate(3);
    for (i, profile) in set.profiles.iter_mut().enumerate() {
        profile.attributes = Default::default();
        profile.samples = first.samples.clone();
        for sample in &mut profile.samples {
            sample.value = sample.value.wrapping_mul(i as i64 + 1);
        }
    }
    set.compacted()
}

fn decoded(bytes: &[u8]) -> ProfileSet {
    pprof::decode(bytes, &Limits::default()).unwrap()
}

fn kinds(set: &ProfileSet) -> Vec<(String, i64)> {
    let name = |profile: &Profile| set.dictionary.strings.text(profile.kind.sample_type.kind).to_owned();
    set.profiles
        .iter()
        .map(|profile| (name(profile), profile.samples.iter().map(|sample| sample.value).sum()))
        .collect()
}

/// A file with just these fields, each a varint or text behind its tag.
fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    fields
        .iter()
        .flat_map(|(number, content)| [&[number << 3 | 2, content.len() as u8][..], content].concat())
        .collect()
}

/// Check that each capture of a set is a file, and on-CPU time becomes what Go writes.
#[test]
fn a_capture_is_a_file() {
    let set = checkout();
    let captures = pprof::captures(&set);
    assert_eq!(captures.len(), 2);
    let cpu = decoded(&pprof::encode(&set));
    assert_eq!(kinds(&cpu), [("samples".to_owned(), 9)]);
    assert_eq!(cpu, decoded(&pprof::encode(&captures[0])));
    assert_eq!(kinds(&decoded(&pprof::encode(&captures[1]))), [("inuse_space".to_owned(), 65_536)]);
    let plain = pprof::encode_uncompressed(&set);
    let nanos = [0x80, 0xe1, 0xeb, 0x17];
    assert!(plain.windows(4).any(|window| window == nanos), "5 samples × 10 ms = 50,000,000 ns as a varint");
}

/// Check that what is one capture is known, and written alike with and without being made compact; and that labels may be renamed, but
/// not to what those of a span are called.
#[test]
fn a_compact_capture_is_written_as_it_is() {
    let captures = pprof::captures(&checkout());
    assert!(!pprof::is_capture(&checkout()) && captures.iter().all(pprof::is_capture));
    for capture in &captures {
        assert_eq!(pprof::encode_compact(capture, |key| key.into()), pprof::encode_uncompressed(capture));
    }
    let renamed = decoded(&pprof::encode_compact(&captures[0], |key| format!("my_{key}").into()));
    let sample = captures[0].profiles[0].samples[0];
    let keys: Vec<_> =
        captures[0].dictionary.attributes_of(sample.attributes).map(|(key, _)| format!("my_{key}")).collect();
    let found = |set: &ProfileSet| {
        let sample = set.profiles[0].samples[0];
        let keys: Vec<_> = set.dictionary.attributes_of(sample.attributes).map(|(key, _)| key.to_owned()).collect();
        (keys, set.dictionary.links.get(sample.link).copied())
    };
    let link = captures[0].dictionary.links.get(sample.link).copied();
    assert!(!keys.is_empty() && link != Some(Link::default()));
    assert_eq!(found(&renamed), (keys, link));
    let clashing = decoded(&pprof::encode_compact(&captures[0], |_| "span_id".into()));
    assert_eq!(found(&clashing), (Vec::new(), link));
}

/// Check that resource and loss are readable as comments, once, and that comments come back.
#[test]
fn resource_and_loss_become_comments() {
    let once = decoded(&pprof::encode(&checkout()));
    let comments =
        |set: &ProfileSet| set.dictionary.value_of(set.profiles[0].attributes, "pprof.profile.comment").cloned();
    let lines = ["service.name=checkout", "process.pid=4711", "profiler.stacks=8", "profiler.lost.ring_full=3"];
    assert_eq!(comments(&once), Some(Value::List(lines.map(Value::from).into())));
    assert_eq!(decoded(&pprof::encode(&once)), once);
}

/// Check that the span, tags and units come back, and what says of a mapping which symbols it has.
#[test]
fn labels_and_mapping_come_back() {
    let cpu = decoded(&pprof::encode(&checkout()));
    let (d, sample) = (&cpu.dictionary, cpu.profiles[0].samples[0]);
    let tags: Vec<_> = d.attributes_of(sample.attributes).collect();
    assert_eq!(tags, [("endpoint", &"/orders".into()), ("thread.id", &Value::Int(7))]);
    let link = d.links.get(sample.link).unwrap();
    assert_eq!((link.trace_id, link.span_id), ([0xab; 16], [0xcd; 8]));
    let mapping = d.mappings.iter().nth(1).unwrap();
    let of_mapping: Vec<_> = d.attributes_of(mapping.attributes).map(|(key, value)| format!("{key}={value}")).collect();
    let flags = ["functions", "filenames", "line_numbers", "inline_frames"];
    let mut expected = flags.map(|flag| format!("pprof.mapping.has_{flag}=true")).to_vec();
    expected.push("process.executable.build_id.gnu=c0ffee".into());
    assert_eq!(of_mapping, expected);
    let memory = decoded(&pprof::encode(&pprof::captures(&checkout())[1]));
    let size = memory.dictionary.attributes.iter().find(|attribute| attribute.value == Value::Int(512)).unwrap();
    assert_eq!(memory.dictionary.strings.text(size.unit), "By");
}

/// Check that a number of zero, which is written with its key for a unit, comes back as it was.
#[test]
fn a_label_of_zero_is_one() {
    let mut set = checkout();
    let zero = set.dictionary.attribute("cpu.logical_number", 0);
    set.profiles[0].samples[0].attributes = set.dictionary.attribute_set([zero]);
    let again = decoded(&pprof::encode(&set));
    let number = again.dictionary.attributes_of(again.profiles[0].samples[0].attributes).next().unwrap();
    assert_eq!(number, ("cpu.logical_number", &Value::Int(0)));
    assert!(
        again.dictionary.attributes.iter().all(|attribute| again.dictionary.strings.text(attribute.unit).is_empty())
    );
}

/// Check that on-CPU samples with a time that does not follow from them stay two profiles, and two columns.
#[test]
fn cpu_time_that_does_not_follow_is_kept() {
    let mut set = what_pprof_holds(checkout());
    set.profiles.truncate(1);
    let mut nanos = set.profiles[0].clone();
    nanos.kind.sample_type = ValueType::new(&mut set.dictionary, "cpu", "nanoseconds");
    nanos.samples[0].value = 1;
    set.profiles.push(nanos);
    let set = set.compacted();
    assert_eq!(kinds(&set), [("samples".to_owned(), 9), ("cpu".to_owned(), 5)]);
    let again = decoded(&pprof::encode(&set));
    assert_eq!(kinds(&again), kinds(&set));
    assert_eq!(pprof::encode(&again), pprof::encode(&set));
}

/// Check that a window, period or type that is not there is none.
#[test]
fn an_empty_file_has_no_profiles() {
    assert_eq!(decoded(&[]), ProfileSet::default());
    assert_eq!(pprof::encode_uncompressed(&ProfileSet::default()), message(&[(6, b"")]));
    let set = decoded(&message(&[(6, b""), (6, b"x"), (1, &[8, 1])]));
    assert_eq!(kinds(&set), [("x".to_owned(), 0)]);
    assert_eq!(set.profiles[0].kind, Kind { sample_type: set.profiles[0].kind.sample_type, ..Kind::default() });
}

/// Check that the unknown location and function, which some producers refer to, are elements of the file, as Go's reader
/// wants them, and come back as unknown.
#[test]
fn unknown_frames_are_elements() {
    let mut set = what_pprof_holds(checkout());
    let lines = [Default::default()].into();
    let unnamed = set.dictionary.locations.intern(Location { address: 7, lines, ..Location::default() });
    let stack = Stack { locations: [unnamed, LocationId::ZERO].into() };
    set.profiles[0].samples[0].stack = set.dictionary.stacks.intern(stack);
    let set = decoded(&pprof::encode(&set));
    let leaf = set.dictionary.stacks.get(set.profiles[0].samples[0].stack).unwrap().locations[0];
    assert_eq!(set.dictionary.locations.get(leaf).map(|leaf| leaf.lines.to_vec()), Some(vec![Default::default()]));
    let plain = pprof::encode_uncompressed(&set);
    assert_eq!(decoded(&plain), set);
    // Sample: location 1, the unnamed one, and the one behind the last; its line refers to the function behind the last.
    let (locations, functions) = (set.dictionary.locations.len() as u8, set.dictionary.functions.len() as u8);
    assert!(plain.windows(4).any(|window| window == [10, 2, 1, locations]));
    assert!(plain.windows(4).any(|window| window == [34, 2, 8, functions]));
}

/// The fields of number `field` of a message, each without its tag and length; all lengths and numbers here are below 128.
fn fields(mut bytes: &[u8], field: u8) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let [tag, rest @ ..] = bytes {
        let length = match tag & 7 {
            2 => usize::from(rest[0]) + 1,
            _ => rest.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1,
        };
        if tag >> 3 == field {
            found.push(rest[usize::from(tag & 7 == 2)..length].to_vec());
        }
        bytes = &rest[length..];
    }
    found
}

/// Check that ids are positions, without which Parca refuses a file (its pkg/normalizer/validate.go), also where the program's mapping was
/// not the first to be referred to, and where a location and a function are unknown.
#[test]
fn ids_are_positions() {
    let mut set = checkout();
    set.resource = Resource::new().with("process.executable.name", "shop");
    let file = |name: &str, start, d: &mut Dictionary| {
        let filename = d.strings.intern_str(name);
        let mapping = d.mappings.intern(Mapping { start, limit: start + 0x1000, filename, ..Mapping::default() });
        let lines = [Line { function: FunctionId::ZERO, line: 1, column: 0 }].into();
        d.locations.intern(Location { mapping, address: start, lines, ..Location::default() })
    };
    let d = &mut set.dictionary;
    let [libc, shop, last] =
        [("/lib/libc.so", 0x1000), ("/bin/shop", 0x3000), ("/lib/z.so", 0x5000)].map(|(n, s)| file(n, s, d));
    let stack = d.stacks.intern(Stack { locations: [libc, LocationId::ZERO, shop, last].into() });
    set.profiles.truncate(1);
    set.profiles[0].samples = vec![Sample { stack, value: 1, ..Sample::default() }];

    let bytes = pprof::encode_uncompressed(&set);
    let ids = |field| -> Vec<u8> { fields(&bytes, field).iter().map(|element| fields(element, 1)[0][0]).collect() };
    assert_eq!((ids(3), ids(4), ids(5)), (vec![1, 2, 3], vec![1, 2, 3, 4], vec![1]));
    let again = decoded(&bytes);
    let mapping = |id: &LocationId| again.dictionary.locations.get(*id).unwrap().mapping;
    let names = again.dictionary.stacks.get(again.profiles[0].samples[0].stack).unwrap().locations.iter().map(|id| {
        let mapping = again.dictionary.mappings.get(mapping(id)).unwrap();
        again.dictionary.strings.text(mapping.filename)
    });
    assert_eq!(names.collect::<Vec<_>>(), ["/lib/libc.so", "", "/bin/shop", "/lib/z.so"]);
}

/// Check that a key that stands several times becomes a list, and comes back.
#[test]
fn repeated_labels_are_a_list() {
    let mut set = what_pprof_holds(checkout());
    let key = set.dictionary.strings.intern_str("shard");
    let value = Value::List(["a".into(), Value::Int(2)].into());
    let shard = set.dictionary.attributes.intern(Attribute { key, value: value.clone(), unit: Default::default() });
    set.profiles[0].samples[0].attributes = set.dictionary.attribute_set([shard]);
    let again = decoded(&pprof::encode(&set));
    assert_eq!(again.dictionary.value_of(again.profiles[0].samples[0].attributes, "shard"), Some(&value));
}

/// Check that what refers to nothing or is there twice is named.
#[test]
fn senseless_files_are_named() {
    let error = |fields: &[(u8, &[u8])]| pprof::decode(&message(fields), &Limits::default()).unwrap_err().to_string();
    let field = |number: u8, content: &'static [u8]| (number, content);
    let (zero, kind) = (field(6, b""), field(1, &[]));
    assert_eq!(error(&[zero, (1, &[8, 9])]), "sample_type[0].type: 9 is beyond string_table (1 elements)");
    assert_eq!(error(&[(6, b"x")]), "string_table[0]: not \"\", which index 0 stands for everywhere");
    assert_eq!(error(&[zero, kind, (2, &[16, 1, 16, 2])]), "sample[0].value: 2 values for 1 sample types");
    assert_eq!(error(&[zero, kind, (2, &[16, 1, 8, 7])]), "sample[0].location_id[0]: 7 is the id of no location");
    assert_eq!(error(&[zero, (4, &[])]), "location[0].id: 0, which stands for \"none\"");
    assert_eq!(error(&[zero, (5, &[8, 3]), (5, &[8, 3])]), "function[1].id: 3, a second time");
    let line: &[u8] = &[8, 1, 34, 4, 8, 1, 16, 5];
    assert_eq!(
        error(&[zero, kind, (2, &[16, 1, 8, 1]), (4, line)]),
        "location[0].line[0].function_id: 1 is the id of no function"
    );
    let label: &[u8] = &[16, 1, 26, 2, 16, 5];
    assert_eq!(error(&[zero, kind, (2, label)]), "sample[0].label[0].str: 5 is beyond string_table (1 elements)");
}

/// Check that a small file that unfolds into a large one is refused at the limit, and bytes of no format are named.
#[test]
fn limits_hold() {
    let bomb = {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 100 << 20), &mut gzip).unwrap();
        gzip.finish().unwrap()
    };
    assert!(bomb.len() < 200_000, "{}", bomb.len());
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let error = pprof::decode(&bomb, &limits).unwrap_err();
    assert_eq!(error, DecodeError::OverLimit { what: "bytes of input", limit: 1 << 20 });
    let cut = pprof::decode(&bomb[..100], &Limits::default()).unwrap_err().to_string();
    assert!(cut.starts_with("not valid gzip: "), "{cut}");
    assert!(pprof::decode(b"hello", &Limits::default()).unwrap_err().to_string().starts_with("not valid protobuf: "));
}

proptest! {
    /// Check that what pprof can hold comes back from it, with and without gzip, and that the same set gives the same bytes.
    #[test]
    fn a_set_comes_back(plan in plans(label_values())) {
        let set = what_pprof_holds(plan.without_frame_attributes().build(true));
        let plain = pprof::encode_uncompressed(&set);
        prop_assert_eq!(pprof::decode(&plain, &Limits::default()), Ok(set.clone()));
        let file = pprof::encode(&set);
        prop_assert_eq!(&file[..2], &[0x1f, 0x8b]);
        prop_assert_eq!(&pprof::encode(&set.compacted()), &file);
        prop_assert_eq!(pprof::decode(&file, &Limits::default()), Ok(set));
    }

    /// Check that any bytes are decoded or refused.
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::pprof(&bytes);
    }

    /// Check that a file with some bytes changed is decoded or refused.
    #[test]
    fn changed_bytes_are_decoded_or_refused(changes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..4)) {
        let mut bytes = pprof::encode_uncompressed(&checkout());
        for (position, byte) in changes {
            let len = bytes.len();
            bytes[usize::from(position) % len] = byte;
        }
        fuzz::pprof(&bytes);
    }
}
