//! A real gRPC server (`tonic`'s services over `hyper`: OTLP's, and Parca's) that does what a script says, call by call.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_server::{
    ProfilesService, ProfilesServiceServer,
};
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};

use super::http_peer::bind;
use super::parca_peer;
use super::profiles::assert_lawful;

/// What the server does with one call.
#[derive(Debug, Clone)]
pub(crate) enum Reaction {
    /// Acknowledges, with these rejected profiles and this message if there is one.
    Ok(Option<(i64, String)>),
    /// Ends the call with a status.
    Fail(Status),
    /// Never answers.
    Hang,
    /// Closes the connection under the call.
    Close,
}

/// A call that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) metadata: MetadataMap,
    /// The message, encoded again.
    pub(crate) message: Vec<u8>,
    /// Panics if the message breaks a rule of its method.
    assert_lawful: fn(&[u8]),
}

/// The server. Ends when it is dropped, and panics then if a message broke a rule of its method or of a backend.
pub(crate) struct GrpcPeer {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
    accepting: JoinHandle<()>,
}

/// What the server is to do, and what it saw.
#[derive(Default)]
pub(crate) struct Seen {
    script: Mutex<VecDeque<Reaction>>,
    calls: Mutex<Vec<Received>>,
    /// The script says to close the connections.
    close: Notify,
    /// The test says to end.
    stop: Notify,
}

impl GrpcPeer {
    /// A server on a free port; after its script it acknowledges everything.
    pub(crate) async fn start(script: impl IntoIterator<Item = Reaction>) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), script).await
    }

    /// The same at `address`.
    pub(crate) async fn start_at(address: SocketAddr, script: impl IntoIterator<Item = Reaction>) -> Self {
        let listener = bind(address).listen(64).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen { script: Mutex::new(script.into_iter().collect()), ..Seen::default() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&seen)));
        Self { address, seen, accepting }
    }

    /// Ends it; when this returns, every connection is closed.
    pub(crate) async fn stop(mut self) {
        self.seen.stop.notify_one();
        (&mut self.accepting).await.expect("the server ends well");
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The calls that arrived, in order.
    pub(crate) fn calls(&self) -> Vec<Received> {
        self.seen.calls.lock().unwrap().clone()
    }
}

impl Drop for GrpcPeer {
    fn drop(&mut self) {
        self.accepting.abort();
        // A second panic would hide the first.
        if !std::thread::panicking() {
            self.calls().iter().for_each(|call| (call.assert_lawful)(&call.message));
        }
    }
}

/// Speaks gRPC on `stream`, until the other side ends or the script says to close it, and gives every acknowledgement.
pub(crate) async fn acknowledge(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
    serve(stream, Arc::default()).await;
}

/// Serves until it is told to stop; its connections end with it.
async fn accept(listener: TcpListener, seen: Arc<Seen>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("a connection");
                connections.spawn(serve(stream, Arc::clone(&seen)));
            }
            () = seen.stop.notified() => break,
        }
    }
    connections.shutdown().await;
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, seen: Arc<Seen>) {
    let service = ProfilesServiceServer::from_arc(Arc::new(Scripted(Arc::clone(&seen))))
        .accept_compressed(CompressionEncoding::Gzip)
        // As a Collector does where the request was compressed.
        .send_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(64 << 20);
    let otlp = TowerToHyperService::new(service);
    let service = service_fn(|request: Request<Incoming>| {
        let (otlp, seen) = (otlp.clone(), Arc::clone(&seen));
        async move {
            match request.uri().path() {
                parca_peer::WRITE_RAW => Ok::<_, Infallible>(parca_peer::answer(request, seen).await),
                _ => otlp.call(request).await,
            }
        }
    });
    let mut connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = &mut connection => {}
        () = seen.close.notified() => {}
    }
}

struct Scripted(Arc<Seen>);

#[tonic::async_trait]
impl ProfilesService for Scripted {
    async fn export(
        &self,
        request: tonic::Request<ExportProfilesServiceRequest>,
    ) -> Result<Response<ExportProfilesServiceResponse>, Status> {
        let partial = self.0.react(request, assert_lawful).await?;
        let partial_success = partial.map(|(rejected_profiles, error_message)| ExportProfilesPartialSuccess {
            rejected_profiles,
            error_message,
        });
        Ok(Response::new(ExportProfilesServiceResponse { partial_success }))
    }
}

impl Seen {
    /// Keeps a call and does what the script says; gives what a success says.
    pub(crate) async fn react(
        &self,
        request: tonic::Request<impl Message>,
        assert_lawful: fn(&[u8]),
    ) -> Result<Option<(i64, String)>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.calls.lock().unwrap().push(Received { metadata, message: message.encode_to_vec(), assert_lawful });
        let next = self.script.lock().unwrap().pop_front();
        match next.unwrap_or(Reaction::Ok(None)) {
            Reaction::Ok(partial) => Ok(partial),
            Reaction::Fail(status) => Err(status),
            Reaction::Hang => std::future::pending().await,
            Reaction::Close => {
                self.close.notify_waiters();
                std::future::pending().await
            }
        }
    }
}
