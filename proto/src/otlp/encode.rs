//! From the model to an OTLP request.
//!
//! In: a [`ProfileSet`]. Out: a request with all seven tables, element 0 of each its zero value (`Link{}` and
//! `KeyValueAndUnit{}` without content), one value a sample, no timestamps, no string references, no orphans, no
//! duplicates; tables in the order of [`Orders`]. Equal sets give equal bytes.

use prost::Message;

use super::ExportProfilesServiceRequest;
use super::elements;
use super::messages as wire;
use super::order::Orders;
use crate::model::{Dictionary, Profile, ProfileSet};

/// The request that holds `set`, compact ([`ProfileSet::compacted`]).
///
/// Profiles without samples are left out, for some receivers refuse a whole request for one of them; if none is left,
/// the request has no `resource_profiles` and need not be sent. A period type that is not set becomes the sample type
/// with period 1, for a request without one harms some receivers.
#[must_use]
pub fn encode(set: &ProfileSet) -> ExportProfilesServiceRequest {
    let kept = set.with_profiles(set.profiles.iter().filter(|profile| !profile.samples.is_empty()));
    let orders = Orders::of(&kept.dictionary);
    let profile = |profile| encode_profile(profile, &kept.dictionary, &orders);
    let profiles: Vec<_> = kept.profiles.iter().map(profile).collect();
    let scope = Some(elements::scope(&kept.scope));
    let scope_profiles = wire::ScopeProfiles { scope, profiles, schema_url: String::new() };
    let resource_profiles = wire::ResourceProfiles {
        resource: Some(elements::wire_resource(&kept.resource)),
        scope_profiles: vec![scope_profiles],
        schema_url: String::new(),
    };
    ExportProfilesServiceRequest {
        resource_profiles: if kept.profiles.is_empty() { Vec::new() } else { vec![resource_profiles] },
        dictionary: Some(encode_dictionary(&kept.dictionary, &orders)),
    }
}

/// The bytes of [`encode`]'s request.
#[must_use]
pub fn encode_to_vec(set: &ProfileSet) -> Vec<u8> {
    encode(set).encode_to_vec()
}

fn encode_profile(profile: &Profile, dictionary: &Dictionary, orders: &Orders) -> wire::Profile {
    let samples = profile.samples.iter().map(|sample| elements::sample(sample, dictionary, orders)).collect();
    wire::Profile { samples, ..elements::profile(profile, dictionary, orders) }
}

fn encode_dictionary(dictionary: &Dictionary, orders: &Orders) -> wire::ProfilesDictionary {
    let Dictionary { mappings, functions, locations, stacks, links, strings, attributes, .. } = dictionary;
    let locations = orders.locations.ids().filter_map(|id| locations.get(id));
    let functions = orders.functions.ids().filter_map(|id| functions.get(id));
    let stacks = orders.stacks.ids().filter_map(|id| stacks.get(id));
    wire::ProfilesDictionary {
        mapping_table: mappings.iter().map(|mapping| elements::mapping(mapping, dictionary, orders)).collect(),
        location_table: locations.map(|location| elements::location(location, dictionary, orders)).collect(),
        function_table: functions.map(|function| elements::function(function, orders)).collect(),
        link_table: links.iter().map(elements::link).collect(),
        string_table: orders.strings.ids().map(|id| strings.text(id).to_owned()).collect(),
        attribute_table: attributes.iter().map(|attribute| elements::attribute(attribute, orders)).collect(),
        stack_table: stacks.map(|stack| elements::stack(stack, orders)).collect(),
    }
}
