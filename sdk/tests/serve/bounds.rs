//! Clients that mean no good: endless heads, silence, more connections than there are places.

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
