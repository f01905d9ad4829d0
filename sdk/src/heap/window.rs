//! What is known of the heap at one time, in copies that nobody changes any more.
//!
//! In: the tables. Out: a [`HeapWindow`]: sites with what was allocated there and what lives, by span. Made on the
//! `profiler-io` thread; the locks of the tables are held for copies of their shards and nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::capture;
use super::sites::{BEYOND, Span};
use super::state::State;
use super::weight::Weight;
use crate::cpu::record::Head;
use crate::stats::HeapStats;
use crate::unwind::eras::places;
use crate::unwind::modules::Modules;

/// Most pairs of site and span in a profile; beyond, what a site has is joined without its spans.
const MAX_ROWS: usize = 1 << 16;
/// No span.
const NO_SPAN: Span = ([0; 2], 0);

/// What was allocated: since when?
#[derive(Debug)]
pub(crate) enum Since {
    /// The last profile of this kind, by span.
    LastProfile,
    /// The start of the profiler.
    Start,
    /// A mark that was made before.
    Mark(Mark),
}

/// What was allocated until some time, by site.
#[derive(Debug, Default)]
pub(crate) struct Mark(HashMap<u32, Weight>);

impl Mark {
    pub(super) fn now(state: &State) -> Self {
        Self(state.sites.allocated().into_iter().collect())
    }
}

/// A site in one span, or in none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Row {
    /// Place of its site in [`HeapWindow::sites`].
    pub(crate) site: usize,
    pub(crate) trace_id: [u64; 2],
    /// 0: none.
    pub(crate) span_id: u64,
    pub(crate) allocated: Weight,
    pub(crate) in_use: Weight,
}

/// A stack with its tags.
#[derive(Debug, Default)]
pub(crate) struct Site {
    pub(crate) head: Head,
    /// Which of the window's eras its addresses are of.
    pub(crate) era: usize,
    /// As [`crate::context::attributes`] writes them.
    pub(crate) tags: Vec<u8>,
    /// Leaf first.
    pub(crate) addresses: Vec<u64>,
    /// Stands for all that had no room.
    pub(crate) is_beyond: bool,
}

/// The heap at one time.
#[derive(Debug)]
pub(crate) struct HeapWindow {
    pub(crate) started_at: SystemTime,
    pub(crate) duration: Duration,
    /// Bytes between samples, on average.
    pub(crate) interval: u64,
    pub(crate) sites: Vec<Site>,
    pub(crate) rows: Vec<Row>,
    /// Samples whose span is left out, for there were too many.
    pub(crate) without_span: u64,
    /// What the addresses of each era are in.
    pub(crate) eras: Vec<Arc<Modules>>,
    /// The type that viewers of pprof show first, where it is not memory in use.
    pub(crate) first: Option<&'static str>,
    pub(crate) stats: HeapStats,
}

impl HeapWindow {
    /// Every distinct address of each era, with what it is in.
    pub(crate) fn places(&self) -> Vec<(Vec<u64>, &Modules)> {
        places(&self.eras, self.sites.iter().map(|site| (site.era, site.addresses.as_slice())))
    }
}

/// What is known by site and span.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    pub(super) sites: Vec<Site>,
    pub(super) eras: Vec<Arc<Modules>>,
    /// Samples whose span is left out.
    pub(super) without_span: u64,
}

/// Sums by site and span, of which only so many are kept apart.
#[derive(Default)]
struct Sums {
    /// What was allocated, what lives.
    by_place: HashMap<(u32, Span), (Weight, Weight)>,
    without_span: u64,
}

impl Sums {
    fn at(&mut self, site: u32, span: Span) -> &mut (Weight, Weight) {
        let fits = self.by_place.len() < MAX_ROWS || self.by_place.contains_key(&(site, span));
        self.without_span += u64::from(!fits && span != NO_SPAN);
        self.by_place.entry((site, if fits { span } else { NO_SPAN })).or_default()
    }
}

/// The rows, and the sites that they are of.
pub(super) fn found(state: &State, since: &Since) -> Found {
    let mut sums = Sums::default();
    state.sites.begin_look();
    match since {
        Since::LastProfile => {
            state.sites.take_pending(|site, span, weight| sums.at(site, span).0 += weight);
        }
        Since::Start | Since::Mark(_) => {
            for (site, weight) in state.sites.allocated() {
                let before = if let Since::Mark(mark) = since { mark.0.get(&site).copied() } else { None };
                sums.at(site, NO_SPAN).0 += weight.since(before.unwrap_or_default());
            }
        }
    }
    state.live.each(|block| {
        sums.at(block.site, (block.trace_id, block.span_id)).1 += Weight::of(block.size(), block.lg());
    });
    let Sums { by_place: mut sums, without_span } = sums;
    sums.retain(|_, (allocated, in_use)| (*allocated, *in_use) != Default::default());
    let used: HashSet<u32> = sums.keys().map(|(site, _)| *site).collect();
    let (places, sites, eras) = sites(state, &used);
    if matches!(since, Since::LastProfile) {
        state.sites.forget_unused(&used);
    }
    let row = |((site, (trace_id, span_id)), (allocated, in_use))| {
        Some(Row { site: *places.get(&site)?, trace_id, span_id, allocated, in_use })
    };
    let mut rows: Vec<Row> = sums.into_iter().filter_map(row).collect();
    rows.sort_unstable_by_key(|row| (row.site, row.trace_id, row.span_id));
    Found { rows, sites, eras, without_span }
}

/// The sites of these numbers in an order that does not depend on the tables', where each stands, and their eras.
fn sites(state: &State, used: &HashSet<u32>) -> (HashMap<u32, usize>, Vec<Site>, Vec<Arc<Modules>>) {
    let mut found = state.sites.words(used);
    // Behind the sites, so that it knows the eras of all.
    let eras = state.eras().clone();
    found.sort_unstable_by(|a, b| a.words.cmp(&b.words));
    let mut places: HashMap<u32, usize> = found.iter().enumerate().map(|(place, site)| (site.number, place)).collect();
    let site = |site: &super::sites::Site| {
        let Some((head, era, tags, addresses)) = capture::split(&site.words) else { return Site::default() };
        Site { head, era: eras.place(era), tags, addresses: addresses.to_vec(), is_beyond: false }
    };
    let mut sites: Vec<Site> = found.iter().map(site).collect();
    // What is live at a site that was forgotten all the same belongs there, too.
    let beyond = sites.len();
    for number in used {
        places.entry(*number).or_insert(beyond);
    }
    if places.values().any(|place| *place == beyond) {
        sites.push(Site { is_beyond: true, ..Site::default() });
    }
    debug_assert!(!used.contains(&BEYOND) || places.get(&BEYOND) == Some(&beyond));
    (places, sites, eras.modules())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that spans beyond the bound are joined and counted, and that nothing of what they stand for is lost.
    #[test]
    fn spans_are_bounded() {
        let mut sums = Sums::default();
        for n in 0..MAX_ROWS as u64 + 10 {
            sums.at(1, ([1, 2], n + 1)).1 += Weight::of(100, 0);
        }
        sums.at(1, ([1, 2], 1)).1 += Weight::of(100, 0);
        assert_eq!((sums.by_place.len(), sums.without_span), (MAX_ROWS + 1, 10));
        assert_eq!(sums.by_place[&(1, NO_SPAN)].1.objects(), 10);
        assert_eq!(sums.by_place.values().map(|(_, in_use)| in_use.objects()).sum::<i64>(), MAX_ROWS as i64 + 11);
    }
}
