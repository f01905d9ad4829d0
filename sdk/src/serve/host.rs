//! Whether a request is meant for this server: the guard against foreign pages in the user's browser.
//!
//! In: a request and the address that is listened on. Out: yes, or why not. A page of a foreign site can make
//! a browser believe that the site's name has this machine's address, and would then read profiles as its own (DNS rebinding); but the
//! browser still sends that name. On an address that others can reach, any name is right and no guard helps. And a page can have the browser ask, with
//! the user's password, for what it cannot read: captures cost all the same. Browsers say where such requests come from.

use std::net::{IpAddr, SocketAddr};

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};

/// `Ok`, or the foreign name that the request was sent to.
pub(super) fn check(request: &Parts, listening: SocketAddr) -> Result<(), String> {
    if !listening.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let foreign = |name: &&str| !is_local(name, listening.ip());
    let mut named = request.uri.authority().map(Authority::as_str).into_iter().chain(names(&request.headers));
    match named.find(foreign) {
        Some(name) => Err(name.chars().take(80).collect()),
        None => Ok(()),
    }
}

/// What a browser says of the page that made it send this request, if that is a foreign one's: where from. Following a link is the user's doing.
pub(super) fn foreign_page(headers: &HeaderMap<HeaderValue>) -> Option<&str> {
    let says = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_link = says("sec-fetch-mode") == Some("navigate") && says("sec-fetch-dest") == Some("document");
    match says("sec-fetch-site") {
        Some("same-origin" | "none") => None,
        Some(site) => (!is_link).then_some(site),
        // Browsers before 2023.
        None => says("origin").filter(|origin| Some(without_scheme(origin)) != says("host")),
    }
}

fn without_scheme(origin: &str) -> &str {
    origin.split_once("://").map_or(origin, |(_, authority)| authority)
}

/// What the `Host` headers say; one that is no text is a name that nobody has.
fn names(headers: &HeaderMap<HeaderValue>) -> impl Iterator<Item = &str> + '_ {
    headers.get_all(HOST).iter().map(|value| value.to_str().unwrap_or("?"))
}

/// Whether `name`, with or without a port, is a name of this machine that DNS has no say in.
fn is_local(name: &str, bound: IpAddr) -> bool {
    let name = without_port(name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) => address.to_canonical().is_loopback() || address == bound,
        // RFC 6761 §6.3: browsers answer these themselves.
        Err(_) => name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost"),
    }
}

fn without_port(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn allows(host: &str, listening: &str) -> bool {
        let (parts, ()) = Request::builder().header(HOST, host).body(()).unwrap().into_parts();
        check(&parts, listening.parse().unwrap()).is_ok()
    }

    /// Check that only names that cannot be rebound pass on a loopback address.
    #[test]
    fn only_names_of_this_machine_pass() {
        for host in
            ["127.0.0.1:6060", "127.0.0.1", "localhost:6060", "LOCALHOST", "shop.localhost", "[::1]:6060", "127.9.9.9"]
        {
            assert!(allows(host, "127.0.0.1:6060") && allows(host, "[::1]:6060"), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:6060",
            "localhost.evil.example",
            "10.0.0.1",
            "",
            "127.0.0.1.evil.example",
            "[::2]",
            "é",
        ] {
            assert!(!allows(host, "127.0.0.1:6060"), "{host}");
        }
    }

    /// Check that what a foreign page has a browser ask for is told from what the user does and from what is no browser's, by the headers that browsers
    /// send (W3C "Fetch Metadata Request Headers", §2; RFC 6454 §7).
    #[test]
    fn requests_of_foreign_pages_are_told() {
        let asks = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost:6060"))]);
            pairs.iter().for_each(|(name, value)| drop(headers.insert(*name, HeaderValue::from_static(value))));
            foreign_page(&headers).map(str::to_owned)
        };
        let fetched =
            |site, mode, dest| asks(&[("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]);
        assert_eq!(asks(&[]), None, "no browser");
        for site in ["none", "same-origin"] {
            assert_eq!(fetched(site, "no-cors", "image"), None, "{site}");
            assert_eq!(asks(&[("sec-fetch-site", site), ("origin", "https://behind.a.proxy")]), None);
        }
        for site in ["cross-site", "same-site", "anything"] {
            assert_eq!(fetched(site, "navigate", "document"), None, "a link");
            for (mode, dest) in [("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")] {
                assert_eq!(fetched(site, mode, dest).as_deref(), Some(site), "{mode} {dest}");
            }
        }
        assert_eq!(asks(&[("origin", "http://localhost:6060")]), None);
        for origin in ["http://localhost:3000", "https://evil.example", "null"] {
            assert_eq!(asks(&[("origin", origin)]).as_deref(), Some(origin));
        }
    }

    /// Check that an absolute target is looked at too, and that an address others can reach has any name.
    #[test]
    fn an_absolute_target_is_looked_at() {
        let (parts, ()) = Request::get("http://evil.example/").header(HOST, "localhost").body(()).unwrap().into_parts();
        assert_eq!(check(&parts, ([127, 0, 0, 1], 6060).into()), Err("evil.example".to_owned()));
        assert!(allows("shop.example", "0.0.0.0:6060"));
    }
}
