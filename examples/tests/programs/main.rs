//! The examples as a person runs them: processes, their output, what they leave behind.
//!
//! Each test starts programs of this package on free ports, with limits on all waiting, and asks `/proc` afterwards.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod collector;
mod crossing;
mod leak;
mod metrics;
mod program;
mod traces;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use tokio::net::TcpSocket;

use program::{Program, ask, children_of, gone, send};

/// An order.
const ORDER: &str = r#"{"customer":"ada","items":[{"sku":"SKU-00003","quantity":3}]}"#;

/// Check that the load is answered without an error, and that the last line accounts for it.
#[test]
fn the_shop_answers_its_load_and_accounts_for_it() {
    let shop = Program::shop(&["--load", "2", "--seconds", "3"]);
    let profiles = shop.line("profiles http://");
    let address = shop.line("ready http://");

    let receipt: Value = serde_json::from_str(&ask(&address, "POST", "/orders", ORDER)).unwrap();
    assert_eq!((&receipt["customer"], receipt["signature"].as_str().unwrap().len()), (&"ada".into(), 64));
    let hits: Value = serde_json::from_str(&ask(&address, "GET", "/search?q=oak+lamp", "")).unwrap();
    assert!(hits[0]["name"].as_str().unwrap().contains("lamp"), "{hits}");
    assert!(ask(&address, "GET", "/search", "").contains("missing field `q`"));
    assert_eq!(ask(profiles.trim_end_matches('/'), "GET", "/healthz", "").trim(), "ok");

    let summary: Value = serde_json::from_str(&shop.finish()).unwrap();
    assert!(summary["requests"].as_u64().unwrap() > 20, "{summary}");
    assert_eq!(summary["errors"], 0);
    assert!((0.1..600.0).contains(&summary["cpu_seconds"].as_f64().unwrap()), "{summary}");
}

/// Check that signals and the end of its input end the shop with an account, and that its load ends with it.
#[test]
fn the_shop_ends_when_told_and_its_load_with_it() {
    for end in ["TERM", "INT", "end of input"] {
        let mut shop = Program::shop(&["--load", "1", "--until-eof"]);
        shop.line("ready ");
        let load = shop.children();
        assert_eq!(load.len(), 1);
        match end {
            "end of input" => drop(shop.child.stdin.take()),
            signal => shop.signal(signal),
        }
        let summary: Value = serde_json::from_str(&shop.finish()).unwrap();
        assert_eq!(summary["errors"], 0, "{end}");
        assert!(gone(load[0]), "{end}");
    }
}

/// Check that not even a shop that is killed leaves its load behind.
#[test]
fn a_killed_shop_leaves_no_load_behind() {
    let shop = Program::shop(&["--load", "1"]);
    shop.line("ready ");
    let load = shop.children();
    assert_eq!(load.len(), 1);
    shop.signal("KILL");
    assert!(gone(load[0]));
}

/// Check that a shop whose load dies says so and fails, rather than serve nobody.
#[test]
fn a_shop_whose_load_dies_says_so() {
    let mut shop = Program::shop(&["--load", "1"]);
    shop.line("ready ");
    let load = shop.children()[0].to_string();
    assert!(Command::new("kill").args(["-s", "KILL", &load]).status().unwrap().success());
    assert!(!shop.child.wait().unwrap().success());
}

/// Check that an address in use is an error that names it, where it was asked for.
#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for option in ["--listen", "--serve"] {
        let other = if option == "--listen" { "--serve" } else { "--listen" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
        let output = command.args([option, &address, other, "127.0.0.1:0", "--seconds", "60"]).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && complaint.contains(&address), "{option}: {complaint}");
    }
}

/// Check that the demo shows where each endpoint's time goes, ends by itself and leaves nothing behind.
#[test]
fn the_demo_shows_each_endpoint_and_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    let mut demo =
        Program::of(command.env("DEMO_SECONDS", "1").env("DEMO_SIDECAR", "off").env_remove("DEMO_INVENTORY"));
    demo.line("The flame graph, live: http://127.0.0.1:");
    let services = demo.children();
    assert_eq!(services.len(), 2, "the inventory and the shop");
    let load: Vec<u32> = services.iter().flat_map(|service| children_of(*service)).collect();
    assert_eq!(load.len(), 1);

    let output: Vec<String> = std::iter::from_fn(|| demo.next_line()).collect();
    for endpoint in ["endpoint=/orders", "endpoint=/search", "endpoint=/report"] {
        assert!(output.iter().any(|line| line.starts_with(endpoint)), "{endpoint} is not in {output:#?}");
    }
    assert!(demo.child.wait().unwrap().success());
    assert!(services.into_iter().chain(load).all(gone));
}

/// Check that the demo shows the inventory in Go, too, which the sidecar profiles from outside.
#[test]
fn the_demo_shows_the_inventory_in_go() {
    let Some(inventory) = inventory_in_go() else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    // An agent that is not optimized uses more than its own bounds allow.
    command.env("DEMO_SECONDS", "3").env("DEMO_INVENTORY", inventory).env("PROFILER_CPU_PERCENT", "1000");
    // So often that some traces are sampled on both sides in so short a time.
    command.env("PROFILER_RATE_HZ", "997");
    let mut demo = Program::of(&mut command);
    let output: Vec<String> = std::iter::from_fn(|| demo.next_line()).collect();
    let outside = output.iter().position(|line| line == "The inventory, from outside:");
    let outside = &output[outside.unwrap_or_else(|| panic!("no table of the inventory: {output:#?}"))..];
    assert!(outside.iter().any(|line| line.starts_with("endpoint=/reservations")), "{outside:#?}");
    // On a busy machine there are few samples, which may all be in what its own functions call.
    let go = ["main.", "encoding/json.", "net/http."];
    assert!(outside.iter().any(|line| go.iter().any(|package| line.contains(package))), "{outside:#?}");
    assert!(outside.iter().any(|line| line.starts_with("One trace through both: http://127.0.0.1:")), "{outside:#?}");
    assert!(demo.child.wait().unwrap().success());
}

/// The inventory, built once; `None`, said past the test runner, where it cannot be built or sampled.
fn inventory_in_go() -> Option<PathBuf> {
    static BUILT: LazyLock<Option<PathBuf>> = LazyLock::new(build_inventory);
    BUILT.clone()
}

fn build_inventory() -> Option<PathBuf> {
    let sidecar = Path::new(env!("CARGO_BIN_EXE_demo")).with_file_name("profiler-sidecar");
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if !is_root || !sidecar.exists() {
        let why = if is_root { "build it: cargo build -p profiler-sidecar" } else { "it samples as root only" };
        not_run(why);
        return None;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inventory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go/inventory");
    let built = Command::new("go").args(["build", "-buildvcs=false", "-o"]).arg(&program).current_dir(source).status();
    match built {
        Ok(status) if status.success() => Some(program),
        other => {
            not_run(&format!("go build: {other:?}"));
            None
        }
    }
}

/// Says why the demo was not tried with the sidecar: past the test runner, which shows nothing of tests that pass.
fn not_run(why: &str) {
    // Nobody is left to be told when standard error is gone.
    drop(writeln!(std::io::stderr(), "NOT RUN: the demo with the sidecar: {why}"));
}

/// A trace that some client began.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Check that an order's trace goes on to the service that keeps the stock: the shop's call carries the same trace, and a span of the
/// shop's own.
#[test]
fn a_trace_goes_on_to_the_second_service() {
    let second = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = second.local_addr().unwrap().to_string();
    let shop = Program::shop(&["--inventory", &address]);
    let address = shop.line("ready http://");
    let stock = std::thread::spawn(move || {
        let (stream, _) = second.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
        let parent = lines.find_map(|line| Some(line.strip_prefix("traceparent: ")?.to_owned())).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").unwrap();
        parent
    });
    let (head, receipt) =
        send(&address, "POST", "/orders", ORDER, &format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n"));
    let parent = stock.join().unwrap();
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-01"), "{parent}");
    assert!(!parent.contains("00f067aa0ba902b7"), "{parent}");
    assert!(head.contains(&format!("x-trace-id: {TRACE}")) && receipt.contains("ada"), "{head} {receipt}");
}

/// Check that the inventory goes on with the trace of its caller, and says where to pick what was ordered.
#[test]
fn the_inventory_answers_in_the_trace_of_its_caller() {
    let arguments = ["inventory", "--listen", "127.0.0.1:0", "--serve", "127.0.0.1:0", "--until-eof"];
    let mut inventory = Program::start(env!("CARGO_BIN_EXE_shop"), &arguments);
    let address = inventory.line("ready http://");
    let items =
        r#"[{"sku":"SKU-00130","quantity":2},{"sku":"SKU-00001","quantity":1},{"sku":"SKU-00131","quantity":1}]"#;
    let caller = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n");
    let (head, way) = send(&address, "POST", "/reservations", items, &caller);
    assert!(head.contains(&format!("x-trace-id: {TRACE}")), "{head}");
    let way: Value = serde_json::from_str(&way).unwrap();
    assert_eq!((way.as_array().unwrap().len(), &way[0]["pieces"]), (3, &1.into()), "{way}");
    drop(inventory.child.stdin.take());
    assert!(inventory.child.wait().unwrap().success());
}

/// Check that an order is refused, with the reason, where the stock cannot be asked.
#[test]
fn without_its_inventory_the_shop_takes_no_orders() {
    // Bound and not listening: refuses who connects, and nobody else gets its port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = socket.local_addr().unwrap().to_string();
    let shop = Program::shop(&["--inventory", &nobody]);
    let (head, body) = send(&shop.line("ready http://"), "POST", "/orders", ORDER, "");
    assert!(head.starts_with("HTTP/1.0 502") && body.contains(&nobody), "{head} {body}");
}

/// Check that the batch job takes its pictures through all stages.
#[test]
fn the_batch_job_works_for_its_time() {
    let batch = Program::start(env!("CARGO_BIN_EXE_batch"), &["1"]);
    batch.line("working for 1 s");
    let last = batch.finish();
    let pictures: u64 = last.split(' ').next().unwrap().parse().unwrap();
    assert!(pictures > 0 && last.contains("pictures"), "{last}");
}
