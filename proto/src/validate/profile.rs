//! Profiles and their samples.

use std::collections::HashSet;

use super::attributes::{check_indices, check_labels};
use super::references::{References, Table};
use super::{Report, Rule, is_name};
use crate::otlp::messages::{Profile, Sample, ValueType};
use crate::split::MAX_SAMPLES;

pub(super) fn check(profile: &Profile, path: &str, references: &mut References<'_>, report: &mut Report) {
    check_type(profile.sample_type, &format!("{path}.sample_type"), Rule::SampleType, references, report);
    check_type(profile.period_type, &format!("{path}.period_type"), Rule::PeriodType, references, report);
    report.check(profile.period > 0, format!("{path}.period"), Rule::Period);
    report.check(profile.time_unix_nano != 0, format!("{path}.time_unix_nano"), Rule::Time);
    report.check(profile.duration_nano != 0, format!("{path}.duration_nano"), Rule::Duration);
    let id = &profile.profile_id;
    let is_id = id.is_empty() || (id.len() == 16 && id.iter().any(|byte| *byte != 0));
    report.check(is_id, format!("{path}.profile_id"), Rule::ProfileId);
    let together = profile.original_payload.is_empty() == profile.original_payload_format.is_empty();
    report.check(together, format!("{path}.original_payload"), Rule::OriginalPayload);
    check_indices(&profile.attribute_indices, path, references, report);
    check_samples(profile, path, references, report);
}

fn check_type(
    value_type: Option<ValueType>,
    path: &str,
    unset: Rule,
    references: &mut References<'_>,
    report: &mut Report,
) {
    let value_type = value_type.unwrap_or_default();
    let fields = [(value_type.type_strindex, "type_strindex"), (value_type.unit_strindex, "unit_strindex")];
    for (index, field) in fields {
        let path = format!("{path}.{field}");
        references.to(Table::String, index, &path, report);
        report.check(is_name(references.text(index)), path, Rule::Name);
    }
    report.check(fields.iter().all(|(index, _)| *index != 0), path, unset);
}

fn check_samples(profile: &Profile, path: &str, references: &mut References<'_>, report: &mut Report) {
    report.check(!profile.samples.is_empty(), format!("{path}.samples"), Rule::Samples);
    report.check(profile.samples.len() <= MAX_SAMPLES, format!("{path}.samples"), Rule::SamplesTooMany);
    let mut known = HashSet::new();
    let shape = |sample: &Sample| (sample.values.is_empty(), sample.timestamps_unix_nano.is_empty());
    let first = profile.samples.first().map(shape);
    for (i, sample) in profile.samples.iter().enumerate() {
        let path = format!("{path}.samples[{i}]");
        check_sample(sample, &path, references, report);
        report.check(Some(shape(sample)) == first, &path, Rule::Shape);
        let mut attributes = sample.attribute_indices.clone();
        attributes.sort_unstable();
        report.check(known.insert((sample.stack_index, attributes, sample.link_index)), &path, Rule::SampleTwice);
        let window = profile.time_unix_nano..profile.time_unix_nano.saturating_add(profile.duration_nano);
        for (i, time) in sample.timestamps_unix_nano.iter().enumerate() {
            report.check(window.contains(time), format!("{path}.timestamps_unix_nano[{i}]"), Rule::Timestamp);
        }
    }
}

fn check_sample(sample: &Sample, path: &str, references: &mut References<'_>, report: &mut Report) {
    references.to(Table::Stack, sample.stack_index, &format!("{path}.stack_index"), report);
    references.to(Table::Link, sample.link_index, &format!("{path}.link_index"), report);
    check_indices(&sample.attribute_indices, path, references, report);
    check_labels(&sample.attribute_indices, path, references, report);
    match (sample.values.len(), sample.timestamps_unix_nano.len()) {
        (0, 0) => report.add(path, Rule::SampleEmpty),
        (1, 0) | (0, _) => {}
        (_, 0) => report.add(format!("{path}.values"), Rule::SeveralValues),
        (values, times) if values != times => report.add(format!("{path}.values"), Rule::ValuesDiffer),
        _ => report.add(path, Rule::ValuesAndTimestamps),
    }
}
