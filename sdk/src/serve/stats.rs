//! `/stats`: the profiler's account of itself, as JSON.
//!
//! In: one consistent snapshot. Out: an object whose top level counts on-CPU stacks; `taken = exported + pending + Σ lost`
//! holds in it as in the snapshot, and `offered = exported + pending + Σ lost` of the profiles of each kind.

use profiler_proto::loss::{Degraded, Loss};
use serde_json::{Map, Value, json};

use crate::stats::{DestinationStats, Figure, HeapStats, KindStats, SpanStats, SpoolStats, Stats, StatsSection};

/// The snapshot as an object. Every cause stands in it, those at zero too, so that a reader can rely on them.
pub(super) fn json(stats: &Stats) -> Value {
    let mut object = of_all(stats);
    let sections = stats.sections.iter().map(|section| (section.name.clone(), figures(section)));
    let inside = || {
        [
            (
                "tags",
                json!({ "left_out": stats.tags.left_out, "altered": stats.tags.altered, "keys": stats.tags.keys }),
            ),
            ("heap", heap(&stats.heap)),
            ("spans", spans(&stats.spans)),
        ]
    };
    if let Value::Object(object) = &mut object {
        for (name, part) in sections {
            object.entry(name).or_insert(part);
        }
        if !stats.from_outside {
            object.extend(inside().map(|(name, part)| (name.to_owned(), part)));
        }
    }
    object
}

/// What whoever captures can say.
fn of_all(stats: &Stats) -> Value {
    json!({
        "sampling": stats.sampling,
        "rate_hz": stats.rate_hz,
        "taken": stats.account.taken,
        "exported": stats.account.exported,
        "pending": stats.account.pending,
        "lost": lost(&stats.account.lost),
        "degraded": degraded(&stats.degraded),
        "weight": stats.weight,
        "destinations": stats.destinations.iter().map(destination).collect::<Vec<_>>(),
        "spool": stats.spool.as_ref().map(spool),
        "kinds": kinds(&stats.kinds),
        "engine": {
            "name": stats.engine.name,
            "threads": stats.engine.threads.iter().map(|(name, n)| (name.clone(), Value::from(*n))).collect::<Map<_, _>>(),
            "notes": stats.engine.notes,
            "refused": stats.engine.refused.iter().map(|(name, why)| json!({"name": name, "why": why})).collect::<Vec<_>>(),
        },
        "sections": stats.sections.iter().map(|section| section.name.as_str()).collect::<Vec<_>>(),
        "symbols": {
            "lines": stats.symbols.lines,
            "resolved": stats.symbols.resolved,
            "unresolved": stats.symbols.unresolved,
            "notes": stats.symbols.notes,
        },
    })
}

fn spans(stats: &SpanStats) -> Value {
    json!({ "observed": stats.observed, "seen": stats.seen, "notes": stats.notes })
}

fn figures(section: &StatsSection) -> Value {
    let value = |figure: &Figure| match figure {
        Figure::Count(count) => Value::from(*count),
        Figure::Number(number) => Value::from(*number),
        Figure::Flag(flag) => Value::from(*flag),
        Figure::Text(text) => Value::from(text.as_str()),
    };
    section.figures.iter().map(|(name, figure)| (name.clone(), value(figure))).collect::<Map<_, _>>().into()
}

fn destination(stats: &DestinationStats) -> Value {
    json!({
        "name": stats.name,
        "delivered": stats.delivered,
        "queued": stats.queued,
        "spooled": stats.spooled,
        "replayed": stats.replayed,
        "replay_dropped": lost(&stats.replay_dropped),
        "dropped": lost(&stats.dropped),
        "kinds": kinds(&stats.kinds),
        "rejected_profiles": stats.rejected_profiles,
        "untagged_samples": stats.untagged_samples,
        "requests": stats.requests,
        "retried": stats.retried,
        "sent_bytes": stats.sent_bytes,
        "queued_bytes": stats.queued_bytes,
        "total_latency_seconds": stats.total_latency.as_secs_f64(),
        "last_latency_seconds": stats.last_latency.map(|latency| latency.as_secs_f64()),
        "longest_latency_seconds": stats.longest_latency.map(|latency| latency.as_secs_f64()),
        "last_error": stats.last_error,
    })
}

fn spool(stats: &SpoolStats) -> Value {
    json!({
        "folder": stats.folder,
        "bytes": stats.bytes,
        "segments": stats.segments,
        "appended": stats.appended,
        "synced_below": stats.synced_below,
        "missing": stats.missing,
        "unreadable_bytes": stats.unreadable_bytes,
        "untaken": stats.untaken,
        "trouble": stats.trouble,
    })
}

fn kinds(stats: &[KindStats]) -> Map<String, Value> {
    let row = |kind: &KindStats| {
        json!({
            "offered": kind.offered,
            "exported": kind.exported,
            "pending": kind.pending,
            "lost": lost(&kind.lost),
        })
    };
    stats.iter().map(|kind| (kind.name.to_owned(), row(kind))).collect()
}

fn heap(stats: &HeapStats) -> Value {
    let allocator = stats.allocator.map(|allocator| {
        json!({
            "allocated": allocator.allocated,
            "active": allocator.active,
            "metadata": allocator.metadata,
            "resident": allocator.resident,
            "mapped": allocator.mapped,
            "retained": allocator.retained,
        })
    });
    let dumps = stats.dumps.as_ref().map(|dumps| {
        json!({
            "read": dumps.read,
            "failed": dumps.failed,
            "bytes": dumps.bytes,
            "cut": dumps.cut,
            "accumulated": dumps.accumulated,
        })
    });
    json!({
        "on": stats.on,
        "interval_bytes": stats.interval_bytes,
        "sampled": stats.sampled,
        "recorded": stats.recorded,
        "freed": stats.freed,
        "frees": stats.frees,
        "live": stats.live,
        "unknown": stats.unknown,
        "lost": {
            "no_scratch": stats.lost.no_scratch,
            "table_full": stats.lost.table_full,
            "no_memory": stats.lost.no_memory,
        },
        "without_stack": stats.without_stack,
        "profiles_lost": lost(&stats.profiles_lost),
        "table_bytes": stats.table_bytes,
        "allocator": allocator,
        "dumps": dumps,
        "notes": stats.notes,
    })
}

fn lost(loss: &Loss) -> Map<String, Value> {
    loss.iter().map(|(cause, n)| (cause.name().to_owned(), n.into())).collect()
}

fn degraded(degraded: &Degraded) -> Map<String, Value> {
    degraded.iter().map(|(flaw, n)| (flaw.name().to_owned(), n.into())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use profiler_proto::loss::{Cause, Flaw};

    use super::*;
    use crate::stats::EngineStats;

    /// Check that the account stands at the top level and still balances.
    #[test]
    fn the_account_stands_at_the_top_and_balances() {
        let mut stats = Stats { sampling: true, rate_hz: 100, weight: 12, ..Stats::default() };
        let mut lost = Loss::default();
        lost.add(Cause::RingFull, 3);
        stats.account.enter(10, 7, &lost);
        stats.account.exported(5);
        stats.degraded.add(Flaw::Truncated, 2);
        stats.engine = EngineStats {
            name: "timer".into(),
            threads: vec![("timer".into(), 3), ("process_timer".into(), 0)],
            refused: vec![("perf".into(), "EACCES".into())],
            notes: vec!["a note".into()],
        };
        let mut heap = KindStats { name: "heap", offered: 4, exported: 1, pending: 1, ..KindStats::default() };
        heap.lost.add(Cause::Rejected, 2);
        stats.kinds.push(heap);
        stats.destinations.push(DestinationStats {
            name: "collector".into(),
            delivered: 5,
            kinds: stats.kinds.clone(),
            total_latency: Duration::from_millis(500),
            last_latency: Some(Duration::from_millis(250)),
            ..DestinationStats::default()
        });
        let json = json(&stats);
        let sum: u64 = json["lost"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        let of = |name: &str| json[name].as_u64().unwrap();
        assert_eq!((of("taken"), of("exported") + of("pending") + sum), (10, 10));
        assert_eq!((json["lost"]["ring_full"].as_u64(), json["lost"]["shutdown"].as_u64()), (Some(3), Some(0)));
        assert_eq!((&json["degraded"]["truncated"], &json["symbols"]["lines"]), (&json!(2), &Value::Null));
        let expected = json!({
            "name": "timer",
            "threads": {"timer": 3, "process_timer": 0},
            "refused": [{"name": "perf", "why": "EACCES"}],
            "notes": ["a note"],
        });
        assert_eq!(json["engine"], expected);
        let (kind, destination) = (&json["kinds"]["heap"], &json["destinations"][0]);
        let lost = ["rejected", "too_large"].map(|cause| kind["lost"][cause].as_u64());
        let rest = ["offered", "exported", "pending"].map(|name| kind[name].as_u64());
        assert_eq!((rest, lost), ([Some(4), Some(1), Some(1)], [Some(2), Some(0)]));
        assert_eq!((&destination["delivered"], &destination["kinds"]["heap"]), (&json!(5), kind));
        let latencies = ["total", "last", "longest"].map(|which| &destination[format!("{which}_latency_seconds")]);
        assert_eq!(latencies, [&json!(0.5), &json!(0.25), &Value::Null]);
    }
    /// Check that what another crate knows stands under its own names, and that what only the process itself knows is left out of it.
    #[test]
    fn parts_of_others_stand_under_their_names() {
        let mut stats = Stats { from_outside: true, ..Stats::default() };
        stats
            .sections
            .push(StatsSection::new("budget").with("rate_hz", 49_u64).with("over", true).with("cpu_share", 0.25));
        stats.sections.push(StatsSection::new("taken").with("not", "overwritten"));
        let json = json(&stats);
        assert_eq!(json["budget"], json!({"rate_hz": 49, "over": true, "cpu_share": 0.25}));
        assert_eq!((&json["taken"], json.get("heap"), json.get("spans")), (&json!(0), None, None));
        let own = super::json(&Stats::default());
        assert!(["tags", "heap", "spans"].iter().all(|part| own.get(part).is_some()));
    }
}
