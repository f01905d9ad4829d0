//! Where a program serves its profiles, as settings say it.
//!
//! In: an address as a person writes it. Out: an [`Endpoint`] that can be asked, or what is wrong with it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

use super::Tls;

/// Where profiles are served, and how to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether over TLS.
    pub(super) is_secure: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// What stands before `/debug/pprof/`.
    pub(super) base: String,
    /// Sent with each request; never shown.
    pub(super) headers: HeaderMap,
    pub(super) tls: Tls,
    /// `service.name` of what is served there, where the process cannot be found by its port.
    pub service: Option<String>,
}

impl Endpoint {
    /// An endpoint by its address: `http://127.0.0.1:6060`, with or without `/debug/pprof/` behind it.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn new(address: &str) -> Result<Self, String> {
        let uri: Uri = address.parse().map_err(|error| format!("it is no address: {error}"))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("it begins with neither http:// nor https://".into()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or("it names no host")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("a password in an address is seen by everybody: set headers instead".into());
        }
        if uri.query().is_some() {
            return Err("what stands behind the ? would not be sent: leave it away, and set headers for a token".into());
        }
        let path = uri.path().trim_end_matches('/');
        let base = path.strip_suffix("/debug/pprof").unwrap_or(path).to_owned();
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let (headers, tls, service) = Default::default();
        Ok(Self { is_secure, host, port, base, headers, tls, service })
    }

    /// The same, with a header on each request.
    ///
    /// # Errors
    /// When it cannot be one.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, String> {
        // Not shown: what stands there may be a value (`Authorization: Bearer …`).
        let name: HeaderName = name.parse().map_err(|_| "a header has a name that none can have")?;
        let mut value: HeaderValue =
            value.parse().map_err(|_| format!("what stands for {name} cannot be the value of a header"))?;
        if RESERVED.contains(&name) {
            return Err(format!(
                "{name} is not for settings: it says where a message ends, or how its connection goes on"
            ));
        }
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// The same, with TLS as `tls` says.
    ///
    /// # Errors
    /// When something is said that has no meaning: for an address without TLS, or together with what else is said.
    pub fn over(self, tls: Tls) -> Result<Self, String> {
        if !self.is_secure && !tls.is_default() {
            return Err("`ca`, `cert`, `key`, `server_name` and `insecure` are for https (of `discover`: with `scheme = \"https\"`)".into());
        }
        if tls.is_unverified && (tls.authorities.is_some() || tls.server_name.is_some()) {
            return Err("`insecure` looks at no certificate: leave it, or `ca` and `server_name`, away".into());
        }
        Ok(Self { tls, ..self })
    }

    /// The same, at this address.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port(), ..self.clone() }
    }

    /// The same, called so where nothing else says how.
    #[must_use]
    pub fn called(self, service: String) -> Self {
        Self { service: Some(service), ..self }
    }

    /// The addresses of this machine that it stands for, in the order in which they are tried; none, where it is another one's, or a name that has to be
    /// looked up ([`super::Puller::locate`]).
    #[must_use]
    pub fn local(&self) -> Vec<SocketAddr> {
        let (four, six) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
        let ips = match self.host.parse::<IpAddr>() {
            // What is meant for any address, Linux sends to the loopback; that may have no IPv6.
            Ok(ip) if ip.is_unspecified() && ip.is_ipv6() => vec![six, four],
            Ok(ip) if ip.is_unspecified() => vec![four],
            Ok(ip) if is_ours(ip) => vec![ip],
            Err(_) if self.host == "localhost" => vec![four, six],
            _ => Vec::new(),
        };
        ips.into_iter().map(|ip| SocketAddr::new(ip, self.port)).collect()
    }

    /// For people: without what is secret.
    #[must_use]
    pub fn name(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.base)
    }

    /// Host and port, as in the header `Host`.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Headers that say how a message is delimited, or how the connection goes on.
const RESERVED: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Whether this machine has the address: what it sends there, it sends from there. That a socket can be bound to it says nothing, where
/// `net.ipv4.ip_nonlocal_bind` is set. Nothing is sent.
pub fn is_ours(ip: IpAddr) -> bool {
    let any = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv6Addr::UNSPECIFIED) };
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Any port does, but for 0.
        socket.connect((ip, 9))?;
        socket.local_addr()
    };
    ip.is_loopback() || from().is_ok_and(|from| from.ip() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_the_path_of_profiles_or_not() {
        for (address, name) in [
            ("http://127.0.0.1:6060", "http://127.0.0.1:6060"),
            ("http://127.0.0.1:6060/debug/pprof/", "http://127.0.0.1:6060"),
            ("https://shop.example/admin/debug/pprof", "https://shop.example:443/admin"),
            ("http://[::1]:6060/", "http://[::1]:6060"),
        ] {
            assert_eq!(Endpoint::new(address).unwrap().name(), name);
        }
        let local = |address| Endpoint::new(address).unwrap().local();
        let both: Vec<SocketAddr> = ["127.0.0.1:6060", "[::1]:6060"].map(|address| address.parse().unwrap()).into();
        assert_eq!(["http://localhost:6060", "http://0.0.0.0:6060"].map(local), [both.clone(), vec![both[0]]]);
        assert_eq!(local("http://[::]:6060"), [both[1], both[0]]);
        // Of the last two, one is for documentation, and one a name.
        let one = ["http://[::1]:6060", "http://192.0.2.1:6060", "http://shop.example:6060"].map(local);
        assert_eq!(one, [vec![both[1]], vec![], vec![]]);
    }

    /// Check that an address that is not ours is told so where sockets may be bound to any: in a network of its own, where nobody else is told of that.
    #[test]
    fn an_address_that_is_bound_is_not_ours_for_that() {
        let script = "echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind && exec \"$0\" --exact \"$1\"";
        let test = "pull::endpoint::tests::an_address_may_have_the_path_of_profiles_or_not";
        let mut run = std::process::Command::new("unshare");
        run.args(["--net", "sh", "-c", script]).arg(std::env::current_exe().unwrap()).arg(test);
        let output = run.output().unwrap();
        let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        // A test that was run says so.
        if !said[0].contains("running 1 test") {
            println!("NOT RUN: no network of its own can be made by this user here: {}", said[1]);
            return;
        }
        assert!(output.status.success(), "{said:?}");
    }

    #[test]
    fn what_is_no_endpoint_is_refused_and_secrets_are_not_shown() {
        for address in ["127.0.0.1:6060", "ftp://a", "http://", "http://a:b@c", "http:// ", "http://a?token=b"] {
            assert!(Endpoint::new(address).is_err(), "{address}");
        }
        let endpoint = Endpoint::new("http://a:1").unwrap().header("authorization", "Bearer hidden").unwrap();
        assert!(!format!("{endpoint:?}").contains("hidden"));
        assert!(endpoint.clone().header("x y", "1").is_err());
        for name in ["Content-Length", "transfer-encoding", "connection"] {
            let why = endpoint.clone().header(name, "1").unwrap_err();
            assert!(why.contains(&name.to_lowercase()) && why.contains("not for settings"), "{why}");
        }
    }
}
