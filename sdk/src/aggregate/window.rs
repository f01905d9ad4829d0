//! A window that has ended: what `symbolize` and `assemble` read, in an order that does not depend on the maps'.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use profiler_proto::hash::Map;
use profiler_proto::loss::{Degraded, Loss};
use profiler_proto::paths;

use super::{BEYOND, Key, NO_TAGS, Named, OVERFLOW, Tally};
use crate::context::keys;
use crate::context::tags::texts;
use crate::cpu::record::Head;
use crate::unwind::eras::places;
use crate::unwind::frames::StackEnd;
use crate::unwind::modules::Modules;

/// The samples of a window that has ended.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) started_at: SystemTime,
    pub(crate) duration: Duration,
    /// CPU time between samples.
    pub(crate) period: Duration,
    pub(crate) lost: Loss,
    pub(crate) degraded: Degraded,
    /// What the addresses of each era are in.
    pub(crate) eras: Vec<Arc<Modules>>,
    pub(super) stacks: Map<Box<[u64]>, u32>,
    pub(super) entries: Map<Key, Tally>,
    pub(super) tag_sets: Map<Box<[u8]>, u32>,
    pub(super) threads: Map<u32, Named>,
    pub(super) names: Map<Arc<str>, u32>,
}

/// A distinct stack in one context on one thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// Number of its set of tags: see [`Window::tags`].
    pub(crate) tag_set: u32,
    pub(crate) trace_id: [u64; 2],
    /// 0: none.
    pub(crate) span_id: u64,
    /// 0: not known.
    pub(crate) tid: u32,
    /// What the thread was called, where that is known.
    pub(crate) thread_name: Option<&'a str>,
    pub(crate) end: StackEnd,
    /// Which of the window's eras its addresses are of.
    pub(crate) era: usize,
    /// Leaf first.
    pub(crate) addresses: &'a [u64],
    /// Frames were left out behind this many.
    pub(crate) gap_behind: Option<usize>,
    pub(crate) tally: Tally,
}

impl Window {
    /// How many stacks there are in all.
    pub(crate) fn stacks(&self) -> u64 {
        self.entries.values().map(|tally| tally.count).sum()
    }

    /// The entries in an order that does not depend on the maps': by stack from its root on, so that neighbours have much in common.
    pub(crate) fn entries(&self) -> Vec<Entry<'_>> {
        let mut stacks: Vec<&[u64]> = vec![&[]; self.stacks.len()];
        self.stacks.iter().for_each(|(words, number)| stacks[*number as usize] = words);
        let mut names: Vec<&str> = vec![""; self.names.len() + 1];
        self.names.iter().for_each(|(name, number)| names[*number as usize] = name);
        // The shape comes last.
        let places = paths::places(stacks.len(), |stack, depth| stacks[stack].iter().rev().nth(depth));
        let mut sorted: Vec<_> = self.entries.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| (places[key.stack as usize], **key));
        let entries = sorted.into_iter().filter_map(|(key, tally)| {
            let (shape, addresses) = stacks[key.stack as usize].split_first()?;
            let head = Head::of_shape(*shape);
            let Key { tid, tag_set, trace_id, span_id, .. } = *key;
            let gap_behind = (head.elided > 0).then_some(usize::from(head.leaf_frames));
            // The name that became known first has been the thread's all along, as far as anybody knows.
            let known_later = || self.threads.get(&tid).map_or(0, |named| named.first);
            let name = if key.name == 0 { known_later() } else { key.name };
            let thread_name = (name != 0).then(|| names[name as usize]);
            let (end, era) = (head.end, (*shape >> Head::SHAPE_BITS) as usize);
            Some(Entry { tag_set, trace_id, span_id, tid, thread_name, end, era, addresses, gap_behind, tally: *tally })
        });
        entries.collect()
    }

    /// The sets of tags, by number.
    pub(crate) fn tags(&self) -> Map<u32, Vec<(&'static str, String)>> {
        let sets = self.tag_sets.iter().map(|(bytes, number)| (*number, texts(bytes).collect()));
        let overflow = keys::text(keys::OF_TAGS).map(|key| (key, BEYOND.to_owned()));
        sets.chain([(NO_TAGS, Vec::new()), (OVERFLOW, overflow.into_iter().collect())]).collect()
    }

    /// Every distinct address of each era, with what it is in.
    pub(crate) fn places(&self) -> Vec<(Vec<u64>, &Modules)> {
        let stacks = self.stacks.keys().filter_map(|words| words.split_first());
        places(&self.eras, stacks.map(|(shape, addresses)| ((*shape >> Head::SHAPE_BITS) as usize, addresses)))
    }
}
