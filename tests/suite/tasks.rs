//! Tags and spans are those of the code that runs: of a task, whichever thread it is on, and of no other.
//!
//! The work of each task is called through functions that spell its number (`workload::on_path`), so each sample says on its own which
//! tags and which link it must have. All of them are compared, not a choice: those on the way to the work or back spell the first functions alone,
//! and so many bits of what they carry must be right.

use profiler_proto::model::{Dictionary, ProfileSet, Sample};
use profiler_tests::receiver::{Answer, Protocol, Receiver};
use profiler_tests::tally::is_named;
use serde_json::Value;

use crate::scenario::{assert_lawful, command, half_turn, not_run, number, result, sending};

/// Functions that spell a number, below the one where they begin. The next one tells whether the work is nested.
const BITS: usize = 10;
/// Tasks; the numbers from here on are clerks', where there are any.
const TASKS: u64 = 1000;

/// What samples of the work said, by weight.
#[derive(Debug, Default)]
struct Labels {
    tags: Outcomes,
    nested: Outcomes,
    links: Outcomes,
    /// Samples of the work in which inner tags are in force, and of which all is known.
    inside: i64,
    /// Samples of what clerks do for tasks that ask them through a channel.
    of_clerks: i64,
}

#[derive(Debug, Default)]
struct Outcomes {
    right: i64,
    wrong: i64,
    missing: i64,
}

impl Labels {
    fn add(&mut self, set: &ProfileSet) {
        for profile in set.profiles.iter().filter(|profile| profile.kind.is_cpu(&set.dictionary)) {
            profile.samples.iter().for_each(|sample| self.add_sample(sample, &set.dictionary));
        }
    }

    fn add_sample(&mut self, sample: &Sample, dictionary: &Dictionary) {
        let Some(spelled) = Spelled::by(sample, dictionary) else { return };
        let attributes = || dictionary.attributes_of(sample.attributes);
        let numbers = attributes().filter(|(key, _)| ["task", "even", "odd"].contains(key));
        let numbers: Vec<_> = numbers.filter_map(|(key, value)| Some((key, value.as_str()?.parse().ok()))).collect();
        let has_task = numbers.iter().any(|(key, _)| *key == "task");
        let is_right = numbers.iter().all(|(_, number)| number.is_some_and(|number| spelled.begins(number)));
        self.tags.add(has_task, is_right, sample.value);
        let nested = attributes().find(|(key, _)| *key == "nested").map(|(_, value)| value.as_str());
        let expected = spelled.is_nested().map(|is_nested| is_nested.then_some(Some("inner")));
        let is_right =
            expected.map_or(nested.is_none() || nested == Some(Some("inner")), |expected| nested == expected);
        self.nested.add(nested.is_some() || is_right, is_right, sample.value);
        self.of_clerks += if numbers.iter().any(|(_, number)| *number >= Some(TASKS)) { sample.value } else { 0 };
        self.inside += if spelled.is_nested() == Some(true) { sample.value } else { 0 };
        let link = dictionary.links.get(sample.link).filter(|_| !sample.link.is_zero());
        let is_right = match link {
            Some(link) => {
                let ids = (u128::from_be_bytes(link.trace_id), u64::from_be_bytes(link.span_id));
                ids.0 == ids.1.into() && !ids.1.is_multiple_of(4) && spelled.begins(ids.1)
            }
            // Every fourth task has no span.
            None => spelled.0.iter().take(2).all(|bit| *bit == 0),
        };
        self.links.add(link.is_some() || is_right, is_right, sample.value);
    }
}

impl Outcomes {
    fn add(&mut self, is_there: bool, is_right: bool, weight: i64) {
        *match (is_there, is_right) {
            (true, true) => &mut self.right,
            (true, false) => &mut self.wrong,
            (false, _) => &mut self.missing,
        } += weight;
    }
}

/// What the functions of a stack spell from its root on: the lowest bit of a number first.
struct Spelled(Vec<u64>);

impl Spelled {
    fn by(sample: &Sample, dictionary: &Dictionary) -> Option<Self> {
        let locations = dictionary.stacks.get(sample.stack).map_or(&[][..], |stack| &stack.locations);
        let names = locations.iter().rev().filter_map(|id| {
            let line = dictionary.locations.get(*id)?.lines.first()?;
            Some(dictionary.strings.text(dictionary.functions.get(line.function)?.name))
        });
        let steps = names.filter_map(|name| match name {
            other if is_named(other, "on_other_path") => Some(1),
            one if is_named(one, "on_path") => Some(0),
            _ => None,
        });
        // Where they begin, nothing has been spelled.
        steps.collect::<Vec<u64>>().split_first().map(|(_, bits)| Self(bits.to_vec()))
    }

    /// Whether a task's number begins with what is spelled of it.
    fn begins(&self, task: u64) -> bool {
        self.0.len() <= BITS + 1
            && task < 1 << BITS
            && self.0.iter().take(BITS).enumerate().all(|(place, bit)| task >> place & 1 == *bit)
    }

    /// Whether the work is nested, if that is spelled.
    fn is_nested(&self) -> Option<bool> {
        self.0.get(BITS).map(|bit| *bit == 1)
    }
}

#[track_caller]
fn check(runtime: &str) {
    let _turn = half_turn();
    let receiver = Receiver::start().unwrap();
    let options = [&format!("tasks={TASKS}"), &format!("runtime={runtime}"), "steps=100"];
    let mut command = command("tasks", &options);
    let outcome = result(sending(command.env("SMOL_THREADS", "4"), &receiver, Protocol::Grpc));
    assert_lawful(&receiver);
    let mut labels = Labels::default();
    for body in receiver.bodies().iter().filter(|body| body.answer == Answer::Accept) {
        body.profiles.iter().for_each(|set| labels.add(set));
    }
    assert_eq!((number(&outcome, "/stats/lost_total"), &outcome["flushed"]), (0, &true.into()), "{outcome}");
    let Labels { tags, nested, links, inside, of_clerks } = &labels;
    assert_eq!(*of_clerks > 50, !["rayon", "threads"].contains(&runtime), "{runtime}: {labels:?}");
    assert!(tags.right > 1000 && *inside > 100, "{runtime}: too few samples of the work: {labels:?}: {outcome}");
    assert_taken_at_the_rate(&receiver, &outcome);
    // The work is reached with tags and span in force, and left before these are not: no sample of it has an excuse.
    let faults = [tags, nested, links].map(|outcomes| (outcomes.wrong, outcomes.missing));
    assert_eq!(faults, [(0, 0); 3], "{runtime}: {labels:?}");
}

/// Checks that the samples stand for the CPU time that was used, and that there are a thousand a second, but for those that fell due together.
#[track_caller]
fn assert_taken_at_the_rate(receiver: &Receiver, outcome: &Value) {
    let (accepted, used) = (receiver.accepted(), outcome["cpu_seconds"].as_f64().unwrap());
    let weight = accepted.nanos as f64 / 1e9 / used;
    assert!((0.95..=1.05).contains(&weight), "{weight}: {outcome}");
    if outcome["engine"] != "perf" {
        return not_run("a thousand samples a second", "perf events are refused, and the kernel's tick is slower");
    }
    let stacks = accepted.stacks as f64 / 1e3 / used;
    assert!(stacks > 0.8, "{stacks}: {outcome}");
}

/// Check that every sample of a thousand tasks on tokio's four workers has its task's tag and link.
#[test]
fn tasks_of_tokio_have_their_own_tags() {
    check("tokio");
}

/// Check the same on tokio's current thread.
#[test]
fn tasks_of_one_thread_have_their_own_tags() {
    check("tokio-current");
}

/// Check the same on smol.
#[test]
fn tasks_of_smol_have_their_own_tags() {
    check("smol");
}

/// Check the same for rayon's jobs.
#[test]
fn jobs_of_rayon_have_their_own_tags() {
    check("rayon");
}

/// Check the same for scopes on plain threads.
#[test]
fn threads_have_their_own_tags() {
    check("threads");
}
