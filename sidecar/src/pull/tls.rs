//! TLS towards those who serve profiles: whom to trust, who we are, whose name the certificate must have.
//!
//! In: what settings say, PEM files. Out: a [`TlsConnector`], or what is wrong with which file. `rustls` with `ring`, as exports have it: the process's default
//! provider is neither used nor set. On the main thread, once for each endpoint.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme};

use crate::error::Error;
use crate::named_file;

/// How to speak TLS with a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// PEM file of the authorities to trust, instead of the machine's.
    pub authorities: Option<PathBuf>,
    /// PEM files of our certificate, with its chain, and of its private key: for who asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that its certificate must have, where that is not the address's.
    pub server_name: Option<String>,
    /// Whether whoever answers is believed, whatever its certificate: a stranger at its place gets the headers, and ours.
    pub is_unverified: bool,
}

impl Tls {
    /// Whether nothing is said.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What speaks it; `name` says whom to, for people.
    ///
    /// # Errors
    /// When there is nobody to trust, or a file cannot be used.
    pub(super) fn connector(&self, name: &str) -> Result<TlsConnector, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| Error::new(name, error.to_string(), "report it"))?;
        let builder = if self.is_unverified {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        } else {
            builder.with_root_certificates(self.roots(name)?)
        };
        let Some((certificate, key)) = &self.identity else {
            return Ok(TlsConnector::from(Arc::new(builder.with_no_client_auth())));
        };
        let remedy = "set `cert` and `key` to PEM files of a certificate and of its private key";
        let refused = |path: &Path, why: &dyn Display| Error::new(path.display().to_string(), why.to_string(), remedy);
        let chain = certificates(certificate).map_err(|why| refused(certificate, &why))?;
        let bytes = named_file::read(key).map_err(|why| refused(key, &why))?;
        let secret = PrivateKeyDer::from_pem_slice(&bytes).map_err(|why| refused(key, &why))?;
        let config = builder.with_client_auth_cert(chain, secret).map_err(|why| refused(certificate, &why))?;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn roots(&self, name: &str) -> Result<RootCertStore, Error> {
        let refused =
            |what: String, why: String| Error::new(what, why, "set `ca` to a PEM file of the authority's certificates");
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            Some(path) => {
                let refused = |why: String| refused(path.display().to_string(), why);
                for certificate in certificates(path).map_err(refused)? {
                    roots.add(certificate).map_err(|error| refused(error.to_string()))?;
                }
            }
            // Every machine has some that are odd.
            None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        }
        if roots.is_empty() {
            return Err(refused(name.to_owned(), "there is no authority to trust".into()));
        }
        Ok(roots)
    }
}

/// The certificates of a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(&named_file::read(path)?).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| error.to_string())?;
    if read.is_empty() { Err("it holds no certificate".into()) } else { Ok(read) }
}

/// Believes whoever holds the key of the certificate that it shows.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::server::WebPkiClientVerifier;

    use super::super::Endpoint;
    use super::super::peer::{Peer, Permits};
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn authority() -> (Certificate, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap(), Issuer::new(params, key))
    }

    /// A certificate for this name that the authority signed, and its key.
    fn signed(issuer: &Issuer<'static, KeyPair>, name: &str) -> (Certificate, KeyPair) {
        let (params, key) = (CertificateParams::new(vec![name.to_owned()]).unwrap(), KeyPair::generate().unwrap());
        (params.signed_by(&key, issuer).unwrap(), key)
    }

    /// A server called `shop` that answers those who show a certificate of this authority, until its runtime ends; its port.
    async fn serve(authority: &Certificate, issuer: &Issuer<'static, KeyPair>) -> u16 {
        let (certificate, key) = signed(issuer, "shop");
        let mut clients = RootCertStore::empty();
        clients.add(authority.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_client_cert_verifier(verifier.build().unwrap());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                // Whatever is asked: the head of a request, in one piece.
                if stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {
                    drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await);
                    drop(stream.shutdown().await);
                }
            }
        });
        port
    }

    /// Check a server that is known under another name than its address and wants to know who asks: with all that is answered, and where one thing is missing or
    /// wrong it is not; and that whoever answers is believed where that is said, and only then.
    #[test]
    fn who_serves_and_who_asks_know_each_other() {
        let folder = std::env::temp_dir().join(format!("profiler-sidecar-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: String| {
            std::fs::write(folder.join(name), text).unwrap();
            folder.join(name)
        };
        let ((ours, our_issuer), (others, other_issuer)) = (authority(), authority());
        let (ca, other) = (write("ca.pem", ours.pem()), write("other.pem", others.pem()));
        let identity = |of: &str, issuer| {
            let (certificate, key) = signed(issuer, "sidecar");
            (write(&format!("{of}.pem"), certificate.pem()), write(&format!("{of}.key"), key.serialize_pem()))
        };
        let (known, unknown) = (identity("known", &our_issuer), identity("unknown", &other_issuer));
        let whole = Tls {
            authorities: Some(ca),
            identity: Some(known.clone()),
            server_name: Some("shop".into()),
            is_unverified: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let port = serve(&ours, &our_issuer).await;
            let endpoint = Endpoint::new(&format!("https://127.0.0.1:{port}")).unwrap();
            let room = Permits::default();
            let asked = async |tls: &Tls| {
                let peer = Peer::new(&endpoint.clone().over(tls.clone()).unwrap()).unwrap();
                peer.get("/", LONG, &room).await.map(|body| body.bytes)
            };
            assert_eq!(asked(&whole).await.unwrap(), "hello");
            let anybody = Tls { authorities: None, server_name: None, is_unverified: true, ..whole.clone() };
            assert_eq!(asked(&anybody).await.unwrap(), "hello");
            for wrong in [
                Tls { authorities: Some(other.clone()), ..whole.clone() },
                Tls { server_name: None, ..whole.clone() },
                Tls { identity: None, ..whole.clone() },
                Tls { identity: Some(unknown.clone()), ..whole.clone() },
                Tls { identity: None, ..anybody.clone() },
            ] {
                let why = asked(&wrong).await.unwrap_err();
                assert!(!why.is_late, "{wrong:?}: {}", why.why);
            }
            // A key that is another certificate's, and files that are none.
            let mixed = (known.0.clone(), unknown.1.clone());
            let none = (write("none", "nothing".into()), known.1.clone());
            for (identity, named) in [(mixed, "known.pem"), (none, "none")] {
                let refused = Tls { identity: Some(identity), ..whole.clone() }.connector("it").map(|_| ());
                let told = refused.unwrap_err().to_string();
                assert!(told.contains(named) && told.contains("`cert` and `key`"), "{told}");
            }
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
