//! The cost of one sample: CPU time of a sampled allocation and of its free, less that of one which is not sampled, at stacks 20
//! and 60 deep, the same stack each time and one never seen before.
//!
//! What jemalloc does itself for a sample, and the page that it gives it, is in the figures of both.

use profiler_tests::Result;
use profiler_tests::statistics::median;

use super::super::cost::numbers;
use super::{ROW, options};
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// Blocks of a batch.
const SIZE: f64 = 200.0;

/// Adds the lines; the nanoseconds of ours, allocated and freed, at the same stack of 60 frames, as the row `overhead` has it for signals.
pub(super) fn measure(lab: &Lab, report: &mut Report) -> Result<f64> {
    let mut usual = 0.0;
    for depth in [20, 60] {
        for (stack, described) in [("same", "the same stack"), ("new", "a new stack")] {
            let nanos = |who: Who| one(lab, who, depth, stack);
            let bare = nanos(Who::Nobody)?;
            let (mut allocated, mut freed) = (Vec::new(), Vec::new());
            for who in [Who::Ours, Who::Jemalloc] {
                let costs = nanos(who)?;
                allocated.push((who, costs[0] - bare[0]));
                freed.push((who, costs[1] - bare[1]));
            }
            if stack == "same" {
                usual = allocated[0].1 + freed[0].1;
            }
            let what = format!("a sampled allocation, {described} of {depth} frames");
            report.add(Line { row: ROW.name, what, unit: "ns", digits: 0, values: allocated });
            let what = format!("its free, {described} of {depth} frames");
            report.add(Line { row: ROW.name, what, unit: "ns", digits: 0, values: freed });
        }
    }
    Ok(usual)
}

/// Nanoseconds of one allocation and of one free, every one sampled, or none under nobody.
fn one(lab: &Lab, who: Who, depth: u32, stack: &str) -> Result<[f64; 2]> {
    let batches = if lab.quick { 20.0 } else { 100.0 };
    let task = ["task=samples".to_owned(), "lg=0".into(), format!("depth={depth}"), format!("stack={stack}")];
    let numbers_of = [format!("batches={batches}"), format!("size={SIZE}")];
    let said = lab.run_heap(who, &options(who, 0), &[&task[..], &numbers_of[..]].concat())?;
    let sampled = said["sampled"].as_f64().unwrap_or(0.0);
    if who == Who::Ours && sampled < batches * SIZE {
        return Err(format!("not every allocation was sampled: {sampled} of {}", batches * SIZE).into());
    }
    let nanos = |name: &str| -> f64 { median(&numbers(&said[name])) };
    Ok([nanos("allocated"), nanos("freed")])
}
