//! From a window to a [`ProfileSet`]: the one place that builds a model of samples.
//!
//! In: a [`Window`] of one process, its resource, what was lost of it elsewhere. Out: one set with an on-CPU profile for each rate at which
//! samples were taken, so that values are whole and totals true; equal windows make equal sets. Pure. What it makes obeys
//! [`profiler_proto::validate`].

mod places;
#[cfg(test)]
mod tests;
mod threads;

use std::time::{Duration, UNIX_EPOCH};

use profiler_proto::hash::Map;
use profiler_proto::loss::{Loss, STACKS};
use profiler_proto::model::{
    AttributeId, AttributeSetId, Dictionary, Kind, Link, LinkId, Profile, ProfileSet, Sample, Scope, Stack, StackId,
    Value,
};
use profiler_proto::resource::Resource;

use crate::aggregate::{Entry, Window};
use crate::naming::Granularity;
use places::Places;
use threads::ThreadLabels;

/// What says of a sample that its tags found no room, as the SDK says it.
const BEYOND: (&str, &str) = ("profiler.tags", "overflow");

/// The profiles of `window`; `lost` is what its own losses do not say. Without samples there is no profile.
#[must_use]
pub fn assemble(window: &Window, resource: &Resource, lost: &Loss, granularity: Granularity) -> ProfileSet {
    let entries = window.entries(granularity);
    let (threads, places) = (ThreadLabels::of(&entries), Places::new(granularity));
    let mut assembly = Assembly { dictionary: Dictionary::default(), places, threads };
    let mut profiles = Vec::new();
    for entries in entries.chunk_by(|one, next| one.period_nanos == next.period_nanos) {
        // What was lost is told once, or it would be summed up as often as there are profiles.
        let is_first = profiles.is_empty();
        profiles.push(assembly.profile(window, entries, is_first.then_some(lost)));
    }
    let scope = Scope { name: "profiler_sidecar".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    ProfileSet { resource: resource.clone(), scope, dictionary: assembly.dictionary, profiles }
}

/// A set under construction.
struct Assembly<'a> {
    dictionary: Dictionary,
    places: Places,
    threads: ThreadLabels<'a>,
}

impl<'a> Assembly<'a> {
    /// The profile of entries of one period.
    fn profile(&mut self, window: &Window, entries: &[Entry<'a>], lost: Option<&Loss>) -> Profile {
        let period = entries.first().map_or(1, |entry| entry.period_nanos.max(1));
        let kind = Kind::cpu(&mut self.dictionary, i64::try_from(period).unwrap_or(i64::MAX));
        // What is referred to first is made first: the set is compact then, and is sent without a copy.
        let attributes = self.attributes(window, entries, lost);
        let samples: Vec<Sample> = entries.iter().map(|entry| self.sample(entry)).collect();
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Profile {
            kind,
            time_unix_nanos: nanos(window.started_at().duration_since(UNIX_EPOCH).unwrap_or_default()).max(1),
            duration_nanos: nanos(window.duration()).max(1),
            attributes,
            samples: merged(samples),
        }
    }

    fn sample(&mut self, entry: &Entry<'a>) -> Sample {
        Sample {
            stack: self.stack(entry),
            attributes: self.labels(entry),
            link: self.link(entry),
            value: i64::try_from(entry.count).unwrap_or(i64::MAX),
        }
    }

    fn stack(&mut self, entry: &Entry<'_>) -> StackId {
        let (places, dictionary) = (&mut self.places, &mut self.dictionary);
        let locations = entry.stack.iter().map(|location| places.location(location, dictionary)).collect();
        self.dictionary.stacks.intern(Stack { locations })
    }

    /// The tags, the thread, and the processor where it is told. A tag goes before a label of ours with the same key.
    fn labels(&mut self, entry: &Entry<'_>) -> AttributeSetId {
        let dictionary = &mut self.dictionary;
        let of_thread = self.threads.labels(entry.tid, entry.name);
        // Source: OpenTelemetry semantic conventions, "CPU attributes".
        let of_processor = entry.processor.map(|number| ("cpu.logical_number", Value::Int(number.into())));
        let ours = of_thread.chain(of_processor);
        let mut labels: Vec<AttributeId> = ours.map(|(key, value)| dictionary.attribute(key, value)).collect();
        match entry.tags {
            Some(tags) => labels.extend(tags.iter().map(|(key, value)| dictionary.attribute(key, value.as_str()))),
            None => labels.push(dictionary.attribute(BEYOND.0, BEYOND.1)),
        }
        dictionary.attribute_set(labels)
    }

    fn link(&mut self, entry: &Entry<'_>) -> LinkId {
        match entry.span {
            Some(span) => self.dictionary.links.intern(Link { trace_id: span.trace_id, span_id: span.span_id }),
            None => LinkId::ZERO,
        }
    }

    fn attributes(&mut self, window: &Window, entries: &[Entry<'_>], lost: Option<&Loss>) -> AttributeSetId {
        let stacks: u64 = entries.iter().map(|entry| entry.count).sum();
        let stacks = Value::Int(i64::try_from(stacks).unwrap_or(i64::MAX));
        let mut attributes = vec![self.dictionary.attribute(STACKS, stacks)];
        if let Some(lost) = lost {
            let mut all = window.lost();
            all.merge(lost);
            attributes.extend(all.attributes(&mut self.dictionary));
            attributes.extend(window.degraded().attributes(&mut self.dictionary));
        }
        self.dictionary.attribute_set(attributes)
    }
}

/// Adds up samples that differ only in what a profile does not show.
fn merged(samples: Vec<Sample>) -> Vec<Sample> {
    let mut places = Map::default();
    let mut merged: Vec<Sample> = Vec::new();
    for sample in samples {
        let place = *places.entry((sample.stack, sample.attributes, sample.link)).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(same) => same.value = same.value.saturating_add(sample.value),
            None => merged.push(sample),
        }
    }
    merged
}

/// A CPU profile of the time until now in which nothing was sampled: what has no sample type cannot be read as a profile.
#[must_use]
pub fn without_samples(rate_hz: u32, took: Duration) -> ProfileSet {
    let mut set = ProfileSet::default();
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    set.profiles.push(Profile {
        kind: Kind::cpu(&mut set.dictionary, 1_000_000_000 / i64::from(rate_hz.max(1))),
        time_unix_nanos: nanos(UNIX_EPOCH.elapsed().unwrap_or_default().saturating_sub(took)),
        duration_nanos: nanos(took),
        ..Profile::default()
    });
    set
}
