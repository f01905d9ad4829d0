//! What is known of the heap at one time, in copies that nobody changes any more.
//!
//! In: the tables. Out: a [`HeapWindow`]: sites with what was allocated there and what lives, by span. Made on the
//! `profiler-io` thread; the locks of the tables are held for copies of their shards and nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::block::{NO_SPAN, Span};
use super::capture;
use super::live::Live;
use super::sites::{BEYOND, Kept, Sites};
use super::state::State;
use super::weight::Weight;
use crate::cpu::record::Head;
use crate::stats::HeapStats;
use crate::unwind::eras::places;
use crate::unwind::modules::Modules;

/// Most pairs of site and span in a profile; beyond, what a site has is joined without its spans.
const MAX_ROWS: usize = 1 << 16;

/// What was allocated: since when?
#[derive(Debug)]
pub(crate) enum Since {
    /// The last profile of this kind, by span.
    LastProfile,
    /// The start of the profiler that runs.
    Start,
    /// A mark that was made before.
    Mark(Mark),
}

/// What was allocated until some time, by site.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    by_site: HashMap<u32, Weight>,
    /// For a site that is forgotten goes into what is beyond, and its number to another one.
    _kept: Option<Kept>,
}

impl Mark {
    pub(super) fn now(sites: &Sites) -> Self {
        // First it is said that they are kept.
        let kept = sites.keep();
        Self { by_site: sites.allocated().into_iter().collect(), _kept: Some(kept) }
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
    /// Samples whose span is left out, for there was no room for it: of what was allocated and of what lives, one that is in both twice.
    pub(crate) without_span: u64,
    /// Whether what was allocated is that of a part of the time since the start.
    pub(crate) is_part: bool,
    /// Whether rows say what was allocated.
    pub(crate) knows_allocated: bool,
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
    /// As [`HeapWindow::without_span`].
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
    /// Where so many samples belong.
    fn at(&mut self, site: u32, span: Span, samples: u64) -> &mut (Weight, Weight) {
        let fits = self.by_place.len() < MAX_ROWS || self.by_place.contains_key(&(site, span));
        if !fits && span != NO_SPAN {
            self.without_span += samples;
        }
        self.by_place.entry((site, if fits { span } else { NO_SPAN })).or_default()
    }
}

/// The rows, and the sites that they are of.
pub(super) fn found(state: &State, since: &Since) -> Found {
    let mut sums = Sums::default();
    if matches!(since, Since::LastProfile) {
        state.sites.begin_look();
    }
    allocated(&state.sites, since, &mut sums);
    state.live.each(|block| {
        sums.at(block.site, (block.trace_id, block.span_id), 1).1 += Weight::of(block.size(), block.lg());
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

/// Begins the next profile; what the one before would have is dropped. Sites are forgotten as by [`found`].
pub(super) fn skip(sites: &Sites, live: &Live) {
    sites.begin_look();
    sites.take_pending(|_, _, _, _| {});
    if sites.is_short() {
        let mut used = HashSet::new();
        live.each(|block| used.extend([block.site]));
        sites.forget_unused(&used);
    }
}

/// Adds what was allocated since then.
fn allocated(sites: &Sites, since: &Since, sums: &mut Sums) {
    match since {
        Since::LastProfile => {
            let see = |site, span, weight, samples| sums.at(site, span, samples).0 += weight;
            let left_out = sites.take_pending(see);
            sums.without_span += left_out;
        }
        Since::Start => sites.allocated().into_iter().for_each(|(site, weight)| sums.at(site, NO_SPAN, 0).0 += weight),
        Since::Mark(mark) => {
            for (site, weight) in sites.allocated() {
                let before = mark.by_site.get(&site).copied().unwrap_or_default();
                sums.at(site, NO_SPAN, 0).0 += weight.since(before);
            }
        }
    }
}

/// The sites of these numbers in an order that does not depend on the tables': by stack from its root on, so that neighbours have much in common;
/// where each stands, and their eras.
fn sites(state: &State, used: &HashSet<u32>) -> (HashMap<u32, usize>, Vec<Site>, Vec<Arc<Modules>>) {
    let mut found = state.sites.words(used);
    // Behind the sites, so that it knows the eras of all.
    let eras = state.eras().clone();
    found.sort_unstable_by(|a, b| a.words.iter().rev().cmp(b.words.iter().rev()));
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
    use super::super::block::Block;
    use super::*;
    use crate::unwind::walk::Snapshot;

    /// Check that what was allocated since a mark is that of each site also where others would be forgotten meanwhile, and their numbers given
    /// to the next ones; and that they are, behind the mark.
    #[test]
    fn a_mark_holds_over_forgetting() {
        let sites = Sites::new(1 << 14);
        let enter = |n: u64| sites.enter(&[n, 1], NO_SPAN, Weight::of(100, 0));
        let first: Vec<u32> = (1..).map(enter).take_while(|site| *site != BEYOND).collect();
        let forget = || {
            (0..2).for_each(|_| sites.begin_look());
            sites.forget_unused(&HashSet::new())
        };
        let mark = Mark::now(&sites);
        let gone = forget();
        let second: HashSet<u32> = (1000..1000 + first.len() as u64).map(enter).collect();
        let mut sums = Sums::default();
        let since = Since::Mark(mark);
        allocated(&sites, &since, &mut sums);
        let objects = |site: &u32| sums.by_place.get(&(*site, NO_SPAN)).map_or(0, |(allocated, _)| allocated.objects());
        assert_eq!((gone, first.iter().map(objects).sum::<i64>()), (0, 0));
        assert_eq!((second, objects(&BEYOND)), (HashSet::from([BEYOND]), first.len() as i64));
        drop(since);
        assert_eq!((forget(), enter(1000) == BEYOND), (first.len(), false));
    }

    /// Check that a profile which is skipped leaves nothing for the next one, that sites which nobody uses make room all the same, and that those of live blocks stay.
    #[test]
    fn a_skipped_profile_makes_room() {
        let (sites, live) = (Sites::new(1 << 14), Live::new(10));
        let enter = |n: u64| sites.enter(&[n, 1], ([1, 2], 3), Weight::of(100, 0));
        let first = enter(1);
        assert!((2..).any(|n| enter(n) == BEYOND));
        live.insert(4096, Block::new(first, [0; 2], 0, 100, 0)).unwrap();
        (0..2).for_each(|_| skip(&sites, &live));
        sites.take_pending(|site, span, _, _| panic!("{site} in {span:?}"));
        assert_eq!((enter(1), enter(1000) == BEYOND), (first, false));
        assert_eq!(sites.allocated().len(), 3, "the first, the new one, and what is beyond");
    }

    /// Check that spans which had no room in a shard, and those which have none among the rows, are counted by their samples.
    #[test]
    fn samples_without_their_span_are_counted() {
        const SAMPLES: u64 = 450_000;
        let sites = Sites::new(1 << 20);
        for n in 0..SAMPLES {
            // Three in a row are a pair.
            let (site, span) = (n / 3 % 1000, ([1, 2], n / 3 + 1));
            assert_ne!(sites.enter(&[site, 1], span, Weight::of(100, 0)), BEYOND);
        }
        let mut sums = Sums::default();
        allocated(&sites, &Since::LastProfile, &mut sums);
        let of = |has_span: bool| {
            let chosen = sums.by_place.iter().filter(|((_, span), _)| (*span != NO_SPAN) == has_span);
            chosen.map(|(_, (allocated, _))| allocated.objects()).sum::<i64>() as u64
        };
        assert_eq!((of(true) + of(false), sums.without_span), (SAMPLES, of(false)));
        assert!(sums.by_place.len() > MAX_ROWS && sums.without_span > SAMPLES / 2, "{}", sums.without_span);
    }

    /// Check that sites come by their stacks from the root on, whatever their tags, so that neighbours have their callers in common.
    #[test]
    fn neighbours_have_their_callers_in_common() {
        let state = State::new(Snapshot::take(&Modules::default()), None).unwrap();
        // Shape and era first; leaf first.
        let words = [[0, 0, 1, 8, 9], [0, 0, 2, 7, 9], [0, 0, 3, 8, 9], [0, 0, 1, 7, 9], [0, 0, 1, 8, 5]];
        words.iter().for_each(|words| assert_ne!(state.sites.enter(words, NO_SPAN, Weight::of(100, 0)), BEYOND));
        let found = found(&state, &Since::Start);
        let told: Vec<&[u64]> = found.sites.iter().map(|site| site.addresses.as_slice()).collect();
        assert_eq!(told, [[1, 8, 5], [1, 7, 9], [2, 7, 9], [1, 8, 9], [3, 8, 9]]);
    }

    /// Check that spans beyond the bound are joined and counted, and that nothing of what they stand for is lost.
    #[test]
    fn spans_are_bounded() {
        let mut sums = Sums::default();
        for n in 0..MAX_ROWS as u64 + 10 {
            sums.at(1, ([1, 2], n + 1), 1).1 += Weight::of(100, 0);
        }
        sums.at(1, ([1, 2], 1), 1).1 += Weight::of(100, 0);
        assert_eq!((sums.by_place.len(), sums.without_span), (MAX_ROWS + 1, 10));
        assert_eq!(sums.by_place[&(1, NO_SPAN)].1.objects(), 10);
        assert_eq!(sums.by_place.values().map(|(_, in_use)| in_use.objects()).sum::<i64>(), MAX_ROWS as i64 + 11);
    }
}
