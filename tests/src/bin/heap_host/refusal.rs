//! Memory that is refused inside the hooks, and only there.
//!
//! In: nothing. Out: what was lost and said, and whether all is well once there is memory again.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use profiler::Profiler;
use profiler_proto::ProfileSet;
use profiler_tests::stats::heap_to_json;
use profiler_tests::workload::{Random, on_path};
use profiler_tests::{Result, capture};
use serde_json::{Value, json};

use super::{blocks, start, wait_for};

/// Blocks, each from a stack of its own.
const STACKS: u64 = 3000;

/// How long a last flush may take where the machine is busy with other things, and slow to find the names of a debug build.
const FLUSH: Duration = Duration::from_secs(200);

/// Allocates with and without memory for hooks, in a span while there is none.
pub(crate) fn refusal() -> Result<Value> {
    let profiler = start()?;
    let mut random = Random::new(3);
    let mut room = Vec::with_capacity(STACKS as usize);
    // Before and behind, for it allocates itself: what is refused is what stays in the room, and nothing else.
    let in_span = span().attach();
    profiler::__private::refuse_memory(true);
    for _ in 0..STACKS {
        on_path(random.draw(), 20, &mut || room.push(Vec::<u8>::with_capacity(100)));
    }
    profiler::__private::refuse_memory(false);
    drop(in_span);
    let without = heap_to_json(&profiler.stats().heap);
    let in_use = in_use(&profiler)?;
    drop(room);
    let later = blocks(1000);
    let with = heap_to_json(&profiler.stats().heap);
    let of_blocks = self::in_use(&profiler)?;
    drop(later);
    let left = self::in_use(&profiler)?;
    profiler.pause();
    // On a busy machine it may be over before the profiler has obeyed.
    wait_for(|| !profiler.stats().heap.on)?;
    let sent = profiler.flush(FLUSH);
    let last = heap_to_json(&profiler.stats().heap);
    Ok(json!({
        "stacks": STACKS, "without": without, "in_use": in_use, "with": with,
        "of_blocks": of_blocks, "left": left, "sent": sent, "last": last,
    }))
}

/// A context in which a span is current.
fn span() -> Context {
    let (trace, span) = (TraceId::from_bytes([5; 16]), SpanId::from_bytes([7; 8]));
    let context = SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE);
    Context::new().with_remote_span_context(context)
}

/// Objects that live by what a profile says: all, those of [`blocks`], and those whose stack had no room.
pub(crate) fn in_use(profiler: &Profiler) -> Result<[i64; 3]> {
    let set = capture::heap(profiler)?;
    let is_in_use =
        |kind: &profiler_proto::model::Kind| set.dictionary.strings.text(kind.sample_type.kind) == "inuse_objects";
    let profile = set.profiles.iter().find(|profile| is_in_use(&profile.kind)).ok_or("no profile of what lives")?;
    let mut sums = [0; 3];
    for sample in &profile.samples {
        let names = functions(&set, sample.stack);
        sums[0] += sample.value;
        sums[1] += if names.iter().any(|name| name.ends_with("heap_host::blocks")) { sample.value } else { 0 };
        sums[2] += if names.iter().any(|name| name.starts_with("[stacks beyond")) { sample.value } else { 0 };
    }
    Ok(sums)
}

pub(crate) fn functions(set: &ProfileSet, stack: profiler_proto::model::StackId) -> Vec<String> {
    let dictionary = &set.dictionary;
    let locations = dictionary.stacks.get(stack).map_or(&[][..], |stack| &stack.locations);
    let lines = locations.iter().filter_map(|id| dictionary.locations.get(*id)).flat_map(|location| &location.lines);
    let names = lines.filter_map(|line| dictionary.functions.get(line.function));
    names.map(|function| dictionary.strings.text(function.name).to_owned()).collect()
}
