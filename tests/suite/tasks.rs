//! Tags and spans are those of the code that runs: of a task, whichever thread it is on, and of no other.
//!
//! The work of each task is called through functions that spell its number (`workload::on_path`), so each sample says on its own which
//! tag and which link it must have. All of them are compared, not a choice.

use profiler_proto::model::{Dictionary, ProfileSet, Sample};
use profiler_tests::receiver::{Answer, Protocol, Receiver};
use profiler_tests::tally::is_named;

use crate::scenario::{assert_lawful, command, half_turn, number, result, sending};

/// Functions that spell a number, below the one where they begin.
const BITS: usize = 10;

/// What samples of the work said, by weight.
#[derive(Debug, Default)]
struct Labels {
    tags: Outcomes,
    links: Outcomes,
    /// Samples on the way to the work, whose number is not known.
    unspelled: i64,
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
        let task = match spelled(sample, dictionary) {
            Spelled::Whole(task) => task,
            Spelled::Partly => {
                self.unspelled += sample.value;
                return;
            }
            Spelled::Nothing => return,
        };
        let tags = dictionary.attributes_of(sample.attributes).filter(|(key, _)| ["task", "even", "odd"].contains(key));
        let tags: Vec<_> = tags.filter_map(|(key, value)| Some((key, value.as_str()?))).collect();
        let has_tag = tags.iter().any(|(key, _)| *key == "task");
        self.tags.add(has_tag, tags.iter().all(|(_, tag)| *tag == task.to_string()), sample.value);
        let link = dictionary.links.get(sample.link).filter(|_| !sample.link.is_zero());
        // Every fourth task has no span.
        let is_right = match link {
            Some(link) => {
                let ids = (u128::from_be_bytes(link.trace_id), u64::from_be_bytes(link.span_id));
                !task.is_multiple_of(4) && ids == (task.into(), task)
            }
            None => task.is_multiple_of(4),
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

/// What the functions of a stack spell from its root on.
enum Spelled {
    Whole(u64),
    /// The work has not been reached, or its stack is not whole.
    Partly,
    Nothing,
}

fn spelled(sample: &Sample, dictionary: &Dictionary) -> Spelled {
    let locations = dictionary.stacks.get(sample.stack).map_or(&[][..], |stack| &stack.locations);
    let names = locations.iter().rev().filter_map(|id| {
        let line = dictionary.locations.get(*id)?.lines.first()?;
        Some(dictionary.strings.text(dictionary.functions.get(line.function)?.name))
    });
    let steps = names.filter_map(|name| match name {
        other if is_named(other, "on_other_path") => Some(1_u64),
        one if is_named(one, "on_path") => Some(0),
        _ => None,
    });
    match steps.collect::<Vec<u64>>().split_first() {
        Some((_, bits)) if bits.len() == BITS => {
            Spelled::Whole(bits.iter().enumerate().map(|(place, bit)| bit << place).sum())
        }
        Some(_) => Spelled::Partly,
        None => Spelled::Nothing,
    }
}

#[track_caller]
fn check(runtime: &str, steps: u32) {
    let _turn = half_turn();
    let receiver = Receiver::start().unwrap();
    let options = ["tasks=1000", &format!("runtime={runtime}"), &format!("steps={steps}")];
    let mut command = command("tasks", &options);
    let outcome = result(sending(command.env("SMOL_THREADS", "4"), &receiver, Protocol::Grpc));
    assert_lawful(&receiver);
    let mut labels = Labels::default();
    for body in receiver.bodies().iter().filter(|body| body.answer == Answer::Accept) {
        body.profiles.iter().for_each(|set| labels.add(set));
    }
    assert_eq!((number(&outcome, "/stats/lost_total"), &outcome["flushed"]), (0, &true.into()), "{outcome}");
    let Labels { tags, links, unspelled } = &labels;
    assert!(tags.right > 1000, "{runtime}: too few samples of the work: {labels:?}: {outcome}");
    // The work is reached with the tag and the span in force, and left before these are not: no sample of it has an excuse.
    assert_eq!((tags.wrong, tags.missing, links.wrong, links.missing), (0, 0, 0, 0), "{runtime}: {labels:?}");
    // The functions on the way to it do next to nothing.
    assert!(unspelled * 50 < tags.right, "{runtime}: what does not spell a number was not compared: {labels:?}");
}

/// Check that every sample of a thousand tasks on tokio's four workers has its task's tag and link.
#[test]
fn tasks_of_tokio_have_their_own_tags() {
    check("tokio", 100);
}

/// Check the same on tokio's current thread.
#[test]
fn tasks_of_one_thread_have_their_own_tags() {
    check("tokio-current", 25);
}

/// Check the same on smol.
#[test]
fn tasks_of_smol_have_their_own_tags() {
    check("smol", 25);
}

/// Check the same for rayon's jobs.
#[test]
fn jobs_of_rayon_have_their_own_tags() {
    check("rayon", 25);
}

/// Check the same for scopes on plain threads.
#[test]
fn threads_have_their_own_tags() {
    check("threads", 25);
}
