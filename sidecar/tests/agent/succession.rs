//! Processes that become another program, of which one is wanted and the other is not.

use std::process::Command;

use crate::early::{build, until};
use crate::process::{Running, agent, quiet};
use crate::received::{Received, Taken};
use crate::{folder, is_root, stats};

/// CPU time of each program, and how many times one follows the other: too often for each to be looked at when it begins.
const MILLISECONDS: &str = "8";
const TIMES: usize = 200;
/// How many calls deep the first one is at work; the other one is so few.
const DEPTH: &str = "60";
/// CPU time of the last one, in milliseconds: beside a storm of new processes few are looked at in time, and on a busy machine hardly any.
const LAST: &str = "2000";

/// Check that what a process did as a program that is not wanted is not told as done by the one that it became, whichever way the settings say so.
#[test]
fn what_a_process_was_before_is_not_told_of_what_it_is() {
    if !is_root() {
        return;
    }
    let folder = folder("succession");
    let [left, kept] = ["left", "kept"].map(|name| folder.join(name));
    build("chain", "go1.27.0", &left);
    std::fs::copy(&left, &kept).unwrap();
    for choice in [["--include", "*/kept"], ["--exclude", "*/left"]] {
        let received = Received::at("127.0.0.1:0");
        let mut command = agent(&["run", "--rate-hz", "997", "--interval", "100ms", "--runtime-interval", "off"]);
        command.args(choice).env("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint());
        let run = Running::agent(command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"));
        let page = run.address_after("http://");
        until(&run, || stats(&page)["engine"]["name"] == "ebpf");
        for own in std::iter::repeat_n(MILLISECONDS, TIMES).chain([LAST]) {
            let mut first = Command::new(&left);
            quiet(first.args([MILLISECONDS, DEPTH, kept.to_str().unwrap(), own, "0"]));
            assert!(first.status().unwrap().success());
        }
        // At its end it sends what it has.
        assert_eq!(run.end(), Some(0));
        let of_kept = received.of_program("kept");
        let processes = of_kept.len();
        let of_kept: Vec<Taken> = of_kept.into_values().flatten().collect();
        let depth = DEPTH.parse().unwrap();
        // It may have no names by then, but it has all its calls.
        let deep = of_kept.iter().filter(|sample| sample.names.len() > depth).count();
        let own = of_kept.iter().filter(|sample| sample.has("main.busy")).count();
        assert!(
            own > 20 && processes > 1 && deep == 0,
            "{choice:?}: {deep} of what it was before, {own} of its own, of {} of {processes} processes",
            of_kept.len()
        );
    }
}
