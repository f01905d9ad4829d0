//! `stats()` as JSON, with the names that `/stats` uses.
//!
//! In: a snapshot. Out: what a test compares with the receiver's figures. It says itself whether the equation holds, so
//! that a scenario can ask it of many snapshots.

use profiler::{HeapStats, KindStats, Stats};
use serde_json::{Map, Value, json};

/// A snapshot as JSON.
#[must_use]
pub fn to_json(stats: &Stats) -> Value {
    let lost: Map<_, _> = stats.account.lost.iter().map(|(cause, n)| (cause.name().into(), json!(n))).collect();
    let degraded: Map<_, _> = stats.degraded.iter().map(|(flaw, n)| (flaw.name().into(), json!(n))).collect();
    let destinations = stats.destinations.iter().map(|destination| {
        json!({
            "name": destination.name,
            "delivered": destination.delivered,
            "queued": destination.queued,
            "spooled": destination.spooled,
            "replayed": destination.replayed,
            "dropped": destination.dropped.total(),
            "kinds": kinds_to_json(&destination.kinds),
            "rejected_profiles": destination.rejected_profiles,
            "untagged_samples": destination.untagged_samples,
            "requests": destination.requests,
            "retried": destination.retried,
            "sent_bytes": destination.sent_bytes,
            "queued_bytes": destination.queued_bytes,
            "total_latency_seconds": destination.total_latency.as_secs_f64(),
            "last_error": destination.last_error,
        })
    });
    let refused = stats.engine.refused.iter().map(|(name, why)| json!({ "name": name, "why": why }));
    json!({
        "sampling": stats.sampling,
        "rate_hz": stats.rate_hz,
        "taken": stats.account.taken,
        "exported": stats.account.exported,
        "pending": stats.account.pending,
        "lost": lost,
        "lost_total": stats.account.lost.total(),
        "balances": balances(stats),
        "degraded": degraded,
        "weight": stats.weight,
        "kinds": kinds_to_json(&stats.kinds),
        "engine": {
            "name": stats.engine.name,
            "threads": stats.engine.threads.iter().map(|(name, n)| (name.clone(), json!(n))).collect::<Map<_, _>>(),
            "refused": refused.collect::<Vec<_>>(),
            "notes": stats.engine.notes,
        },
        "destinations": destinations.collect::<Vec<_>>(),
        "lines": stats.symbols.lines,
        "symbols_resolved": stats.symbols.resolved,
        "symbol_notes": stats.symbols.notes,
        "heap": heap_to_json(&stats.heap),
        "tags_left_out": stats.tags.left_out,
        "spans": { "observed": stats.spans.observed, "seen": stats.spans.seen, "notes": stats.spans.notes },
    })
}

/// Whether the equation holds of the stacks, and of the profiles of each kind, at each destination too.
#[must_use]
pub fn balances(stats: &Stats) -> bool {
    let mut kinds = stats.kinds.iter().chain(stats.destinations.iter().flat_map(|destination| &destination.kinds));
    stats.account.balances() && kinds.all(KindStats::balances)
}

fn kinds_to_json(kinds: &[KindStats]) -> Map<String, Value> {
    let row = |kind: &KindStats| {
        let lost: Map<_, _> = kind.lost.iter().map(|(cause, n)| (cause.name().into(), json!(n))).collect();
        json!({
            "offered": kind.offered,
            "exported": kind.exported,
            "pending": kind.pending,
            "lost": lost,
            "lost_total": kind.lost.total(),
        })
    };
    kinds.iter().map(|kind| (kind.name.into(), row(kind))).collect()
}

/// What is said of the heap, as JSON.
#[must_use]
pub fn heap_to_json(stats: &HeapStats) -> Value {
    json!({
        "on": stats.on,
        "interval_bytes": stats.interval_bytes,
        "sampled": stats.sampled,
        "recorded": stats.recorded,
        "freed": stats.freed,
        "frees": stats.frees,
        "live": stats.live,
        "unknown": stats.unknown,
        "no_scratch": stats.lost.no_scratch,
        "table_full": stats.lost.table_full,
        "no_memory": stats.lost.no_memory,
        "lost_total": stats.lost.total(),
        "without_stack": stats.without_stack,
        "profiles_lost": stats.profiles_lost.total(),
        "table_bytes": stats.table_bytes,
        "allocated": stats.allocator.map(|allocator| allocator.allocated),
        "resident": stats.allocator.map(|allocator| allocator.resident),
        "dumps": stats.dumps.as_ref().map(|dumps| json!({
            "read": dumps.read,
            "failed": dumps.failed,
            "bytes": dumps.bytes,
            "cut": dumps.cut,
            "accumulated": dumps.accumulated,
        })),
        "notes": stats.notes,
    })
}
