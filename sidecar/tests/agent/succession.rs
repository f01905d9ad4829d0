//! Processes that become another program, of which one is wanted and the other is not.

use std::process::Command;

use crate::early::{build, until};
use crate::process::{Running, agent, quiet};
use crate::received::{Received, Taken, samples, text};
use crate::{folder, is_root, stats};

/// CPU time of each program, and how many times one follows the other: too often for each to be looked at when it begins.
const MILLISECONDS: u32 = 8;
const TIMES: u32 = 200;

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
        let each = MILLISECONDS.to_string();
        for _ in 0..TIMES {
            let mut first = Command::new(&left);
            quiet(first.args([each.as_str(), kept.to_str().unwrap(), each.as_str()]));
            assert!(first.status().unwrap().success());
        }
        // At its end it sends what it has.
        assert_eq!(run.end(), Some(0));
        let mut of_kept: Vec<Taken> = Vec::new();
        received.all(|sets| {
            let is_kept = |set: &&_| text(set, "process.executable.name") == "kept";
            of_kept.extend(sets.iter().map(|(_, set)| set).filter(is_kept).flat_map(samples));
        });
        let milliseconds =
            |samples: &mut dyn Iterator<Item = &Taken>| samples.map(|sample| sample.nanos).sum::<f64>() / 1e6;
        let (all, expected) = (milliseconds(&mut of_kept.iter()), f64::from(MILLISECONDS * TIMES));
        let busy = milliseconds(&mut of_kept.iter().filter(|sample| sample.has("main.busy")));
        println!("{choice:?}: {all} ms of {expected}, of them busy {busy}");
        // Each begins and ends with some milliseconds of the runtime's and the kernel's; what it was before takes as long as what it is.
        assert!(
            all > 0.2 * expected && all < 1.4 * expected && busy > 0.7 * all,
            "{choice:?}: {all} ms, of them busy {busy}"
        );
    }
}
