//! The stored profiles that a request asks for, summed up in the form that it wants.
//!
//! In: the store, a type, a range of time, a tag filter. Out: a tree, a tree for each value of a tag, or one merged profile.
//! What happened over a time is summed over the range; what is in use is the newest state, or what changed since the first.
//! Whoever calls lets one sum be made at a time; each gives way to other work after every set, for the thread also exports.

use std::sync::Arc;

use profiler_proto::model::{Difference, Id, Merge, Value};
use profiler_proto::{ProfileSet, Sample};
use tokio::task::yield_now;

use super::asked::Asked;
use super::evidence::weight_of;
use super::frames::Frames;
use super::nodes::{Nodes, Places};
use super::sample_type::SampleType;
use super::store::{Store, moment_of};
use super::top::Group;
use super::tree::Tree;
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
        let Asked { sample_type, range, .. } = *asked;
        let sets = match (sample_type.is_state(), asked.growth) {
            (true, true) => return Self::growth(store, asked).await,
            (true, false) => store.newest_state(sample_type, range.to).into_iter().collect(),
            (false, _) => store.select(sample_type, range),
        };
        let window = Window::of(sample_type, sets.iter().map(Arc::as_ref));
        Self { asked, sets, window }
    }

    /// What changed between the first state of the range and the newest; nothing if there are not two.
    async fn growth(store: &Store, asked: &'a Asked) -> Self {
        let newest = store.newest_state(asked.sample_type, asked.range.to);
        let first = store.first_state(asked.sample_type, asked.range);
        let mut sets = Vec::new();
        let mut states = newest.zip(first);
        if let Some((newest, first)) = states.take_if(|(newest, first)| !Arc::ptr_eq(newest, first)) {
            let mut difference = Difference::of(&newest);
            yield_now().await;
            difference.less(&first);
            yield_now().await;
            sets.push(Arc::new(difference.finish()));
            states = Some((newest, first));
        }
        let states = states.iter().flat_map(|(newest, first)| [newest.as_ref(), first.as_ref()]);
        let window = Window::of_change(asked.sample_type, sets.iter().map(Arc::as_ref), states);
        Self { asked, sets, window }
    }

    /// The samples that are asked for, as one profile.
    pub(super) async fn merged(&self) -> ProfileSet {
        let mut sum = Merge::new();
        for set in &self.sets {
            let keeps = self.asked.filter.of(&set.dictionary);
            sum.add_samples(set, |sample| sample.value != 0 && keeps(sample));
            yield_now().await;
        }
        let mut sum = sum.finish();
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
            samples.filter(|sample| sample.value < 0 && keeps(sample)).map(|sample| sample.value.unsigned_abs()).sum()
        };
        self.sets.iter().map(of_set).sum()
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

    /// The tree of the samples that `wanted` picks out of each set.
    async fn tree_of<F: Fn(&Sample) -> bool>(&self, wanted: impl Fn(&ProfileSet) -> F) -> Tree {
        let (mut nodes, mut frames) = (Nodes::new(), Frames::new());
        for set in &self.sets {
            let (wanted, mut places) = (wanted(set), Places::new(set));
            frames.note_executable(set);
            for profile in self.asked.sample_type.profiles(set) {
                nodes.add(set, profile, &wanted, &mut places, &mut frames);
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
    /// Those at or before `moment`; `None` if no state is that old.
    pub(super) fn at(moment: u64, store: &Store) -> Option<Self> {
        let set = store.newest_state(SampleType::InuseSpace, moment)?;
        let attributes = SampleType::InuseSpace.profiles(&set).next()?.attributes;
        let figure = |key| set.dictionary.value_of(attributes, key).and_then(Value::as_int);
        Some(Self {
            at: moment_of(SampleType::InuseSpace, &set)?,
            live: SampleType::InuseSpace.profiles(&set).flat_map(|profile| &profile.samples).map(weight_of).sum(),
            allocated: figure("jemalloc.allocated"),
            resident: figure("jemalloc.resident"),
        })
    }
}

/// Whether a sample of `set` has `value` for `key`; `None`: whether it has none.
fn with_value(key: &str, value: Option<&str>, set: &ProfileSet) -> impl Fn(&Sample) -> bool + use<> {
    let of = |id| set.dictionary.value_of(id, key).map(Value::to_string);
    let matches: Vec<bool> =
        set.dictionary.attribute_sets.entries().map(|(id, _)| of(id).as_deref() == value).collect();
    move |sample| matches.get(sample.attributes.index() as usize).copied().unwrap_or(false)
}
