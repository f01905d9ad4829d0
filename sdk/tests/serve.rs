//! The profile server over real TCP: every route, what each refuses, and clients that mean no good.
//!
//! A server runs on a thread of its own with a source that captures by waiting; clients are plain sockets, so that they
//! can send what no HTTP library would.

#![cfg(feature = "serve")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "outside of #[test] functions too, a test ends there")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flate2::read::GzDecoder;
use profiler::serve::{CaptureError, CaptureFuture, Server, Source, Store, Target};
use profiler_proto::loss::STACKS;
use profiler_proto::model::{Function, Kind, Line, Location, Stack};
use profiler_proto::{Limits, Profile, ProfileSet, Sample, pprof};
use serde_json::{Value, json};

/// A source that takes as long as it is told to, at most two captures at once.
#[derive(Default)]
struct Waiting {
    off: AtomicBool,
    running: Arc<AtomicUsize>,
}

impl Source for Waiting {
    fn targets(&self) -> Vec<Target> {
        vec![Target { service: "shop".into(), pid: std::process::id() }]
    }

    fn capture(&self, duration: Duration) -> CaptureFuture {
        let (off, running) = (self.off.load(Ordering::Relaxed), Arc::clone(&self.running));
        Box::pin(async move {
            if off {
                return Err(CaptureError::Off);
            }
            let place = Place::take(running).ok_or(CaptureError::TooMany)?;
            tokio::time::sleep(duration).await;
            drop(place);
            Ok(set(now(), duration.as_secs(), &[("main;captured", 7, &[])]))
        })
    }

    fn stats(&self) -> profiler::Stats {
        let mut stats = profiler::Stats::default();
        stats.sampling = !self.off.load(Ordering::Relaxed);
        stats.rate_hz = 100;
        stats.account.enter(10, 10, &profiler_proto::loss::Loss::default());
        stats.account.exported(4);
        stats
    }
}

/// One of the two places for captures, given back when the capture ends or is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(running: Arc<AtomicUsize>) -> Option<Self> {
        running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < 2).then_some(n + 1)).ok()?;
        Some(Self(running))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A stack `root;…;leaf`, its weight, its tags.
type Row<'a> = (&'a str, i64, &'a [(&'a str, &'a str)]);

/// A CPU profile at 100 Hz in which each stack weighs one period.
fn set(start: u64, seconds: u64, rows: &[Row<'_>]) -> ProfileSet {
    let mut set = ProfileSet::default();
    set.resource.set("process.executable.path", "/usr/bin/shop");
    let dictionary = &mut set.dictionary;
    let samples = rows.iter().map(|(path, value, tags)| {
        let locations = path.rsplit(';').map(|name| {
            let name = dictionary.strings.intern_str(name);
            let function = dictionary.functions.intern(Function { name, ..Function::default() });
            let lines = Box::from([Line { function, line: 0, column: 0 }]);
            let address = 0x1000 + dictionary.functions.len() as u64;
            dictionary.locations.intern(Location { address, lines, ..Location::default() })
        });
        let locations = locations.collect();
        let stack = dictionary.stacks.intern(Stack { locations });
        let tags: Vec<_> = tags.iter().map(|(key, value)| dictionary.attribute(key, *value)).collect();
        Sample { stack, attributes: dictionary.attribute_set(tags), value: *value, ..Sample::default() }
    });
    let samples = samples.collect();
    let stacks = dictionary.attribute(STACKS, rows.iter().map(|row| row.1).sum::<i64>());
    let profile = Profile {
        kind: Kind::cpu(dictionary, 10_000_000),
        time_unix_nanos: start * 1_000_000_000,
        duration_nanos: seconds * 1_000_000_000,
        attributes: dictionary.attribute_set([stacks]),
        samples,
    };
    set.profiles.push(profile);
    set
}

/// A store with two profiles of the last minute.
fn shop() -> Store {
    let store = Store::default();
    store.add(Arc::new(set(
        now() - 40,
        10,
        &[
            ("main;shop::orders;shop::sign", 30, &[("endpoint", "/orders"), ("method", "POST")]),
            ("main;shop::orders", 10, &[("endpoint", "/orders"), ("method", "GET")]),
        ],
    )));
    let rows: &[Row<'_>] = &[
        ("main;shop::search;core::str::find", 20, &[("endpoint", "/search"), ("method", "GET")]),
        ("main;tokio::runtime::park", 5, &[]),
    ];
    store.add(Arc::new(set(now() - 10, 10, rows)));
    store
}

/// A server that runs until the test binary ends.
struct Running {
    address: SocketAddr,
    source: Arc<Waiting>,
}

fn serve(store: Store) -> Running {
    let bound = Server::bind("127.0.0.1:0").unwrap();
    let (address, source, store) = (bound.local_addr(), Arc::new(Waiting::default()), Arc::new(store));
    let captures: Arc<dyn Source> = Arc::clone(&source) as Arc<dyn Source>;
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(bound.run(captures, store));
    });
    Running { address, source }
}

/// A response, its body as it came.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> Value {
        assert_eq!((self.status, self.header("content-type")), (200, Some("application/json")), "{}", self.text());
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends `request` and reads until the server closes.
    fn raw(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: bytes[end + 4..].to_vec() }
    }

    fn send(&self, method: &str, path: &str, headers: &str) -> Answer {
        self.raw(&format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n", self.address))
    }

    fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "")
    }
}

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

/// Check that `/api/profile` is the tree of the samples, in preorder, with all that the page shows beside it.
#[test]
fn the_profile_is_the_tree_of_the_samples() {
    let server = serve(shop());
    let answer = server.get("/api/profile?from=-120");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let json = answer.json();
    assert_eq!(json["kind"], json!({"type": "cpu", "unit": "nanoseconds", "period": 10_000_000, "rate_hz": 100}));
    assert_eq!(json["target"], json!({"service": "shop", "pid": std::process::id()}));
    assert_eq!(json["tags"], json!({"endpoint": ["/orders", "/search"], "method": ["GET", "POST"]}));
    assert_eq!((&json["samples"], &json["stacks"], &json["sum_squares"]), (&json!(65), &json!(65), &json!(65)));
    assert_eq!((&json["duration_ms"], &json["trimmed"], &json["version"]), (&json!(20_000), &json!(0), &json!(1)));
    assert_eq!(
        nodes(&json),
        [
            (0, "all", 0),
            (1, "main", 0),
            (2, "shop::orders", 10),
            (3, "shop::sign", 30),
            (2, "shop::search", 0),
            (3, "core::str::find", 20),
            (2, "tokio::runtime::park", 5),
        ]
    );
    let kinds: Vec<_> =
        ["main", "shop::sign", "core::str::find", "tokio::runtime::park"].map(|name| kind(&json, name)).into();
    assert_eq!(kinds, [("native", 3), ("shop", 0), ("core", 1), ("tokio", 2)]);
    assert_eq!((&json["stats"]["taken"], &json["debug_info"]), (&json!(10), &Value::Null));
}

/// The nodes as (depth, name, own weight).
fn nodes(json: &Value) -> Vec<(u64, &str, u64)> {
    let nodes = &json["nodes"];
    let number = |column: &str, node: usize| nodes[column][node].as_u64().unwrap();
    let name =
        |frame: u64| json["names"][json["frames"]["name"][frame as usize].as_u64().unwrap() as usize].as_str().unwrap();
    let count = nodes["depth"].as_array().unwrap().len();
    (0..count).map(|node| (number("depth", node), name(number("frame", node)), number("self", node))).collect()
}

/// Package and kind of a function.
fn kind<'a>(json: &'a Value, name: &str) -> (&'a str, u64) {
    let named = json["names"].as_array().unwrap().iter().position(|known| known == name).unwrap() as u64;
    let frame = json["frames"]["name"].as_array().unwrap().iter().position(|id| *id == named).unwrap();
    let package = json["frames"]["package"][frame].as_u64().unwrap() as usize;
    (json["packages"][package].as_str().unwrap(), json["frames"]["kind"][frame].as_u64().unwrap())
}

/// Check that ranges and tags choose samples: values of a key add up, keys narrow each other.
#[test]
fn ranges_and_tags_choose_samples() {
    let server = serve(shop());
    let samples = |query: &str| server.get(&format!("/api/profile?{query}")).json()["samples"].as_u64().unwrap();
    assert_eq!(samples("from=-120"), 65);
    assert_eq!(samples("from=-120&to=-25"), 40);
    assert_eq!(samples("from=-120&tag=endpoint%3D%2Forders"), 40);
    assert_eq!(samples("from=-120&tag=endpoint%3D/orders&tag=endpoint%3D/search"), 60);
    assert_eq!(samples("from=-120&tag=endpoint%3D/orders&tag=method%3DGET"), 10);
    assert_eq!(samples("tag=endpoint%3D/nowhere"), 0);
    let empty = server.get("/api/profile?from=-3600&to=-3000").json();
    assert_eq!((&empty["first"], nodes(&empty)), (&Value::Null, vec![(0, "all", 0)]));
}

/// Check that folded stacks and pprof files hold the samples that the tree holds.
#[test]
fn other_formats_hold_the_same_samples() {
    let server = serve(shop());
    let folded = server.get("/api/profile?from=-120&format=folded&tag=endpoint%3D/orders");
    assert_eq!(folded.text(), "main;shop::orders 10\nmain;shop::orders;shop::sign 30\n");
    let answer = server.get("/api/profile?from=-120&format=pprof&tag=endpoint%3D/orders");
    assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"profile\""));
    let file = pprof::decode(&answer.body, &Limits::default()).unwrap();
    let weight: i64 = file.profiles[0].samples.iter().map(|sample| sample.value).sum();
    assert_eq!(weight, 40);
}

/// Check that the table is that of the tree, as JSON and as text.
#[test]
fn the_table_is_that_of_the_tree() {
    let server = serve(shop());
    let json = server.get("/api/top?by=endpoint&from=-120&n=1").json();
    let hottest: Vec<_> = json["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            let first = &group["functions"][0];
            (
                group["value"].as_str(),
                group["samples"].as_u64().unwrap(),
                first["name"].as_str().unwrap(),
                first["self"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        hottest,
        [
            (Some("/orders"), 40, "shop::sign", 30),
            (Some("/search"), 20, "core::str::find", 20),
            (None, 5, "tokio::runtime::park", 5),
        ]
    );
    let text = server.get("/api/top?from=-120&n=1&format=text&tag=endpoint%3D/orders");
    let expected = "all  40 samples\n    self      ±    total   samples  function\n  75.00%   6.85   75.00%        30  shop::sign\n";
    assert_eq!(text.text(), expected);
    assert_eq!(server.get("/api/top?to=-3600&from=-7200&format=text&by=endpoint").text(), "no samples\n");
}

/// Check that the drawing is there with the feature, and that its absence is explained without.
#[test]
fn the_drawing_is_there_or_explained() {
    let answer = serve(shop()).get("/flamegraph.svg?from=-120");
    if cfg!(feature = "svg") {
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/svg+xml")));
        assert!(answer.text().contains("shop::sign (30 samples, 46.15%)"));
    } else {
        assert_eq!((answer.status, answer.text().contains("`svg`")), (404, true));
    }
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

/// Check that two captures at once both end, that a third is told to come back, and that none is made while off.
#[test]
fn two_captures_at_once_both_end() {
    let server = serve(shop());
    let started = Instant::now();
    thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| server.get("/debug/pprof/profile?seconds=2")));
        while server.source.running.load(Ordering::Relaxed) < 2 {
            thread::sleep(Duration::from_millis(5));
        }
        let third = server.get("/debug/pprof/profile?seconds=1");
        assert_eq!((third.status, third.header("retry-after")), (503, Some("30")));
        assert!(started.elapsed() < Duration::from_secs(2), "others are answered while captures run");
        for capture in both {
            let answer = capture.join().unwrap();
            assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/octet-stream")));
            let file = pprof::decode(&answer.body, &Limits::default()).unwrap();
            assert_eq!(file.profiles[0].samples.iter().map(|sample| sample.value).sum::<i64>(), 7);
        }
    });
    server.source.off.store(true, Ordering::Relaxed);
    let off = server.get("/debug/pprof/profile?seconds=1");
    assert_eq!((off.status, off.text().contains("off")), (503, true));
}

/// Check that a capture ends when its client goes, so that its place is free for the next.
#[test]
fn a_capture_ends_with_its_client() {
    let server = serve(shop());
    let mut stream = server.connect();
    write!(stream, "GET /debug/pprof/profile?seconds=300 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    while server.source.running.load(Ordering::Relaxed) == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    drop(stream);
    while server.source.running.load(Ordering::Relaxed) > 0 {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Check that the index names the profiles, and that the command line is this process's.
#[test]
fn the_index_names_the_profiles() {
    let server = serve(shop());
    let index = server.get("/debug/pprof/");
    assert!(index.text().contains("/debug/pprof/profile?seconds=30"));
    let line = server.get("/debug/pprof/cmdline");
    let own = std::fs::read("/proc/self/cmdline").unwrap();
    assert_eq!(line.body, own.strip_suffix(b"\0").unwrap());
}

/// Check that each parameter that cannot be is refused by name and value, with what is allowed.
#[test]
fn what_cannot_be_is_refused_by_name() {
    let server = serve(shop());
    for (path, parts) in [
        ("/debug/pprof/profile?seconds=0", ["\"seconds\" = \"0\"", "from 1 to 300"]),
        ("/debug/pprof/profile?seconds=301", ["\"seconds\" = \"301\"", "from 1 to 300"]),
        ("/debug/pprof/profile?seconds=ten", ["\"seconds\" = \"ten\"", "from 1 to 300"]),
        ("/debug/pprof/profile?second=1", ["\"second\" = \"1\"", "known: seconds"]),
        ("/debug/pprof/profile?seconds=1&seconds=2", ["\"seconds\" = \"2\"", "once"]),
        ("/debug/pprof/?debug=1", ["\"debug\" = \"1\"", "known: none"]),
        ("/debug/pprof/cmdline?x", ["\"x\" = \"\"", "known: none"]),
        ("/api/profile?from=yesterday", ["\"from\" = \"yesterday\"", "seconds since 1970"]),
        ("/api/profile?to=%zz", ["\"to\" = \"%zz\"", "UTF-8"]),
        ("/api/profile?from=-10&to=-20", ["\"from\" = \"-10\"", "behind `to`"]),
        ("/api/profile?tag=endpoint", ["\"tag\" = \"endpoint\"", "key=value"]),
        ("/api/profile?format=xml", ["\"format\" = \"xml\"", "json, pprof, folded"]),
        ("/api/profile?kind=heap", ["\"kind\" = \"heap\"", "known: from, to, tag, format"]),
        ("/api/top?n=0", ["\"n\" = \"0\"", "from 1 to 1000"]),
        ("/api/top?format=csv", ["\"format\" = \"csv\"", "json, text"]),
        ("/flamegraph.svg?width=9", ["\"width\" = \"9\"", "known: from, to, tag"]),
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
    assert_eq!(paths.len(), 9);
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
