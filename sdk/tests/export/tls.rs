//! TLS: certificates made for the test, by an authority that only the test knows.

use std::sync::Arc;
use std::time::Duration;

use profiler::export::Otlp;
use profiler_proto::loss::Cause;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

use super::grpc_peer;
use super::profiles::set;
use super::rig::Rig;

/// An authority, as the PEM file that a user would name, and a server's configuration with a certificate of its own.
fn authority_and_server(host: &str, alpn: &[u8]) -> (String, ServerConfig) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    (authority.pem(), config)
}

/// Listens on loopback and hands each TLS stream to `serve`; the URL names `host`.
async fn listen<F>(host: &str, config: ServerConfig, serve: fn(TlsStream<TcpStream>) -> F) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve(stream));
            }
        }
    });
    format!("https://{host}:{port}")
}

/// Answers one HTTP/1.1 request with 200 as soon as its head is there.
async fn answer_http(mut stream: TlsStream<TcpStream>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.read_buf(&mut head).await.unwrap();
    }
    assert!(head.starts_with(b"POST /v1development/profiles HTTP/1.1\r\n"));
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}

/// Check that both transports speak TLS with a peer whose authority is given, by name and by address.
#[tokio::test]
async fn a_given_authority_is_trusted() {
    for host in ["localhost", "127.0.0.1"] {
        let (http_ca, config) = authority_and_server(host, b"http/1.1");
        let http = listen(host, config, answer_http).await;
        let (grpc_ca, config) = authority_and_server(host, b"h2");
        let grpc = listen(host, config, grpc_peer::acknowledge).await;
        let endpoints = [Otlp::http(http).ca_certificate(http_ca), Otlp::grpc(grpc).ca_certificate(grpc_ca)];
        for endpoint in endpoints {
            let rig = Rig::to([endpoint]);
            rig.offer(&set(10));
            rig.settle().await;
            rig.assert_settled(10, 0, Cause::Rejected);
            assert_eq!(rig.stats(0).last_error, None);
        }
    }
}

/// Check that a peer is not spoken to if its authority is not trusted, its certificate is for another name, or it does
/// not agree to HTTP/2 for gRPC; the reason says which.
#[tokio::test]
async fn a_peer_that_cannot_be_trusted_is_refused() {
    let (ca, config) = authority_and_server("localhost", b"h2");
    let (other_ca, _) = authority_and_server("localhost", b"h2");
    let good_name = listen("localhost", config.clone(), grpc_peer::acknowledge).await;
    let wrong_name = listen("127.0.0.1", config, grpc_peer::acknowledge).await;
    let (http_ca, config) = authority_and_server("localhost", b"other");
    let no_http2 = listen("localhost", config, grpc_peer::acknowledge).await;
    let cases = [
        (Otlp::grpc(good_name.clone()).ca_certificate(other_ca), "certificate"),
        (Otlp::grpc(good_name), "certificate"),
        (Otlp::grpc(wrong_name).ca_certificate(ca), "not valid for"),
        (Otlp::grpc(no_http2).ca_certificate(http_ca), "applicationprotocol"),
    ];
    for (endpoint, expected) in cases {
        let rig = Rig::to([endpoint]);
        rig.offer(&set(10));
        assert!(!rig.exporter.shutdown(Duration::from_millis(500)).await);
        let error = rig.last_error();
        assert!(error.to_lowercase().contains(expected), "{error} should name {expected}");
        rig.assert_settled(0, 10, Cause::Shutdown);
    }
}
