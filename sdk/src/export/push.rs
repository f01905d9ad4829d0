//! What Pyroscope is sent: a request of push.v1 with one series, which is one pprof file and its labels.
//!
//! In: a part of a set that is one capture, and the labels that code sets. Out: the request, under names and within bounds that every
//! Pyroscope takes. Pure, but for the random id that each request gets once: who sends it again sends the same id.
//!
//! A request has one series, for the server takes them one by one: of several it may store some and refuse the request for the others.
//!
//! Source: grafana/pyroscope, api/push/v1/push.proto, pkg/validation (`validate.go`, `limits.go`), read in August 2026.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use profiler_proto::model::{AttributeSetId, Value};
use profiler_proto::split::MAX_SAMPLES;
use profiler_proto::{ProfileSet, Sample, pprof};
use prost::Message;

/// Longest value of a label in bytes (`validation.max-length-label-value`).
pub(super) const LONGEST_VALUE: usize = 2048;
/// Longest name of a label in bytes (`validation.max-length-label-name`).
pub(super) const LONGEST_NAME: usize = 1024;
/// Most names of labels of a series, those of its samples among them (`validation.max-label-names-per-series`).
const MOST_LABELS: usize = 30;

/// The label that every series must have.
const SERVICE_NAME: &str = "service_name";

/// `push.v1.PushRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<RawProfileSeries>,
}

/// `push.v1.RawProfileSeries`.
#[derive(Clone, PartialEq, Message)]
struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

/// `types.v1.LabelPair`.
#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `push.v1.RawSample`.
#[derive(Clone, PartialEq, Message)]
struct RawSample {
    /// A pprof file, here without gzip of its own: the request is compressed as a whole.
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    /// A UUID; the server refuses a profile without.
    #[prost(string, tag = "2")]
    id: String,
}

/// The request for `part`, which is compact, whose series has the labels that code sets over those of the process; if it is one
/// that the server takes: one file of at most so many bytes, and samples.
pub(super) fn request(part: &ProfileSet, labels: &[(String, String)], bytes: usize) -> Option<PushRequest> {
    if !pprof::is_capture(part) || rows(part) > MAX_SAMPLES {
        return None;
    }
    let tagged = tagged(part);
    let labels = series_labels(part, labels, &tagged);
    let part = if tagged.is_empty() { Cow::Borrowed(part) } else { Cow::Owned(with_attributes(part, &tagged)) };
    let raw_profile = pprof::encode_compact(&part, label_name);
    let samples = vec![RawSample { raw_profile, id: random_id() }];
    (samples[0].raw_profile.len() <= bytes).then(|| PushRequest { series: vec![RawProfileSeries { labels, samples }] })
}

/// Labels of the process that some samples have as tags of their own: of the series, they would hide those.
fn tagged(part: &ProfileSet) -> Vec<(String, String)> {
    let tags: HashSet<_> = samples(part).map(|sample| sample.attributes).collect();
    let names: HashSet<_> = tags.into_iter().flat_map(|tags| tag_names(part, tags)).collect();
    let process = part.resource.attributes().iter().filter_map(|(key, value)| Some((label_name(key), text(value)?)));
    let hidden = process.filter(|(name, _)| name != SERVICE_NAME && names.contains(name));
    hidden.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// The names of the labels that tags of text become.
fn tag_names(part: &ProfileSet, tags: AttributeSetId) -> impl Iterator<Item = Cow<'_, str>> {
    let texts = part.dictionary.attributes_of(tags).filter(|(_, value)| matches!(value, Value::String(_)));
    texts.map(|(key, _)| label_name(key))
}

/// The same, whose samples have these as tags where they have none of the name.
fn with_attributes(part: &ProfileSet, attributes: &[(String, String)]) -> ProfileSet {
    let mut whole = part.clone();
    let mut extended: HashMap<AttributeSetId, AttributeSetId> = HashMap::new();
    for tags in samples(part).map(|sample| sample.attributes) {
        if extended.contains_key(&tags) {
            continue;
        }
        let names: HashSet<_> = tag_names(part, tags).collect();
        let lacking = attributes.iter().filter(|(name, _)| !names.contains(name.as_str()));
        let mut ids = part.dictionary.attribute_sets.get(tags).map_or(Vec::new(), |set| set.ids().to_vec());
        ids.extend(lacking.map(|(name, value)| whole.dictionary.attribute(name, value.as_str())));
        extended.insert(tags, whole.dictionary.attribute_set(ids));
    }
    for sample in whole.profiles.iter_mut().flat_map(|profile| &mut profile.samples) {
        sample.attributes = extended.get(&sample.attributes).copied().unwrap_or(sample.attributes);
    }
    whole
}

/// Samples of the file of `part`, where profiles share them.
fn rows(part: &ProfileSet) -> usize {
    samples(part).map(|sample| (sample.stack, sample.attributes, sample.link)).collect::<HashSet<_>>().len()
}

fn samples(part: &ProfileSet) -> impl Iterator<Item = &Sample> {
    part.profiles.iter().flat_map(|profile| &profile.samples)
}

/// The labels of the series, as many as its samples leave room for; where two are of one name, the first. Those of the process that are
/// `tagged` are its samples'.
fn series_labels(part: &ProfileSet, labels: &[(String, String)], tagged: &[(String, String)]) -> Vec<LabelPair> {
    let name = series_name(part);
    // Without it, storage of version 1 takes the first allocations of a process for the start of a counter, and shows none.
    let delta = (name == "memory").then_some(("__delta__".into(), "false".into()));
    let service = labels.iter().find(|(name, _)| name == SERVICE_NAME).map(|(_, service)| service.as_str());
    let service = service.or(part.resource.service_name()).unwrap_or("unknown_service");
    let code = labels.iter().map(|(name, value)| (name.into(), value.into()));
    let process = part.resource.attributes().iter().filter_map(|(key, value)| Some((label_name(key), text(value)?)));
    let process = process.filter(|(name, _)| tagged.iter().all(|(hidden, _)| hidden != name));
    let fixed = [("__name__".into(), name), (SERVICE_NAME.into(), service.into())].into_iter().chain(delta);
    let all = fixed.chain(code).chain(process);
    let mut pairs: Vec<LabelPair> = Vec::new();
    for (name, value) in all.filter(|(name, value)| name.len() <= LONGEST_NAME && !value.is_empty()) {
        if pairs.iter().all(|pair| pair.name != name) {
            let value = &value[..value.floor_char_boundary(LONGEST_VALUE)];
            pairs.push(LabelPair { name: name.into(), value: value.to_owned() });
        }
    }
    // Where samples have so many that it will refuse them, the server is to say so.
    pairs.truncate(MOST_LABELS.saturating_sub(labels_of_samples(part)).max(3));
    pairs
}

/// The first part of the type's name in Pyroscope, for what Go programs send too the one that they use:
/// `process_cpu:cpu:nanoseconds:cpu:nanoseconds`, `memory:inuse_space:bytes:space:bytes`.
fn series_name(part: &ProfileSet) -> Cow<'_, str> {
    let kind = part.profiles.first().map(|profile| profile.kind).unwrap_or_default();
    let text = |id| part.dictionary.strings.text(id);
    match (text(kind.period_type.kind), text(kind.sample_type.kind)) {
        ("cpu", _) => "process_cpu".into(),
        ("space", _) => "memory".into(),
        ("", sample_type) => label_name(sample_type),
        (period_type, _) => label_name(period_type),
    }
}

/// The most labels that the server counts on a sample: those of text.
fn labels_of_samples(part: &ProfileSet) -> usize {
    let sets: HashSet<_> = samples(part).map(|sample| sample.attributes).collect();
    let texts = |set| part.dictionary.attributes_of(set).filter(|(_, value)| !matches!(value, Value::Int(_))).count();
    sets.into_iter().map(texts).max().unwrap_or(0)
}

/// The value of a label; what has several parts is none.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.as_ref().into()),
        Value::Bool(_) | Value::Int(_) | Value::Double(_) => Some(value.to_string().into()),
        Value::Empty | Value::Bytes(_) | Value::List(_) | Value::Map(_) => None,
    }
}

/// The name of a label that is made of `key`: letters, digits and `_`, no digit first. Servers before 2.0 refuse a profile for any other
/// name, and Grafana does not list them everywhere.
fn label_name(key: &str) -> Cow<'_, str> {
    if is_label_name(key) {
        return key.into();
    }
    let first = key.starts_with(|first: char| first.is_ascii_digit()) || key.is_empty();
    let rest = key.chars().map(|letter| if is_letter(letter) { letter } else { '_' });
    first.then_some('_').into_iter().chain(rest).collect()
}

/// Whether every Pyroscope takes `name` as that of a label.
pub(super) fn is_label_name(name: &str) -> bool {
    name.chars().all(is_letter) && name.starts_with(|first: char| !first.is_ascii_digit())
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// A random UUID (RFC 9562, version 4). The standard library's hash keys are random, which is enough for an id.
fn random_id() -> String {
    let [high, low] = [0, 1].map(|half| RandomState::new().hash_one((half, std::process::id())));
    let (high, low) = (high & !0xf000 | 0x4000, low & !(0b11 << 62) | 0b10 << 62);
    let parts = (high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48, low & 0xffff_ffff_ffff);
    format!("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", parts.0, parts.1, parts.2, parts.3, parts.4)
}

#[cfg(test)]
mod tests;
