//! The stored profiles of a range of time, summed up in the form that a request asks for.
//!
//! In: sets of the store and a tag filter. Out: a tree, a tree for each value of a tag, or one merged profile. Whoever
//! calls lets one sum be made at a time; each gives way to other work after every set, for the thread also exports.

use std::sync::Arc;

use profiler_proto::model::{Id, Merge, TagFilter, Value};
use profiler_proto::{ProfileSet, Sample};
use tokio::task::yield_now;

use super::frames::Frames;
use super::nodes::{Nodes, Places};
use super::top::Group;
use super::tree::Tree;
use super::window::{Window, cpu_profiles, weights_by};

/// The sets of a range of time, with what is known of it.
#[derive(Debug)]
pub(super) struct Profiles {
    sets: Vec<Arc<ProfileSet>>,
    pub(super) window: Window,
}

impl Profiles {
    /// Looks through `sets`.
    pub(super) fn new(sets: Vec<Arc<ProfileSet>>) -> Self {
        let window = Window::of(sets.iter().map(Arc::as_ref));
        Self { sets, window }
    }

    /// The samples that `filter` keeps, as one profile.
    pub(super) async fn merged(&self, filter: &TagFilter) -> ProfileSet {
        let mut sum = Merge::new();
        for set in &self.sets {
            sum.add_samples(set, filter.of(&set.dictionary));
            yield_now().await;
        }
        let mut sum = sum.finish();
        sum.profiles.retain(|profile| profile.kind.is_cpu(&sum.dictionary));
        sum
    }

    /// The samples that `filter` keeps, as a tree.
    pub(super) async fn tree(&self, filter: &TagFilter) -> Tree {
        self.tree_of(|set| filter.of(&set.dictionary)).await
    }

    /// A tree for each of the `most` heaviest values of the tag `by`, the heaviest first; without `by`, one for all.
    pub(super) async fn groups(&self, by: Option<&str>, filter: &TagFilter, most: usize) -> Vec<Group> {
        let Some(by) = by else { return vec![self.group(None, self.tree(filter).await)] };
        let weights = weights_by(by, filter, self.sets.iter().map(Arc::as_ref));
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
            for profile in cpu_profiles(set) {
                nodes.add(set, profile, &wanted, &mut places, &mut frames);
            }
            yield_now().await;
        }
        Tree::new(nodes, frames)
    }

    fn group(&self, value: Option<String>, tree: Tree) -> Group {
        let stacks = tree.samples as f64 / self.window.mean_weight();
        Group { value, stacks, tree }
    }
}

/// Whether a sample of `set` has `value` for `key`; `None`: whether it has none.
fn with_value(key: &str, value: Option<&str>, set: &ProfileSet) -> impl Fn(&Sample) -> bool + use<> {
    let of = |id| set.dictionary.value_of(id, key).map(Value::to_string);
    let matches: Vec<bool> =
        set.dictionary.attribute_sets.entries().map(|(id, _)| of(id).as_deref() == value).collect();
    move |sample| matches.get(sample.attributes.index() as usize).copied().unwrap_or(false)
}
