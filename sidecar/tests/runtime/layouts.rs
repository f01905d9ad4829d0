//! Compares `go::layouts` with what the DWARF of a program says that was built by each version of Go, for both processors.

use std::collections::HashMap;
use std::process::Command;

use crate::programs;
use profiler_sidecar::go::layouts::figures::{collections, pacer};
use profiler_sidecar::go::layouts::{self, Cycle, G, Labels, Layout, Ticks, bucket, map, pair, status};

/// Check that each number of the table is what the linker wrote, of each version and processor.
#[test]
fn layouts_are_those_of_dwarf() {
    let tool = programs::build("layouts", "local", &[], "amd64");
    for version in programs::VERSIONS {
        for architecture in ["amd64", "arm64"] {
            let program = programs::build("parked", version, &[], architecture);
            let told = Command::new(&tool).arg(&program).output().unwrap();
            let text = String::from_utf8(told.stdout).unwrap();
            let facts = parse(&text);
            let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
            let layout = layouts::of(minor).unwrap();
            for (name, ours) in claims(&layout, minor) {
                assert_eq!(facts.get(name), Some(&ours), "{name} of {version} {architecture}");
            }
            for (name, ours) in CONSTANTS {
                // Of those that came later there are none before.
                let theirs = facts.get(&format!("const {name}"));
                let is_newer = minor < 26 && NEWER.contains(&name);
                assert_eq!(theirs, (!is_newer).then_some(&ours), "{name} of {version} {architecture}");
            }
            let deepest = if minor < 23 { "runtime.maxStack" } else { "runtime.maxProfStackDepth" };
            assert!(facts[&format!("const {deepest}")] <= bucket::DEPTH_LIMIT as usize, "{version} {architecture}");
            let memstats = facts["runtime.mstats.last_gc_unix"];
            for (name, ours) in OF_COLLECTIONS {
                assert_eq!(facts.get(name), Some(&(memstats + ours)), "{name} of {version} {architecture}");
            }
            assert_eq!(reasons(&text), layout.wait_reasons, "wait reasons of {version} {architecture}");
        }
    }
    assert_eq!(layouts::of(layouts::OLDEST - 1), None);
    assert_eq!(layouts::of(layouts::NEWEST + 1), None);
}

/// `field runtime.g.goid 152 8` and `size runtime.g 408` as name and number; sizes under `size `, constants under `const `.
fn parse(text: &str) -> HashMap<String, usize> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let facts = words.filter_map(|words| match words[..] {
        ["field", name, offset, _] => Some((name.to_owned(), offset.parse().ok()?)),
        ["const", name, value] => Some((format!("const {name}"), value.parse().ok()?)),
        ["size", name, size] => Some((format!("size {name}"), size.parse().ok()?)),
        ["var", name, _, size, ..] => Some((format!("size {name}"), size.parse().ok()?)),
        _ => None,
    });
    facts.collect()
}

fn reasons(text: &str) -> Vec<&str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("reason "));
    lines.map(|line| line.split_once(' ').unwrap().1).collect()
}

/// Kinds of buckets, and what goroutines do.
const CONSTANTS: [(&str, usize); 14] = [
    ("runtime.memProfile", bucket::MEMORY as usize),
    ("runtime.blockProfile", bucket::BLOCK as usize),
    ("runtime.mutexProfile", bucket::MUTEX as usize),
    ("runtime._Gidle", status::IDLE as usize),
    ("runtime._Grunnable", status::RUNNABLE as usize),
    ("runtime._Grunning", status::RUNNING as usize),
    ("runtime._Gsyscall", status::SYSCALL as usize),
    ("runtime._Gwaiting", status::WAITING as usize),
    ("runtime._Gdead", status::DEAD as usize),
    ("runtime._Gcopystack", status::COPYING as usize),
    ("runtime._Gpreempted", status::PREEMPTED as usize),
    ("runtime._Gscan", status::SCAN as usize),
    ("runtime._Gleaked", status::LEAKED as usize),
    ("runtime._Gdeadextra", status::DEAD_EXTRA as usize),
];

/// Of these, those of 1.26 and newer.
const NEWER: [&str; 2] = ["runtime._Gleaked", "runtime._Gdeadextra"];

/// Distances from `last_gc_unix`.
const OF_COLLECTIONS: [(&str, usize); 5] = [
    ("runtime.mstats.pause_total_ns", collections::PAUSED),
    ("runtime.mstats.pause_ns", collections::PAUSES),
    ("runtime.mstats.pause_end", collections::PAUSES + 8 * collections::KEPT),
    ("runtime.mstats.numgc", collections::COUNT),
    ("runtime.mstats.last_gc_nanotime", collections::LAST_NANOTIME),
];

/// Labels that are a map of strings by strings.
const MAP: &[(&str, usize)] = &[
    ("runtime.hmap.count", map::COUNT),
    ("runtime.hmap.flags", map::FLAGS),
    ("runtime.hmap.B", map::LOG),
    ("runtime.hmap.buckets", map::BUCKETS),
    ("runtime.hmap.oldbuckets", map::OLD_BUCKETS),
    ("const runtime.sameSizeGrow", map::SAME_SIZE as usize),
    ("const runtime.minTopHash", map::LEAST_TOP as usize),
    ("const internal/abi.MapBucketCount", map::PLACES),
    ("bucket<string,string>.tophash", 0),
    ("bucket<string,string>.keys", map::KEYS),
    ("bucket<string,string>.values", map::VALUES),
    ("bucket<string,string>.overflow", map::OVERFLOW),
    ("size bucket<string,string>", map::BUCKET),
];

/// Labels that are a slice of pairs.
const SLICE: &[(&str, usize)] = &[
    ("runtime/pprof.label.key", pair::KEY),
    ("runtime/pprof.label.value", pair::VALUE),
    ("size runtime/pprof.label", pair::SIZE),
];

/// The same, of 1.26 and newer.
const NEWER_SLICE: &[(&str, usize)] = &[
    ("internal/runtime/pprof/label.Label.Key", pair::KEY),
    ("internal/runtime/pprof/label.Label.Value", pair::VALUE),
    ("size internal/runtime/pprof/label.Label", pair::SIZE),
];

fn claims(layout: &Layout, minor: u32) -> Vec<(&'static str, usize)> {
    let g = &layout.g;
    let mut claims = vec![
        ("runtime.stack.lo", G::STACK_LO),
        ("runtime.stack.hi", G::STACK_HI),
        ("runtime.g.stack", 0),
        ("runtime.gobuf.sp", 0),
        ("runtime.gobuf.pc", 8),
        ("runtime.g.m", g.m),
        ("runtime.m.curg", layout.m_curg),
        ("runtime.g.sched", g.sched),
        ("runtime.gobuf.lr", g.lr - g.sched),
        ("runtime.gobuf.bp", g.bp - g.sched),
        ("runtime.g.syscallsp", g.syscall),
        ("runtime.g.syscallpc", g.syscall + 8),
        ("runtime.g.atomicstatus", g.status),
        ("runtime.g.goid", g.id),
        ("runtime.g.waitsince", g.wait_since),
        ("runtime.g.waitreason", g.wait_reason),
        ("runtime.g.trackingSeq", g.stops),
        ("runtime.g.lockedm", g.locked_m),
        ("runtime.g.parentGoid", g.parent),
        ("runtime.g.gopc", g.go_pc),
        ("runtime.g.startpc", g.start_pc),
        ("runtime.g.labels", g.labels),
        ("runtime.bucket.allnext", bucket::ALL_NEXT),
        ("runtime.bucket.typ", bucket::TYPE),
        ("runtime.bucket.size", bucket::SIZE),
        ("runtime.bucket.nstk", bucket::DEPTH),
        ("size runtime.bucket", bucket::HEADER),
        ("size runtime.blockRecord", bucket::BLOCK_RECORD),
        ("runtime.blockRecord.count", 0),
        ("runtime.blockRecord.cycles", 8),
        ("size runtime.memRecordCycle", layout.cycle.size()),
        ("size runtime.memRecord", 4 * layout.cycle.size()),
        ("runtime.memRecord.active", 0),
        ("runtime.memRecord.future", layout.cycle.size()),
        ("runtime.memRecordCycle.allocs", 0),
        ("runtime.memRecordCycle.frees", 8),
        ("runtime.ticksType.val", layout.ticks.rate()),
        ("size runtime.waitReasonStrings", 16 * layout.wait_reasons.len()),
        ("runtime.gcControllerState.gcPercent", pacer::PERCENT),
        ("runtime.gcControllerState.memoryLimit", pacer::LIMIT),
        ("runtime.gcControllerState.gcPercentHeapGoal", pacer::GOAL),
        ("runtime.gcControllerState.sweepDistMinTrigger", pacer::SWEEP),
        ("runtime.gcControllerState.triggered", pacer::TRIGGERED),
        ("runtime.gcControllerState.lastHeapGoal", pacer::LAST_GOAL),
        ("runtime.gcControllerState.heapLive", pacer::LIVE),
        ("runtime.gcControllerState.heapMarked", pacer::MARKED),
        ("runtime.gcControllerState.heapFree", pacer::FREE),
        ("runtime.gcControllerState.totalAlloc", pacer::ALLOCATED),
        ("runtime.gcControllerState.totalFree", pacer::FREED),
        ("runtime.gcControllerState.mappedReady", pacer::MAPPED),
        ("size runtime.gomaxprocs", 4),
        ("runtime.mstats.last_gc_unix", layout.last_gc_unix),
        ("runtime.mutex.key", 0),
        ("size runtime.profMemActiveLock", 8),
    ];
    claims.extend(match layout.labels {
        Labels::Map => MAP,
        Labels::Slice if minor < 26 => SLICE,
        Labels::Slice => NEWER_SLICE,
    });
    if layout.cycle == Cycle::Counted {
        claims.extend([("runtime.memRecordCycle.alloc_bytes", 16), ("runtime.memRecordCycle.free_bytes", 24)]);
    }
    if layout.ticks == Ticks::Start {
        claims.extend([("runtime.ticksType.startTicks", 8), ("runtime.ticksType.startTime", 16)]);
    }
    claims
}
