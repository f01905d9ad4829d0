//! What a program serves of its heap.
//!
//! In: nothing. Out: the types of the files at `/debug/pprof/heap` and `/debug/pprof/allocs`, and what they say of one function; how much
//! the heap changed within a second, beside how much it really did.

use std::net::SocketAddr;
use std::time::Duration;

use profiler::Config;
use profiler_proto::{Limits, ProfileSet, pprof};
use profiler_tests::Result;
use profiler_tests::fetch;
use serde_json::{Value, json};

use super::exact::Block;
use super::sums::Sums;

/// Blocks that go, one after the other, while the heap's change is asked for: more than there is time for.
const GOING: usize = 5000;

/// Allocates, and fetches both.
pub(crate) fn pull() -> Result<Value> {
    let profiler = profiler::start(Config::new("heap").heap(true).heap_interval(1).serve("127.0.0.1:0"))?;
    let address = profiler.serve_address().ok_or("not served")?;
    let mut room = Vec::with_capacity(200);
    kept(&mut room);
    room.truncate(100);
    let (heap, allocs) = (told(&fetched(address, "heap")?), told(&fetched(address, "allocs")?));
    drop(room);
    Ok(json!({ "heap": heap, "allocs": allocs, "change": change(address)? }))
}

/// What is said to have changed of a function whose blocks come, and of one whose blocks go, meanwhile.
fn change(address: SocketAddr) -> Result<Value> {
    let (mut room, mut new) = (Vec::with_capacity(GOING), Vec::with_capacity(GOING));
    going(&mut room);
    let asked = std::thread::spawn(move || fetched(address, "heap?seconds=1"));
    let mut steps = 0;
    while !asked.is_finished() && steps < GOING {
        coming(&mut new);
        drop(room.pop());
        steps += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    let set = asked.join().map_err(|_| "the request panicked")??;
    let sums = Sums::of(&set);
    let times: Vec<u64> = set.profiles.iter().map(|profile| profile.duration_nanos).collect();
    Ok(json!({ "steps": steps, "coming": sums.function("coming"), "going": sums.function("going"), "nanos": times }))
}

fn fetched(address: SocketAddr, path: &str) -> Result<ProfileSet> {
    let (status, body) = fetch::get(address, &format!("/debug/pprof/{path}"), Duration::from_secs(60))?;
    if status != 200 {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(pprof::decode(&body, &Limits::default())?)
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
fn going(room: &mut Vec<Block>) {
    room.extend((0..GOING).map(|_| Block::of(2048)));
    std::hint::black_box("going");
}

#[inline(never)]
fn coming(room: &mut Vec<Block>) {
    room.push(Block::of(4096));
    std::hint::black_box("coming");
}

#[inline(never)]
fn kept(room: &mut Vec<Block>) {
    room.extend((0..101).map(|_| Block::of(2048)));
    std::hint::black_box("kept");
}
