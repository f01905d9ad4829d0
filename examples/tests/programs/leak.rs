//! The shop's leak, found as docs/heap.md finds it, with `go tool pprof` on what the shop serves.
//!
//! In: the shop with `--leak` under its load. Out: the function and the tenant that the viewer names.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{PATIENCE, Program, ask};

/// So many bytes are leaked before anybody looks.
const LEAKED: u64 = 5 << 19;

/// What `go tool pprof` writes about a profile.
fn pprof(options: &[&str], url: &str) -> String {
    let mut command = Command::new("go");
    // Names are in the file; nothing is to be looked up elsewhere.
    command.args(["tool", "pprof", "-symbolize=none"]).args(options).arg(url).stdin(Stdio::null());
    command.env("PPROF_TMPDIR", env!("CARGO_TARGET_TMPDIR"));
    let output = command.output().unwrap_or_else(|error| panic!("{error}: run `make setup`"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Bytes with this value of a tag, as `-tags` lists them: `  4.9MB (98.50%): globex`, here with `-unit=B`.
fn bytes_with(tags: &str, value: &str) -> u64 {
    let lines = tags.lines().filter_map(|line| line.split_once("):"));
    let line = lines.filter(|(_, tag)| tag.trim() == value).map(|(figures, _)| figures).next();
    let bytes = line.and_then(|figures| figures.split_whitespace().next()).unwrap_or_default();
    bytes.trim_end_matches('B').parse().unwrap_or_else(|_| panic!("{value} is not in {tags}"))
}

/// Check that what lives and what grows both lead to the cache, and to the tenant whose answers it never drops.
#[test]
fn profiles_of_the_heap_lead_to_the_leak() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
    command.args(["--listen", "127.0.0.1:0", "--serve", "127.0.0.1:0", "--load", "2", "--leak"]);
    let shop = Program::of(command.env("PROFILER_HEAP_INTERVAL", "4096"));
    let profiles = shop.line("profiles http://");
    shop.line("ready http://");
    let address = profiles.trim_end_matches('/');
    let url = format!("http://{address}/debug/pprof/heap");
    let began = Instant::now();
    let kept = || pprof(&["-top", "-cum", "-unit=B", "-focus=Cache::keep"], &url);
    let mut top = kept();
    while bytes_below(&top, "Cache::keep") < LEAKED {
        assert!(began.elapsed() < 5 * PATIENCE, "next to nothing leaks: {top}");
        std::thread::sleep(Duration::from_secs(2));
        top = kept();
    }
    let tags = pprof(&["-tags", "-unit=B", "-tagshow=tenant", "-focus=Cache::keep"], &url);
    let of_others = ["acme", "initech", "umbrella"].map(|tenant| bytes_with(&tags, tenant));
    assert!(of_others.iter().all(|bytes| 4 * bytes < bytes_with(&tags, "globex")), "{tags}");
    let of_tenant = pprof(&["-top", "-cum", "-unit=B", "-tagfocus=tenant=globex", "-focus=shop::"], &url);
    let others = pprof(&["-top", "-cum", "-unit=B", "-tagignore=tenant=globex", "-focus=shop::"], &url);
    let below = |text: &str| bytes_below(text, "Cache::keep");
    assert!(below(&of_tenant) > below(&others), "{of_tenant}\n{others}");
    // Of that tenant, for nothing of it is ever dropped. On a busy machine it takes longer than the half more that the viewer waits by itself.
    let of_tenant_alone = ["-timeout=120", "-top", "-cum", "-unit=B", "-tagfocus=tenant=globex", "-focus=shop::"];
    let growth = pprof(&of_tenant_alone, &format!("{url}?seconds=3"));
    assert!(below(&growth) > 0 && below(&growth) < below(&of_tenant), "{growth}");
    let stats: Value = serde_json::from_str(&ask(address, "GET", "/stats", "")).unwrap();
    assert_eq!(
        stats["heap"]["lost"],
        serde_json::json!({ "no_scratch": 0, "table_full": 0, "no_memory": 0 }),
        "{stats}"
    );
}

/// Bytes below the function of this name, of a table of `-top -cum -unit=B`: flat, its share, the sum, all below, its share, name.
fn bytes_below(top: &str, name: &str) -> u64 {
    // Behind the filters, which name it, too.
    let mut lines = top.lines().skip_while(|line| !line.contains("flat%"));
    let line = lines.find(|line| line.trim_end().trim_end_matches(" (inline)").ends_with(name));
    let below = line.and_then(|line| line.split_whitespace().nth(3));
    below.and_then(|below| below.trim_end_matches('B').parse::<f64>().ok()).map_or(0, |bytes| bytes as u64)
}
