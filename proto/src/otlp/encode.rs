//! From the model to an OTLP request.
//!
//! In: a [`ProfileSet`]. Out: a request with all seven tables, element 0 of each its zero value (`Link{}` and
//! `KeyValueAndUnit{}` without content), one value a sample, no timestamps, no string references, no orphans, no
//! duplicates; locations in the order of [`ByPlace`]. Equal sets give equal bytes.

use prost::Message;

use super::ExportProfilesServiceRequest;
use super::by_place::ByPlace;
use super::elements;
use super::messages as wire;
use crate::model::{Dictionary, Profile, ProfileSet};

/// The request that holds `set`, compact ([`ProfileSet::compacted`]).
///
/// Profiles without samples are left out, for some receivers refuse a whole request for one of them; if none is left,
/// the request has no `resource_profiles` and need not be sent. A period type that is not set becomes the sample type
/// with period 1, for a request without one harms some receivers.
#[must_use]
pub fn encode(set: &ProfileSet) -> ExportProfilesServiceRequest {
    let kept = set.with_profiles(set.profiles.iter().filter(|profile| !profile.samples.is_empty()));
    let profiles: Vec<_> = kept.profiles.iter().map(|profile| encode_profile(profile, &kept.dictionary)).collect();
    let scope = Some(elements::scope(&kept.scope));
    let scope_profiles = wire::ScopeProfiles { scope, profiles, schema_url: String::new() };
    let resource_profiles = wire::ResourceProfiles {
        resource: Some(elements::wire_resource(&kept.resource)),
        scope_profiles: vec![scope_profiles],
        schema_url: String::new(),
    };
    ExportProfilesServiceRequest {
        resource_profiles: if kept.profiles.is_empty() { Vec::new() } else { vec![resource_profiles] },
        dictionary: Some(encode_dictionary(&kept.dictionary)),
    }
}

/// The bytes of [`encode`]'s request.
#[must_use]
pub fn encode_to_vec(set: &ProfileSet) -> Vec<u8> {
    encode(set).encode_to_vec()
}

fn encode_profile(profile: &Profile, dictionary: &Dictionary) -> wire::Profile {
    let samples = profile.samples.iter().map(|sample| elements::sample(sample, dictionary)).collect();
    wire::Profile { samples, ..elements::profile(profile, dictionary) }
}

fn encode_dictionary(dictionary: &Dictionary) -> wire::ProfilesDictionary {
    let locations = ByPlace::of(&dictionary.locations);
    let in_order = locations.order().filter_map(|id| dictionary.locations.get(id));
    wire::ProfilesDictionary {
        mapping_table: dictionary.mappings.iter().map(|mapping| elements::mapping(mapping, dictionary)).collect(),
        location_table: in_order.map(|location| elements::location(location, dictionary)).collect(),
        function_table: dictionary.functions.iter().map(elements::function).collect(),
        link_table: dictionary.links.iter().map(elements::link).collect(),
        string_table: dictionary.strings.iter().map(|text| text.clone().into_string()).collect(),
        attribute_table: dictionary.attributes.iter().map(elements::attribute).collect(),
        stack_table: dictionary.stacks.iter().map(|stack| elements::stack(stack, &locations)).collect(),
    }
}
