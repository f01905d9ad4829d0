//! The series of a `WriteRaw` request: one for each set of labels, for Parca keeps no labels of samples.
//!
//! In: a part of a set, small enough for a request, and the labels that all series get. Out: the request, bounded in series and in
//! bytes, and how many samples the bounds cost their tags. Pure.
//!
//! What Parca asks for: `__name__`, and names as Prometheus has them, each once, else it refuses the whole request (its
//! pkg/normalizer/normalizer.go). What it calls a profile: name, sample type and period type, and `delta` unless the duration is 0.

use std::collections::{BTreeMap, HashMap};

use profiler_proto::model::{AttributeSetId, Excerpts, Value};
use profiler_proto::resource::Resource;
use profiler_proto::{Profile, ProfileSet, Sample, pprof};

use super::messages::{Label, LabelSet, RawProfileSeries, RawSample, WriteRawRequest};

/// Labels by their names.
pub(in crate::export) type Labels = BTreeMap<String, String>;

/// Most sets of tags in a request; samples of further sets are sent without their tags. Each one repeats the functions that it shares
/// with others.
const MOST_SETS: usize = 500;

/// Most bytes of files with tags in a request, before compression; as much as that, at most, is added by those without. Parca's own agent sends
/// up to 32 MiB, Parca takes 64 MiB.
const MOST_BYTES: usize = 8 << 20;

/// Most bytes of a request.
pub(in crate::export) const LONGEST: usize = 2 * MOST_BYTES;

/// What the label `profiler_tags` says where tags were left out, as samples do whose tags were over another bound.
const OVERFLOW: [&str; 2] = ["profiler_tags", "overflow"];

/// The name of the label that says what is measured.
const NAME: &str = "__name__";

/// The request for `set`, whose series all have `labels`, and the number of samples that are in it without their tags.
pub(in crate::export) fn request(set: &ProfileSet, labels: &Labels) -> (WriteRawRequest, usize) {
    let mut writer = Writer { set, excerpts: Excerpts::new(&set.dictionary), labels };
    let (mut series, mut bytes, mut rest) = (Vec::new(), 0, Group::default());
    for (number, (tags, group)) in groups(set).into_iter().enumerate() {
        if number < MOST_SETS && bytes <= MOST_BYTES {
            let written = writer.series(&tags, &group);
            bytes +=
                written.iter().flat_map(|series| &series.samples).map(|file| file.raw_profile.len()).sum::<usize>();
            if bytes <= MOST_BYTES {
                series.extend(written);
                continue;
            }
        }
        rest.absorb(group);
    }
    let untagged = rest.samples.values().map(Vec::len).sum();
    if untagged > 0 {
        series.extend(writer.series(&Labels::from([OVERFLOW.map(str::to_owned).into()]), &rest));
    }
    (WriteRawRequest { series }, untagged)
}

/// Samples that have their tags in common.
#[derive(Debug, Default)]
struct Group {
    /// By the index of their profile, without attributes and links.
    samples: BTreeMap<usize, Vec<Sample>>,
    /// Sum of the shares that they have of the profiles.
    share: f64,
}

impl Group {
    fn absorb(&mut self, other: Self) {
        for (profile, samples) in other.samples {
            self.samples.entry(profile).or_default().extend(samples);
        }
    }
}

/// The samples of `set` by their tags: first those without, then in descending order of their share.
fn groups(set: &ProfileSet) -> Vec<(Labels, Group)> {
    let mut places: HashMap<AttributeSetId, usize> = HashMap::new();
    let mut by_tags: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (index, profile) in set.profiles.iter().enumerate() {
        let weight: f64 = profile.samples.iter().map(weight).sum();
        for sample in &profile.samples {
            let place = *places.entry(sample.attributes).or_insert_with(|| {
                let place = *by_tags.entry(tags(set, sample.attributes)).or_insert(groups.len());
                groups.resize_with(groups.len().max(place + 1), Group::default);
                place
            });
            let group = &mut groups[place];
            group.share += self::weight(sample) / weight.max(1.0);
            let sample = Sample { stack: sample.stack, value: sample.value, ..Sample::default() };
            group.samples.entry(index).or_default().push(sample);
        }
    }
    let mut tags: Vec<_> = by_tags.into_iter().collect();
    tags.sort_unstable_by_key(|(_, place)| *place);
    let mut groups: Vec<_> = tags.into_iter().map(|(tags, _)| tags).zip(groups).collect();
    groups
        .sort_by(|(a, first), (b, second)| b.is_empty().cmp(&a.is_empty()).then(second.share.total_cmp(&first.share)));
    groups
}

#[expect(clippy::cast_precision_loss, reason = "an order of shares needs no more than 53 bits")]
fn weight(sample: &Sample) -> f64 {
    sample.value.unsigned_abs() as f64
}

/// The tags of a sample that are text. Numbers such as ids of threads are left out, and ids of spans: each makes a series of its own.
fn tags(set: &ProfileSet, attributes: AttributeSetId) -> Labels {
    let mut labels = Labels::new();
    for (key, value) in set.dictionary.attributes_of(attributes) {
        match value {
            Value::String(text) if !["trace_id", "span_id"].contains(&key) => add(&mut labels, key, text),
            _ => {}
        }
    }
    labels
}

/// Adds a label, unless there is one of its name or it says nothing.
fn add(labels: &mut Labels, key: &str, value: &str) {
    if !value.is_empty() && !key.is_empty() {
        labels.entry(label_name(key)).or_insert_with(|| value.to_owned());
    }
}

/// `key` as the name of a label: letters, digits and `_`, no digit first (Prometheus, "Data model").
fn label_name(key: &str) -> String {
    let lead = if key.starts_with(|first: char| first.is_ascii_digit()) { "_" } else { "" };
    let legal = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    lead.chars().chain(legal).collect()
}

/// Series under construction.
struct Writer<'a> {
    set: &'a ProfileSet,
    excerpts: Excerpts<'a>,
    labels: &'a Labels,
}

impl Writer<'_> {
    /// The series of a group: one for each name, with a file for each window.
    fn series(&mut self, tags: &Labels, group: &Group) -> Vec<RawProfileSeries> {
        let profiles: Vec<_> =
            group.samples.iter().map(|(index, samples)| self.profile(*index, samples.clone())).collect();
        let mut files: BTreeMap<String, Vec<RawSample>> = BTreeMap::new();
        for capture in pprof::captures(&self.excerpts.of(&profiles)) {
            let raw_profile = pprof::encode_compact(&capture, |key| key.into());
            files.entry(name(&capture)).or_default().push(RawSample { raw_profile });
        }
        files
            .into_iter()
            .map(|(name, samples)| RawProfileSeries { labels: Some(self.label_set(name, tags)), samples })
            .collect()
    }

    /// The profile at `index`, of these samples. What is in use at the end of the window is no difference, hence without duration.
    fn profile(&self, index: usize, samples: Vec<Sample>) -> Profile {
        let Profile { kind, time_unix_nanos, duration_nanos, .. } = self.set.profiles[index];
        let whole = Profile { kind, time_unix_nanos, duration_nanos, samples, ..Profile::default() };
        match kind.is_state(&self.set.dictionary) {
            true => Profile { time_unix_nanos: whole.end_unix_nanos(), duration_nanos: 0, ..whole },
            false => whole,
        }
    }

    /// All labels of a series. Of one name, the destination's hold over tags, and those over the resource's.
    fn label_set(&self, name: String, tags: &Labels) -> LabelSet {
        let mut labels = Labels::from([(NAME.to_owned(), name)]);
        self.labels.iter().chain(tags).for_each(|(key, value)| add(&mut labels, key, value));
        add_resource(&mut labels, &self.set.resource);
        LabelSet { labels: labels.into_iter().map(|(name, value)| Label { name, value }).collect() }
    }
}

/// Adds what is known of the process: texts and numbers.
fn add_resource(labels: &mut Labels, resource: &Resource) {
    for (key, value) in resource.attributes() {
        match value {
            Value::String(text) => add(labels, key, text),
            Value::Int(number) => add(labels, key, &number.to_string()),
            _ => {}
        }
    }
}

/// What a capture is called: as Parca calls what it fetches from Go programs itself.
fn name(capture: &ProfileSet) -> String {
    let period_type = capture.profiles.first().map(|profile| profile.kind.period_type).unwrap_or_default();
    match capture.dictionary.strings.text(period_type.kind) {
        "cpu" => "process_cpu".to_owned(),
        "space" => "memory".to_owned(),
        "" => "unknown".to_owned(),
        other => label_name(other),
    }
}
