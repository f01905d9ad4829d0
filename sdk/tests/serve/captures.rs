//! `/debug/pprof/*`: captures on demand.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use profiler_proto::{Limits, pprof};

use crate::client::serve;
use crate::samples::shop;

/// Check that two captures at once both end, that a third is told to come back, and that none is made while off.
#[test]
fn two_captures_at_once_both_end() {
    let server = serve(shop());
    thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| server.get("/debug/pprof/profile?seconds=5")));
        while server.source.running.load(Ordering::Relaxed) < 2 {
            thread::sleep(Duration::from_millis(5));
        }
        let third = server.get("/debug/pprof/profile?seconds=1");
        assert_eq!((third.status, third.header("retry-after")), (503, Some("30")));
        assert_eq!(server.source.running.load(Ordering::Relaxed), 2, "others are answered while captures run");
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

/// Check that a source without heap profiles says so, and where to look.
#[test]
fn a_heap_that_is_not_profiled_is_not_found() {
    let server = serve(shop());
    for path in ["/debug/pprof/heap", "/debug/pprof/allocs?debug=0", "/debug/pprof/heap?gc=1"] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.text().contains("/stats")), (404, true), "{path}");
    }
}

/// Check that what was allocated stays at its stack from one end of a change of the heap to the other, and not for longer.
#[test]
fn stacks_keep_their_figures_during_a_change() {
    let server = serve(shop());
    server.source.heap.store(true, Ordering::Relaxed);
    for path in ["/debug/pprof/heap?seconds=1", "/debug/pprof/heap"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    assert_eq!(*server.source.kept_at.lock().unwrap(), [1, 1, 0]);
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
    assert!(index.text().contains("href=\"profile?seconds=30\""));
    let bare = server.get("/debug/pprof");
    assert_eq!((bare.status, bare.header("location")), (308, Some("pprof/")));
    let line = server.get("/debug/pprof/cmdline");
    let own = std::fs::read("/proc/self/cmdline").unwrap();
    assert_eq!(line.body, own.strip_suffix(b"\0").unwrap());
}

/// Check that of many who ask for the heap at once one is looked after at a time, and that all get it.
#[test]
fn looks_at_the_heap_wait_for_their_turn() {
    let server = serve(shop());
    server.source.heap.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let all: Vec<_> = (0..32).map(|_| scope.spawn(|| server.get("/debug/pprof/heap").status)).collect();
        assert!(all.into_iter().all(|one| one.join().unwrap() == 200));
    });
    assert_eq!(server.source.most_looks.load(Ordering::Relaxed), 1);
}
