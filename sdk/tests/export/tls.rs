//! TLS: certificates made for the test, by an authority that only the test knows.

use std::sync::Arc;
use std::time::Duration;

use profiler::export::{Compression, Otlp, resolve};
use profiler_proto::loss::Cause;
use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoClientAuth, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{DEFAULT_VERSIONS, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::server::TlsStream;

use super::grpc_peer;
use super::profiles::set;
use super::rig::{Rig, limits};

/// Versions of TLS.
type Versions = &'static [&'static SupportedProtocolVersion];
const ONLY_12: Versions = &[&TLS12];
const ONLY_13: Versions = &[&TLS13];

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// What a user names as the file to trust.
    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `name`, with its key.
    fn certificate(&self, name: &str) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap(), key)
    }

    /// A server for `host` that offers the protocol `alpn` to anybody.
    fn server(&self, host: &str, alpn: &[u8]) -> ServerConfig {
        self.server_with(Arc::new(NoClientAuth), host, alpn)
    }

    /// The same, with a certificate that is valid between these years.
    fn server_within(&self, host: &str, alpn: &[u8], years: [i32; 2]) -> ServerConfig {
        let [from, to] = years.map(|year| rcgen::date_time_ymd(year, 1, 1));
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (from, to);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Self::config(Arc::new(NoClientAuth), (certificate, key), alpn)
    }

    /// The same, to those alone who show a certificate of this authority, in these versions of TLS.
    fn server_that_asks(&self, host: &str, alpn: &[u8], versions: Versions) -> ServerConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        Self::config_of(verifier, self.certificate(host), alpn, versions)
    }

    fn server_with(&self, clients: Arc<dyn ClientCertVerifier>, host: &str, alpn: &[u8]) -> ServerConfig {
        Self::config(clients, self.certificate(host), alpn)
    }

    fn config(clients: Arc<dyn ClientCertVerifier>, own: (Certificate, KeyPair), alpn: &[u8]) -> ServerConfig {
        Self::config_of(clients, own, alpn, DEFAULT_VERSIONS)
    }

    fn config_of(
        clients: Arc<dyn ClientCertVerifier>,
        own: (Certificate, KeyPair),
        alpn: &[u8],
        versions: Versions,
    ) -> ServerConfig {
        let (certificate, key) = own;
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![alpn.to_vec()];
        config
    }
}

/// Listens on loopback and hands each TLS stream to `serve`; the URL names `host`.
async fn listen<F>(host: &str, config: ServerConfig, serve: fn(TlsStream<TcpStream>) -> F) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    listen_as(host, vec![config], serve).await
}

/// The same, where the first connections find these in turn, and all later ones the last.
async fn listen_as<F>(host: &str, configs: Vec<ServerConfig>, serve: fn(TlsStream<TcpStream>) -> F) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptors: Vec<_> = configs.into_iter().map(|config| TlsAcceptor::from(Arc::new(config))).collect();
    tokio::spawn(async move {
        let mut turns = acceptors.iter().chain(std::iter::repeat(acceptors.last().unwrap()));
        while let (Ok((stream, _)), Some(acceptor)) = (listener.accept().await, turns.next()) {
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

/// Check that a peer that asks who we are is shown our certificate.
#[tokio::test]
async fn our_certificate_is_shown_to_a_peer_that_asks() {
    let authority = Authority::new();
    let (certificate, key) = authority.certificate("shop");
    let endpoint =
        listen("localhost", authority.server_that_asks("localhost", b"h2", DEFAULT_VERSIONS), grpc_peer::acknowledge)
            .await;
    let otlp = || Otlp::grpc(endpoint.clone()).ca_certificate(authority.pem());

    let rig = Rig::to([otlp().client_certificate(certificate.pem(), key.serialize_pem())]);
    rig.offer(&set(10));
    rig.settle().await;
    rig.assert_settled(10, 0, Cause::Rejected);

    let (_, other_key) = authority.certificate("shop");
    let mismatched = otlp().client_certificate(certificate.pem(), other_key.serialize_pem());
    let error = resolve(vec![mismatched.into()], &|_| None).unwrap_err().to_string();
    assert!(error.contains("Otlp::client_certificate") && error.contains("KeyMismatch"), "{error}");
}

/// Check that a peer that asks who we are and does not like the answer is said to be that, with what to set, and that nothing counts as sent to
/// it: also where it says so behind the handshake (TLS 1.3), to a request that is larger than what the kernel takes at once.
#[tokio::test]
async fn a_peer_that_does_not_accept_us_is_named() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (certificate, key) = stranger.certificate("shop");
    let (certificate, key) = (certificate.pem(), key.serialize_pem());
    for versions in [ONLY_13, ONLY_12] {
        let config = |alpn| authority.server_that_asks("localhost", alpn, versions);
        let grpc = listen("localhost", config(b"h2"), grpc_peer::acknowledge).await;
        let http = listen("localhost", config(b"http/1.1"), answer_http).await;
        for otlp in [Otlp::grpc(grpc), Otlp::http(http)] {
            let unknown = otlp.ca_certificate(authority.pem()).compression(Compression::None);
            let distrusted = unknown.clone().client_certificate(certificate.clone(), key.clone());
            for (otlp, stacks) in [(unknown, 10), (distrusted.clone(), 10), (distrusted, 20_000)] {
                assert_is_refused(otlp, stacks, &format!("{versions:?}, {stacks} stacks")).await;
            }
        }
    }
}

async fn assert_is_refused(otlp: Otlp, stacks: u32, row: &str) {
    let rig = Rig::to([otlp]);
    rig.offer(&set(stacks));
    rig.until("it was tried three times", |rig| rig.stats(0).requests >= 3).await;
    let (error, stats) = (rig.failure().await, rig.stats(0));
    for setting in ["`client_certificate`", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY"] {
        assert!(error.contains(setting), "{row}, {}: {error}", stats.name);
    }
    assert!(!rig.exporter.shutdown(Duration::ZERO).await);
    assert_eq!((stats.sent_bytes, stats.delivered), (0, 0), "{row}, {}", stats.name);
    rig.assert_settled(0, u64::from(stacks), Cause::Shutdown);
}

/// Check that the environment's certificate files are read.
#[tokio::test]
async fn certificates_may_come_from_files() {
    let authority = Authority::new();
    let (certificate, key) = authority.certificate("shop");
    let endpoint =
        listen("localhost", authority.server_that_asks("localhost", b"h2", DEFAULT_VERSIONS), grpc_peer::acknowledge)
            .await;
    let directory = std::env::temp_dir().join(format!("profiler-export-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, pem: String| {
        std::fs::write(directory.join(name), pem).unwrap();
        directory.join(name).into_os_string()
    };
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.into()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".into()),
        ("OTEL_EXPORTER_OTLP_PROFILES_CERTIFICATE", file("ca.pem", authority.pem())),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", file("client.pem", certificate.pem())),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", file("client.key", key.serialize_pem())),
    ];
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let destinations = resolve(Vec::new(), &lookup);
    std::fs::remove_dir_all(&directory).unwrap();
    let rig = Rig::start(destinations.unwrap(), limits());
    rig.offer(&set(10));
    rig.settle().await;
    rig.assert_settled(10, 0, Cause::Rejected);
}

/// Check that both transports speak TLS with a peer whose authority is given, by name and by address.
#[tokio::test]
async fn a_given_authority_is_trusted() {
    for host in ["localhost", "127.0.0.1"] {
        let authority = Authority::new();
        let http = listen(host, authority.server(host, b"http/1.1"), answer_http).await;
        let grpc = listen(host, authority.server(host, b"h2"), grpc_peer::acknowledge).await;
        for endpoint in [Otlp::http(http), Otlp::grpc(grpc)] {
            let rig = Rig::to([endpoint.ca_certificate(authority.pem())]);
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
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.server("localhost", b"h2");
    let good_name = listen("localhost", server.clone(), grpc_peer::acknowledge).await;
    let wrong_name = listen("127.0.0.1", server, grpc_peer::acknowledge).await;
    let old =
        listen("localhost", authority.server_within("localhost", b"h2", [2020, 2021]), grpc_peer::acknowledge).await;
    let new =
        listen("localhost", authority.server_within("localhost", b"h2", [3020, 3021]), grpc_peer::acknowledge).await;
    let no_http2 = listen("localhost", authority.server("localhost", b"other"), grpc_peer::acknowledge).await;
    let http = |host: &'static str, config: ServerConfig| listen(host, config, answer_http);
    let http_wrong_name = http("127.0.0.1", authority.server("localhost", b"http/1.1")).await;
    let http_old = http("localhost", authority.server_within("localhost", b"http/1.1", [2020, 2021])).await;
    let cases = [
        (
            Otlp::grpc(good_name.clone()).ca_certificate(other.pem()),
            ["nobody here trusts who signed it", "ca_certificate"],
        ),
        (Otlp::grpc(good_name), ["certificate", "set"]),
        (Otlp::grpc(wrong_name).ca_certificate(authority.pem()), ["another peer's certificate", "not valid for"]),
        (Otlp::grpc(old).ca_certificate(authority.pem()), ["has expired", "renew it"]),
        (Otlp::grpc(new).ca_certificate(authority.pem()), ["not valid yet", "set the clock"]),
        (Otlp::grpc(no_http2).ca_certificate(authority.pem()), ["applicationprotocol", "another port"]),
        (Otlp::http(http_wrong_name).ca_certificate(authority.pem()), ["another peer's certificate", "not valid for"]),
        (Otlp::http(http_old).ca_certificate(authority.pem()), ["has expired", "renew it"]),
    ];
    for (endpoint, expected) in cases {
        let rig = Rig::to([endpoint]);
        rig.offer(&set(10));
        let error = rig.failure().await;
        assert!(!rig.exporter.shutdown(Duration::ZERO).await);
        let named = expected.iter().all(|expected| error.to_lowercase().contains(expected));
        assert!(named, "{error} should name {expected:?}");
        assert_eq!((rig.stats(0).sent_bytes, rig.stats(0).delivered), (0, 0), "{error}");
        rig.assert_settled(0, 10, Cause::Shutdown);
    }
}

/// Check that a peer gets all, once, whose certificate had expired or was another one's and is renewed, over both transports.
#[tokio::test]
async fn a_peer_whose_certificate_is_renewed_gets_all() {
    let authority = Authority::new();
    let configs = |alpn| {
        vec![
            authority.server_within("localhost", alpn, [2020, 2021]),
            authority.server("elsewhere", alpn),
            authority.server("localhost", alpn),
        ]
    };
    let http = listen_as("localhost", configs(b"http/1.1"), answer_http).await;
    let grpc = listen_as("localhost", configs(b"h2"), grpc_peer::acknowledge).await;
    for endpoint in [Otlp::http(http), Otlp::grpc(grpc)] {
        let rig = Rig::to([endpoint.ca_certificate(authority.pem())]);
        rig.offer(&set(10));
        rig.settle().await;
        rig.assert_settled(10, 0, Cause::Rejected);
        assert!(rig.stats(0).requests >= 3 && rig.stats(0).last_error.is_some(), "{:?}", rig.stats(0));
    }
}
