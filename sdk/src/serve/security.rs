//! Who may ask, and whether others can listen: a token, a certificate.
//!
//! In: settings, and the headers of each request. Out: yes, or the refusal that has a browser ask its user; TLS for a connection. A token is
//! compared in a time that does not tell how much of it was right, and never stands in a log or an address.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::reply::Reply;
use super::tls::{Acceptor, PEM};
use crate::error::Error;

/// A shorter token can be tried out.
const LEAST_TOKEN: usize = 16;

/// Who may ask a [`Server`](super::Server) for profiles, and over what. Nothing set: everybody who reaches it, over plain HTTP.
#[derive(Clone, Default)]
pub struct Security {
    token: Option<Token>,
    files: Option<(PathBuf, PathBuf)>,
}

/// What whoever asks must know.
#[derive(Clone)]
pub(super) struct Token {
    text: Arc<str>,
}

impl fmt::Debug for Security {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("token", &self.token.is_some()).field("files", &self.files).finish()
    }
}

impl Security {
    /// No token, no TLS.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only those are answered who know `token`: as `Authorization: Bearer`, or as the password, of any user, that a browser asks for.
    #[must_use]
    pub fn token(self, token: impl Into<Arc<str>>) -> Self {
        Self { token: Some(Token { text: token.into() }), ..self }
    }

    /// Answers over TLS, with the certificate (and its chain) and the private key of these PEM files.
    #[must_use]
    pub fn tls(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { files: Some((certificate.into(), key.into())), ..self }
    }

    /// These settings, completed from the variables that `lookup` finds: `PROFILER_SERVE_TOKEN`, `PROFILER_SERVE_CERTIFICATE`,
    /// `PROFILER_SERVE_KEY`; an empty one is not set.
    ///
    /// # Errors
    /// One of the files is said and not the other, or a token is no text.
    pub fn or_variables(mut self, lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        if let Some(token) = set("PROFILER_SERVE_TOKEN").filter(|_| self.token.is_none()) {
            let unreadable = |_| Error::setting("PROFILER_SERVE_TOKEN", "…", "it is not UTF-8", "set another one");
            self = self.token(token.into_string().map_err(unreadable)?);
        }
        if self.files.is_none() {
            self.files = match (set("PROFILER_SERVE_CERTIFICATE"), set("PROFILER_SERVE_KEY")) {
                (None, None) => None,
                (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
                (Some(_), None) => return Err(missing("PROFILER_SERVE_KEY")),
                (None, Some(_)) => return Err(missing("PROFILER_SERVE_CERTIFICATE")),
            };
        }
        Ok(self)
    }

    /// Whether a token is needed.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The token, once it is one.
    pub(super) fn checked_token(&self) -> Result<Option<Token>, Error> {
        let Some(token) = &self.token else { return Ok(None) };
        let is_plain = token.text.bytes().all(|byte| byte.is_ascii_graphic());
        if token.text.len() >= LEAST_TOKEN && is_plain {
            return Ok(Some(token.clone()));
        }
        let why = "it must have at least 16 characters, of ASCII and without spaces";
        Err(Error::setting("serve token", "…", why, "make one, as with `openssl rand -hex 32`"))
    }

    /// What makes connections encrypted, if they are to be.
    pub(super) fn acceptor(&self) -> Result<Option<Acceptor>, Error> {
        self.files.as_ref().map(|(certificate, key)| Acceptor::new(certificate, key)).transpose()
    }
}

/// What a request says of who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// Knows the token.
    Known,
    /// Says nothing.
    Unknown,
    /// Says something wrong: to be answered late, so that tokens cannot be tried out.
    Wrong,
}

impl Token {
    /// Who asks with these headers.
    pub(super) fn asker(&self, headers: &HeaderMap) -> Asker {
        let Some(value) = headers.get(AUTHORIZATION) else { return Asker::Unknown };
        let text = value.to_str().unwrap_or("");
        let (scheme, said) = text.split_once(' ').unwrap_or((text, ""));
        let is_right = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => self.is(said.trim().as_bytes()),
            // RFC 7617: base64 of user, colon, password.
            "basic" => STANDARD.decode(said.trim()).is_ok_and(|pair| {
                let password = pair.iter().position(|byte| *byte == b':').map_or(0, |colon| colon + 1);
                self.is(&pair[password..])
            }),
            _ => false,
        };
        if is_right { Asker::Known } else { Asker::Wrong }
    }

    /// Whether `said` is the token; looks at all of it, whatever is wrong.
    fn is(&self, said: &[u8]) -> bool {
        let known = self.text.as_bytes();
        let differing = known.iter().zip(said.iter().chain(std::iter::repeat(&0)));
        let difference = differing.fold(0, |sum, (a, b)| sum | std::hint::black_box(a ^ b));
        difference == 0 && said.len() == known.len()
    }
}

/// The answer to those who do not know the token; browsers ask their users for it then.
pub(super) fn unauthorized() -> Reply {
    let why = "a token is needed: `Authorization: Bearer TOKEN`, or any user with the token as password";
    let challenge = HeaderValue::from_static("Basic realm=\"profiler\", charset=\"UTF-8\"");
    Reply::refusal(StatusCode::UNAUTHORIZED, why).with(WWW_AUTHENTICATE, challenge)
}

fn missing(name: &str) -> Error {
    Error::setting(name, "", "it is not set, and TLS needs both a certificate and its key", PEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn asker(value: &str) -> Asker {
        let token = Security::new().token(TOKEN).checked_token().unwrap().unwrap();
        token.asker(&HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]))
    }

    /// Check that the token is known as a bearer's and as the password of any user, and nothing else is.
    #[test]
    fn only_the_token_is_known() {
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        for known in [
            format!("Bearer {TOKEN}"),
            format!("bearer  {TOKEN}"),
            basic(&format!("me:{TOKEN}")),
            basic(&format!(":{TOKEN}")),
        ] {
            assert_eq!(asker(&known), Asker::Known, "{known}");
        }
        let wrong = [
            "Bearer".to_owned(),
            "Bearer 0123456789abcdeF".into(),
            format!("Bearer {TOKEN}0"),
            format!("Bearer {}", &TOKEN[1..]),
            format!("Digest {TOKEN}"),
            TOKEN.into(),
            basic(&format!("{TOKEN}:me")),
            "Basic %%%".into(),
            String::new(),
        ];
        for wrong in wrong {
            assert_eq!(asker(&wrong), Asker::Wrong, "{wrong}");
        }
        let token = Token { text: TOKEN.into() };
        assert_eq!(token.asker(&HeaderMap::new()), Asker::Unknown);
    }

    /// Check that variables complete what code says, and that half of TLS is refused by the name of the other half.
    #[test]
    fn variables_complete_what_code_says() {
        let resolve = |security: Security, variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            security.or_variables(&found)
        };
        let both = [
            ("PROFILER_SERVE_TOKEN", "of-the-environment"),
            ("PROFILER_SERVE_CERTIFICATE", "/c"),
            ("PROFILER_SERVE_KEY", "/k"),
        ];
        let found = resolve(Security::new(), &both).unwrap();
        assert_eq!(found.token.map(|token| token.text.to_string()), Some("of-the-environment".to_owned()));
        assert_eq!(found.files, Some(("/c".into(), "/k".into())));
        let kept = resolve(Security::new().token(TOKEN), &both).unwrap();
        assert_eq!(kept.token.map(|token| token.text.to_string()), Some(TOKEN.to_owned()));
        assert!(!resolve(Security::new(), &[("PROFILER_SERVE_TOKEN", "")]).unwrap().has_token());
        let half = resolve(Security::new(), &both[..2]).err().unwrap().to_string();
        assert!(half.contains("PROFILER_SERVE_KEY"), "{half}");
    }

    /// Check that a token that can be guessed or not be sent is refused, and that no text shows it.
    #[test]
    fn what_cannot_be_is_refused_and_the_token_never_shown() {
        for bad in ["", "secret", "0123456789abcde", "0123456789abcdef ", "0123456789abcdefé"] {
            let error = Security::new().token(bad).checked_token().err().unwrap().to_string();
            assert!(error.contains("at least 16") && (bad.is_empty() || !error.contains(bad)), "{error}");
        }
        assert!(!format!("{:?}", Security::new().token(TOKEN)).contains(TOKEN));
    }
}
