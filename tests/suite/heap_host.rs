//! The heap of a host that does things itself: an allocator around jemalloc, hooks of its own, memory that is refused, samples turned off.
//!
//! In: scenarios of the program `heap_host`. Out: what was lost is counted and said, what belongs to others is called, all is survived.

use std::process::Command;

use serde_json::Value;

use crate::scenario::{clean, number, result};

fn host(name: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heap_host"));
    command.arg(name).env_remove("MALLOC_CONF").env_remove("_RJEM_MALLOC_CONF");
    clean(&mut command);
    result(&mut command)
}

/// What a thousand blocks and one for their list came to. Whoever asks for figures allocates some more.
#[track_caller]
fn assert_a_thousand(outcome: &Value, path: &str) {
    let seen = number(outcome, path);
    assert!((1000..1200).contains(&seen), "{path} is {seen}: {outcome}");
}

/// Check that hooks that were there before are called for each sample and each free, with the stacks that jemalloc takes for them, while the
/// profiler runs and once it has ended, and that this is said.
#[test]
fn hooks_that_were_there_before_go_on() {
    let outcome = host("first");
    for path in ["/during/host/0", "/during/host/1", "/during/profiler/sampled", "/during/profiler/freed"] {
        assert_a_thousand(&outcome, path);
    }
    assert!(number(&outcome, "/during/host/2") > 5 * number(&outcome, "/during/host/0"), "no stacks: {outcome}");
    assert_a_thousand(&outcome, "/after/host/0");
    assert_a_thousand(&outcome, "/after/host/1");
    assert!(outcome["notes"].to_string().contains("were there before"), "{outcome}");
}

/// Check that hooks that come later are noticed and said, that each sample is taken once where they call the profiler's, also when it is
/// started again behind them, and that a host whose hooks call nobody goes on undisturbed.
#[test]
fn hooks_that_come_later_are_noticed() {
    let outcome = host("later");
    assert!(!outcome["alone"]["notes"].to_string().contains("since"), "{outcome}");
    assert!(outcome["notes"].to_string().contains("others have set jemalloc's hooks since"), "{outcome}");
    for when in ["calling", "again"] {
        for path in ["host/0", "host/1", "profiler/sampled", "profiler/freed"] {
            assert_a_thousand(&outcome, &format!("/{when}/{path}"));
        }
    }
    assert_a_thousand(&outcome, "/deaf/host/0");
    assert_eq!(number(&outcome, "/deaf/profiler/sampled"), 0, "{outcome}");
}

/// Check that hooks which get no memory lose samples by count and nothing else: what had no room for its stack is shown as such, and once
/// there is memory again all is exact, down to nothing.
#[test]
fn memory_refused_in_a_hook_is_counted() {
    let outcome = host("refusal");
    let (stacks, without, with) = (number(&outcome, "/stacks"), &outcome["without"], &outcome["with"]);
    assert!(number(&outcome, "/refused") >= stacks, "{outcome}");
    assert!(number(without, "/no_memory") > 500 && number(without, "/not_noted") <= stacks, "{outcome}");
    assert!(number(without, "/without_stack") >= stacks, "{outcome}");
    for stats in [without, with] {
        assert_eq!(number(stats, "/sampled"), number(stats, "/recorded") + number(stats, "/lost_total"), "{stats}");
        assert_eq!(number(stats, "/live"), number(stats, "/recorded") - number(stats, "/freed"), "{stats}");
    }
    let known = stacks - number(without, "/no_memory");
    assert_eq!(number(&outcome, "/in_use/2"), known, "{outcome}");
    assert_eq!(number(with, "/no_memory"), number(without, "/no_memory"), "{outcome}");
    assert_eq!(number(with, "/unknown") - number(without, "/unknown"), number(without, "/no_memory"), "{outcome}");
    assert_eq!(
        (&outcome["of_blocks"][1], &outcome["of_blocks"][2]),
        (&Value::from(1001), &Value::from(0)),
        "{outcome}"
    );
    assert_eq!((&outcome["left"][1], &outcome["left"][2]), (&Value::from(0), &Value::from(0)), "{outcome}");
}

/// Check that sampling that others turn off is said, that it goes on when they turn it on, and that an interval that they set is the one
/// that samples are weighed by.
#[test]
fn sampling_toggled_by_others_is_noticed() {
    let outcome = host("toggled");
    let (off, on) = (&outcome["off"], &outcome["on"]);
    assert_eq!((number(off, "/sampled"), &off["stats"]["on"]), (0, &Value::from(false)), "{outcome}");
    assert!(off["stats"]["notes"].to_string().contains("turned off by others"), "{outcome}");
    assert!(number(on, "/sampled") >= 1000 && on["stats"]["on"] == true, "{outcome}");
    assert_eq!(on["stats"]["notes"], Value::Array(Vec::new()), "{outcome}");
    let rarely = &outcome["rarely"];
    assert_eq!((number(rarely, "/sampled"), number(rarely, "/stats/interval_bytes")), (0, 1 << 30), "{outcome}");
    assert_eq!(outcome["resumed"]["on"], true, "{outcome}");
}
