//! Links of samples to spans, through the whole profiler: tasks on four threads, or on one, at 1 kHz, each with a span of its own, each in a
//! function whose name says which.
//!
//! In: the ids of all spans by function, as the program itself noted them. Out: for each sample in such a function, whether its link is
//! one of that function's.

use std::collections::{BTreeMap, BTreeSet};

use profiler_proto::model::{Dictionary, ProfileSet, Sample};
use profiler_tests::receiver::{Protocol, Receiver};
use profiler_tests::tally::{hex, is_named};
use serde_json::Value;

use crate::scenario::{assert_lawful, command, half_turn, result, sending};

/// Weights of the samples in functions that have spans, and in the one that has none.
#[derive(Debug, Default)]
struct Links {
    right: i64,
    wrong: i64,
    missing: i64,
    /// In the function without a span, without a link; with one, it is wrong.
    bare: i64,
    /// Tags of the samples with right links, by function.
    tags: BTreeMap<String, BTreeSet<String>>,
}

/// The functions that may have these links.
struct Truth {
    ids: BTreeMap<String, BTreeSet<String>>,
}

impl Truth {
    fn of(outcome: &Value) -> Self {
        let list = |ids: &Value| ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        let functions = outcome["ids"].as_object().unwrap().iter();
        Self { ids: functions.map(|(function, ids)| (function.clone(), list(ids))).collect() }
    }

    /// The same where children's samples link to roots: by the trace, of which each has one root.
    fn of_roots(outcome: &Value) -> Self {
        let mut truth = Self::of(outcome);
        for kind in 0..8 {
            let roots = truth.ids[&format!("root_{kind}")].clone();
            truth.ids.insert(format!("child_{kind}"), roots);
        }
        truth
    }

    fn compare(&self, sets: &[ProfileSet]) -> Links {
        let mut links = Links::default();
        for set in sets {
            set.profiles.iter().flat_map(|profile| &profile.samples).for_each(|sample| {
                self.add(sample, &set.dictionary, &mut links);
            });
        }
        links
    }

    fn add(&self, sample: &Sample, dictionary: &Dictionary, links: &mut Links) {
        let functions = functions_of(sample, dictionary);
        let link = dictionary.links.get(sample.link).filter(|_| !sample.link.is_zero());
        let link = link.map(|link| format!("{}/{}", hex(&link.trace_id), hex(&link.span_id)));
        if functions.iter().any(|function| is_named(function, "bare")) {
            let count = if link.is_none() { &mut links.bare } else { &mut links.wrong };
            *count += sample.value;
            return;
        }
        let known = self.ids.iter().find(|(name, _)| functions.iter().any(|function| is_named(function, name)));
        let Some((name, ids)) = known else { return };
        let Some(link) = link else {
            links.missing += sample.value;
            return;
        };
        if !ids.contains(&link) {
            links.wrong += sample.value;
            return;
        }
        links.right += sample.value;
        let tags = dictionary.attributes_of(sample.attributes);
        let texts = tags.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
        links.tags.entry(name.clone()).or_default().extend(texts.filter(|tag| !tag.starts_with("thread.")));
    }
}

fn functions_of<'a>(sample: &Sample, dictionary: &'a Dictionary) -> Vec<&'a str> {
    let locations = dictionary.stacks.get(sample.stack).map_or(&[][..], |stack| &stack.locations);
    let locations = locations.iter().filter_map(|id| dictionary.locations.get(*id));
    let functions = locations.flat_map(|at| &at.lines).filter_map(|line| dictionary.functions.get(line.function));
    functions.map(|function| dictionary.strings.text(function.name)).collect()
}

/// CPU seconds that are enough for samples of the work, and for some of each of its functions: those of the spans of children have a
/// twenty-fifth each, and where the kernel ticks 100 times a second and allows no perf events, there are so many samples a second.
const SECONDS: f64 = 1.5;
const SECONDS_FOR_EACH: f64 = 5.0;

/// Runs the service for so many seconds of CPU time; what it said and what arrived.
fn serve(way: &str, seconds: f64) -> (Value, Vec<ProfileSet>) {
    serve_with(way, seconds, &[])
}

fn serve_with(way: &str, seconds: f64, more: &[&str]) -> (Value, Vec<ProfileSet>) {
    let _turn = half_turn();
    let receiver = Receiver::start().unwrap();
    let options = [format!("way={way}"), format!("cpu_seconds={seconds}")];
    let options: Vec<_> = options.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let mut command = command("spans", &options);
    let outcome = result(sending(command.env("SMOL_THREADS", "4"), &receiver, Protocol::Grpc));
    assert_lawful(&receiver);
    assert_eq!(outcome["flushed"], true, "{}", outcome["stats"]);
    assert_eq!(outcome["stats"]["tags_left_out"], 0);
    (outcome, receiver.bodies().into_iter().flat_map(|body| body.profiles).collect())
}

/// Checks that no link is wrong, and none missing: the functions are reached with their span in force, and left before that is not.
#[track_caller]
fn assert_right(links: &Links) {
    assert_eq!((links.wrong, links.missing), (0, 0), "{links:?}");
    assert!(links.right > 500 && links.bare > 50, "too few samples to say anything: {links:?}");
}

/// Check that samples link to the span of their task, with `opentelemetry` alone and nothing added but the start.
#[test]
fn samples_link_to_the_span_of_their_task() {
    let (outcome, sets) = serve("plain", SECONDS);
    assert_right(&Truth::of(&outcome).compare(&sets));
    assert_eq!(outcome["stats"]["spans"]["seen"], true);
}

/// Check the same for spans of `tracing`, through `tracing-opentelemetry`.
#[test]
fn samples_link_to_the_traced_span_of_their_task() {
    let (outcome, sets) = serve("traced", SECONDS);
    assert_right(&Truth::of(&outcome).compare(&sets));
}

/// Check both on tokio's current thread, which runs all tasks in turn.
#[test]
fn samples_link_to_the_span_of_their_task_on_one_thread() {
    assert_right_on("tokio-current");
}

/// Check both on smol.
#[test]
fn samples_link_to_the_span_of_their_task_on_smol() {
    assert_right_on("smol");
}

#[track_caller]
fn assert_right_on(runtime: &str) {
    for way in ["plain", "traced"] {
        let (outcome, sets) = serve_with(way, SECONDS, &[&format!("runtime={runtime}")]);
        assert_right(&Truth::of(&outcome).compare(&sets));
    }
}

/// Check the same for spans of `tracing` through our own layer, whose names and chosen fields are tags.
#[test]
fn samples_carry_the_names_and_ids_of_tracing_spans() {
    let (outcome, sets) = serve("layer", SECONDS_FOR_EACH);
    let links = Truth::of(&outcome).compare(&sets);
    assert_right(&links);
    for kind in 0..8 {
        for (function, span) in [("root", "request"), ("child", "child")] {
            let expected = [format!("route=/{kind}"), format!("span={span}")];
            assert_eq!(links.tags[&format!("{function}_{kind}")], BTreeSet::from(expected));
        }
    }
}

/// Check the same for an OpenTelemetry that the profiler does not follow by itself, below `tracing` with our own layer.
#[test]
fn samples_link_to_the_span_of_an_older_opentelemetry() {
    let (outcome, sets) = serve("older", SECONDS);
    assert_right(&Truth::of(&outcome).compare(&sets));
}

/// Check that spans that are not sampled are no links, and that they are where this is asked for.
#[test]
fn spans_that_are_not_sampled_are_linked_where_this_is_asked() {
    let (outcome, sets) = serve_with("unsampled", SECONDS, &["links=true"]);
    assert_right(&Truth::of(&outcome).compare(&sets));
    let (outcome, sets) = serve_with("unsampled", SECONDS, &["links=false"]);
    let links = Truth::of(&outcome).compare(&sets);
    assert_eq!((links.right, links.wrong), (0, 0), "{links:?}");
    assert!(links.missing > 500, "too few samples to say anything: {links:?}");
}

/// Check that in the other mode samples link to the root of their trace, and carry its name.
#[test]
fn samples_link_to_the_local_root() {
    assert_roots("roots");
}

/// Check the same for spans of `tracing`, which begin when they are first entered.
#[test]
fn samples_link_to_the_traced_local_root() {
    assert_roots("traced-roots");
}

#[track_caller]
fn assert_roots(way: &str) {
    let (outcome, sets) = serve(way, SECONDS);
    let links = Truth::of_roots(&outcome).compare(&sets);
    assert_right(&links);
    for (function, tags) in &links.tags {
        let kind = function.rsplit_once('_').unwrap().1;
        assert_eq!(*tags, BTreeSet::from([format!("span_name=/{kind}")]), "{function}");
    }
    let notes = &outcome["stats"]["spans"]["notes"];
    assert_eq!(notes.as_array().map(Vec::len), Some(0), "{notes}");
}

/// Check that a start behind somebody else's observer works, and that it is said why there are no links.
#[test]
fn another_observer_is_said() {
    let stats = result(&mut command("observed_by_another", &[]));
    assert_eq!((&stats["spans"]["observed"], &stats["spans"]["seen"]), (&false.into(), &false.into()), "{stats}");
    assert!(stats["spans"]["notes"][0].as_str().unwrap().contains("another observer"), "{stats}");
}
