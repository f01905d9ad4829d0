//! The stored profiles that a request asks for, summed up in the form that it wants.
//!
//! In: the store, a type, a range of time, a tag filter. Out: a tree, a tree for each value of a tag, or one merged profile.
//! What happened over a time is summed over the range; what is in use is the newest state, or what changed since the first.
//! Whoever calls lets one sum be made at a time; each gives way to other work after every set, for the thread also exports.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use profiler_proto::model::{Difference, Id, Merge, Value, join};
use profiler_proto::{ProfileSet, Sample};
use tokio::task::yield_now;

use super::asked::Asked;
use super::evidence::weight_of;
use super::frames::Frames;
use super::nodes::{Nodes, Places};
use super::process::{Chosen, Process};
use super::sample_type::SampleType;
use super::store::{Store, moment_of};
use super::top::Group;
use super::tree::Tree;
use super::weight::{sum, weighted};
use super::window::{Window, weights_by};

/// The sets that are asked for, with what is known of them.
#[derive(Debug)]
pub(super) struct Profiles<'a> {
    asked: &'a Asked,
    sets: Vec<Arc<ProfileSet>>,
    pub(super) window: Window,
}

impl<'a> Profiles<'a> {
    /// Looks up what is asked for.
    pub(super) async fn find(store: &Store, asked: &'a Asked) -> Self {
        let Asked { sample_type, range, ref of, .. } = *asked;
        let sets = match (sample_type.is_state(), asked.growth) {
            (true, true) => return Self::growth(store, asked).await,
            (true, false) => store.newest_states(sample_type, range.to, of),
            (false, _) => store.select(sample_type, range, of),
        };
        let window = Window::of(sample_type, sets.iter().map(Arc::as_ref));
        Self { asked, sets, window }
    }

    /// What changed of each process between its first state of the range and the newest; nothing of those that have not two.
    async fn growth(store: &Store, asked: &'a Asked) -> Self {
        let Asked { sample_type, range, ref of, .. } = *asked;
        let first: HashMap<Process, Arc<ProfileSet>> =
            store.first_states(sample_type, range, of).into_iter().map(|set| (Process::of(&set), set)).collect();
        let (mut sets, mut states) = (Vec::new(), Vec::new());
        for newest in store.newest_states(sample_type, range.to, of) {
            let Some(first) = first.get(&Process::of(&newest)).filter(|first| !Arc::ptr_eq(&newest, first)) else {
                continue;
            };
            let mut difference = Difference::of(&newest);
            yield_now().await;
            difference.less(first);
            yield_now().await;
            sets.push(Arc::new(difference.finish()));
            states.extend([Arc::clone(first), newest]);
        }
        let window = Window::of_change(sample_type, sets.iter().map(Arc::as_ref), states.iter().map(Arc::as_ref));
        Self { asked, sets, window }
    }

    /// The samples that are asked for, as one profile; those of several processes carry labels that tell whose they are.
    pub(super) async fn merged(&self) -> ProfileSet {
        let mut sums: BTreeMap<Process, Merge> = BTreeMap::new();
        for set in &self.sets {
            let keeps = self.asked.filter.of(&set.dictionary);
            sums.entry(Process::of(set)).or_default().add_samples(set, |sample| sample.value != 0 && keeps(sample));
            yield_now().await;
        }
        let sums: Vec<(Process, ProfileSet)> = sums.into_iter().map(|(process, sum)| (process, sum.finish())).collect();
        let mut sum = match sums.as_slice() {
            [(_, set)] if self.asked.sample_type.profiles(set).nth(1).is_none() => set.clone(),
            // Taken at several rates, as where a budget lowered it: one profile in the end as well.
            [(_, set)] => join(&[(set, Vec::new())]),
            _ => join(&sums.iter().map(|(process, set)| (set, process.labels())).collect::<Vec<_>>()),
        };
        let of_type = self.asked.sample_type.profiles(&sum).cloned().collect();
        sum.profiles = of_type;
        sum
    }

    /// The samples that are asked for, as a tree.
    pub(super) async fn tree(&self) -> Tree {
        self.tree_of(|set| self.asked.filter.of(&set.dictionary)).await
    }

    /// By how much all that shrank has shrunk, of what is asked for.
    pub(super) fn shrank(&self) -> u64 {
        let of_set = |set: &Arc<ProfileSet>| -> u64 {
            let keeps = self.asked.filter.of(&set.dictionary);
            let samples = self.asked.sample_type.profiles(set).flat_map(|profile| &profile.samples);
            sum(samples.filter(|sample| sample.value < 0 && keeps(sample)).map(|sample| sample.value.unsigned_abs()))
        };
        sum(self.sets.iter().map(of_set))
    }

    /// A tree for each of the `most` heaviest values of the tag `by`, the heaviest first; without `by`, one for all.
    pub(super) async fn groups(&self, by: Option<&str>, most: usize) -> Vec<Group> {
        let Some(by) = by else { return vec![self.group(None, self.tree().await)] };
        let Asked { sample_type, filter, .. } = self.asked;
        let weights = weights_by(by, *sample_type, filter, self.sets.iter().map(Arc::as_ref));
        let mut values: Vec<(Option<String>, u64)> = weights.into_iter().collect();
        values.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut groups = Vec::new();
        for (value, _) in values.into_iter().take(most) {
            let tree = self.tree_of(|set| {
                let (keeps, of_group) = (filter.of(&set.dictionary), with_value(by, value.as_deref(), set));
                move |sample: &Sample| keeps(sample) && of_group(sample)
            });
            groups.push(self.group(value.clone(), tree.await));
        }
        groups
    }

    /// The tree of the samples that `wanted` picks out of each set; where there are several processes, they stand below the root.
    async fn tree_of<F: Fn(&Sample) -> bool>(&self, wanted: impl Fn(&ProfileSet) -> F) -> Tree {
        let (mut nodes, mut frames) = (Nodes::new(), Frames::new());
        let level = Level::of(&self.sets);
        for set in &self.sets {
            let wanted = wanted(set);
            let root = level.name(set).map_or(0, |name| nodes.process(&name, &mut frames));
            let mut places = Places::new(set, root);
            frames.note_executable(set);
            for profile in self.asked.sample_type.profiles(set) {
                let samples = weighted(profile, set, self.window.period).filter(|(sample, _)| wanted(sample));
                nodes.add(set, samples, &mut places, &mut frames);
            }
            yield_now().await;
        }
        Tree::new(nodes, frames)
    }

    fn group(&self, value: Option<String>, tree: Tree) -> Group {
        let stacks = tree.samples as f64 / self.window.mean_weight();
        Group { value, unit: self.asked.sample_type.unit(), stacks, tree }
    }
}

/// The heap as a whole, as the newest state says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeapFigures {
    /// When it was, nanoseconds since 1970 UTC.
    pub(super) at: u64,
    /// Bytes that the samples stand for.
    pub(super) live: u64,
    /// What the allocator said that it gave out, and what of its memory was resident.
    pub(super) allocated: Option<i64>,
    pub(super) resident: Option<i64>,
}

impl HeapFigures {
    /// Those at or before `moment`, of the chosen processes together; `None` if no state is that old. Of the allocator, where all of them
    /// say it.
    pub(super) fn at(moment: u64, of: &Chosen, store: &Store) -> Option<Self> {
        let states = store.newest_states(SampleType::InuseSpace, moment, of);
        let figure = |key| -> Option<i64> {
            let of_set = |set: &Arc<ProfileSet>| {
                let attributes = SampleType::InuseSpace.profiles(set).next()?.attributes;
                set.dictionary.value_of(attributes, key).and_then(Value::as_int)
            };
            states.iter().map(of_set).try_fold(0_i64, |all, figure| Some(all.saturating_add(figure?)))
        };
        let live = |set: &Arc<ProfileSet>| {
            sum(SampleType::InuseSpace.profiles(set).flat_map(|profile| &profile.samples).map(weight_of))
        };
        Some(Self {
            at: states.iter().filter_map(|set| moment_of(SampleType::InuseSpace, set)).max()?,
            live: sum(states.iter().map(live)),
            allocated: figure("jemalloc.allocated"),
            resident: figure("jemalloc.resident"),
        })
    }
}

/// By what processes are told apart at the root of a tree: not at all, by service, or, of one service, by pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    None,
    Service,
    Pid,
}

impl Level {
    fn of(sets: &[Arc<ProfileSet>]) -> Self {
        let processes: BTreeSet<Process> = sets.iter().map(|set| Process::of(set)).collect();
        let services: BTreeSet<&str> = processes.iter().map(|process| &*process.service).collect();
        match (processes.len(), services.len()) {
            (0 | 1, _) => Self::None,
            (_, 1) => Self::Pid,
            _ => Self::Service,
        }
    }

    /// What the process of `set` is called at the root.
    fn name(self, set: &ProfileSet) -> Option<String> {
        let process = Process::of(set);
        match self {
            Self::None => None,
            Self::Service if process.service.is_empty() => Some("(no service name)".to_owned()),
            Self::Service => Some(process.service.into()),
            Self::Pid => Some(format!("pid {}", process.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()))),
        }
    }
}

/// Whether a sample of `set` has `value` for `key`; `None`: whether it has none.
fn with_value(key: &str, value: Option<&str>, set: &ProfileSet) -> impl Fn(&Sample) -> bool + use<> {
    let of = |id| set.dictionary.value_of(id, key).map(Value::to_string);
    let matches: Vec<bool> =
        set.dictionary.attribute_sets.entries().map(|(id, _)| of(id).as_deref() == value).collect();
    move |sample| matches.get(sample.attributes.index() as usize).copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use profiler_proto::model::{Kind, TagFilter};

    use super::*;
    use crate::serve::range::Range;
    use crate::serve::testing::{PERIOD, Stacks};

    /// Check that what one process did at several rates is one profile, which has all of it.
    #[test]
    fn several_rates_are_one_profile() {
        let store = Store::new(Duration::from_secs(3600), 1 << 20);
        let mut slow = Stacks::new().at(1010, 10).sample("main;a", 3).set();
        slow.profiles[0].kind = Kind::cpu(&mut slow.dictionary, 2 * PERIOD);
        store.add(Stacks::new().at(1000, 10).sample("main;a", 4).shared());
        store.add(Arc::new(slow));
        let (range, filter) = (Range { from: 0, to: u64::MAX }, TagFilter::new());
        let asked = Asked { sample_type: SampleType::Cpu, growth: false, range, now: 1, filter, of: Chosen::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let merged = runtime.block_on(async { Profiles::find(&store, &asked).await.merged().await });
        let [profile] = &*merged.profiles else { panic!("{} profiles", merged.profiles.len()) };
        // Each of the slow ones stands for two.
        assert_eq!((profile.kind.period, sum(profile.samples.iter().map(weight_of))), (PERIOD, 10));
    }
}
