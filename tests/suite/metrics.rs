//! The profiler's account of itself, as OpenTelemetry collects it.

use std::collections::BTreeMap;

use profiler_tests::receiver::{Answer, Protocol, Receiver};
use serde_json::Value;

use crate::scenario::{command, half_turn, result, sending};

/// What the metrics are to be, by what `stats()` says.
fn expected(stats: &Value) -> BTreeMap<String, Value> {
    let mut figures = BTreeMap::new();
    let mut add = |name: &str, attributes: &str, figure: &Value| {
        figures.insert(format!("profiler.{name}{{{attributes}}}"), figure.clone());
    };
    ["taken", "exported", "pending"].iter().for_each(|state| add(&format!("stacks.{state}"), "", &stats[*state]));
    stats["lost"].as_object().unwrap().iter().for_each(|(cause, n)| add("stacks.lost", &format!("cause={cause}"), n));
    let degraded = stats["degraded"].as_object().unwrap();
    degraded.iter().for_each(|(flaw, n)| add("stacks.degraded", &format!("flaw={flaw}"), n));
    for (kind, row) in stats["kinds"].as_object().unwrap() {
        for state in ["offered", "exported", "pending"] {
            add(&format!("profiles.{state}"), &format!("kind={kind}"), &row[state]);
        }
        for (cause, n) in row["lost"].as_object().unwrap().iter().filter(|(_, n)| **n != 0) {
            add("profiles.lost", &format!("cause={cause},kind={kind}"), n);
        }
    }
    for destination in stats["destinations"].as_array().unwrap() {
        let name = destination["name"].as_str().unwrap();
        let columns = [
            ("delivered", "delivered"),
            ("queued", "queued"),
            ("queue.size", "queued_bytes"),
            ("spooled", "spooled"),
            ("replayed", "replayed"),
            ("requests", "requests"),
            ("retries", "retried"),
            ("sent", "sent_bytes"),
            ("time", "total_latency_seconds"),
        ];
        for (metric, figure) in columns {
            add(&format!("export.{metric}"), &format!("destination={name}"), &destination[figure]);
        }
        add("export.dropped", &format!("cause=rejected,destination={name}"), &destination["dropped"]);
    }
    figures
}

/// Check that a reader collects exactly what `stats()` says of a profiler whose collector makes trouble, that the account balances in every
/// collection while samples are taken, and that nothing is collected after the end.
#[test]
fn what_is_collected_is_what_stats_says() {
    let _turn = half_turn();
    let receiver = Receiver::start().unwrap();
    receiver.answer_next([Answer::Accept, Answer::Reject, Answer::Unavailable]);
    let outcome = result(sending(&mut command("metrics", &[]), &receiver, Protocol::Grpc));
    assert_eq!(outcome["flushed"], true, "{outcome}");
    let settled: BTreeMap<_, _> = outcome["settled"].as_object().unwrap().clone().into_iter().collect();
    assert_eq!(settled, expected(&outcome["stats"]));
    let counts = ["stacks.lost{cause=rejected}", "profiles.lost{cause=rejected,kind=cpu}", "stacks.exported{}"];
    assert!(counts.iter().all(|name| settled[&format!("profiler.{name}")].as_u64() > Some(0)), "{settled:?}");
    let retries = settled.iter().find(|(name, _)| name.starts_with("profiler.export.retries")).unwrap();
    assert_eq!(retries.1, 1);
    let mut grown = 0;
    for collection in outcome["meanwhile"].as_array().unwrap() {
        let sum = |names: &[&str]| {
            let figures = collection.as_object().unwrap().iter();
            let chosen = figures.filter(|(name, _)| names.iter().any(|start| name.starts_with(start)));
            chosen.map(|(_, figure)| figure.as_u64().unwrap()).sum::<u64>()
        };
        let taken = sum(&["profiler.stacks.taken"]);
        assert_eq!(taken, sum(&["profiler.stacks.exported", "profiler.stacks.pending", "profiler.stacks.lost"]));
        grown += u64::from(taken > 0);
    }
    assert!(grown > 1, "{outcome}");
    assert_eq!(outcome["after"], Value::Object(serde_json::Map::new()));
}
