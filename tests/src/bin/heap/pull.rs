//! What a program serves of its heap.
//!
//! In: nothing. Out: the types of the files at `/debug/pprof/heap` and `/debug/pprof/allocs`, and what they say of one function.

use std::time::Duration;

use profiler::Config;
use profiler_proto::{Limits, ProfileSet, pprof};
use profiler_tests::Result;
use profiler_tests::fetch;
use serde_json::{Value, json};

use super::exact::Block;
use super::sums::Sums;

/// Allocates, and fetches both.
pub(crate) fn pull() -> Result<Value> {
    let profiler = profiler::start(Config::new("heap").heap(true).heap_interval(1).serve("127.0.0.1:0"))?;
    let address = profiler.serve_address().ok_or("not served")?;
    let mut room = Vec::with_capacity(200);
    kept(&mut room);
    room.truncate(100);
    let fetched = |path: &str| -> Result<Value> {
        let (status, body) = fetch::get(address, &format!("/debug/pprof/{path}"), Duration::from_secs(60))?;
        if status != 200 {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(told(&pprof::decode(&body, &Limits::default())?))
    };
    let (heap, allocs) = (fetched("heap")?, fetched("allocs")?);
    drop(room);
    Ok(json!({ "heap": heap, "allocs": allocs }))
}

fn told(set: &ProfileSet) -> Value {
    let text = |id| set.dictionary.strings.text(id);
    let types: Vec<&str> = set.profiles.iter().map(|profile| text(profile.kind.sample_type.kind)).collect();
    let first = set.profiles.first();
    let default = first.and_then(|profile| {
        set.dictionary.value_of(profile.attributes, "profiler.pprof.default_sample_type").map(ToString::to_string)
    });
    // Where a file says what viewers show anyway, the reader does not repeat it.
    let default = default.unwrap_or_else(|| "inuse_space".to_owned());
    let kind = first.map(|profile| profile.kind).unwrap_or_default();
    json!({
        "types": types, "first": default, "kept": Sums::of(set).function("kept"),
        "period": [text(kind.period_type.kind), text(kind.period_type.unit), kind.period],
    })
}

#[inline(never)]
fn kept(room: &mut Vec<Block>) {
    room.extend((0..101).map(|_| Block::of(2048)));
    std::hint::black_box("kept");
}
