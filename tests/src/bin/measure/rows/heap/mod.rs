//! Profiles of the heap: what they cost beside jemalloc without profiling, with its own, and with `jemalloc_pprof` on top.
//!
//! Its own program on jemalloc for all of them (`bin/subject_heap`), a release build beside the others'. Ours runs with its defaults, at one
//! sample in a MiB, tags on, and CPU samples at 1 Hz, for they cannot be turned off, unless a line says otherwise; jemalloc's own with its default, at one in
//! 512 KiB; `jemalloc_pprof` makes a profile as often as ours, which goes nowhere, while ours sends its own. `bare_hooks` is ours
//! without what is ours: the same options of jemalloc, sampling on, hooks that do nothing.

mod memory;
mod pause;
mod requests;
mod samples;

use profiler_tests::Result;

use super::Row;
use crate::lab::Lab;
use crate::report::Report;
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "heap", what: "what profiles of the heap cost", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    // Built before the first figure is taken.
    lab.heap()?;
    let cost = samples::measure(lab, report)?;
    requests::measure(lab, report, cost)?;
    memory::measure(lab, report)?;
    pause::measure(lab, report)
}

/// jemalloc's options for `who`, with one sample in `2^lg` bytes; empty where the program's own are right.
fn options(who: Who, lg: u32) -> String {
    match who {
        Who::Nobody => "prof:false".into(),
        Who::Jemalloc | Who::JemallocPprof => format!("prof:true,prof_active:true,lg_prof_sample:{lg}"),
        Who::Ours | Who::Off | Who::BareHooks | Who::Pprof | Who::Pyroscope | Who::OpenTelemetry => String::new(),
    }
}
