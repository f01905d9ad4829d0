//! TLS towards one peer: whom it trusts, and the handshake.
//!
//! In: PEM certificates given in settings, else the machine's own. Out: an encrypted stream that speaks the version of
//! HTTP that was asked for. `rustls` with `ring`, set up here and nowhere else: the host's default provider is neither
//! used nor set. Reading the machine's certificates happens once, at the first connection, off the exporting thread.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::transport::Version;

/// Whom a peer's certificate must come from.
#[derive(Debug, Clone, Default)]
pub(super) enum Trust {
    /// Any of the machine's certificate authorities; `SSL_CERT_FILE` and `SSL_CERT_DIR` are obeyed.
    #[default]
    System,
    /// These authorities and no others.
    Given(Vec<CertificateDer<'static>>),
}

impl Trust {
    /// The certificates of a PEM file's contents.
    ///
    /// # Errors
    /// Why it holds no certificate that can be used.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| format!("not PEM: {error}"))?;
        if certificates.is_empty() {
            return Err("holds no certificate".into());
        }
        roots(&certificates)?;
        Ok(Self::Given(certificates))
    }
}

/// How to speak TLS to one peer.
#[derive(Debug)]
pub(super) struct Tls {
    trust: Trust,
    config: OnceCell<Arc<ClientConfig>>,
}

impl Tls {
    pub(super) fn new(trust: Trust) -> Self {
        Self { trust, config: OnceCell::new() }
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
        let config = self.config.get_or_try_init(|| configure(self.trust.clone(), version)).await?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, tcp).await?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if version == Version::Http2 && agreed != Some(b"h2") {
            return Err(io::Error::other("the peer does not speak HTTP/2, which gRPC needs"));
        }
        Ok(stream)
    }
}

async fn configure(trust: Trust, version: Version) -> io::Result<Arc<ClientConfig>> {
    let roots = match trust {
        Trust::Given(certificates) => roots(&certificates).map_err(io::Error::other)?,
        Trust::System => tokio::task::spawn_blocking(system_roots).await.map_err(io::Error::other)??,
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = match version {
        Version::Http1 => vec![b"http/1.1".to_vec()],
        Version::Http2 => vec![b"h2".to_vec()],
    };
    Ok(Arc::new(config))
}

fn roots(certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for (index, certificate) in certificates.iter().enumerate() {
        let added = store.add(certificate.clone());
        added.map_err(|error| format!("certificate {} cannot be used: {error}", index + 1))?;
    }
    Ok(store)
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
