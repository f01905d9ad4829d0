//! The page's JSON: a tree as columns in preorder, with what stands in the page's header.
//!
//! In: a tree, the figures of its range of time, the profiler's account. Out: the body of `/api/profile`.

use std::time::Duration;

use profiler_proto::model::Id;
use serde_json::{Map, Value, json};

use super::asked::Asked;
use super::frames::Frames;
use super::json::Object;
use super::profiles::HeapFigures;
use super::sample_type::SampleType;
use super::source::Target;
use super::tree::Tree;
use super::window::Window;

/// What stands in the page's header beside the tree.
pub(super) struct Header<'a> {
    pub(super) asked: &'a Asked,
    /// What can be asked for.
    pub(super) types: &'a [SampleType],
    /// The processes that can be asked for, the first being the server's own if it has one.
    pub(super) targets: &'a [Target],
    pub(super) stats: &'a Value,
    pub(super) heap: Option<HeapFigures>,
    /// By how much what shrank did, where growth was asked for.
    pub(super) shrank: Option<u64>,
}

/// The answer of `/api/profile`.
///
/// * `kind`: what is measured. Weights are in periods, `period` being nanoseconds of CPU time; of all else they are in `unit`: of the heap bytes
///   or objects, `period` being how many bytes there are to a sample. `types`: all that can be asked for.
/// * `targets`: the processes that can be asked for, by `service` and `pid`; `target`: the first of them. Where the tree has samples of several, they
///   stand below its root, by service or, of one service, by pid.
/// * Times are milliseconds since 1970 UTC: `from` and `to` as asked for, `first` and `last` of what is there (null if nothing is); of
///   what is in use both are the moment of that state.
/// * `tags`: values seen in the range, before any tag was asked for, and traces as those of `trace_id`, and `tag_weights` their weights, of `weight` in all;
///   `tags_cut`: there are more.
/// * `growth`: in answer to a request for it: by how much that shrank which did; the tree has what grew from `first` to `last`.
/// * `heap`: bytes that the samples in use at the time `at` stand for, and what the allocator said then; null where unknown.
/// * `samples`: weight of the tree. `stacks`: stacks taken in the range; of the heap, about how many sampled blocks. `sum_squares`: so that
///   `samples² ÷ sum_squares` is the number of stacks behind the tree, for standard errors; left out where unknown.
/// * `frames`: by frame number, indexes into `names`, `packages`, `files`; line (0 unknown); whether inlined; kind: 0 own,
///   1 standard library, 2 dependency, 3 native, 4 kernel, 5 unresolved, 7 a process. Frame 0 is the root's.
/// * `nodes`: in preorder, node 0 the root; `self` in periods. `trimmed`: nodes that were merged into "(trimmed)".
/// * `stats`: as `/stats`. `debug_info`: whether the executable has lines; null while unknown.
pub(super) fn json(header: &Header<'_>, window: &Window, tree: &Tree) -> Vec<u8> {
    let mut answer = Object::new();
    answer.number("version", 1).value("kind", &kind(window, header.stats));
    answer.value("types", &header.types.iter().map(|sample_type| sample_type.name()).collect());
    answer.number("from", millis(header.asked.range.from)).number("to", millis(header.asked.range.to));
    answer.value("first", &json!(window.first.map(millis))).value("last", &json!(window.last.map(millis)));
    answer.number("duration_ms", millis(window.duration)).number("now", millis(header.asked.now));
    let targets: Vec<Value> = header.targets.iter().map(target).collect();
    answer.value("target", &targets.first().cloned().unwrap_or_default()).value("targets", &targets.into());
    tags(window, &mut answer);
    if let Some(shrank) = header.shrank {
        answer.value("growth", &json!({ "shrank": shrank }));
    }
    if let Some(HeapFigures { at, live, allocated, resident }) = header.heap {
        let heap = json!({ "at": millis(at), "live": live, "allocated": allocated, "resident": resident });
        answer.value("heap", &heap);
    }
    answer.number("samples", tree.samples).number("stacks", window.evidence.stacks());
    if window.evidence.stacks() > 0 {
        answer.number("sum_squares", tree.samples as f64 * window.mean_weight());
    }
    answer.texts("names", tree.frames.names.iter().map(AsRef::as_ref));
    answer.texts("files", tree.frames.files.iter().map(AsRef::as_ref));
    answer.texts("packages", tree.frames.packages.iter().map(AsRef::as_ref));
    answer.object("frames", frames(&tree.frames)).object("nodes", nodes(tree));
    answer.number("trimmed", tree.trimmed).value("stats", header.stats);
    answer.value("debug_info", &header.stats["symbols"]["lines"]);
    answer.finish()
}

fn target(target: &Target) -> Value {
    match &target.language {
        Some(language) => json!({ "service": target.service, "pid": target.pid, "language": language }),
        None => json!({ "service": target.service, "pid": target.pid }),
    }
}

fn tags(window: &Window, answer: &mut Object) {
    let (mut values, mut weights) = (Map::new(), Map::new());
    for (key, seen) in &window.tags {
        values.insert(key.clone(), seen.iter().map(|(value, _)| value.as_str()).collect());
        weights.insert(key.clone(), seen.iter().map(|(_, weight)| *weight).collect());
    }
    answer.value("tags", &values.into()).value("tag_weights", &weights.into());
    answer.number("weight", window.evidence.weight());
    if window.tags_cut {
        answer.value("tags_cut", &Value::Bool(true));
    }
}

fn kind(window: &Window, stats: &Value) -> Value {
    let (name, unit) = (window.sample_type.name(), window.sample_type.unit());
    if window.sample_type.is_heap() {
        let period = window.period.map_or_else(|| stats["heap"]["interval_bytes"].clone(), Value::from);
        return json!({ "type": name, "unit": unit, "period": period });
    }
    if window.sample_type != SampleType::Cpu {
        return json!({ "type": name, "unit": unit, "period": 1 });
    }
    let rate = stats["rate_hz"].as_u64().unwrap_or(0);
    // Before the first profile: what the rate makes it.
    let period = window.period.unwrap_or_else(|| 1_000_000_000_i64.checked_div(rate as i64).unwrap_or(0));
    let rate = 1_000_000_000_i64.checked_div(period).unwrap_or(0);
    json!({ "type": name, "unit": "nanoseconds", "period": period, "rate_hz": rate })
}

fn frames(frames: &Frames) -> Object {
    let table = || frames.table.iter();
    let mut columns = Object::new();
    columns.numbers("name", table().map(|frame| frame.name.index()));
    columns.numbers("package", table().map(|frame| frame.package.index()));
    columns.numbers("file", table().map(|frame| frame.file.index()));
    columns.numbers("line", table().map(|frame| frame.line));
    columns.numbers("inlined", table().map(|frame| u8::from(frame.inlined)));
    columns.numbers("kind", table().map(|frame| frames.sort(frame) as u8));
    columns
}

fn nodes(tree: &Tree) -> Object {
    let mut columns = Object::new();
    columns.numbers("depth", tree.depth.iter()).numbers("frame", tree.frame.iter()).numbers("self", tree.own.iter());
    columns
}

pub(super) fn millis(nanos: u64) -> u64 {
    u64::try_from(Duration::from_nanos(nanos).as_millis()).unwrap_or(u64::MAX)
}
