//! Stacks of a real service are whole, as its own release build makes them: the shop, with and without line tables.
//!
//! In: the shop of `examples`, built the way its reader would, under its own load, sending to a receiver. Out: every stack
//! of a handler from its leaf to the start of its thread; inlined frames and lines where the build has them, and the word
//! that they are absent where not. And completeness, on a real runtime with threads that come and go.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use profiler_proto::model::{Dictionary, Line, Location, ProfileSet};
use profiler_tests::fetch;
use profiler_tests::process::{Running, build};
use profiler_tests::receiver::{Body, Protocol, Receiver};
use profiler_tests::tally::Tally;
use serde_json::Value;

use crate::heap::assert_user_code_with_lines;
use crate::scenario::{LIMIT, assert_lawful, clean, number, sending, turn};

/// What came of running the shop.
struct Shop {
    receiver: Receiver,
    /// `/stats` while it ran.
    stats: Value,
    /// Its last line.
    summary: Value,
}

/// The shop, optimized, with line tables.
fn build_shop() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let built = build(workspace, &["--package=profiler-examples", "--bin=shop", "--profile=with-lines"]).unwrap();
    built.into_iter().next_back().expect("cargo built no shop")
}

/// The same as a release build with no flags has it, from which Cargo strips debug information.
fn without_lines(program: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without_lines");
    std::fs::create_dir_all(&folder).unwrap();
    let stripped = folder.join("shop");
    assert!(Command::new("objcopy").arg("--strip-debug").args([program, &stripped]).status().unwrap().success());
    stripped
}

/// Runs the shop under load until its profile weighs `enough`.
fn run_shop(program: &Path, enough: i64) -> Shop {
    let _turn = turn();
    let receiver = Receiver::start().unwrap();
    let mut command = Command::new(program);
    command.args(["--listen=127.0.0.1:0", "--serve=127.0.0.1:0", "--load=4", "--until-eof"]);
    clean(&mut command);
    sending(&mut command, &receiver, Protocol::Grpc).env("PROFILER_INTERVAL", "1s");
    let mut child = Running::start(&mut command, LIMIT).unwrap();
    let address = child.line().unwrap();
    let address: SocketAddr = address.trim_start_matches("profiles http://").trim_end_matches('/').parse().unwrap();
    assert!(child.line().unwrap().starts_with("ready http://"));
    let weight = |bodies: &[Body]| Tally::of(bodies.iter().flat_map(|body| &body.profiles)).weight;
    assert!(receiver.wait(LIMIT / 2, |bodies| weight(bodies) >= enough), "the shop does next to nothing");
    let stats = fetch::json(address, "/stats").unwrap();
    let summary = child.finish().unwrap().json().unwrap();
    assert_lawful(&receiver);
    Shop { receiver, stats, summary }
}

/// Checks that every stack of a handler reaches the start of its thread, that work there was, and that of all other samples,
/// whatever they caught, no more than one in a thousand has a stack that does not, within five standard errors.
#[expect(clippy::print_stdout, reason = "the figure, for who looks")]
fn assert_whole(tally: &Tally) {
    let torn: Vec<_> = tally.torn().collect();
    let weight = |stacks: &[(&Vec<String>, i64)]| stacks.iter().map(|(_, weight)| weight).sum::<i64>();
    println!("{} of {} samples have a stack that is not whole", weight(&torn), tally.weight);
    let most = tally.weight as f64 / 1000.0;
    let is_rare = weight(&torn) as f64 <= most + 5.0 * most.sqrt();
    assert!(is_rare, "{} of {} samples are torn: {torn:#?}", weight(&torn), tally.weight);
    let is_handler = |stack: &[String]| stack.iter().any(|name| name.starts_with("shop::"));
    assert!(!torn.iter().any(|(stack, _)| is_handler(stack)), "stacks of handlers are torn: {torn:#?}");
    let of_handlers: i64 = tally.by_stack.iter().filter(|(stack, _)| is_handler(stack)).map(|(_, weight)| weight).sum();
    assert!(of_handlers > 100, "only {of_handlers} stacks of the shop");
}

/// The places in the shop's own code that a receiver got: function and file by location, innermost first.
fn places(receiver: &Receiver) -> Vec<Vec<(String, String, u32)>> {
    let sets: Vec<ProfileSet> = receiver.bodies().into_iter().flat_map(|body| body.profiles).collect();
    sets.iter().flat_map(|set| set.dictionary.locations.iter().map(|at| lines_of(at, &set.dictionary))).collect()
}

fn lines_of(location: &Location, dictionary: &Dictionary) -> Vec<(String, String, u32)> {
    let of = |line: &Line| {
        let function = dictionary.functions.get(line.function).unwrap();
        let text = |id| dictionary.strings.text(id).to_owned();
        (text(function.name), text(function.filename), line.line)
    };
    location.lines.iter().map(of).collect()
}

/// Checks that the profile's weight is the CPU time that the shop says it used.
fn assert_complete(shop: &Shop) {
    let tally = shop.receiver.accepted();
    let weight = tally.weight as f64 / (shop.summary["cpu_seconds"].as_f64().unwrap() * 100.0);
    assert!((0.97..=1.03).contains(&weight), "the shop's profile holds {weight:.3} of its CPU time: {}", shop.stats);
}

/// Check that a release build with no flags at all gives whole stacks with names, complete, and says that lines are absent.
#[test]
fn a_plain_release_build_has_whole_stacks() {
    let shop = run_shop(&without_lines(&build_shop()), 1500);
    let tally = shop.receiver.accepted();
    assert_whole(&tally);
    assert_complete(&shop);
    assert_eq!(number(&shop.summary, "/errors"), 0, "{}", shop.summary);
    for endpoint in ["/orders", "/search", "/report"] {
        assert!(tally.tagged("endpoint", endpoint) > 20, "{endpoint}: {:?}", tally.by_tag);
    }
    // The machine's own libraries may have debug information; the shop has none.
    let mut own = places(&shop.receiver);
    own.retain(|at| at.iter().any(|(function, ..)| function.starts_with("shop::")));
    let lined: Vec<_> = own.iter().filter(|at| at.len() > 1 || !at[0].1.is_empty() || at[0].2 > 0).collect();
    assert!(own.len() > 10 && lined.is_empty(), "{} places of the shop; with lines: {lined:?}", own.len());
    assert_eq!(shop.stats["symbols"]["lines"], false, "{}", shop.stats);
}

/// Check that with line tables inlined functions come out as frames, with files and lines, and the stacks are as whole; and that none of the allocator's is at the
/// leaf of a stack of the heap.
#[test]
fn line_tables_bring_inlined_frames_and_lines() {
    let shop = run_shop(&build_shop(), 800);
    assert_whole(&shop.receiver.accepted());
    let own =
        |at: &(String, String, u32)| at.0.starts_with("shop::") && at.1.contains("examples/src/bin/shop/") && at.2 > 0;
    let places = places(&shop.receiver);
    let inlined = places.iter().filter(|at| at.len() > 1 && at.iter().any(own)).count();
    assert!(inlined > 5, "only {inlined} places of the shop have inlined frames");
    let bodies = shop.receiver.bodies();
    assert_user_code_with_lines(bodies.iter().flat_map(|body| &body.profiles));
    assert_eq!(shop.stats["symbols"]["lines"], true, "{}", shop.stats);
}
