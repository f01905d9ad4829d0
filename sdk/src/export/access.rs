//! What all peers over HTTP have in common, as code sets it: headers and credentials, timeout, TLS.
//!
//! In: what the builder of a destination is told. Out: each part, checked, or an error that names the builder's method. What is not set is left to the
//! builder, for each reads other variables.

use std::time::Duration;

use super::headers::Headers;
use super::settings::checked_timeout;
use super::tls::{AUTHORITIES, IDENTITY, TlsSettings};
use crate::error::Error;

/// How a peer is reached.
#[derive(Clone, Default)]
pub(super) struct Access {
    pub(super) headers: Headers,
    pub(super) timeout: Option<Duration>,
    /// PEM of the authorities to trust.
    pub(super) authorities: Option<Vec<u8>>,
    /// PEM of our certificate, and of its key.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Access {
    /// How long an attempt may take, if that is set.
    pub(super) fn checked_timeout(&self, builder: &str) -> Result<Option<Duration>, Error> {
        self.timeout.map(|timeout| checked_timeout(&format!("{builder}::timeout"), timeout)).transpose()
    }

    /// Whom to trust, if that is set.
    pub(super) fn checked_authorities(&self, builder: &str) -> Result<Option<TlsSettings>, Error> {
        let refuse = |why| Error::setting(&format!("{builder}::ca_certificate"), "PEM", why, AUTHORITIES);
        self.authorities.as_deref().map(|pem| TlsSettings::default().trusting(pem).map_err(refuse)).transpose()
    }

    /// The same with who we are, if that is set.
    pub(super) fn with_identity(&self, builder: &str, tls: TlsSettings) -> Result<TlsSettings, Error> {
        let Some((certificate, key)) = &self.identity else { return Ok(tls) };
        let refuse = |why| Error::setting(&format!("{builder}::client_certificate"), "PEM", why, IDENTITY);
        tls.showing(certificate, key).map_err(refuse)
    }

    /// Whom to trust and who we are, where only code says so.
    pub(super) fn tls(&self, builder: &str) -> Result<TlsSettings, Error> {
        self.with_identity(builder, self.checked_authorities(builder)?.unwrap_or_default())
    }
}
