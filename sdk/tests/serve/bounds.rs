//! Clients that mean no good: endless heads, silence, more connections than there are places.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::client::serve;
use crate::samples::shop;

/// Check that heads beyond the bounds are refused: too long, too many headers, not HTTP.
#[test]
fn heads_beyond_the_bounds_are_refused() {
    let server = serve(shop());
    let long = server.send("GET", "/stats", &format!("X: {}\r\n", "y".repeat(100_000)));
    assert_eq!(long.status, 431);
    let many = (0..200).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    assert_eq!(server.send("GET", "/stats", &many).status, 431);
    let path = server.get(&format!("/{}", "x".repeat(100_000)));
    assert!(path.status == 414 || path.status == 431, "{}", path.status);
    assert_eq!(server.raw("\u{16}\u{3}\u{1}\r\n\r\n").status, 400);
    assert_eq!(server.get("/healthz").status, 200);
}

/// Check that clients that send their head byte by byte, or never read, are no concern of the others, and that more
/// connections than there are places come to their turn.
#[test]
fn slow_clients_do_not_hold_up_others() {
    let server = serve(shop());
    let mut slow: Vec<TcpStream> = (0..60).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /healthz HT").unwrap();
    }
    let started = Instant::now();
    assert_eq!(server.get("/healthz").status, 200);
    assert!(started.elapsed() < Duration::from_secs(5));
    let more: Vec<TcpStream> = (0..60).map(|_| server.connect()).collect();
    // All places are taken now by clients that say nothing: they lose them in time.
    assert_eq!(server.get("/healthz").status, 200);
    let mut end = Vec::new();
    slow[0].read_to_end(&mut end).unwrap();
    assert!(end.is_empty() || end.starts_with(b"HTTP/1.1 408"), "a head that never ends is cut off");
    drop(more);
}

/// Check that one connection after another does not use up the server, be they ten thousand, of which hundreds stay open.
#[test]
fn ten_thousand_connections_lock_nobody_out() {
    let server = serve(shop());
    let mut open = VecDeque::new();
    for number in 0..10_000 {
        let mut stream = server.connect();
        if number % 3 == 0 {
            // Whoever has lost the seat by now may see that as an error.
            drop(stream.write_all(b"GET /stats HTTP/1.1\r\nHost: localhost\r\n"));
        }
        open.push_back(stream);
        if open.len() > 300 {
            open.pop_front();
        }
        // Also, so that the system's queue of connections is never full.
        if number % 64 == 63 {
            assert_eq!(server.get("/healthz").status, 200, "{number}");
        }
    }
}

/// Check that requests sent at once are answered in their order, those of HTTP/1.0 one a connection, and that bodies that nobody asked for are
/// not waited for.
#[test]
fn requests_sent_at_once_are_answered_in_order() {
    let server = serve(shop());
    let mut stream = server.connect();
    let one = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let last = "GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all([one("/healthz").repeat(50), one("/stats"), last.to_owned()].concat().as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let statuses: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, [["200"; 51].as_slice(), &["404"]].concat());
    let old = server.raw("GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!((old.status, old.text()), (200, "ok\n"));
    let long = server.raw("POST /stats HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000000\r\n\r\nx");
    assert_eq!(long.status, 405);
    let with_body =
        server.raw("GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\nx");
    assert_eq!(with_body.status, 200);
    let mut other = server.connect();
    other.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert_eq!(other.read_to_end(&mut Vec::new()).unwrap(), 0);
}
