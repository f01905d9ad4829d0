//! TLS towards one peer: whom to trust, who we are, and the handshake.
//!
//! In: PEM from settings; for trust, else the machine's own authorities. Out: an encrypted stream that speaks the version of
//! HTTP that was asked for. `rustls` with `ring`, set up here and nowhere else: the host's default provider is neither
//! used nor set. Reading the machine's certificates happens once, at the first connection, off the exporting thread.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{AlertDescription as Alert, CertificateError as Bad, ClientConfig, Error, RootCertStore};

use super::answer::chain;
use super::protocol::Version;

/// Why an endpoint cannot have TLS, and what to do: where there is none.
pub(super) const REFUSAL: Option<(&str, &str)> = None;
/// What to do when authorities cannot be used.
pub(super) const AUTHORITIES: &str = "give the certificates of the authority as a PEM file";
/// What to do when our own certificate cannot be used.
pub(super) const IDENTITY: &str = "give the certificate and its private key as two PEM files";

/// Whom to trust and who we are, read from PEM.
#[derive(Debug, Clone, Default)]
pub(super) struct TlsSettings {
    /// The authorities that a peer's certificate must come from; `None`: any of the machine's, and `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` are obeyed.
    roots: Option<Arc<RootCertStore>>,
    /// Our certificate with its chain, and its key.
    identity: Option<(Vec<CertificateDer<'static>>, Arc<PrivateKeyDer<'static>>)>,
}

impl TlsSettings {
    /// The same, trusting the authorities in `pem` and no others.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub(super) fn trusting(mut self, pem: &[u8]) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        for (index, certificate) in certificates(pem)?.into_iter().enumerate() {
            let added = store.add(certificate);
            added.map_err(|error| format!("certificate {} cannot be used: {error}", index + 1))?;
        }
        self.roots = Some(Arc::new(store));
        Ok(self)
    }

    /// The same, with a certificate of our own.
    ///
    /// # Errors
    /// Why it cannot be used; for one, because the key is not its key.
    pub(super) fn showing(mut self, certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("no private key: {error}"))?;
        self.identity = Some((certificates(certificate)?, Arc::new(key)));
        self.config(Arc::new(RootCertStore::empty())).map_err(|error| error.to_string())?;
        Ok(self)
    }

    fn config(&self, roots: Arc<RootCertStore>) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        match &self.identity {
            None => Ok(builder.with_no_client_auth()),
            Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key()),
        }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err("it holds no certificate".into()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("it is not PEM: {error}")),
    }
}

/// How to speak TLS to one peer.
#[derive(Debug)]
pub(super) struct Tls {
    settings: TlsSettings,
    config: OnceCell<Arc<ClientConfig>>,
    /// Taken while the machine's authorities are read.
    reading: Arc<Semaphore>,
}

impl Tls {
    pub(super) fn new(settings: TlsSettings) -> Self {
        Self { settings, config: OnceCell::new(), reading: Arc::new(Semaphore::new(1)) }
    }

    /// Makes `tcp` an encrypted stream to `host` that carries `version`.
    ///
    /// # Errors
    /// If there is nobody to trust, the peer's certificate is not good for `host`, or it does not speak `version`.
    pub(super) async fn handshake(
        &self,
        tcp: TcpStream,
        host: &str,
        version: Version,
    ) -> io::Result<TlsStream<TcpStream>> {
        let config = self.config.get_or_try_init(|| self.configure(version)).await?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, tcp).await?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if version == Version::Http2 && agreed != Some(b"h2") {
            return Err(io::Error::other("the peer does not speak HTTP/2, which gRPC needs"));
        }
        Ok(stream)
    }

    async fn configure(&self, version: Version) -> io::Result<Arc<ClientConfig>> {
        let roots = match &self.settings.roots {
            Some(roots) => Arc::clone(roots),
            None => Arc::new(authorities(&self.reading, system_roots).await?),
        };
        let mut config = self.settings.config(roots).map_err(io::Error::other)?;
        config.alpn_protocols = match version {
            Version::Http1 => vec![b"http/1.1".to_vec()],
            Version::Http2 => vec![b"h2".to_vec()],
        };
        Ok(Arc::new(config))
    }
}

/// What `read` reads, on a thread that may hang as long as its files do: one at a time, for which later attempts wait.
async fn authorities(
    reading: &Arc<Semaphore>,
    read: impl FnOnce() -> io::Result<RootCertStore> + Send + 'static,
) -> io::Result<RootCertStore> {
    let turn = Arc::clone(reading).acquire_owned().await.map_err(io::Error::other)?;
    let in_turn = move || {
        let read = read();
        drop(turn);
        read
    };
    tokio::task::spawn_blocking(in_turn).await.map_err(io::Error::other)?
}

/// That the peer does not accept who we are, with what to do, if it says so: of TLS 1.3 with what it says first behind our side of the
/// handshake, when the request is under way already. It has taken nothing then.
pub(super) fn refusal(error: &io::Error) -> Option<String> {
    let Some(Error::AlertReceived(alert)) = error_of_tls(error) else { return None };
    let what = match alert {
        Alert::CertificateExpired => "our own certificate has expired",
        Alert::CertificateRevoked => "our own certificate was revoked",
        Alert::CertificateRequired
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError
        | Alert::NoCertificate => "the peer asks for a certificate that it trusts",
        _ => return None,
    };
    let settings =
        "`client_certificate`, for OTLP also OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY";
    Some(format!("{what}: set one by {settings} ({})", chain(error)))
}

fn error_of_tls(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Error>())
}

/// Why a handshake failed, with what to do where that is known.
pub(super) fn why(error: &io::Error) -> String {
    if let Some(refusal) = refusal(error) {
        return refusal;
    }
    let remedy = match error_of_tls(error) {
        Some(Error::InvalidCertificate(why)) => match why {
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "the peer's certificate has expired: renew it there, or set the clock here"
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "the peer's certificate is not valid yet: set the clock here or there"
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "it is another peer's certificate: write the endpoint with a name that is in it"
            }
            Bad::UnknownIssuer | Bad::BadSignature => {
                "nobody here trusts who signed it: set that authority's certificate (`ca_certificate`, OTEL_EXPORTER_OTLP_CERTIFICATE)"
            }
            _ => "give the peer another certificate",
        },
        Some(Error::InvalidMessage(_)) => "the peer does not speak TLS there: write http:// if that is meant",
        Some(Error::AlertReceived(Alert::NoApplicationProtocol)) => {
            "the peer speaks another version of HTTP there: gRPC has another port than HTTP at most peers"
        }
        Some(Error::AlertReceived(Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity)) => {
            "the peer has no version of TLS (1.2, 1.3) or no cipher in common with this program, or asks for a certificate of ours: its log says which"
        }
        None if matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ) =>
        {
            "the peer ended the connection before TLS was agreed on: it may not speak TLS there, or ask for a certificate of ours; its log may say why"
        }
        _ => return chain(error),
    };
    format!("{remedy} ({})", chain(error))
}

/// The machine's authorities, without those that cannot be read: every machine has some that are odd.
fn system_roots() -> io::Result<RootCertStore> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(loaded.certs);
    if added == 0 {
        return Err(io::Error::other(
            "this machine has no certificate authorities; install its ca-certificates or set a certificate",
        ));
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Check what is said where the peer answers a handshake by these bytes, and by its end.
    #[test]
    fn a_peer_that_gives_up_is_explained() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let why_after = |answer: &'static [u8]| {
            let peer = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = peer.local_addr().unwrap();
            let peer = std::thread::spawn(move || {
                let (mut stream, _) = peer.accept().unwrap();
                let mut hello = [0; 5];
                stream.read_exact(&mut hello).unwrap();
                // All of it: what is not read would be answered by a reset.
                let length = u16::from_be_bytes([hello[3], hello[4]]);
                stream.read_exact(&mut vec![0; length.into()]).unwrap();
                stream.write_all(answer).unwrap();
            });
            let tls = Tls::new(TlsSettings { roots: Some(Arc::new(RootCertStore::empty())), identity: None });
            let outcome = runtime.block_on(async {
                let tcp = TcpStream::connect(address).await.unwrap();
                tls.handshake(tcp, "localhost", Version::Http1).await.map(drop)
            });
            peer.join().unwrap();
            why(&outcome.unwrap_err())
        };
        // Records of TLS 1.2 with one fatal alert (RFC 8446, 6 and B.2): 40, handshake_failure, and 70, protocol_version.
        for alert in [b"\x15\x03\x03\0\x02\x02\x28", b"\x15\x03\x03\0\x02\x02\x46"] {
            let why = why_after(alert);
            assert!(why.starts_with("the peer has no version of TLS (1.2, 1.3) or no cipher in common"), "{why}");
        }
        let why = why_after(b"");
        assert!(why.starts_with("the peer ended the connection before TLS was agreed on"), "{why}");
    }

    /// Check that attempts that give up waiting for files that hang leave one thread behind, and that there is another one when it is back.
    #[test]
    fn one_thread_reads_the_authorities() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (reading, reads) = (Arc::new(Semaphore::new(1)), Arc::new(AtomicUsize::new(0)));
        let read = |hangs: Option<mpsc::Receiver<()>>| {
            let reads = Arc::clone(&reads);
            authorities(&reading, move || {
                reads.fetch_add(1, Ordering::Relaxed);
                _ = hangs.map(|hangs| hangs.recv());
                Ok(RootCertStore::empty())
            })
        };
        runtime.block_on(async {
            let mut ends = Vec::new();
            for _ in 0..3 {
                let (end, hangs) = mpsc::channel();
                ends.push(end);
                assert!(timeout(Duration::from_millis(10), read(Some(hangs))).await.is_err());
            }
            drop(ends);
            assert!(read(None).await.is_ok());
        });
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }
}
