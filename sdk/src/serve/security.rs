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
use crate::variables::Variables;

/// A shorter token can be tried out.
const LEAST_TOKEN: usize = 16;

/// Who may ask a [`Server`](super::Server) for profiles, and over what. Nothing set: everybody who reaches it, over plain HTTP.
#[derive(Clone, Default)]
pub struct Security {
    token: Option<Token>,
    /// The certificate and its key.
    files: Option<[PemFile; 2]>,
}

/// What whoever asks must know.
#[derive(Clone)]
pub(super) struct Token {
    text: Arc<str>,
    /// What set it.
    setting: &'static str,
}

/// A file that was named for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PemFile {
    pub(super) path: PathBuf,
    /// What named it.
    pub(super) setting: &'static str,
}

const TOKEN_VARIABLE: &str = "PROFILER_SERVE_TOKEN";
const CERTIFICATE_VARIABLE: &str = "PROFILER_SERVE_CERTIFICATE";
const KEY_VARIABLE: &str = "PROFILER_SERVE_KEY";

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
        self.token_by("Security::token", token)
    }

    /// Answers over TLS, with the certificate (and its chain) and the private key of these PEM files.
    #[must_use]
    pub fn tls(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls_by(["Security::tls"; 2], certificate, key)
    }

    /// The same as [`Security::token`], by `setting`.
    pub(crate) fn token_by(self, setting: &'static str, token: impl Into<Arc<str>>) -> Self {
        Self { token: Some(Token { text: token.into(), setting }), ..self }
    }

    /// The same as [`Security::tls`], the two files by these settings.
    pub(crate) fn tls_by(
        self,
        settings: [&'static str; 2],
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let [of_certificate, of_key] = settings;
        let certificate = PemFile { path: certificate.into(), setting: of_certificate };
        Self { files: Some([certificate, PemFile { path: key.into(), setting: of_key }]), ..self }
    }

    /// These settings, completed from the variables that `lookup` finds: `PROFILER_SERVE_TOKEN`, `PROFILER_SERVE_CERTIFICATE`,
    /// `PROFILER_SERVE_KEY`; an empty one is not set, and one that is set beside a setting of code is named in the log.
    ///
    /// # Errors
    /// One of the files is said and not the other, or a variable is no text.
    pub fn or_variables(self, lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let variables = Variables::new(lookup);
        let completed = self.completed(&variables);
        variables.log_outweighed();
        completed
    }

    /// The same; what code outweighs is noted.
    pub(crate) fn completed(self, variables: &Variables<'_>) -> Result<Self, Error> {
        self.or_token(variables)?.or_files(variables)
    }

    fn or_token(self, variables: &Variables<'_>) -> Result<Self, Error> {
        if let Some(token) = &self.token {
            variables.outweigh(token.setting, TOKEN_VARIABLE);
            return Ok(self);
        }
        Ok(match variables.text(TOKEN_VARIABLE)? {
            Some(token) => self.token_by(TOKEN_VARIABLE, token),
            None => self,
        })
    }

    fn or_files(self, variables: &Variables<'_>) -> Result<Self, Error> {
        if let Some([certificate, key]) = &self.files {
            variables.outweigh(certificate.setting, CERTIFICATE_VARIABLE);
            variables.outweigh(key.setting, KEY_VARIABLE);
            return Ok(self);
        }
        match (variables.text(CERTIFICATE_VARIABLE)?, variables.text(KEY_VARIABLE)?) {
            (None, None) => Ok(self),
            (Some(certificate), Some(key)) => Ok(self.tls_by([CERTIFICATE_VARIABLE, KEY_VARIABLE], certificate, key)),
            (Some(_), None) => Err(missing(KEY_VARIABLE)),
            (None, Some(_)) => Err(missing(CERTIFICATE_VARIABLE)),
        }
    }

    /// What was set, by the names of the settings: the token's, the certificate's.
    #[must_use]
    pub fn settings(&self) -> [Option<&'static str>; 2] {
        let certificate = self.files.as_ref().map(|[certificate, _]| certificate.setting);
        [self.token.as_ref().map(|token| token.setting), certificate]
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
        Err(Error::setting(token.setting, "…", why, "make one, as with `openssl rand -hex 32`"))
    }

    /// What makes connections encrypted, if they are to be.
    pub(super) fn acceptor(&self) -> Result<Option<Acceptor>, Error> {
        self.files.as_ref().map(|[certificate, key]| Acceptor::new(certificate, key)).transpose()
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
        let token = Token { text: TOKEN.into(), setting: "a test" };
        assert_eq!(token.asker(&HeaderMap::new()), Asker::Unknown);
    }

    /// Check that variables complete what code says, that what code outweighs is noted by the names of both, and that half of TLS is refused
    /// by the name of the other half.
    #[test]
    fn variables_complete_what_code_says() {
        let both = [(TOKEN_VARIABLE, "of-the-environment\n"), (CERTIFICATE_VARIABLE, "/c"), (KEY_VARIABLE, "/k")];
        let resolve = |security: Security, variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            let variables = Variables::new(&found);
            security.completed(&variables).map(|security| (security, variables.outweighed()))
        };
        let token = |security: &Security| security.token.as_ref().map(|token| token.text.to_string());
        let paths = |security: &Security| security.files.clone().map(|files| files.map(|file| file.path));

        let (found, outweighed) = resolve(Security::new(), &both).unwrap();
        assert_eq!(token(&found).as_deref(), Some("of-the-environment"));
        assert_eq!((paths(&found), outweighed), (Some(["/c".into(), "/k".into()]), vec![]));
        assert_eq!(found.settings(), [Some(TOKEN_VARIABLE), Some(CERTIFICATE_VARIABLE)]);

        let code = Security::new().token_by("Config::serve_token", TOKEN).tls("/own", "/own.key");
        let (kept, outweighed) = resolve(code.clone(), &both).unwrap();
        assert_eq!((token(&kept), paths(&kept)), (Some(TOKEN.to_owned()), Some(["/own".into(), "/own.key".into()])));
        let expected = [
            "Config::serve_token over PROFILER_SERVE_TOKEN",
            "Security::tls over PROFILER_SERVE_CERTIFICATE",
            "Security::tls over PROFILER_SERVE_KEY",
        ];
        assert_eq!(outweighed, expected);
        assert_eq!(resolve(code, &[(TOKEN_VARIABLE, " ")]).unwrap().1, [""; 0]);

        assert_eq!(resolve(Security::new(), &[(TOKEN_VARIABLE, "")]).unwrap().0.settings(), [None; 2]);
        for (set, missing) in [(&both[1], KEY_VARIABLE), (&both[2], CERTIFICATE_VARIABLE)] {
            let half = resolve(Security::new(), &[*set]).err().unwrap().to_string();
            assert!(half.starts_with(missing), "{half}");
        }
    }

    /// Check that what cannot be used is refused by the name of what set it: a token that is too short, a file that is not there.
    #[test]
    fn what_cannot_be_used_is_named_by_its_setting() {
        let found = |name: &str| {
            [(TOKEN_VARIABLE, "short"), (CERTIFICATE_VARIABLE, "/nowhere/c"), (KEY_VARIABLE, "/nowhere/k")]
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        };
        let of_variables = Security::new().or_variables(&found).unwrap();
        let of_code = Security::new().token("short").tls("/nowhere/c", "/nowhere/k");
        for (security, [token, certificate]) in
            [(of_variables, [TOKEN_VARIABLE, CERTIFICATE_VARIABLE]), (of_code, ["Security::token", "Security::tls"])]
        {
            let refused = security.checked_token().err().unwrap().to_string();
            assert!(refused.starts_with(token), "{refused}");
            let refused = security.acceptor().err().unwrap().to_string();
            assert!(refused.contains(certificate) && refused.contains("/nowhere/c"), "{refused}");
        }
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
