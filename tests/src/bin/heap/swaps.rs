//! Two libraries that take each other's place in memory while blocks live that were allocated below either.
//!
//! In: `libraries`, paths of the two with a comma between them, `alpha` first. Out: how often one was loaded where the other one was, how many blocks live, and
//! what a profile says of them. The tag `library` says what really allocated.

use profiler::Profiler;
use profiler_tests::library::{Library, paths};
use profiler_tests::subject::Options;
use profiler_tests::tally::{Seen, objects_in_use};
use profiler_tests::truth::{Known, LIBRARIES, Verdict};
use profiler_tests::{Result, capture};
use serde_json::{Value, json};

use super::exact::Block;
use super::start;

/// How often a library comes, and how many blocks it leaves each time.
const COMES: usize = 12;
const LEAVES: usize = 50;
/// Functions of the library above the one that calls back.
const DEPTH: u32 = 3;

/// Has them come in turn, and asks while the last one is there and when it has gone.
pub(crate) fn swaps(options: &Options) -> Result<Value> {
    let paths = paths(options)?;
    let profiler = start(0)?;
    let (mut kept, mut place, mut in_place) = (Vec::with_capacity(COMES * LEAVES), 0, 0);
    let mut verdicts = Vec::new();
    for come in 0..COMES {
        let which = come % LIBRARIES.len();
        let library = Library::open(&paths[which])?;
        in_place += u64::from(std::mem::replace(&mut place, library.place()?) == place);
        await_name(&profiler, &library, which)?;
        let _scope = profiler::tag!("library" => LIBRARIES[which]);
        library.call(DEPTH, &mut || kept.extend((0..LEAVES).map(|_| Block::of(1024))))?;
        verdicts.push(verdict(&profiler)?);
    }
    verdicts.push(verdict(&profiler)?);
    Ok(json!({ "in_place": in_place, "comes": COMES, "leaves": LEAVES, "verdicts": verdicts }))
}

/// Allocates below the library until that has its name: modules are looked at some times a second.
fn await_name(profiler: &Profiler, library: &Library, which: usize) -> Result<()> {
    let mut probe = Vec::with_capacity(1);
    let is_named = |sample: &Seen| {
        let names = |name: &String| name.starts_with(LIBRARIES[which]);
        sample.tags.contains("probe=1") && sample.stack.iter().any(names)
    };
    loop {
        probe.clear();
        let scope = profiler::tag!("probe" => "1");
        library.call(DEPTH, &mut || probe.push(Block::of(1024)))?;
        drop(scope);
        if in_use(profiler)?.iter().any(is_named) {
            return Ok(());
        }
    }
}

fn verdict(profiler: &Profiler) -> Result<Value> {
    let is_kept = |sample: &Seen| sample.tags.iter().any(|tag| tag.starts_with("library="));
    let kept = in_use(profiler)?.into_iter().filter(is_kept);
    Ok(serde_json::to_value(Verdict::of_samples(kept, Known::Function))?)
}

fn in_use(profiler: &Profiler) -> Result<Vec<Seen>> {
    Ok(objects_in_use(&capture::heap(profiler)?))
}
