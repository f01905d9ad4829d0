//! What is not answered, and how that is said.

use std::time::{Duration, Instant};

use crate::client::serve;
use crate::samples::shop;

/// Check that each parameter that cannot be is refused by name and value, with what is allowed.
#[test]
fn what_cannot_be_is_refused_by_name() {
    let server = serve(shop());
    for (path, parts) in [
        ("/debug/pprof/profile?seconds=0", ["\"seconds\" = \"0\"", "from 1 to 300"]),
        ("/debug/pprof/heap?seconds=0", ["\"seconds\" = \"0\"", "from 1 to 300"]),
        ("/debug/pprof/allocs?seconds=-1", ["\"seconds\" = \"-1\"", "from 1 to 300"]),
        ("/debug/pprof/profile?seconds=301", ["\"seconds\" = \"301\"", "from 1 to 300"]),
        ("/debug/pprof/profile?seconds=ten", ["\"seconds\" = \"ten\"", "from 1 to 300"]),
        ("/debug/pprof/profile?seconds=NaN", ["\"seconds\" = \"NaN\"", "from 1 to 300"]),
        ("/debug/pprof/profile?seconds=inf", ["\"seconds\" = \"inf\"", "from 1 to 300"]),
        ("/debug/pprof/profile?seconds=1.5", ["\"seconds\" = \"1.5\"", "from 1 to 300"]),
        ("/debug/pprof/profile?seconds=99999999999999999999", ["\"9999", "from 1 to 300"]),
        ("/debug/pprof/threads?seconds=-9223372036854775808", ["\"-9223372036854775808\"", "from 1 to 300"]),
        ("/debug/pprof/profile?second=1", ["\"second\" = \"1\"", "known: seconds"]),
        ("/debug/pprof/profile?seconds=1&seconds=2", ["\"seconds\" = \"2\"", "once"]),
        ("/debug/pprof/?debug=1", ["\"debug\" = \"1\"", "known: none"]),
        ("/debug/pprof/cmdline?x", ["\"x\" = \"\"", "known: pid"]),
        ("/api/profile?from=yesterday", ["\"from\" = \"yesterday\"", "seconds since 1970"]),
        ("/api/profile?to=%zz", ["\"to\" = \"%zz\"", "UTF-8"]),
        ("/api/profile?from=-10&to=-20", ["\"from\" = \"-10\"", "behind `to`"]),
        ("/api/profile?tag=endpoint", ["\"tag\" = \"endpoint\"", "key=value"]),
        ("/api/profile?format=xml", ["\"format\" = \"xml\"", "json, pprof, folded"]),
        ("/api/profile?kind=heap", ["\"kind\" = \"heap\"", "known: from, to, tag, type, growth, service, pid, format"]),
        (
            "/api/profile?type=goroutine",
            ["\"type\" = \"goroutine\": there are no such profiles: Go's", "there are: cpu\n"],
        ),
        ("/api/profile?type=goroutines", ["\"type\" = \"goroutines\": there are: cpu", "there are: cpu\n"]),
        ("/api/profile?pid=-1", ["\"pid\" = \"-1\"", "from 0 to 4294967295"]),
        ("/debug/pprof/profile?pid=x", ["\"pid\" = \"x\"", "from 0 to 4294967295"]),
        ("/debug/pprof/block?seconds=0", ["\"seconds\" = \"0\"", "from 1 to 300"]),
        ("/api/profile?type=", ["\"type\" = \"\"", "there are: cpu\n"]),
        ("/api/profile?type=inuse_space", ["no heap profiles, /stats says why at heap.notes", "there are: cpu\n"]),
        ("/api/profile?type=cpu&type=cpu", ["\"type\" = \"cpu\"", "once"]),
        ("/api/profile?growth", ["\"growth\" = \"\"", "type=inuse_space"]),
        ("/api/profile?growth=yes", ["\"growth\" = \"yes\"", "1, 0, or nothing"]),
        ("/api/top?type=alloc_space", ["\"type\" = \"alloc_space\"", "there are: cpu\n"]),
        ("/api/top?type=%00", ["\"type\" = \"\\0\"", "there are: cpu\n"]),
        ("/api/top?n=0", ["\"n\" = \"0\"", "from 1 to 1000"]),
        ("/api/top?format=csv", ["\"format\" = \"csv\"", "json, text"]),
        ("/flamegraph.svg?width=9", ["\"width\" = \"9\"", "known: from, to, tag, type, growth, service, pid"]),
        ("/stats?pretty=1", ["\"pretty\" = \"1\"", "known: none"]),
        ("/healthz?verbose", ["\"verbose\" = \"\"", "known: none"]),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 400, "{path}");
        assert!(parts.iter().all(|part| answer.text().contains(part)), "{path}: {}", answer.text());
    }
}

/// Check that unknown paths list the known ones, and that each of those is answered.
#[test]
fn an_unknown_path_lists_the_known_ones() {
    let server = serve(shop());
    let answer = server.get("/metrics");
    assert_eq!(answer.status, 404);
    let paths: Vec<&str> =
        answer.text().lines().filter(|line| line.starts_with('/')).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(paths.len(), 15);
    for path in paths {
        let method = if path == "/debug/pprof/profile" { "HEAD" } else { "GET" };
        let answer = server.send(method, path, "");
        assert!(answer.status == 200 || !answer.text().contains("is not here"), "{path}");
    }
}

/// Check that only GET and HEAD are answered, and HEAD without a body or a capture.
#[test]
fn only_get_and_head_are_answered() {
    let server = serve(shop());
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let answer = server.send(method, "/stats", "Content-Length: 0\r\n");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let head = server.send("HEAD", "/stats", "");
    let length: usize = head.header("content-length").unwrap().parse().unwrap();
    assert_eq!((head.status, head.body.len(), length > 100), (200, 0, true));
    let started = Instant::now();
    assert_eq!(server.send("HEAD", "/debug/pprof/profile?seconds=300", "").status, 200);
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// Check that a name that is not this machine's is refused, so that no foreign page can read profiles by rebinding.
#[test]
fn a_foreign_name_is_refused() {
    let server = serve(shop());
    for host in ["evil.example", "evil.example:6060", "10.0.0.1:6060"] {
        let answer = server.raw(&format!("GET /stats HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert_eq!(answer.status, 403, "{host}");
        assert!(answer.text().contains(host) && answer.text().contains(&server.address.to_string()));
    }
    for host in ["localhost:1", "shop.localhost", "[::1]:6060", "127.0.0.1"] {
        let answer = server.raw(&format!("GET /stats HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert_eq!(answer.status, 200, "{host}");
    }
    let absolute = "GET http://evil.example/stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(server.raw(absolute).status, 403);
}

/// Check that what a foreign page has a browser ask for is refused and captures nothing, that links to here work, and that nobody is told that other
/// origins may ask.
#[test]
fn a_foreign_page_captures_nothing() {
    let server = serve(shop());
    let image = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n";
    for headers in [image, "Origin: https://evil.example\r\n", "Origin: null\r\n"] {
        let answer = server.send("GET", "/debug/pprof/profile?seconds=300", headers);
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, None), "{headers}");
    }
    assert!(server.source.asked.lock().unwrap().is_empty());
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    assert_eq!(server.send("GET", "/", link).status, 200);
    let preflight = "Origin: https://evil.example\r\nAccess-Control-Request-Method: GET\r\n";
    assert_eq!(server.send("OPTIONS", "/stats", preflight).header("access-control-allow-origin"), None);
}

/// Check that paths that climb, in whatever writing, lead to nothing of the machine's.
#[test]
fn paths_lead_nowhere_else() {
    let server = serve(shop());
    for path in [
        "/../../../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/debug/pprof/../../../etc/passwd",
        "/debug/pprof/cmdline/../../../proc/self/environ",
        "/main.js%00",
        "/.",
        "/\\etc\\passwd",
    ] {
        let answer = server.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
        assert!(!answer.text().contains("root:"), "{path}");
    }
}
