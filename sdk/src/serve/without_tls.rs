//! `tls` of a program that is built without the feature of that name: a certificate is refused.
//!
//! In: the files that settings name. Out: an error that names the feature; no [`Acceptor`] can be, so no connection asks for one.

use std::io;

use tokio::net::TcpStream;

use super::security::PemFile;
use crate::error::{ADD_TLS, Error, NO_TLS};

/// What to do when the files cannot be used.
pub(super) const PEM: &str = ADD_TLS;

/// What cannot be.
#[derive(Clone)]
pub(super) enum Acceptor {}

impl Acceptor {
    pub(super) fn new(certificate: &PemFile, _key: &PemFile) -> Result<Self, Error> {
        Err(Error::setting(certificate.setting, certificate.path.display(), NO_TLS, ADD_TLS))
    }

    #[expect(clippy::unused_async, reason = "as the other one, which waits")]
    pub(super) async fn accept(&self, _stream: TcpStream) -> io::Result<TcpStream> {
        match *self {}
    }
}
