//! What a body of Pyroscope's push.v1 says, read as its server does.
//!
//! Source: grafana/pyroscope, api/push/v1/push.proto, api/types/v1/types.proto; pkg/distributor and pkg/validation for what it refuses.

use std::collections::BTreeMap;

use profiler_proto::{Limits, ProfileSet, pprof};
use prost::Message;

use super::http_peer::Received;

#[derive(Clone, PartialEq, Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<RawProfileSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    id: String,
}

/// The one profile of a request.
pub(crate) struct Push {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) id: String,
    /// What its pprof file holds.
    pub(crate) file: ProfileSet,
    /// Bytes of the file without gzip.
    pub(crate) bytes: usize,
}

impl Push {
    /// Reads a body; it must be one that the server takes.
    pub(crate) fn of(message: &[u8]) -> Self {
        let [series] = PushRequest::decode(message).expect("push.v1").series.try_into().expect("one series");
        let [sample] = series.samples.try_into().expect("one profile");
        assert!(series.labels.len() <= 30, "{} labels", series.labels.len());
        let count = series.labels.len();
        let labels: BTreeMap<_, _> = series.labels.into_iter().map(|pair| (pair.name, pair.value)).collect();
        assert_eq!(labels.len(), count, "a name stands twice: {labels:?}");
        assert!(["__name__", "service_name"].iter().all(|name| labels.contains_key(*name)), "{labels:?}");
        assert!(labels.values().all(|value| !value.is_empty() && value.len() <= 2048), "{labels:?}");
        let groups: Vec<_> = sample.id.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{} is a UUID", sample.id);
        let file = pprof::decode(&sample.raw_profile, &Limits::default()).expect("a pprof file");
        assert!(file.profiles.iter().all(|profile| profile.samples.len() <= 16_000));
        Self { labels, id: sample.id, file, bytes: sample.raw_profile.len() }
    }

    /// Those of all requests of a peer, in order.
    pub(crate) fn all(requests: &[Received]) -> Vec<Self> {
        requests.iter().map(|request| Self::of(&request.message())).collect()
    }

    /// The names under which the server keeps the profiles: `process_cpu:cpu:nanoseconds:cpu:nanoseconds`.
    pub(crate) fn types(&self) -> Vec<String> {
        let text = |id| self.file.dictionary.strings.text(id);
        let name = |profile: &profiler_proto::Profile| {
            let (kind, dictionary) = (profile.kind, &self.file.dictionary);
            // Our decoder has the two columns of CPU profiles as one, of samples.
            let sample = if kind.is_cpu(dictionary) { kind.period_type } else { kind.sample_type };
            let [kind, unit, period, period_unit] =
                [sample.kind, sample.unit, kind.period_type.kind, kind.period_type.unit].map(text);
            format!("{}:{kind}:{unit}:{period}:{period_unit}", self.labels["__name__"])
        };
        self.file.profiles.iter().map(name).collect()
    }
}

/// The values of the first profiles of these sets, by the function at the leaf.
pub(crate) fn values<'a>(sets: impl IntoIterator<Item = &'a ProfileSet>) -> BTreeMap<String, i64> {
    let mut values = BTreeMap::new();
    for set in sets {
        let d = &set.dictionary;
        for sample in &set.profiles[0].samples {
            let leaf = d.stacks.get(sample.stack).unwrap().locations[0];
            let function = d.locations.get(leaf).unwrap().lines[0].function;
            let name = d.strings.text(d.functions.get(function).unwrap().name);
            *values.entry(name.to_owned()).or_default() += sample.value;
        }
    }
    values
}
