//! TLS for who asks: our certificate, and the handshake.
//!
//! In: PEM files, read once. Out: encrypted streams that speak HTTP/1.1. `rustls` with `ring`; the host's default provider is neither used nor
//! set.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use super::security::PemFile;
use crate::error::Error;

/// What to do when the files cannot be used.
pub(super) const PEM: &str = "give a certificate with its chain, and its private key, as two PEM files";
/// More of a file is no certificate.
const MOST_PEM: u64 = 1 << 20;

/// What makes connections encrypted.
#[derive(Clone)]
pub(super) struct Acceptor(TlsAcceptor);

impl Acceptor {
    /// With the certificate, its chain and its private key of these files.
    ///
    /// # Errors
    /// They cannot be read or used.
    pub(super) fn new(certificate: &PemFile, key: &PemFile) -> Result<Self, Error> {
        let (chain, key) = (certificates(certificate)?, private_key(key)?);
        let unusable = |error: tokio_rustls::rustls::Error| certificate.refused(error.to_string());
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?.with_no_client_auth();
        let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

fn certificates(file: &PemFile) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = file.contents()?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(file.refused("the file holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(file.refused(format!("the file is not PEM: {error}"))),
    }
}

fn private_key(file: &PemFile) -> Result<PrivateKeyDer<'static>, Error> {
    let refused = |error| file.refused(format!("the file holds no private key: {error}"));
    PrivateKeyDer::from_pem_slice(&file.contents()?).map_err(refused)
}

impl PemFile {
    fn refused(&self, why: impl Into<String>) -> Error {
        Error::setting(self.setting, self.path.display(), why, PEM)
    }

    /// What the file holds. A pipe or a device, which might never end, is not opened.
    fn contents(&self) -> Result<Vec<u8>, Error> {
        let mut contents = Vec::new();
        let what = || format!("{}: read {}", self.setting, self.path.display());
        let failed = |error: io::Error| Error::environment(what(), error, PEM);
        if !std::fs::metadata(&self.path).map_err(failed)?.is_file() {
            return Err(self.refused("it is not a regular file"));
        }
        File::open(&self.path).and_then(|file| file.take(MOST_PEM).read_to_end(&mut contents)).map_err(failed)?;
        Ok(contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that files that cannot be used are named.
    #[test]
    fn files_that_cannot_be_used_are_named() {
        let refused = |path: &str| {
            let file = PemFile { path: path.into(), setting: "PROFILER_SERVE_KEY" };
            let error = Acceptor::new(&file, &file).err().unwrap().to_string();
            assert!(error.contains("PROFILER_SERVE_KEY"), "{error}");
            error
        };
        let missing = refused("/nowhere/cert.pem");
        assert!(missing.contains("/nowhere/cert.pem"), "{missing}");
        let place = std::env::temp_dir().join(format!("profiler-tls-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
        std::fs::write(path("empty.pem"), "").unwrap();
        let empty = refused(&path("empty.pem"));
        assert!(empty.contains("no certificate"), "{empty}");
        assert!(std::process::Command::new("mkfifo").arg(path("pipe.pem")).status().unwrap().success());
        for odd in [path("pipe.pem"), "/dev/zero".to_owned(), "/".to_owned()] {
            let refused = refused(&odd);
            assert!(refused.contains(&odd) && refused.contains("not a regular file"), "{refused}");
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}
