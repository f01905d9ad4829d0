//! The page, the account, and what HTTP offers beside: tags, compression, several requests on a connection.

use std::io::Read;
use std::sync::atomic::Ordering;

use flate2::read::GzDecoder;
use serde_json::json;

use crate::client::serve;
use crate::samples::shop;

/// Check that the page and its parts are there, with tags that spare a second transfer, and may load nothing from
/// elsewhere.
#[test]
fn the_page_comes_from_here_alone() {
    let server = serve(shop());
    let page = server.get("/?from=-60&s=whatever");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    for part in page.text().split('"').filter(|text| text.ends_with(".js") || text.ends_with(".css")) {
        assert_eq!(server.get(&format!("/{part}")).status, 200, "{part}");
    }
    let again = server.send("GET", "/", &format!("If-None-Match: {}\r\n", page.header("etag").unwrap()));
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(server.send("GET", "/", "If-None-Match: \"other\"\r\n").status, 200);
}

/// Check that the account and the health are told, and that a paused profiler is not healthy.
#[test]
fn account_and_health_are_told() {
    let server = serve(shop());
    let stats = server.get("/stats").json();
    assert_eq!((&stats["taken"], &stats["exported"], &stats["pending"]), (&json!(10), &json!(4), &json!(6)));
    assert_eq!((&stats["sampling"], &stats["rate_hz"]), (&json!(true), &json!(100)));
    assert_eq!((server.get("/healthz").status, server.get("/healthz").text()), (200, "ok\n"));
    server.source.off.store(true, Ordering::Relaxed);
    assert_eq!(server.get("/healthz").status, 503);
}

/// Check that compression is used where it is asked for, and gives the same bytes.
#[test]
fn compression_gives_the_same_bytes() {
    let server = serve(shop());
    let plain = server.get("/page.css");
    let packed = server.send("GET", "/page.css", "Accept-Encoding: br, gzip\r\n");
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), (None, Some("gzip")));
    assert_eq!(packed.header("vary"), Some("accept-encoding"));
    let mut unpacked = Vec::new();
    GzDecoder::new(packed.body.as_slice()).read_to_end(&mut unpacked).unwrap();
    assert!(packed.body.len() < plain.body.len());
    assert_eq!(unpacked, plain.body);
}

/// Check that a connection serves several requests.
#[test]
fn a_connection_serves_several_requests() {
    let server = serve(shop());
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n", server.address);
    let answer = server.raw(&format!("{request}\r\n{request}\r\n{request}Connection: close\r\n\r\n"));
    let text = format!("{}{}", answer.head, answer.text());
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3);
}
