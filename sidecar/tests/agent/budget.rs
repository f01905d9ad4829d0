//! What the agent does where it uses more than it may (`PROFILER_CPU_PERCENT`): it samples less often, and what it says stays true.

use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::early::{build, settle, until};
use crate::http::get;
use crate::matrix::ALONE;
use crate::process::{Running, agent, go_program, quiet};
use crate::received::Received;
use crate::shop::Shop;
use crate::steal::{self, undisturbed};
use crate::undivided::{ahead, pinned};
use crate::{DEADLINE, decode, folder, is_root, stats};

/// Check that over its budget the agent samples less often, says so, and lets each sample weigh more.
#[test]
fn over_its_budget_the_rate_goes_down_and_samples_weigh_more() {
    if !is_root() {
        return;
    }
    let program = go_program("shares");
    let mut command = agent(&["run", "--rate-hz", "499", "--pid", &program.pid().to_string()]);
    let run = Running::agent(command.env("PROFILER_CPU_PERCENT", "0.1"));
    let page = run.address_after("http://");
    let (until, pull) = (Instant::now() + DEADLINE, format!("/debug/pprof/profile?seconds=1&pid={}", program.pid()));
    let periods = loop {
        assert!(Instant::now() < until, "{} {}", stats(&page), run.log());
        // All that there are in this second: the rate may change amid it.
        let answer = get(&page, &pull);
        let set = if answer.status == 200 { decode(&answer.body) } else { continue };
        let periods: Vec<i64> = set.profiles.iter().map(|profile| profile.kind.period).collect();
        if periods.iter().any(|period| *period > 1_000_000_000 / 499) {
            break periods;
        }
    };
    let steps = [2, 5, 10, 20].map(|step| 1_000_000_000 / (499 / step));
    assert!(periods.iter().all(|period| steps.contains(period) || *period == 1_000_000_000 / 499), "{periods:?}");
    assert!(run.log().contains("over the bound, rate lowered from 499 Hz"), "{}", run.log());
    assert!(stats(&page)["rate_hz"].as_i64().unwrap() < 499);
    assert_eq!(run.end(), Some(0));
}

/// Check that the samples of a program stand for its CPU time while the rate goes down, step after step.
#[test]
fn totals_stay_true_while_the_rate_changes() {
    if !is_root() {
        return;
    }
    let folder = folder("rates");
    let program = folder.join("shop");
    build("shop", "go1.22.12", &program);
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ((from, told, taken, rates), stolen) = undisturbed(|| {
        let received = Received::at("127.0.0.1:0");
        let mut command = Command::new(&program);
        quiet(&mut command);
        let mut shop = Shop::start(&mut ahead(1, &pinned(&command)));
        shop.until_used(Duration::from_secs(1));
        let mut command = agent(&["run", "--rate-hz", "499", "--interval", "1s", "--runtime-interval", "off"]);
        command.args(["--include", "*/rates-*/shop"]).env("PROFILER_CPU_PERCENT", "0.1");
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint()).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let run = Running::agent(&mut ahead(2, &command));
        let page = run.address_after("http://");
        until(&run, || stats(&page)["engine"]["name"] == "ebpf");
        let from = shop.used();
        // Two steps, and a while at the second rate.
        until(&run, || run.log().matches("over the bound, rate lowered").count() >= 2);
        let enough = shop.used() + Duration::from_secs(2);
        shop.until_used(enough);
        let told = shop.end();
        settle(&received, &run);
        let log = run.log();
        assert_eq!(run.end(), Some(0), "{log}");
        let mut taken = received.of_program("shop");
        (from, told, taken.remove(&shop.pid()).unwrap(), log.matches("rate lowered").count() + 1)
    });
    drop(alone);
    let complete = told.complete_since(from, &taken);
    eprintln!("{complete:.4} of the CPU time, at {rates} rates");
    assert!(steal::complete(0.02, stolen).contains(&complete), "{complete:.4}");
    let weights: std::collections::BTreeSet<i64> =
        taken.iter().map(|sample| (sample.nanos / sample.count as f64) as i64).collect();
    assert!(weights.len() >= 3, "{weights:?}");
    std::fs::remove_dir_all(folder).unwrap();
}
