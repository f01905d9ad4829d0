//! The heap: what a profile says beside what was allocated, by function, tag and span, in programs on jemalloc.
//!
//! In: scenarios of the program `heap`. Out: exact sums where every allocation is sampled, `estimates` within their errors
//! where not; no frame of the allocator at the `leaves`; balance, bounds, forks, settings; what the `page` shows.

mod estimates;
mod leaves;
mod page;

use std::process::Command;

use profiler_tests::process::run;
use profiler_tests::receiver::{Answer, Protocol, Receiver};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(crate) use self::leaves::{assert_user_code, assert_user_code_with_lines};
use crate::scenario::{LIMIT, assert_lawful, clean, command, number, result, sending, turn};

/// The command of a scenario of the heap, in an environment in which no variable of ours or of jemalloc is set.
pub(crate) fn heap(name: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heap"));
    command.arg(name).args(options).env_remove("MALLOC_CONF").env_remove("_RJEM_MALLOC_CONF");
    clean(&mut command);
    command
}

/// Four numbers in Go's order: objects and bytes allocated, objects and bytes in use.
fn four(value: &Value) -> [i64; 4] {
    std::array::from_fn(|place| value[place].as_i64().unwrap_or_else(|| panic!("not four numbers: {value}")))
}

/// Checks that hooks and tables balance, and that nothing was lost.
#[track_caller]
fn assert_balance(stats: &Value) {
    let of = |name: &str| number(stats, &format!("/{name}"));
    assert_eq!(of("sampled"), of("recorded") + of("lost_total"), "{stats}");
    assert_eq!(of("live"), of("recorded") - of("freed"), "{stats}");
    // Behind the few frees of what the start learned from.
    assert!((of("freed")..of("freed") + 16).contains(&of("frees")), "{stats}");
    assert_eq!((of("lost_total"), of("unknown"), of("without_stack")), (0, 0, 0), "{stats}");
}

/// Check that with every allocation sampled a profile says exactly what lives, whichever way it was allocated (small, large,
/// huge, aligned, zeroed, grown and shrunk in place and elsewhere, freed by another thread), that what was freed is gone, and that no
/// frame of the allocator is shown.
#[test]
fn what_lives_is_exact_in_every_way_to_allocate() {
    let outcome = result(&mut heap("exact", &[]));
    let ways = outcome["ways"].as_object().unwrap();
    assert!(ways.len() >= 14, "{outcome}");
    for (name, way) in ways {
        let truth = [0, 1].map(|place| way["truth"][place].as_i64().unwrap());
        let [allocated, bytes, live, live_bytes] = four(&way["lived"]);
        assert_eq!([live, live_bytes], truth, "{name}: {way}");
        assert!(allocated >= live && bytes >= live_bytes, "{name}: {way}");
        assert_eq!(four(&way["freed"]), [allocated, bytes, 0, 0], "{name}: {way}");
    }
    assert_eq!(four(&ways["all_freed"]["lived"])[0], 100, "{outcome}");
    assert_user_code(&outcome["leaves"]);
}

/// Check that what a thread allocates as it ends is known until another one frees it, that what is in an arena goes with it, and that the profiler's own threads
/// are not profiled.
#[test]
fn memory_at_the_edges_is_exact() {
    let outcome = result(&mut heap("edges", &[]));
    assert_balance(&outcome["stats"]);
    for name in ["at_the_end_of_a_thread", "in_an_arena"] {
        let way = &outcome[name];
        let truth = [0, 1].map(|place| way["truth"][place].as_i64().unwrap());
        let [allocated, bytes, live, live_bytes] = four(&way["lived"]);
        assert!(truth[0] == 200 && [live, live_bytes] == truth, "{name}: {way}");
        assert_eq!(four(&way["freed"]), [allocated, bytes, 0, 0], "{name}: {way}");
    }
    assert!(number(&outcome, "/all") > 400, "{outcome}");
    assert_eq!(number(&outcome, "/own"), 0, "{outcome}");
}

/// Check that a sample takes next to nothing of the stack of the code that allocates: with 3 KiB left when the hook is called, on a thread's stack and on a coroutine's,
/// the program lives, and every block is known with the function that allocated it.
#[test]
fn a_sample_needs_hardly_any_stack() {
    let outcome = result(&mut heap("deep", &[]));
    assert_balance(&outcome["stats"]);
    let blocks = number(&outcome, "/blocks") as i64;
    for stack in ["thread", "coroutine"] {
        assert_eq!(four(&outcome[stack]), [blocks, 1024 * blocks, blocks, 1024 * blocks], "{outcome}");
    }
}

/// Check what the figures are: sampled blocks of up to three pages are active and not allocated, those of up to four count as four, larger ones as they are.
#[test]
fn sampled_small_blocks_are_not_allocated() {
    let outcome = result(&mut heap("figures", &[]));
    let rows = outcome["rows"].as_array().unwrap();
    for (row, pages) in rows.iter().zip([0.0, 4.0, 8.0]) {
        let of = |name: &str| row[name].as_f64().unwrap();
        // Profiles take some memory, too.
        let noise = 0.5 * of("pages");
        assert!((of("allocated") - pages * of("pages")).abs() < noise, "{pages}: {outcome}");
        assert!(of("active") > of("asked") - noise, "{outcome}");
    }
    assert_eq!(rows.len(), 3, "{outcome}");
}

/// Check that what does not fit into the table is refused and counted, that what was allocated is known all the same, and that
/// there is room again once memory is freed.
#[test]
fn a_full_table_is_counted() {
    let outcome = result(&mut heap("full", &[]));
    let (room, stats) = (number(&outcome, "/room"), &outcome["at_most"]);
    assert!(number(stats, "/live") <= room && number(stats, "/table_full") >= 4000, "{outcome}");
    assert_eq!(number(stats, "/sampled"), number(stats, "/recorded") + number(stats, "/lost_total"), "{outcome}");
    let [allocated, _, live, _] = four(&outcome["full"]);
    assert!(allocated >= 5000 && live > 0 && live <= room as i64, "{outcome}");
    assert_eq!(four(&outcome["freed"])[2..], [0, 0], "{outcome}");
    assert!(four(&outcome["refilled"])[2] > 0, "{outcome}");
}

/// Check that hooks and tables balance when many threads allocate, resize and free each other's memory while profiles are made: that each call of jemalloc's is
/// counted, that something became of each, and that nothing is left once all is freed; where all are sampled, also that what lives is just what
/// `malloc_usable_size` says. In `make torture` for as long as the others, also under AddressSanitizer.
#[test]
fn torture_by_a_crowd_on_one_heap() {
    let _turn = turn();
    let seconds = std::env::var("TORTURE_SECONDS").unwrap_or_else(|_| "3".to_owned());
    for lg in [0, 8] {
        let outcome = result(&mut heap("crowd", &["threads=64", &format!("seconds={seconds}"), &format!("lg={lg}")]));
        assert!(number(&outcome, "/rounds") > 1000 && number(&outcome, "/cpu") > 100, "{outcome}");
        ["after", "freed"].iter().for_each(|when| assert_calls(&outcome, when));
        let of = |name: &str| number(&outcome, &format!("/after/stats/{name}"));
        if lg == 0 {
            let (lived, truth) =
                (four(&outcome["lived"]), [0, 1].map(|place| outcome["truth"][place].as_i64().unwrap()));
            assert!(of("no_scratch") > 0 || lived[2..] == truth, "{outcome}");
            assert_eq!(four(&outcome["all"])[2], of("live") as i64, "{outcome}");
        }
        assert_eq!(four(&outcome["left"])[2..], [0, 0], "{outcome}");
        // A thread that found no scratch is counted, and what it allocated is then not known when it is freed; some of it may live on.
        assert_eq!((of("table_full"), of("no_memory")), (0, 0), "{outcome}");
        assert!(of("unknown") <= of("no_scratch"), "{outcome}");
    }
}

/// Checks that the profiler knows of each call that jemalloc made since the threads began, and what came of it.
#[track_caller]
fn assert_calls(outcome: &Value, when: &str) {
    let since = |name: &str| number(outcome, &format!("/{when}/{name}")) - number(outcome, &format!("/before/{name}"));
    let of = |name: &str| since(&format!("stats/{name}"));
    assert_eq!((of("sampled"), of("frees")), (since("calls/0"), since("calls/1")), "{when}: {outcome}");
    assert_eq!(of("sampled"), of("recorded") + of("lost_total"), "{when}: {outcome}");
    assert_eq!(of("frees"), of("freed") + of("unknown"), "{when}: {outcome}");
    let all = |name: &str| number(outcome, &format!("/{when}/stats/{name}"));
    assert_eq!(all("live"), all("recorded") - all("freed"), "{when}: {outcome}");
}

/// Check that children forked while threads are in the hooks allocate, free and end, that one can profile itself without a word of samples
/// that others wanted, and that the parent goes on.
#[test]
fn a_forked_child_is_left_alone() {
    let _turn = turn();
    let outcome = result(&mut heap("fork", &["times=30"]));
    assert_eq!(outcome["well"], outcome["times"], "{outcome}");
    assert!(number(&outcome, "/sampled") >= 1000, "{outcome}");
}

/// Check that what lives is known over a stop and a new start: what was freed between is gone, what was allocated
/// between is not sampled, and what was allocated before is no part of what was allocated since the new start.
#[test]
fn a_new_start_knows_what_lives() {
    let outcome = result(&mut heap("restart", &[]));
    assert_eq!(four(&outcome["first"]), [100, 100 * 1024, 100, 100 * 1024], "{outcome}");
    assert_eq!(four(&outcome["again"]), [0, 0, 40, 40 * 1024], "{outcome}");
    assert_eq!(four(&outcome["between"]), [0; 4], "{outcome}");
    assert_eq!(four(&outcome["freed"]), [0; 4], "{outcome}");
}

/// Check that blocks which jemalloc sampled before the start, and which change their size in place behind it, are known from then on until they are freed: that
/// the old block, which is not known, is freed where the new one is by then takes nothing out.
#[test]
fn what_is_resized_in_place_is_known_from_then_on() {
    let outcome = result(heap("resized", &[]).env("_RJEM_MALLOC_CONF", "prof_active:true,lg_prof_sample:0"));
    let of = |name: &str| number(&outcome, name) as i64;
    assert_eq!(of("/in_place"), 20, "{outcome}");
    let lived = four(&outcome["lived"]);
    assert_eq!(lived[2..], [20, of("/usable")], "{outcome}");
    assert!(number(&outcome, "/of_lived/unknown") >= 20, "{outcome}");
    assert_eq!(four(&outcome["freed"]), [lived[0], lived[1], 0, 0], "{outcome}");
}

/// Check that stacks are whole where the first thread of a program has ended, also of threads that are so young that they are read through the kernel.
#[test]
fn a_first_thread_that_ends_takes_no_stacks_with_it() {
    let outcome = result(&mut heap("leader", &[]));
    let threads = number(&outcome, "/threads") as i64;
    for function in ["young", "allocates"] {
        assert_eq!(four(&outcome[function])[2..], [threads, 1024 * threads], "{function}: {outcome}");
    }
}

/// Check that what lives keeps the names of the library that allocated it, over libraries that took its place at the same addresses, and once all are gone: each
/// block, with its whole stack.
#[test]
fn what_lives_keeps_its_library() {
    let outcome = result(&mut heap("swaps", &[&crate::torture::swapped()]));
    let (comes, leaves) = (number(&outcome, "/comes"), number(&outcome, "/leaves"));
    // Somebody else may take the place between the two.
    assert!(4 * number(&outcome, "/in_place") >= comes, "{outcome}");
    let verdicts = outcome["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len() as u64, comes + 1, "{outcome}");
    for (come, verdict) in (1..).zip(verdicts) {
        let of = |name: &str| number(verdict, &format!("/{name}"));
        let right = leaves * comes.min(come);
        assert_eq!((of("right"), of("wrong"), of("unknown")), (right, 0, 0), "after {come}: {outcome}");
    }
}

/// Check that what is served is a file with Go's four types in Go's order, of which viewers show memory in use first, or what was
/// allocated where that is asked for.
#[test]
fn the_heap_is_served() {
    let outcome = result(&mut heap("pull", &[]));
    for (path, first) in [("heap", "inuse_space"), ("allocs", "alloc_space")] {
        let file = &outcome[path];
        assert_eq!(file["types"], serde_json::json!(["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]));
        assert_eq!(file["first"], first, "{outcome}");
        assert_eq!(file["period"], serde_json::json!(["space", "bytes", 1]), "{outcome}");
        let [objects, bytes, live, live_bytes] = four(&file["kept"]);
        assert_eq!([objects, bytes, live, live_bytes], [101, 101 * 2048, 100, 100 * 2048], "{outcome}");
    }
}

/// Check that `seconds` gives what changed within them, as Go has it: what came is there with its allocations, what went is below zero, and what
/// was there before and stayed is not.
#[test]
fn the_change_of_the_heap_is_served() {
    let outcome = result(&mut heap("pull", &[]));
    let change = &outcome["change"];
    let steps = number(change, "/steps") as i64;
    let [allocated, bytes, live, live_bytes] = four(&change["coming"]);
    // What was allocated and what lives is looked at one after the other, while more comes.
    assert!(0 < live && live <= steps && 0 < allocated && allocated <= steps, "{outcome}");
    assert_eq!([bytes, live_bytes], [4096 * allocated, 4096 * live], "{outcome}");
    let [allocated, bytes, gone, gone_bytes] = four(&change["going"]);
    assert_eq!([allocated, bytes, gone_bytes], [0, 0, 2048 * gone], "{outcome}");
    assert!(gone < 0 && gone >= -steps, "{outcome}");
    let nanos = change["nanos"].as_array().unwrap();
    assert!(nanos.len() == 4 && nanos.iter().all(|nanos| nanos.as_u64().unwrap() >= 1_000_000_000), "{outcome}");
}

/// Check that the macro's options are in force without any settings, that the interval can be changed while it runs, and that pausing
/// ends the sampling.
#[test]
fn one_line_is_enough() {
    let outcome = result(&mut heap("options", &["blocks=20"]));
    let (before, after) = (&outcome["before"], &outcome["after"]);
    assert_eq!((&before["on"], number(before, "/interval_bytes")), (&Value::from(true), 1 << 20), "{outcome}");
    assert_eq!(before["notes"], Value::Array(Vec::new()), "{outcome}");
    assert_eq!((&outcome["set"], number(after, "/interval_bytes")), (&Value::Null, 1 << 16), "{outcome}");
    assert_eq!((&outcome["paused"], &outcome["resumed"]), (&Value::from(false), &Value::from(true)), "{outcome}");
    assert!(number(before, "/allocated") >= 20 << 20, "{outcome}");
    assert!(number(before, "/resident") > 0 && number(before, "/table_bytes") > 0, "{outcome}");
    let [objects, _, live, _] = four(&outcome["sums"]["by_function"]["in_force"]);
    assert!(objects >= 10 && live >= 10, "{outcome}");
}

/// Check that what the user says in jemalloc's own variable goes before the program's options, and that it is said.
#[test]
fn the_users_options_win() {
    let with = |options: &str| result(heap("options", &[]).env("_RJEM_MALLOC_CONF", options));
    let notes = |outcome: &Value| outcome["before"]["notes"].to_string();
    let interval = with("lg_prof_sample:14");
    assert_eq!((&interval["before"]["on"], number(&interval, "/before/interval_bytes")), (&Value::from(true), 1 << 14));
    assert!(notes(&interval).contains("lg_prof_sample:14"), "{interval}");
    let mut command = heap("options", &[]);
    let asked = result(command.env("_RJEM_MALLOC_CONF", "lg_prof_sample:14").env("PROFILER_HEAP_INTERVAL", "4096"));
    assert_eq!(number(&asked, "/before/interval_bytes"), 1 << 14, "{asked}");
    let said = "one sample for 16384 bytes, not for 4096: the environment says so (lg_prof_sample)";
    assert!(notes(&asked).contains(said), "{asked}");
    let inactive = with("prof_active:false");
    assert_eq!(inactive["before"]["on"], false, "{inactive}");
    assert!(notes(&inactive).contains("prof_active:false in the environment; take it out"), "{inactive}");
    assert!(!notes(&inactive).contains("frames of the allocator"), "{inactive}");
    let active = with("prof_active:true");
    assert_eq!(active["before"]["on"], true, "{active}");
    assert!(notes(&active).contains("took samples before"), "{active}");
    let off = with("prof:false");
    assert_eq!((&off["before"]["on"], notes(&off).contains("prof:false")), (&Value::from(false), true), "{off}");
}

/// Check that a program that asks for heap profiles and cannot have them gets an error that says what to add, and that one
/// that does not ask goes on and says the same.
#[test]
fn what_is_missing_is_said() {
    let refused = result(heap("options", &[]).env("PROFILER_HEAP", "1"));
    assert_eq!(refused["before"]["on"], true, "{refused}");
    let off = result(heap("options", &[]).env("PROFILER_HEAP", "0"));
    assert_eq!(off["before"]["on"], false, "{off}");
    let elsewhere = result(&mut command("fork", &["times=0"]));
    let notes = elsewhere["stats"]["heap"]["notes"].to_string();
    assert!(notes.contains("not jemalloc") && notes.contains("profiler::jemalloc!();"), "{elsewhere}");
    let mut asking = command("fork", &["times=0"]);
    let refusal = run(asking.env("PROFILER_HEAP", "1"), LIMIT).unwrap().json().unwrap_err().to_string();
    assert!(refusal.contains("not jemalloc") && refusal.contains("profiler::jemalloc!();"), "{refusal}");
}

/// Check that a program which declares jemalloc itself, and nothing of profiling, is told what to add, by a note, or by an error where it asks; and that
/// what it is told to set is enough.
#[test]
fn a_program_on_plain_jemalloc_is_told_what_to_add() {
    const VARIABLE: &str = "_RJEM_MALLOC_CONF";
    let plain = |variable: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heap_plain"));
        command.env_remove("MALLOC_CONF").env_remove(VARIABLE);
        clean(&mut command);
        result(command.env(variable, value))
    };
    let (noted, refused) = (plain("PROFILER_RATE_HZ", "100"), plain("PROFILER_HEAP", "1"));
    for said in [noted["notes"][0].as_str().unwrap(), refused["refused"].as_str().unwrap()] {
        assert!(said.contains("profiling is off (its option `prof`)"), "{said}");
        assert!(said.contains("profiler::jemalloc!();"), "{said}");
        let (_, value) = said.split_once(&format!("{VARIABLE}=")).unwrap();
        let set = plain(VARIABLE, value.split_whitespace().next().unwrap());
        assert_eq!((&set["on"], number(&set, "/interval_bytes")), (&Value::from(true), 1 << 20), "{set}");
    }
    assert_eq!(noted["on"], false, "{noted}");
    let unread = plain("MALLOC_CONF", "prof:true");
    assert!(unread["notes"][0].as_str().unwrap().contains("MALLOC_CONF is set, which it does not read"), "{unread}");
}

/// Check that what is sent obeys the rules of OTLP, in Go's types, and holds what was allocated and what lives.
#[test]
fn the_heap_is_sent() {
    let receiver = Receiver::start().unwrap();
    let mut command = heap("options", &["blocks=50"]);
    sending(&mut command, &receiver, Protocol::Http);
    let outcome = result(command.env("PROFILER_INTERVAL", "200ms"));
    assert_eq!(outcome["flushed"], true, "{outcome}");
    assert_lawful(&receiver);
    let bodies = receiver.bodies();
    let sets = bodies.iter().flat_map(|body| &body.profiles);
    let types = |set: &profiler_proto::ProfileSet| -> Vec<String> {
        set.profiles
            .iter()
            .map(|profile| set.dictionary.strings.text(profile.kind.sample_type.kind).to_owned())
            .collect()
    };
    let of_heap: Vec<_> = sets.filter(|set| types(set).contains(&"inuse_space".to_owned())).collect();
    let first = of_heap.first().unwrap_or_else(|| panic!("no profile of the heap was sent: {outcome}"));
    assert!(types(first).iter().all(|kind| kind.starts_with("alloc_") || kind.starts_with("inuse_")));
}

/// Check that the profile of the time before another interval is set has the one that it was sampled at as its period, and the next one the other.
#[test]
fn a_profile_has_the_interval_of_its_time() {
    let receiver = Receiver::start().unwrap();
    let mut command = heap("options", &["blocks=50"]);
    sending(&mut command, &receiver, Protocol::Http);
    result(command.env("PROFILER_INTERVAL", "1h"));
    let bodies = receiver.bodies();
    let sets = bodies.iter().flat_map(|body| &body.profiles);
    let of_heap = |set: &&profiler_proto::ProfileSet| {
        set.profiles.iter().any(|one| set.dictionary.strings.text(one.kind.sample_type.kind) == "inuse_space")
    };
    let mut periods: Vec<_> = sets.filter(of_heap).map(|set| set.profiles[0].kind.period).collect();
    // What is left at the end, if one in 64 KiB fell on it, is one more.
    periods.dedup();
    assert_eq!(periods, [1 << 20, 1 << 16]);
}

/// Check that profiles of the heap that a receiver refuses are a counted loss, and that they are not when it takes them.
#[test]
fn a_heap_that_is_refused_is_a_counted_loss() {
    for (answer, found, missing) in
        [(Answer::Reject, "lost/rejected", "exported"), (Answer::Accept, "exported", "lost_total")]
    {
        let receiver = Receiver::start().unwrap();
        receiver.answer(answer);
        let mut command = heap("options", &["blocks=50"]);
        sending(&mut command, &receiver, Protocol::Grpc);
        let outcome = result(command.env("PROFILER_INTERVAL", "200ms"));
        let of = |name: &str| number(&outcome, &format!("/stats/kinds/heap/{name}"));
        assert!(of(found) > 0 && of(missing) == 0, "{outcome}");
        assert_eq!(of("offered"), of("exported") + of("pending") + of("lost_total"), "{outcome}");
        let at_destination = |name: &str| number(&outcome, &format!("/stats/destinations/0/kinds/heap/{name}"));
        // Looked at a little later than the ledger.
        assert!(at_destination(found) >= of(found), "{outcome}");
    }
}

/// Check that a program without a build id, which this one is linked without, is known by the hash of its file.
#[test]
fn a_program_without_a_build_id_is_known_by_its_file() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_heap")).unwrap();
    let (head, tail) = (&program[..4096], &program[program.len() - 4096..]);
    let digest = Sha256::digest([head, tail, &(program.len() as u64).to_be_bytes()].concat());
    let hash: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    for symbolize in ["1", "0"] {
        let receiver = Receiver::start().unwrap();
        let mut command = heap("options", &["blocks=50"]);
        sending(&mut command, &receiver, Protocol::Http);
        result(command.env("PROFILER_INTERVAL", "200ms").env("PROFILER_SYMBOLIZE", symbolize));
        assert_lawful(&receiver);
        let bodies = receiver.bodies();
        let dictionaries = bodies.iter().flat_map(|body| &body.profiles).map(|set| &set.dictionary);
        let mappings = dictionaries.flat_map(|dictionary| dictionary.mappings.iter().map(move |one| (dictionary, one)));
        let (dictionary, mapping) = mappings
            .into_iter()
            .find(|(dictionary, mapping)| dictionary.strings.text(mapping.filename).ends_with("/heap"))
            .unwrap();
        let ids: Vec<_> = dictionary.attributes_of(mapping.attributes).collect();
        assert_eq!(ids, [("process.executable.build_id.htlhash", &hash.as_str().into())], "{symbolize}");
    }
}
