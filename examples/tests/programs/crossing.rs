//! A trace that goes from Rust into Go has samples on both sides.
//!
//! In: the demo, whose sidecar passes on what the shop's profiler sends and what it samples of the inventory itself, to one collector. Out: which
//! traces samples of both are linked to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::process::Command;

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;

use crate::collector::collector;
use crate::inventory_in_go;
use crate::program::Program;

/// Check that of the orders that were sampled in the shop some were sampled in the inventory, too: samples of both have links with one trace.
#[test]
fn a_trace_through_both_has_samples_of_both() {
    let Some(inventory) = inventory_in_go() else { return };
    let (endpoint, calls) = collector();
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.env("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROFILES_PROTOCOL", "grpc");
    // A request takes less than a usual period: at this rate many have samples on both sides.
    command.env("PROFILER_RATE_HZ", "499");
    // An agent that is not optimized uses more than its own bounds allow.
    command.env("DEMO_SECONDS", "6").env("DEMO_INVENTORY", inventory).env("PROFILER_CPU_PERCENT", "1000");
    let mut demo = Program::of(&mut command);
    let output: Vec<String> = std::iter::from_fn(|| demo.next_line()).collect();
    assert!(demo.child.wait().unwrap().success(), "{output:#?}");

    let mut traces: BTreeMap<String, BTreeSet<Vec<u8>>> = BTreeMap::new();
    // The sidecar sends figures of Go's runtime there, too.
    for (_, message) in calls.try_iter().filter(|(path, _)| path.ends_with(".ProfilesService/Export")) {
        linked(&message, &mut traces);
    }
    let of =
        |service: &str| traces.get(service).unwrap_or_else(|| panic!("no links of {service}: {:?}", traces.keys()));
    let (shop, inventory) = (of("shop"), of("inventory"));
    let both = shop.intersection(inventory).count();
    assert!(both > 0, "{} traces of the shop, {} of the inventory, {both} of both", shop.len(), inventory.len());
}

/// Adds the traces that samples of a request are linked to, by service.
fn linked(message: &[u8], traces: &mut BTreeMap<String, BTreeSet<Vec<u8>>>) {
    // The head of a message of gRPC: whether it is compressed, and its length.
    let (head, message) = message.split_at(5);
    let mut bytes = message.to_vec();
    if head[0] == 1 {
        bytes.clear();
        GzDecoder::new(message).read_to_end(&mut bytes).unwrap();
    }
    let request = ExportProfilesServiceRequest::decode(&*bytes).unwrap();
    let links = request.dictionary.unwrap_or_default().link_table;
    for of in request.resource_profiles {
        let attributes = of.resource.unwrap_or_default().attributes;
        let name = attributes.into_iter().find(|attribute| attribute.key == "service.name");
        let Some(Value::StringValue(name)) = name.and_then(|attribute| attribute.value?.value) else {
            panic!("profiles of no service")
        };
        let profiles = of.scope_profiles.into_iter().flat_map(|scope| scope.profiles);
        // The first link says that there is none.
        let linked = profiles.flat_map(|profile| profile.samples).filter(|sample| sample.link_index > 0);
        let of_service = traces.entry(name).or_default();
        of_service.extend(linked.map(|sample| links[sample.link_index as usize].trace_id.clone()));
    }
}
