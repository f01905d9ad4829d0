//! The headers that code sets: by their names, or as credentials and tenant.
//!
//! In: what the builder of a destination is told. Out: the headers, checked. Values are secrets: neither `Debug` nor an
//! error repeats them.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::settings::set_header;
use crate::error::Error;

/// Names the tenant to Mimir's family, of which Pyroscope is one. Source: Pyroscope's documentation, "Configure tenant IDs".
pub(super) const TENANT: &str = "x-scope-orgid";

/// Headers in the order in which they were set.
#[derive(Clone, Default)]
pub(super) struct Headers(Vec<Header>);

#[derive(Clone)]
enum Header {
    Named { name: String, value: String },
    BasicAuth { user: String, password: String },
    BearerToken(String),
    Tenant(String),
}

impl Headers {
    pub(super) fn set(&mut self, name: String, value: String) {
        self.0.push(Header::Named { name, value });
    }

    pub(super) fn set_basic_auth(&mut self, user: String, password: String) {
        self.0.push(Header::BasicAuth { user, password });
    }

    pub(super) fn set_bearer_token(&mut self, token: String) {
        self.0.push(Header::BearerToken(token));
    }

    pub(super) fn set_tenant(&mut self, id: String) {
        self.0.push(Header::Tenant(id));
    }

    /// These headers, of the same name the last; `builder` is the type whose methods set them.
    ///
    /// # Errors
    /// If one cannot be; named by the method that set it.
    pub(super) fn checked(&self, builder: &str) -> Result<HeaderMap, Error> {
        self.checked_as(|method| format!("{builder}::{method}"))
    }

    /// The same, where `setting` gives the name of what set a header from that of the method here.
    pub(super) fn checked_as(&self, setting: impl Fn(&str) -> String) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        for header in &self.0 {
            let setting = setting(header.method());
            let value = header.value().map_err(|why| Error::setting(&setting, header.name(), why, SECRET))?;
            set_header(&mut headers, &setting, header.name(), &value)?;
        }
        Ok(headers)
    }
}

const SECRET: &str = "give it as it was issued, without white space or line end";

impl Header {
    fn name(&self) -> &str {
        match self {
            Self::Named { name, .. } => name,
            Self::BasicAuth { .. } | Self::BearerToken(_) => AUTHORIZATION.as_str(),
            Self::Tenant(_) => TENANT,
        }
    }

    fn method(&self) -> &'static str {
        match self {
            Self::Named { .. } => "header",
            Self::BasicAuth { .. } => "basic_auth",
            Self::BearerToken(_) => "bearer_token",
            Self::Tenant(_) => "tenant",
        }
    }

    /// Source: RFC 7617 (a user's name ends at the first colon), RFC 6750 (of what a token is made).
    fn value(&self) -> Result<String, &'static str> {
        match self {
            Self::Named { value, .. } => Ok(value.clone()),
            Self::BasicAuth { user, .. } if user.is_empty() => Err("the user is empty"),
            Self::BasicAuth { user, .. } if user.contains(':') => {
                Err("the user holds a colon, where its name would end")
            }
            Self::BasicAuth { user, password } if format!("{user}{password}").contains(char::is_control) => {
                Err("user or password holds a control character, such as a newline")
            }
            Self::BasicAuth { user, password } => {
                Ok(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
            }
            Self::BearerToken(secret) | Self::Tenant(secret) if secret.is_empty() => Err("it is empty"),
            Self::BearerToken(secret) | Self::Tenant(secret) if !secret.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err("it holds white space, or a character that is not ASCII")
            }
            Self::BearerToken(token) => Ok(format!("Bearer {token}")),
            Self::Tenant(id) => Ok(id.clone()),
        }
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(Header::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(header: Header) -> Headers {
        Headers(vec![header])
    }

    fn basic_auth(user: &str, password: &str) -> Headers {
        only(Header::BasicAuth { user: user.into(), password: password.into() })
    }

    /// Check the headers that credentials and tenants become, the last one of a name being in force.
    ///
    /// Source of the first: RFC 7617, section 2.
    #[test]
    fn credentials_and_tenants_are_headers() {
        let value = |headers: &Headers, name| headers.checked("Otlp").unwrap()[name].to_str().unwrap().to_owned();
        let mut headers = basic_auth("Aladdin", "open sesame");
        assert_eq!(value(&headers, "authorization"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        headers.set_bearer_token("glc_x.y-z=".into());
        headers.set_tenant("team-a|team-b".into());
        assert_eq!(value(&headers, "authorization"), "Bearer glc_x.y-z=");
        assert_eq!(value(&headers, "X-Scope-OrgID"), "team-a|team-b");
        headers.set("x-scope-orgid".into(), "c".into());
        assert_eq!(value(&headers, "X-Scope-OrgID"), "c");
        assert_eq!(value(&basic_auth("1", ""), "authorization"), "Basic MTo=");
    }

    /// Check that what cannot be is refused by the method that set it, and that no secret is repeated, nor by `Debug`.
    #[test]
    fn bad_credentials_are_refused_by_name() {
        let cases = [
            (basic_auth("", "hunter2"), "Otlp::basic_auth", "the user is empty"),
            (basic_auth("a:b", "hunter2"), "Otlp::basic_auth", "colon"),
            (basic_auth("a", "hunter2\n"), "Otlp::basic_auth", "control character"),
            (only(Header::BearerToken(String::new())), "Otlp::bearer_token", "it is empty"),
            (only(Header::BearerToken("hunter2\n".into())), "Otlp::bearer_token", "white space"),
            (only(Header::BearerToken("hunter2é".into())), "Otlp::bearer_token", "not ASCII"),
            (only(Header::Tenant(String::new())), "Otlp::tenant", "it is empty"),
            (only(Header::Tenant("hunter2 ".into())), "Otlp::tenant", "white space"),
        ];
        for (headers, method, why) in cases {
            let error = headers.checked("Otlp").unwrap_err().to_string();
            assert!(error.starts_with(method) && error.contains(why) && error.contains("; "), "{error}");
            assert!(!format!("{error} {headers:?}").contains("hunter2"), "{error} {headers:?}");
        }
    }
}
