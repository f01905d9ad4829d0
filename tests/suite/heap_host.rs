//! The heap of a host that does things itself: an allocator around jemalloc, hooks of its own, memory that is refused, samples turned off.
//!
//! In: scenarios of the program `heap_host`. Out: what was lost is counted and said, what belongs to others is called, all is survived.

use std::process::Command;

use profiler_proto::Profile;
use profiler_tests::receiver::{Protocol, Receiver};
use serde_json::Value;

use crate::heap::assert_user_code;
use crate::scenario::{clean, number, result, sending};

fn host(name: &str) -> Value {
    result(&mut command(name))
}

fn command(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heap_host"));
    command.arg(name).env_remove("MALLOC_CONF").env_remove("_RJEM_MALLOC_CONF");
    clean(&mut command);
    command
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

/// Check that hooks that come between two starts are told whole stacks, though the profiler had taken these over at the first.
#[test]
fn hooks_that_come_between_two_starts_get_stacks() {
    let outcome = host("between");
    ["/during/host/0", "/during/profiler/sampled"].iter().for_each(|path| assert_a_thousand(&outcome, path));
    assert!(number(&outcome, "/during/host/2") > 5 * number(&outcome, "/during/host/0"), "no stacks: {outcome}");
}

/// Check that hooks that come later are noticed and said, that each sample is taken once where they call the profiler's, also when it is
/// started again behind them, and that a host whose hooks call nobody goes on undisturbed; that what is freed then is not shown as living behind another start,
/// which says so.
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
    assert_eq!((number(&outcome, "/in_use"), number(&outcome, "/left")), (1001, 0), "{outcome}");
    assert!(outcome["stats"]["notes"].to_string().contains("are given up"), "{outcome}");
    assert_a_thousand(&outcome, "/last/profiler/sampled");
    assert_a_thousand(&outcome, "/last/profiler/freed");
    let of = |name: &str| number(&outcome, &format!("/stats/{name}"));
    assert_eq!(of("live"), of("recorded") - of("freed"), "{outcome}");
}

/// Check that what is freed while hooks of others stand in the place of the profiler's, and call nobody, is not shown as living once they are gone, which is said; and that what
/// comes then is exact.
#[test]
fn hooks_that_come_and_go_leave_nothing_that_was_freed() {
    let outcome = host("interim");
    let of = |name: &str| number(&outcome, &format!("/{name}"));
    assert_eq!((of("left"), of("known"), of("freed")), (0, 1001, 0), "{outcome}");
    assert_eq!(of("stats/live"), of("stats/recorded") - of("stats/freed"), "{outcome}");
}

/// Check that the last profile, which cannot be made for the thread that makes profiles stands still until the time to stop is over, is a loss that is counted by its cause and
/// said.
#[test]
fn the_last_profile_that_is_not_made_is_counted() {
    for whether_others_wait in ["late", "late_alone"] {
        let receiver = Receiver::start().unwrap();
        let outcome = result(sending(&mut command(whether_others_wait), &receiver, Protocol::Http));
        assert_eq!(outcome["ended"], false, "{outcome}");
        let lost = |line: &Value| line.to_string().contains("a profile of the heap is lost");
        let lines: Vec<_> = outcome["log"].as_array().unwrap().iter().filter(|line| lost(line)).collect();
        assert!(lines.len() == 1 && lines[0].to_string().contains("shutdown"), "{outcome}");
    }
}

/// Check that a third owner of hooks cuts nobody off: those that were there before the first start are called, those that came later and call the profiler's, and
/// the profiler's, each once for each block, before and behind another start.
#[test]
fn three_owners_of_hooks_are_all_called() {
    let outcome = host("third");
    for when in ["before", "again"] {
        for path in ["host/0", "host/1", "other/0", "other/1", "profiler/sampled", "profiler/freed"] {
            assert_a_thousand(&outcome, &format!("/{when}/{path}"));
        }
    }
}

/// Check that one who takes stacks, came between two starts and calls the profiler's is asked once for each, and that what was there before all answers it.
#[test]
fn stacks_are_taken_by_whom_came_between_two_starts() {
    let outcome = host("stacks");
    assert_a_thousand(&outcome, "/during/profiler/sampled");
    for path in ["/after/host/0", "/asked"] {
        assert_a_thousand(&outcome, path);
    }
    assert!(number(&outcome, "/after/host/2") > 5 * number(&outcome, "/after/host/0"), "no stacks: {outcome}");
}

/// Check that jemalloc takes no stacks of its own in a child that was forked while the profiler runs, and no samples any more once a profiler of the
/// child's own has ended.
#[test]
fn a_child_pays_for_no_stacks_and_turns_sampling_off() {
    let outcome = host("child");
    assert_eq!((&outcome["one_frame"], &outcome["off"]), (&Value::from(true), &Value::from(true)), "{outcome}");
}

/// Check that a start amid threads that allocate takes no stack of theirs before it knows which frames are the allocator's.
#[test]
fn a_start_amid_allocations_shows_no_frame_of_the_allocator() {
    let outcome = result(command("amid").env("_RJEM_MALLOC_CONF", "lg_prof_sample:0"));
    assert_eq!(outcome["waited"], true, "{outcome}");
    assert_user_code(&outcome["leaves"]);
}

/// Check that a start which fails behind its heap leaves no sampling on.
#[test]
fn a_start_that_fails_leaves_no_sampling_on() {
    let outcome = host("refused");
    assert!(outcome["error"].to_string().contains("spawn the thread profiler:"), "{outcome}");
    assert_eq!((&outcome["active"], number(&outcome, "/sampled")), (&Value::from(false), 0), "{outcome}");
}

/// Check that hooks do not enter the program's allocator, which has a lock while jemalloc calls them: many threads allocate and free, with stacks, tags and spans that are new,
/// while profiles are made, and nobody waits for ever; what is shown in the end is exact.
#[test]
fn an_allocator_with_a_lock_is_not_entered_by_hooks() {
    let outcome = host("locked");
    assert_eq!((number(&outcome, "/within"), number(&outcome, "/stats/lost_total")), (0, 0), "{outcome}");
    assert!(number(&outcome, "/stats/sampled") > number(&outcome, "/rounds"), "{outcome}");
    assert_eq!((&outcome["kept"], &outcome["left"]), (&Value::from(1001), &Value::from(0)), "{outcome}");
}

/// Check that hooks which get no memory lose samples by count and nothing else: what had no room for its stack is shown as such, and once
/// there is memory again all is exact, down to nothing; and that what is sent has all samples, without the spans that had no room.
#[test]
fn memory_refused_in_a_hook_is_counted() {
    let receiver = Receiver::start().unwrap();
    let mut command = command("refusal");
    // One profile is sent, and once, however slow the machine: none falls due meanwhile, whose threads would allocate without memory, too.
    command.env("PROFILER_INTERVAL", "1h").env("OTEL_EXPORTER_OTLP_TIMEOUT", "200000");
    let outcome = result(sending(&mut command, &receiver, Protocol::Http));
    let (stacks, without, with) = (number(&outcome, "/stacks"), &outcome["without"], &outcome["with"]);
    assert!(number(without, "/no_memory") > 500, "{outcome}");
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
    assert_eq!(outcome["sent"], true, "{outcome}");
    let [objects, without_span] = allocated(&receiver);
    assert_eq!(objects, number(&outcome, "/last/sampled"), "{outcome}");
    assert!(without_span >= stacks, "{without_span}: {outcome}");
}

/// Objects that were allocated by what was sent, where each is sampled, and samples without their span.
fn allocated(receiver: &Receiver) -> [u64; 2] {
    let mut sums = [0; 2];
    for set in receiver.bodies().iter().flat_map(|body| &body.profiles) {
        let text = |id| set.dictionary.strings.text(id);
        let of_objects = |profile: &&Profile| text(profile.kind.sample_type.kind) == "alloc_objects";
        for profile in set.profiles.iter().filter(of_objects) {
            sums[0] += profile.samples.iter().map(|sample| sample.value as u64).sum::<u64>();
            let left_out = set.dictionary.value_of(profile.attributes, "profiler.heap.without_span");
            sums[1] += left_out.and_then(profiler_proto::model::Value::as_int).unwrap_or(0) as u64;
        }
    }
    sums
}

/// Check that sampling that others turn off is said, that it goes on when they turn it on, is theirs from then on, also behind the profiler's end, and that an
/// interval that they set is the one that samples are weighed by.
#[test]
fn sampling_toggled_by_others_is_noticed() {
    let outcome = host("toggled");
    let (off, on) = (&outcome["off"], &outcome["on"]);
    assert_eq!((number(off, "/sampled"), &off["stats"]["on"]), (0, &Value::from(false)), "{outcome}");
    assert!(off["stats"]["notes"].to_string().contains("turned off by others"), "{outcome}");
    assert!(number(on, "/sampled") >= 1000 && on["stats"]["on"] == true, "{outcome}");
    assert_eq!(on["stats"]["notes"], Value::Array(Vec::new()), "{outcome}");
    let rarely = &outcome["rarely"];
    assert_eq!((number(rarely, "/sampled"), number(rarely, "/stats/interval_bytes")), (0, 1 << 40), "{outcome}");
    assert_eq!((&outcome["resumed"]["on"], &outcome["ended"]), (&Value::from(true), &Value::from(true)), "{outcome}");
}

/// Check that sampling which the user kept off and turned on is the user's: neither a pause nor the end of the profiler turns it off, and that it
/// is said that the frames of the allocator are shown, which could not be learned while it was off.
#[test]
fn sampling_that_the_user_turned_on_stays_on() {
    let outcome = result(command("asked").env("_RJEM_MALLOC_CONF", "prof_active:false"));
    let on = [&outcome["started"], &outcome["paused"], &outcome["ended"]];
    assert_eq!(on, [false, true, true], "{outcome}");
    for when in ["/on", "/resumed"] {
        assert_a_thousand(&outcome, &format!("{when}/sampled"));
    }
    assert!(outcome["on"]["stats"]["notes"].to_string().contains("frames of the allocator are shown"), "{outcome}");
}

/// Check that a thread's next sample behind a change of the interval weighs by the interval that it was drawn with: one block, for each was sampled then, and not the billions
/// that it would stand for by the new one.
#[test]
fn a_sample_weighs_by_the_interval_it_was_drawn_with() {
    let outcome = host("changed");
    assert_eq!(number(&outcome, "/in_use"), 1, "{outcome}");
}

/// Check that a profile of jemalloc's own for which the host has samples taken is left alone: neither a start that asks for another interval nor one that is set later wipes
/// it, the former with a note, the latter with an error; once the host has ended it, another interval can be set.
#[test]
fn the_profile_of_others_is_not_wiped() {
    let outcome = host("dumped");
    assert!(
        number(&outcome, "/before") >= 1000 && number(&outcome, "/after") >= number(&outcome, "/before"),
        "{outcome}"
    );
    assert!(
        outcome["notes"].to_string().contains("one sample for 1 bytes, not for 4096: jemalloc took samples before"),
        "{outcome}"
    );
    assert!(outcome["refused"].to_string().contains("took samples before"), "{outcome}");
    assert_eq!((&outcome["set"], number(&outcome, "/interval")), (&Value::Null, 8192), "{outcome}");
}

/// Check that the profiler's end turns off what it turned on, and nothing else: sampling that others had on before the start and turned off since, which goes on with
/// the profiler only; and not what others turned on while it was paused.
#[test]
fn what_others_turned_meanwhile_is_theirs() {
    let outcome = host("resumed");
    let state = |resumed: bool, ended: bool| serde_json::json!({ "resumed": resumed, "ended": ended });
    assert_eq!((&outcome["left_off"], &outcome["left_on"]), (&state(true, false), &state(true, true)), "{outcome}");
}
