//! From an OTLP request to the model.
//!
//! In: a request, or its bytes, from anywhere. Out: one compact [`ProfileSet`] per resource and scope, or an error that
//! names the field. Only what a sample refers to is looked at and copied, once per set however often it is referred to.

use prost::Message;

use super::ExportProfilesServiceRequest;
use super::messages as wire;
use super::shape::REQUEST;
use super::source::Source;
use crate::error::DecodeError;
use crate::limits::Limits;
use crate::model::compact::{SumEntry, Sums};
use crate::model::{Dictionary, Kind, Profile, ProfileSet, Sample, Scope, Value};
use crate::resource::Resource;

/// The sets of `request`, one per `resource_profiles` × `scope_profiles` element, in that order.
///
/// A sample that has only timestamps stands for as many events of value 1; several values are summed, as are samples of
/// the same stack, attributes and link. Attributes whose value is not set are left out, as is a link with zero ids.
///
/// # Errors
///
/// [`DecodeError`] if a reference points beyond its table, an element 0 is not the zero value, an id has the wrong length,
/// a line number is negative, a sample has no value, or the content goes beyond `limits`.
pub fn decode(request: ExportProfilesServiceRequest, limits: &Limits) -> Result<Vec<ProfileSet>, DecodeError> {
    let dictionary = request.dictionary.unwrap_or_default();
    let mut source = Source::new(&dictionary, limits)?;
    let mut sets = Vec::new();
    for (i, of_resource) in request.resource_profiles.into_iter().enumerate() {
        let path = format!("resource_profiles[{i}]");
        for (j, of_scope) in of_resource.scope_profiles.iter().enumerate() {
            // Once per scope, so that what the copies cost is in the budget.
            let resource = decode_resource(of_resource.resource.as_ref(), &path, &mut source)?;
            let path = format!("{path}.scope_profiles[{j}]");
            sets.push(decode_scope(of_scope, resource, &path, &mut source)?);
        }
    }
    Ok(sets)
}

/// [`decode`] of a request body, uncompressed. `ProfilesData` is the same on the wire.
///
/// # Errors
///
/// As [`decode`], and if `bytes` are not a request or are more than `limits` allow. What the request will occupy is added
/// up before anything is allocated.
pub fn decode_bytes(bytes: &[u8], limits: &Limits) -> Result<Vec<ProfileSet>, DecodeError> {
    crate::wire::check(bytes, &REQUEST, limits)?;
    let request = ExportProfilesServiceRequest::decode(bytes)
        .map_err(|error| DecodeError::Malformed { format: "protobuf", detail: error.to_string() })?;
    decode(request, limits)
}

pub(super) fn decode_resource(
    resource: Option<&wire::Resource>,
    path: &str,
    source: &mut Source<'_>,
) -> Result<Resource, DecodeError> {
    let mut decoded = Resource::new();
    for (i, attribute) in resource.iter().flat_map(|resource| &resource.attributes).enumerate() {
        let (key, value) = source.key_value(attribute, 0, &|| format!("{path}.resource.attributes[{i}]"))?;
        if value != Value::Empty {
            decoded.set(key, value);
        }
    }
    Ok(decoded)
}

fn decode_scope(
    of_scope: &wire::ScopeProfiles,
    resource: Resource,
    path: &str,
    source: &mut Source<'_>,
) -> Result<ProfileSet, DecodeError> {
    source.start_set()?;
    let scope = of_scope.scope.as_ref();
    let scope = scope.map(|scope| Scope { name: scope.name.clone(), version: scope.version.clone() });
    let mut set = ProfileSet { resource, scope: scope.unwrap_or_default(), ..ProfileSet::default() };
    for (i, profile) in of_scope.profiles.iter().enumerate() {
        let profile = decode_profile(profile, &format!("{path}.profiles[{i}]"), source, &mut set.dictionary)?;
        set.profiles.push(profile);
    }
    Ok(set)
}

fn decode_profile(
    profile: &wire::Profile,
    path: &str,
    source: &mut Source<'_>,
    into: &mut Dictionary,
) -> Result<Profile, DecodeError> {
    source.budget.spend_on::<Profile>(1)?;
    source.budget.spend_on::<SumEntry>(profile.samples.len())?;
    let kind = Kind {
        sample_type: source.value_type(profile.sample_type, into, &|| format!("{path}.sample_type"))?,
        period_type: source.value_type(profile.period_type, into, &|| format!("{path}.period_type"))?,
        period: profile.period,
    };
    let attributes = source.attribute_set(&profile.attribute_indices, into, &|| path.to_owned())?;
    let mut sums = Sums::default();
    for (i, sample) in profile.samples.iter().enumerate() {
        sums.add(decode_sample(sample, &|| format!("{path}.samples[{i}]"), source, into)?);
    }
    let (time_unix_nanos, duration_nanos) = (profile.time_unix_nano, profile.duration_nano);
    Ok(Profile { kind, time_unix_nanos, duration_nanos, attributes, samples: sums.into_samples() })
}

fn decode_sample(
    sample: &wire::Sample,
    path: &dyn Fn() -> String,
    source: &mut Source<'_>,
    into: &mut Dictionary,
) -> Result<Sample, DecodeError> {
    Ok(Sample {
        stack: source.stack(sample.stack_index, into, &|| format!("{}.stack_index", path()))?,
        attributes: source.attribute_set(&sample.attribute_indices, into, path)?,
        link: source.link(sample.link_index, into, &|| format!("{}.link_index", path()))?,
        value: sample_value(sample).ok_or_else(|| DecodeError::invalid(path(), "neither values nor timestamps"))?,
    })
}

fn sample_value(sample: &wire::Sample) -> Option<i64> {
    match (sample.values.as_slice(), sample.timestamps_unix_nano.len()) {
        ([], 0) => None,
        ([], count) => i64::try_from(count).ok(),
        (values, _) => Some(values.iter().fold(0, |sum, value| sum.saturating_add(*value))),
    }
}
