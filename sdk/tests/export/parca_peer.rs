//! Parca's `WriteRaw` by tonic's server, with messages written down from Parca's own definition, and what it checks of a request.
//!
//! In: a call. Out: what the script says. A request that Parca would refuse fails the test when the server ends. Sources: github.com/parca-dev/parca,
//! proto/parca/profilestore/v1alpha1/profilestore.proto, pkg/normalizer/{normalizer,validate}.go, pkg/profilestore/profilecolumnstore.go.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use profiler_proto::{Limits, ProfileSet, pprof};
use prost::Message;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use super::grpc_peer::Seen;

/// The method's path.
pub(crate) const WRITE_RAW: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";

#[derive(Clone, PartialEq, Message)]
struct WriteRawRequest {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(message, repeated, tag = "2")]
    series: Vec<RawProfileSeries>,
    #[prost(bool, tag = "3")]
    normalized: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RawProfileSeries {
    #[prost(message, optional, tag = "1")]
    labels: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    executable_info: Vec<()>,
}

#[derive(Clone, PartialEq, Message)]
struct WriteRawResponse {
    /// Not Parca's: what an answer looks like that is OTLP's, of rejected profiles.
    #[prost(message, optional, tag = "1")]
    partial_success: Option<Rejected>,
}

#[derive(Clone, PartialEq, Message)]
struct Rejected {
    #[prost(int64, tag = "1")]
    profiles: i64,
}

/// The ids of a pprof file, which Parca wants to be positions (perftools.profiles.Profile).
#[derive(Clone, PartialEq, Message)]
struct Ids {
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Element>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Element>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Element>,
}

#[derive(Clone, PartialEq, Message)]
struct Element {
    #[prost(uint64, tag = "1")]
    id: u64,
}

/// A series that arrived.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) files: Vec<ProfileSet>,
}

/// What the message of a call holds.
pub(crate) fn decode(message: &[u8]) -> Vec<Series> {
    let request = WriteRawRequest::decode(message).expect("the message is a request");
    let file = |sample: &RawSample| pprof::decode(&sample.raw_profile, &Limits::default()).expect("a pprof file");
    request
        .series
        .iter()
        .map(|series| Series {
            labels: labels(series).expect("labels that Parca takes"),
            files: series.samples.iter().map(file).collect(),
        })
        .collect()
}

/// Answers a call of [`WRITE_RAW`].
pub(crate) async fn answer(request: Request<Incoming>, seen: Arc<Seen>) -> Response<Body> {
    let codec = ProstCodec::<WriteRawResponse, WriteRawRequest>::default();
    let server = Grpc::new(codec).accept_compressed(CompressionEncoding::Gzip).max_decoding_message_size(64 << 20);
    let mut server = server.send_compressed(CompressionEncoding::Gzip);
    server.unary(WriteRaw(seen), request).await
}

struct WriteRaw(Arc<Seen>);

impl UnaryService<WriteRawRequest> for WriteRaw {
    type Response = WriteRawResponse;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<WriteRawResponse>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<WriteRawRequest>) -> Self::Future {
        let seen = Arc::clone(&self.0);
        Box::pin(async move {
            let partial_success = seen.react(request, assert_lawful).await?.map(|(profiles, _)| Rejected { profiles });
            Ok(tonic::Response::new(WriteRawResponse { partial_success }))
        })
    }
}

/// Panics if a request is one that Parca refuses.
fn assert_lawful(message: &[u8]) {
    let request = WriteRawRequest::decode(message).expect("the message is a request");
    request.series.iter().try_for_each(check).expect("a request that Parca takes");
}

/// What Parca refuses a whole request for.
fn check(series: &RawProfileSeries) -> Result<(), Status> {
    labels(series).map_err(Status::invalid_argument)?;
    for sample in &series.samples {
        let refuse = |why: &dyn ToString| Status::invalid_argument(format!("invalid profile: {}", why.to_string()));
        let ids = Ids::decode(&sample.raw_profile[..]).map_err(|error| refuse(&error))?;
        for (table, elements) in [("mapping", ids.mapping), ("location", ids.location), ("function", ids.function)] {
            if elements.iter().zip(1..).any(|(element, position)| element.id != position) {
                return Err(refuse(&format!("{table} id is not sequential")));
            }
        }
        let set = pprof::decode(&sample.raw_profile, &Limits::default()).map_err(|error| refuse(&error))?;
        let text = |id| set.dictionary.strings.text(id);
        for kind in set.profiles.iter().map(|profile| profile.kind) {
            let parts = [kind.sample_type.kind, kind.sample_type.unit, kind.period_type.kind, kind.period_type.unit];
            if !parts.iter().all(|part| is_label_name(text(*part))) {
                return Err(Status::unknown("invalid profile type"));
            }
        }
    }
    Ok(())
}

fn labels(series: &RawProfileSeries) -> Result<BTreeMap<String, String>, String> {
    let mut labels = BTreeMap::new();
    for Label { name, value } in series.labels.iter().flat_map(|set| &set.labels) {
        if !is_label_name(name) {
            return Err(format!("invalid label name: {name}"));
        }
        if labels.insert(name.clone(), value.clone()).is_some() {
            return Err(format!("duplicate label name: {name}"));
        }
    }
    if labels.get("__name__").is_none_or(String::is_empty) {
        return Err("missing __name__ label".into());
    }
    Ok(labels)
}

fn is_label_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(legal) && !name.starts_with(|first: char| first.is_ascii_digit())
}
