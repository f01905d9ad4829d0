//! The cost of one sample: CPU time of a sampled allocation and of its free, less that of one which is not sampled, at stacks 20
//! and 60 deep, the same stack each time and one never seen before.
//!
//! What jemalloc does itself for a sample, and the page that it gives it, is in the figures of all; alone in those of hooks that do nothing.

use profiler_tests::Result;
use profiler_tests::statistics::median;

use super::super::cost::numbers;
use super::{ROW, options};
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// Blocks of a batch.
const SIZE: u64 = 200;

/// Threads that are sampled at once, where there are many.
const MANY: u32 = 64;

/// Adds the lines; the nanoseconds of ours, allocated and freed, at the same stack of 60 frames, as the row `overhead` has it for signals.
pub(super) fn measure(lab: &Lab, report: &mut Report) -> Result<f64> {
    let mut usual = 0.0;
    let same = |depth, threads| Stack { depth, is_new: false, threads };
    let new = |depth| Stack { depth, is_new: true, threads: 1 };
    for stack in [same(20, 1), new(20), same(20, MANY), same(60, 1), new(60)] {
        let bare = one(lab, Who::Nobody, &stack)?;
        let (mut allocated, mut freed) = (Vec::new(), Vec::new());
        for who in [Who::BareHooks, Who::Ours, Who::Jemalloc] {
            let costs = one(lab, who, &stack)?;
            allocated.push((who, costs[0] - bare[0]));
            freed.push((who, costs[1] - bare[1]));
        }
        if (stack.depth, stack.is_new) == (60, false) {
            usual = allocated[1].1 + freed[1].1;
        }
        let Stack { depth, is_new, threads } = stack;
        let described = if is_new { "a new stack" } else { "the same stack" };
        let on_many = if threads > 1 { format!(", on {threads} threads at once") } else { String::new() };
        let what = format!("a sampled allocation, {described} of {depth} frames{on_many}");
        report.add(Line { row: ROW.name, what, unit: "ns", digits: 0, values: allocated });
        let what = format!("its free, {described} of {depth} frames{on_many}");
        report.add(Line { row: ROW.name, what, unit: "ns", digits: 0, values: freed });
    }
    Ok(usual)
}

/// From where memory is asked for.
struct Stack {
    depth: u32,
    /// Another one each time.
    is_new: bool,
    threads: u32,
}

/// Nanoseconds of one allocation and of one free, every one sampled, or none under nobody.
fn one(lab: &Lab, who: Who, stack: &Stack) -> Result<[f64; 2]> {
    let Stack { depth, is_new, threads } = *stack;
    let batches = if lab.quick { 20 } else { 100 }.max(2 * threads) / threads;
    let name = if is_new { "new" } else { "same" };
    let task = ["task=samples".to_owned(), "lg=0".into(), format!("depth={depth}"), format!("stack={name}")];
    let numbers_of = [format!("batches={batches}"), format!("size={SIZE}"), format!("threads={threads}")];
    let options = if who == Who::BareHooks { "lg_prof_sample:0".into() } else { options(who, 0) };
    let said = lab.run_heap(who, &options, &[&task[..], &numbers_of[..]].concat())?;
    let (sampled, wanted) = (said["sampled"].as_u64().unwrap_or(0), u64::from(batches * threads) * SIZE);
    if who == Who::Ours && sampled < wanted {
        return Err(format!("not every allocation was sampled: {sampled} of {wanted}").into());
    }
    let nanos = |name: &str| -> f64 { median(&numbers(&said[name])) };
    Ok([nanos("allocated"), nanos("freed")])
}
