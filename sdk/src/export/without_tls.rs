//! `tls` of a program that is built without the feature of that name: every wish for it is refused.
//!
//! In: what settings ask for. Out: errors that name the feature. Nothing goes out in the clear that was to be encrypted: endpoints with
//! `https://` are refused where they are read ([`REFUSAL`]), and a handshake, should one be asked for all the same, fails.

use std::io;

use tokio::net::TcpStream;

use super::protocol::Version;
use crate::error::{ADD_TLS, NO_TLS};

/// Why an endpoint cannot have TLS, and what to do.
pub(super) const REFUSAL: Option<(&str, &str)> = Some((NO_TLS, ADD_TLS));
/// What to do when authorities cannot be used.
pub(super) const AUTHORITIES: &str = ADD_TLS;
/// What to do when our own certificate cannot be used.
pub(super) const IDENTITY: &str = ADD_TLS;

/// Nothing that could be set.
#[derive(Debug, Clone, Default)]
pub(super) struct TlsSettings {}

impl TlsSettings {
    pub(super) fn trusting(self, _pem: &[u8]) -> Result<Self, String> {
        Err(NO_TLS.to_owned())
    }

    pub(super) fn showing(self, _certificate: &[u8], _key: &[u8]) -> Result<Self, String> {
        Err(NO_TLS.to_owned())
    }
}

/// What fails.
#[derive(Debug)]
pub(super) struct Tls;

impl Tls {
    pub(super) fn new(_settings: TlsSettings) -> Self {
        Self
    }

    #[expect(clippy::unused_async, reason = "as the other one, which waits")]
    pub(super) async fn handshake(&self, _tcp: TcpStream, _host: &str, _version: Version) -> io::Result<TcpStream> {
        Err(io::Error::other(NO_TLS))
    }
}

pub(super) fn why(error: &io::Error) -> String {
    format!("{error}: {ADD_TLS}")
}

pub(super) fn refusal(_error: &io::Error) -> Option<String> {
    None
}
