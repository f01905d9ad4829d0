//! Stacks that are named while a part of the process's memory is not mapped yet, in a process that runs (`later.c`).

use std::process::Command;
use std::time::{Duration, Instant};

use profiler_sidecar::naming::{Namer, Stack};
use profiler_sidecar::sample::{End, Sample};

use super::build::{Running, c};

fn names(stack: &Stack) -> Vec<&str> {
    stack.frames.iter().map(|location| location.function()).collect()
}

/// Check that a stack which ended where nothing was mapped is looked up again: once something is mapped there, it is whole, and from then on known. One that
/// was whole from the start is known all the time.
#[test]
fn a_stack_is_whole_once_its_memory_is_mapped() {
    let program = c("later.c", &["-O1"]);
    let mut running = Running::start(&mut Command::new(&program));
    let (inner, later, process) = (running.address(), running.address(), running.process());
    let (mut namer, start) = (Namer::default(), Instant::now());
    // Mappings are read anew each time.
    let mut hours = 0;
    let mut name = |namer: &mut Namer, user: &[u64]| {
        hours += 1;
        let sample = Sample { user: user.to_vec(), end: End::Root, ..Sample::default() };
        namer.name(process, &sample, start + Duration::from_secs(3600) * hours)
    };
    let known = name(&mut namer, &[inner, inner + 2]);
    assert!(known.number.is_some() && names(&known) == ["inner", "inner"], "{known:?}");
    for _ in 0..2 {
        let cut = name(&mut namer, &[inner, later + 2]);
        assert_eq!((names(&cut), cut.number, cut.flaws.total()), (vec!["inner", "[stack incomplete]"], None, 1));
    }
    assert_eq!((namer.stats().stacks, namer.stats().whole), (3, 1));

    running.write("\n");
    assert_eq!(running.address(), later, "it is mapped");
    let whole = name(&mut namer, &[inner, later + 2]);
    assert_eq!((names(&whole), whole.flaws.total()), (vec!["inner", "inner"], 0));
    let again = name(&mut namer, &[inner, later + 2]);
    assert!(whole.number.is_some() && again.number == whole.number, "{whole:?} {again:?}");
    assert_ne!(whole.number, known.number);
    // What was mapped later changes nothing of what was there.
    assert_eq!(name(&mut namer, &[inner, inner + 2]).number, known.number);
    assert_eq!((namer.stats().stacks, namer.stats().whole), (6, 4));
}
