//! The gRPC side: `ProfilesService/Export`, by tonic's server with a codec that hands on the bytes as they came.
//!
//! In: a request of HTTP/2 with gRPC's content type. Out: gRPC's answer. A decoded and re-encoded body would not be the one
//! that was sent, so tonic does framing, compression and status here, and nothing else.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use http::{Request, Response};
use hyper::body::Incoming;
use tonic::body::Body as GrpcBody;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};

use super::{Answer, Protocol, State, http::reply};

/// The method's path (opentelemetry/proto/collector/profiles/v1development/profiles_service.proto).
pub(super) const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The same of metrics (opentelemetry/proto/collector/metrics/v1/metrics_service.proto).
pub(super) const METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Answers a call of [`EXPORT`].
pub(super) async fn answer(request: Request<Incoming>, state: Arc<State>) -> Response<GrpcBody> {
    server().unary(Export(state), request).await
}

/// Answers a call of [`METRICS`].
pub(super) async fn metrics(request: Request<Incoming>, state: Arc<State>) -> Response<GrpcBody> {
    server().unary(Metrics(state), request).await
}

fn server() -> Grpc<Raw> {
    Grpc::new(Raw).accept_compressed(CompressionEncoding::Gzip).max_decoding_message_size(64 << 20)
}

/// Answers any other call.
pub(super) fn unimplemented() -> Response<GrpcBody> {
    Status::new(Code::Unimplemented, "only profiles are received here").into_http()
}

struct Export(Arc<State>);

impl UnaryService<Bytes> for Export {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            match state.keep(Protocol::Grpc, request.get_ref()) {
                Answer::Accept => Ok(tonic::Response::new(reply(0))),
                Answer::AcceptBut(rejected) => Ok(tonic::Response::new(reply(rejected))),
                Answer::Unavailable => Err(Status::unavailable("come back later")),
                Answer::Reject => Err(Status::invalid_argument("not like this")),
                Answer::Status(_, code) => Err(Status::new(code, "so it is")),
                Answer::Hang => std::future::pending().await,
            }
        })
    }
}

struct Metrics(Arc<State>);

impl UnaryService<Bytes> for Metrics {
    type Response = Bytes;
    type Future = std::future::Ready<Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        self.0.keep_metrics(request.get_ref());
        std::future::ready(Ok(tonic::Response::new(Bytes::new())))
    }
}

/// A codec that leaves messages as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}
