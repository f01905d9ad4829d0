//! Settings of code and environment together: what of them reaches a server.

use std::ffi::OsString;

use profiler::export::{Compression, Otlp, resolve};
use profiler_proto::loss::Cause;

use super::grpc_peer::GrpcPeer;
use super::http_peer::HttpPeer;
use super::profiles::set;
use super::rig::{Rig, limits};

/// An exporter to this endpoint, under these variables, that has sent a set.
async fn sent(endpoint: Otlp, variables: &[(&str, &str)]) {
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| OsString::from(v));
    let rig = Rig::start(resolve(vec![endpoint.into()], &lookup).unwrap(), limits());
    rig.offer(&set(10));
    rig.settle().await;
    rig.assert_settled(10, 0, Cause::Rejected);
}

/// Check that an endpoint of code sends the environment's token, and as the environment compresses, unless code says otherwise.
#[tokio::test]
async fn the_environment_completes_an_endpoint_of_code() {
    let (http, grpc) = (HttpPeer::start([]).await, GrpcPeer::start([]).await);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://nobody.invalid:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20environment,x-region=eu"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "7000"),
    ];
    sent(Otlp::http(http.url()), &variables).await;
    sent(Otlp::http(http.url()).bearer_token("code").compression(Compression::Gzip), &variables).await;
    let seen = http.requests().into_iter().map(|request| {
        let header = |name: &str| request.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        ["authorization", "x-region", "content-encoding"].map(header)
    });
    let expected = [[Some("Bearer environment"), Some("eu"), None], [Some("Bearer code"), Some("eu"), Some("gzip")]];
    assert_eq!(seen.collect::<Vec<_>>(), expected.map(|headers| headers.map(|value| value.map(str::to_owned))));

    sent(Otlp::grpc(grpc.url()), &variables).await;
    let metadata = grpc.calls().remove(0).metadata;
    assert_eq!(metadata.get("authorization").unwrap(), "Bearer environment");
    assert_eq!(metadata.get("grpc-timeout").unwrap(), "7000m");
    assert_eq!(metadata.get("grpc-encoding"), None);
}

/// Check that credentials and tenant arrive as the headers that they are, over both forms.
#[tokio::test]
async fn credentials_and_tenants_arrive() {
    let (http, grpc) = (HttpPeer::start([]).await, GrpcPeer::start([]).await);
    sent(Otlp::http(http.url()).basic_auth("1234", "token").tenant("shop"), &[]).await;
    sent(Otlp::grpc(grpc.url()).bearer_token("token").tenant("shop"), &[]).await;
    let headers = http.requests().remove(0).headers;
    assert_eq!(
        (&headers["authorization"], &headers["x-scope-orgid"]),
        (&"Basic MTIzNDp0b2tlbg==".parse().unwrap(), &"shop".parse().unwrap())
    );
    let metadata = grpc.calls().remove(0).metadata;
    assert_eq!(metadata.get("authorization").unwrap(), "Bearer token");
    assert_eq!(metadata.get("x-scope-orgid").unwrap(), "shop");
}
