//! One request to a program that serves profiles, over a connection of its own.
//!
//! In: an [`Endpoint`] and a path. Out: the body of the answer, bounded in time and bytes, or why there is none, for people. HTTP/1.1 over TCP or TLS (`rustls`
//! with `ring`); redirects are not followed, proxies not used. On the main thread's runtime.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::Endpoint;
use crate::error::Error;

/// Most bytes of an answer, as it is sent.
const MOST_BYTES: usize = 16 << 20;

/// Who is asked.
pub(super) struct Peer {
    endpoint: Endpoint,
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.endpoint.fmt(f)
    }
}

impl Peer {
    /// # Errors
    /// When there is nobody to trust.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self, Error> {
        let tls = if endpoint.is_secure { Some(connector(endpoint)?) } else { None };
        Ok(Self { endpoint: endpoint.clone(), tls })
    }

    pub(super) fn name(&self) -> String {
        self.endpoint.name()
    }

    /// What is served at `path`.
    ///
    /// # Errors
    /// Why there is no such answer.
    pub(super) async fn get(&self, path: &str, within: Duration) -> Result<Bytes, String> {
        let answer = tokio::time::timeout(within, self.ask(path)).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {within:?}")))
    }

    async fn ask(&self, path: &str) -> Result<Bytes, String> {
        let Endpoint { host, port, base, headers, .. } = &self.endpoint;
        let mut request = Request::get(format!("{base}{path}")).header(header::HOST, self.endpoint.authority());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let tcp = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| error.to_string())?;
        match &self.tls {
            None => exchange(tcp, request).await,
            Some(tls) => {
                let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
                exchange(tls.connect(name, tcp).await.map_err(|error| format!("TLS: {error}"))?, request).await
            }
        }
    }
}

async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Bytes, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let refused = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(refused)?;
    // Ends with whoever asks, even if the peer never closes its side.
    let mut task = tokio::task::JoinSet::new();
    task.spawn(async move { drop(connection.await) });
    let answer = sender.send_request(request).await.map_err(refused)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(|error| format!("its body (at most {MOST_BYTES} bytes are read): {error}"))?.to_bytes();
    match status {
        StatusCode::OK => Ok(body),
        status => {
            let said: String = String::from_utf8_lossy(&body).chars().filter(|c| !c.is_control()).take(120).collect();
            Err(format!("it answers {status}: {said}"))
        }
    }
}

fn connector(endpoint: &Endpoint) -> Result<TlsConnector, Error> {
    let refused =
        |what: String, why: String| Error::new(what, why, "set `ca` to a PEM file of the authority's certificates");
    let mut roots = RootCertStore::empty();
    match &endpoint.authorities {
        Some(path) => {
            let what = || path.display().to_string();
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| refused(what(), error.to_string()))?;
            for certificate in certificates {
                let added =
                    certificate.map_err(io::Error::other).and_then(|it| roots.add(it).map_err(io::Error::other));
                added.map_err(|error| refused(what(), error.to_string()))?;
            }
        }
        // Every machine has some that are odd.
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    if roots.is_empty() {
        return Err(refused(endpoint.name(), "there is no authority to trust".into()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(endpoint.name(), error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn run(work: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    }

    /// Answers each request on `stream` so, once its head is there.
    async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(1) = stream.read(&mut byte).await else { return };
            head.extend(byte);
        }
        // Who asked may have enough of it, and go.
        drop(stream.write_all(answer).await);
        drop(stream.shutdown().await);
    }

    /// What is said to whoever asks a peer that answers so.
    async fn asked(text: &'static [u8], within: Duration) -> Result<Bytes, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let serving = async {
            let (stream, _) = listener.accept().await.unwrap();
            if text.is_empty() { std::future::pending::<()>().await } else { answer(stream, text).await }
        };
        let peer = Peer::new(&endpoint).unwrap();
        let asking = peer.get("/", within);
        tokio::select! {
            answer = asking => answer,
            () = async { serving.await; std::future::pending::<()>().await } => Ok(Bytes::new()),
        }
    }

    /// Check that whatever a peer does there is an answer within bounds, or why not.
    #[test]
    fn answers_are_bounded_and_refusals_told() {
        run(async {
            assert_eq!(
                asked(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", LONG).await.as_deref(),
                Ok(&b"hello"[..])
            );
            let refused =
                asked(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 4\r\n\r\nno\x1b!", LONG).await.unwrap_err();
            assert_eq!(refused, "it answers 401 Unauthorized: no!");
            let long = asked(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n", LONG).await.unwrap_err();
            assert!(long.contains("at most 16777216 bytes"), "{long}");
            assert!(asked(b"who is there?\r\n", LONG).await.is_err());
            assert!(asked(b"", Duration::from_millis(50)).await.unwrap_err().contains("no answer within"));
        });
    }

    /// Check that a peer whose authority is trusted is asked, and one that nobody here knows is not.
    #[test]
    fn over_tls_only_those_are_asked_who_are_trusted() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let path = std::env::temp_dir().join(format!("profiler-sidecar-ca-{}.pem", std::process::id()));
        std::fs::write(&path, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::spawn(async move {
                let acceptor = TlsAcceptor::from(Arc::new(config));
                while let Ok((stream, _)) = listener.accept().await {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        answer(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
                    }
                }
            });
            let endpoint = Endpoint::new(&format!("https://localhost:{port}")).unwrap();
            let known = Peer::new(&endpoint.clone().trusting(path.clone())).unwrap();
            assert_eq!(known.get("/", LONG).await.as_deref(), Ok(&b"hello"[..]));
            let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            std::fs::write(&path, other.cert.pem()).unwrap();
            let unknown = Peer::new(&endpoint.clone().trusting(path.clone())).unwrap();
            assert!(unknown.get("/", LONG).await.unwrap_err().starts_with("TLS: "));
            std::fs::write(&path, "nothing").unwrap();
            assert!(Peer::new(&endpoint.trusting(path.clone())).is_err());
        });
        std::fs::remove_file(&path).unwrap();
    }
}
