//! A process that makes it dear to look at it (`tests/go/forges`): what its capture costs is bounded, and what is left out is counted.

use std::time::Instant;

use profiler_sidecar::capture::{Bounds, End, Source, Variables};
use profiler_sidecar::go::layouts;

use crate::programs;
use crate::running::Running;

/// Check a thousand goroutines of which each would cost sixteen megabytes to walk twice: some are walked to the end, the others are there without their stacks.
#[test]
fn forged_stacks_cost_what_a_capture_may_cost() {
    let g = layouts::of(24).unwrap().g;
    let offsets = [g.status, g.id, g.sched].map(|offset| offset.to_string());
    let program = programs::build("forges", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let mut running = Running::start(&program, &[&offsets[0], &offsets[1], &offsets[2], "1000"]);
    let at: u64 = running.told("where").parse().unwrap();
    let source = Source::find(running.pid()).unwrap();
    let variables = Variables { goroutines: Some(at), ..*source.variables() };
    let source = source.with_variables(variables);
    let began = Instant::now();
    let all = source.goroutines(Bounds::default()).unwrap();
    eprintln!("{} of {} stacks are left out, in {:?}", all.over_work, all.list.len(), began.elapsed());
    assert_eq!((all.list.len(), all.broken, all.beyond, all.changed), (1000, 0, 0, 0));
    let walked = all.list.iter().filter(|goroutine| goroutine.stack.len() == 1024 && goroutine.end == End::Cut).count();
    assert!((32..200).contains(&walked), "{walked}");
    assert_eq!(walked as u64 + all.over_work, 1000);
}
