//! The HTTP side: tells gRPC from plain HTTP, and answers `POST /v1development/profiles`.
//!
//! In: any request on the receiver's port. Out: OTLP/HTTP's answer (docs/specification.md of opentelemetry-proto, "OTLP/HTTP
//! Response"), or gRPC's.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};
use prost::Message;
use tonic::body::Body as GrpcBody;

use super::{Answer, Protocol, State, grpc};
use crate::Error;

/// The path of OTLP over HTTP.
const PATH: &str = "/v1development/profiles";
/// The same of metrics.
const METRICS: &str = "/v1/metrics";

/// Answers any request. An error closes the connection.
pub(super) async fn answer(request: Request<Incoming>, state: Arc<State>) -> Result<Response<GrpcBody>, Error> {
    let content = request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    if content.starts_with(b"application/grpc") {
        return Ok(match request.uri().path() {
            grpc::EXPORT => grpc::answer(request, state).await,
            grpc::METRICS => grpc::metrics(request, state).await,
            _ => grpc::unimplemented(),
        });
    }
    match (request.method(), request.uri().path(), content) {
        (&Method::POST, PATH, b"application/x-protobuf") => export(request, &state).await,
        (&Method::POST, METRICS, b"application/x-protobuf") => {
            let body = whole(request).await?;
            state.keep_metrics(&body);
            response(StatusCode::OK, Bytes::new())
        }
        (&Method::POST, PATH, _) => response(StatusCode::UNSUPPORTED_MEDIA_TYPE, Bytes::new()),
        _ => response(StatusCode::NOT_FOUND, Bytes::new()),
    }
}

/// The answer of success, full (`rejected` = 0) or partial.
pub(super) fn reply(rejected: i64) -> Bytes {
    let partial = ExportProfilesPartialSuccess { rejected_profiles: rejected, error_message: "too many".into() };
    let partial_success = (rejected > 0).then_some(partial);
    ExportProfilesServiceResponse { partial_success }.encode_to_vec().into()
}

async fn export(request: Request<Incoming>, state: &State) -> Result<Response<GrpcBody>, Error> {
    let bytes = whole(request).await?;
    match state.keep(Protocol::Http, &bytes) {
        Answer::Accept => response(StatusCode::OK, reply(0)),
        Answer::AcceptBut(rejected) => response(StatusCode::OK, reply(rejected)),
        Answer::Unavailable => response(StatusCode::SERVICE_UNAVAILABLE, Bytes::new()),
        Answer::Reject => response(StatusCode::BAD_REQUEST, Bytes::new()),
        Answer::Status(status, _) => response(StatusCode::from_u16(status)?, Bytes::new()),
        Answer::Hang => std::future::pending().await,
    }
}

/// The body, as it was before compression.
async fn whole(request: Request<Incoming>) -> Result<Vec<u8>, Error> {
    let gzip = request.headers().get(header::CONTENT_ENCODING).is_some_and(|value| value == "gzip");
    let body = request.into_body().collect().await?.to_bytes();
    Ok(if gzip { uncompressed(&body)? } else { body.to_vec() })
}

fn uncompressed(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn response(status: StatusCode, body: Bytes) -> Result<Response<GrpcBody>, Error> {
    let builder = Response::builder().status(status).header(header::CONTENT_TYPE, "application/x-protobuf");
    Ok(builder.body(GrpcBody::new(Full::new(body)))?)
}
