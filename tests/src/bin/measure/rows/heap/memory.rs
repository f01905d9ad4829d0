//! What is kept of a live sample, at a million of them: all at one stack, so that it is what each of them takes beside the stack.
//!
//! *Resident* is what resident memory grows by, less what it grows by under jemalloc's own profiling, which keeps something of each
//! sample, too, both with what is freed given back at once, for tables grow by copies; *tables* is what ours says itself.

use profiler_tests::Result;

use super::{ROW, options};
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

const BLOCKS: u32 = 1_000_000;
/// What is freed goes back to the kernel at once (jemalloc(3), `opt.dirty_decay_ms`).
const GIVES_BACK: &str = "dirty_decay_ms:0,muzzy_decay_ms:0";

/// Adds the lines.
pub(super) fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let task = ["task=memory".into(), "lg=0".into(), format!("blocks={BLOCKS}")];
    let run = |who: Who| {
        let options = [GIVES_BACK.to_owned(), options(who, 0)].into_iter().filter(|options| !options.is_empty());
        lab.run_heap(who, &options.collect::<Vec<_>>().join(","), &task)
    };
    let (ours, theirs) = (run(Who::Ours)?, run(Who::Jemalloc)?);
    let each = |said: &serde_json::Value, name: &str| said[name].as_f64().unwrap_or(0.0) / f64::from(BLOCKS);
    if each(&ours, "live") < 1.0 {
        return Err(format!("not every block is in the table: {ours}").into());
    }
    let mut add = |what: &str, value: f64| {
        let what = format!("{what}, {BLOCKS} live samples");
        report.add(Line { row: ROW.name, what, unit: "B", digits: 1, values: vec![(Who::Ours, value)] });
    };
    add("each, resident beside jemalloc's own", each(&ours, "resident") - each(&theirs, "resident"));
    add("each, by its tables", each(&ours, "tables"));
    Ok(())
}
