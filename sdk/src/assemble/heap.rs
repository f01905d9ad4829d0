//! The four profiles of the heap.
//!
//! In: a [`HeapWindow`], the symbols, the resource. Out: a [`ProfileSet`] in Go's types and order, each sample with the tags and the
//! span that were in force when its memory was allocated, its stack without the functions of the `allocator`; the allocator's own figures as attributes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::SystemTime;

use profiler_proto::hash::Map;
use profiler_proto::model::{
    AttributeId, AttributeSetId, Dictionary, Kind, LinkId, Profile, ProfileSet, Sample, StackId, Value,
};
use profiler_proto::pprof;
use profiler_proto::resource::Resource;

use super::threads::ThreadLabels;
use super::{Assembly, Granularity, Path, Places, Whole, allocator, merged, nanos, set_of};
use crate::context::tags::texts;
use crate::heap::{HeapWindow, PARTS, Row, Site};
use crate::symbolize::Symbolizer;

/// Stands for the stacks that had no room.
const BEYOND: &str = "[stacks beyond the bound]";
/// So many types come first that say what was allocated.
const ALLOCATED: usize = 2;
/// What a profile says that is made of a dump.
const OF_A_DUMP: &str = "jemalloc's own profile, for it has no hooks of samples: no tags, no spans";

/// The profiles of `window`, whose symbols the symbolizer has learned.
pub(crate) fn assemble(
    window: &HeapWindow,
    symbolizer: &Symbolizer,
    resource: &Resource,
    granularity: Granularity,
) -> ProfileSet {
    let (tags, tag_sets) = tag_sets(&window.sites);
    let places = Places::new(symbolizer, &window.eras, granularity);
    let mut assembly = Assembly::new(places, tags, ThreadLabels::default());
    let kinds = Kind::heap(&mut assembly.dictionary, i64::try_from(window.interval).unwrap_or(i64::MAX));
    let sites: Vec<(StackId, AttributeSetId)> = window
        .sites
        .iter()
        .zip(tag_sets)
        .map(|(site, tag_set)| (assembly.site(site), assembly.labels(tag_set, 0, None)))
        .collect();
    let links: Vec<LinkId> = window.rows.iter().map(|row| assembly.link(row.trace_id, row.span_id)).collect();
    let attributes = attributes(window, &mut assembly.dictionary);
    let (time_unix_nanos, duration_nanos) = nanos(window.started_at, window.duration);
    let amounts: [fn(&Row) -> u64; 4] =
        [|row| row.allocated.parts(), |row| row.allocated.bytes(), |row| row.in_use.parts(), |row| row.in_use.bytes()];
    let units = [PARTS, 1, PARTS, 1];
    let (of_states, of_part) = (drawn(&window.sites, None), window.is_part.then_some(window.started_at));
    let of_allocated = drawn(&window.sites, of_part);
    let draws = [&of_allocated, &of_allocated, &of_states, &of_states];
    let known = if window.knows_allocated { 0 } else { ALLOCATED };
    let columns = kinds.into_iter().zip(amounts).zip(units).zip(draws).skip(known);
    let profiles = columns.map(|(((kind, amount), unit), drawn)| {
        // Of each site by itself: what one is said to have does not hang on the others.
        let mut whole: Vec<Whole> = drawn.iter().map(|drawn| Whole::drawn(unit, *drawn)).collect();
        let samples = window.rows.iter().zip(&links).map(|(row, link)| {
            let (stack, attributes) = sites[row.site];
            Sample { stack, attributes, link: *link, value: whole[row.site].units(amount(row)) }
        });
        Profile { kind, time_unix_nanos, duration_nanos, attributes, samples: merged(samples) }
    });
    let mut set = set_of(profiles.collect(), assembly.dictionary, resource);
    if let Some(first) = window.first.filter(|_| window.knows_allocated) {
        pprof::show_first(&mut set, first);
    }
    set
}

/// A number for each site by which its parts of an object are rounded: any with the same chance, and the same one for as long as there is the
/// site, so that what does not change is told as the same. Of a `part` of the time it is another one each time, for parts are added up.
fn drawn(sites: &[Site], part: Option<SystemTime>) -> Vec<u64> {
    let draw = |site: &Site| {
        let mut hasher = DefaultHasher::new();
        (&site.addresses, &site.tags, part).hash(&mut hasher);
        hasher.finish()
    };
    sites.iter().map(draw).collect()
}

/// The tags of each site by a number, and the number of each.
#[expect(clippy::type_complexity, reason = "it is what `Assembly` takes, and what it is asked by")]
fn tag_sets(sites: &[Site]) -> (Map<u32, Vec<(&'static str, String)>>, Vec<u32>) {
    let mut numbers: Map<&[u8], u32> = Map::default();
    let mut tag_sets = Vec::with_capacity(sites.len());
    for site in sites {
        let next = numbers.len() as u32;
        tag_sets.push(*numbers.entry(&site.tags).or_insert(next));
    }
    let tags = numbers.into_iter().map(|(bytes, number)| (number, texts(bytes).collect()));
    (tags.collect(), tag_sets)
}

impl Assembly<'_> {
    /// The stack of a site, without what is the allocator's at its leaf.
    fn site(&mut self, site: &Site) -> StackId {
        if site.is_beyond {
            return self.beyond();
        }
        let gap_behind = (site.head.elided > 0).then_some(usize::from(site.head.leaf_frames));
        let leaf = &site.addresses[..gap_behind.unwrap_or(usize::MAX).min(site.addresses.len())];
        let (whole, hidden) = self.of_allocator(site.era, leaf);
        self.stack(&Path {
            era: site.era,
            addresses: &site.addresses[whole..],
            gap_behind: gap_behind.map(|behind| behind.saturating_sub(whole)),
            end: site.head.end,
            hidden,
        })
    }

    /// How many of these addresses are the allocator's, and how many functions that are inlined at the next one.
    fn of_allocator(&self, era: usize, leaf: &[u64]) -> (usize, usize) {
        for (whole, address) in leaf.iter().enumerate() {
            let symbol = self.places.symbol(era, *address);
            let hidden = allocator::functions(&symbol);
            if hidden < symbol.frames.len() {
                return (whole, hidden);
            }
        }
        // Of a stack that is all the allocator's, all is shown.
        (0, 0)
    }

    fn beyond(&mut self) -> StackId {
        let marker = self.marker(BEYOND);
        self.dictionary.stacks.intern(profiler_proto::model::Stack { locations: Box::new([marker]) })
    }
}

/// What is said of the heap as a whole.
fn attributes(window: &HeapWindow, dictionary: &mut Dictionary) -> AttributeSetId {
    let stats = &window.stats;
    let mut figures = vec![
        ("profiler.heap.live_samples", stats.live),
        ("profiler.heap.lost.no_scratch", stats.lost.no_scratch),
        ("profiler.heap.lost.table_full", stats.lost.table_full),
        ("profiler.heap.lost.no_memory", stats.lost.no_memory),
        ("profiler.heap.without_stack", stats.without_stack),
        ("profiler.heap.without_span", window.without_span),
        ("profiler.heap.profiles_lost", stats.profiles_lost.total()),
    ];
    figures.retain(|(_, figure)| *figure > 0);
    if let Some(allocator) = &stats.allocator {
        figures.extend([
            ("jemalloc.allocated", allocator.allocated),
            ("jemalloc.active", allocator.active),
            ("jemalloc.metadata", allocator.metadata),
            ("jemalloc.resident", allocator.resident),
            ("jemalloc.mapped", allocator.mapped),
            ("jemalloc.retained", allocator.retained),
        ]);
    }
    let whole = |figure| Value::Int(i64::try_from(figure).unwrap_or(i64::MAX));
    let mut attributes: Vec<AttributeId> =
        figures.into_iter().map(|(name, figure)| dictionary.attribute(name, whole(figure))).collect();
    attributes.extend(stats.dumps.as_ref().map(|_| dictionary.attribute("profiler.heap.dump", OF_A_DUMP)));
    dictionary.attribute_set(attributes)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use profiler_proto::model::Line;

    use super::super::GAP;
    use super::*;
    use crate::cpu::record::Head;
    use crate::heap::Weight;
    use crate::stats::HeapStats;
    use crate::symbolize::{Frame, Language, Symbol};
    use crate::unwind::modules::Modules;

    const LG: u32 = 19;

    /// A window that began then, in which each of these sites has one sample, of a block as long as the interval.
    fn window(addresses: Range<u64>, second: u64, is_part: bool) -> HeapWindow {
        let weight = Weight::of(1 << LG, LG);
        let sites: Vec<Site> = addresses.map(|address| Site { addresses: vec![address], ..Site::default() }).collect();
        let rows = (0..sites.len()).map(|site| Row { site, allocated: weight, in_use: weight, ..Row::default() });
        HeapWindow {
            started_at: UNIX_EPOCH + Duration::from_secs(second),
            duration: Duration::from_secs(1),
            interval: 1 << LG,
            rows: rows.collect(),
            sites,
            without_span: 0,
            is_part,
            knows_allocated: true,
            eras: vec![Arc::default()],
            first: None,
            stats: HeapStats::default(),
        }
    }

    /// The objects of each site by its address: those allocated, those in use.
    fn told(window: &HeapWindow) -> [Map<u64, i64>; 2] {
        let set = assemble(window, &Symbolizer::new(None), &Resource::default(), Granularity::Lines);
        [0, 2].map(|place| {
            let address = |stack| {
                let location = set.dictionary.stacks.get(stack).unwrap().locations[0];
                set.dictionary.locations.get(location).unwrap().address
            };
            set.profiles[place].samples.iter().map(|sample| (address(sample.stack), sample.value)).collect()
        })
    }

    /// Checks that so many samples are told as what they stand for, within four standard errors of what rounding up or down does to each.
    #[track_caller]
    fn assert_unbiased(told: i64, samples: f64) {
        let (each, part) = (1.0 / (1.0 - (-1.0_f64).exp()), 1.0 / (1.0_f64.exp() - 1.0));
        let error = (samples * part * (1.0 - part)).sqrt();
        assert!((told as f64 - each * samples).abs() < 4.0 * error, "{told}, not {} ± {error}", each * samples);
    }

    /// Check that sites of one sample each, which stands for an object and a half, have all together as many objects as there were.
    #[test]
    fn sites_of_one_sample_are_right_together() {
        for objects in told(&window(0..1000, 1, false)) {
            assert_eq!(objects.len(), 1000);
            assert_unbiased(objects.values().sum(), 1000.0);
        }
    }

    /// Check that a site keeps its figure from profile to profile, whichever other sites there are, and has no more in use than was allocated.
    #[test]
    fn what_stays_is_told_as_the_same() {
        let [allocated, in_use] = told(&window(0..1000, 1, false));
        assert_eq!(allocated, in_use);
        let [_, later] = told(&window(500..1100, 2, true));
        assert!((500..1000).all(|address| later[&address] == in_use[&address]));
    }

    /// Check that what one site allocates in many parts of the time, one sample in each, is right in all.
    #[test]
    fn parts_of_the_time_are_right_together() {
        let mut sums = [0; 3];
        for second in 0..1000 {
            let [allocated, _] = told(&window(0..3, second, true));
            (0..).zip(&mut sums).for_each(|(address, sum)| *sum += allocated[&address]);
        }
        sums.iter().for_each(|sum| assert_unbiased(*sum, 1000.0));
    }

    /// The symbol of these functions, innermost first.
    fn symbol(names: &[&str]) -> Symbol {
        let frames = names.iter().map(|name| Frame { name: (*name).into(), ..Frame::default() });
        Symbol { frames: frames.collect(), language: Language::Rust, first: 0 }
    }

    /// Check that functions of the allocator are hidden at the leaf, whole ones and inlined ones, that the same place shows them where it is not the leaf, and that a
    /// stack of nothing else is shown as it is.
    #[test]
    fn functions_of_the_allocator_are_hidden_at_the_leaf() {
        let symbols = [&["__rust_alloc"][..], &["alloc::alloc::alloc", "shop::fill"], &["shop::serve"]];
        let symbolizer = Symbolizer::knowing((1..).zip(symbols.map(symbol)), &Modules::default());
        let head = |elided, leaf_frames| Head { elided, leaf_frames, ..Head::default() };
        let site = |head, addresses: &[u64]| Site { head, addresses: addresses.to_vec(), ..Site::default() };
        let mut window = window(0..5, 1, false);
        window.sites = vec![
            site(head(0, 0), &[1, 1, 2, 3]),
            site(head(0, 0), &[2, 3]),
            site(head(0, 0), &[3, 1, 2]),
            site(head(0, 0), &[1, 1]),
            site(head(9, 2), &[1, 2, 3]),
        ];
        let set = assemble(&window, &symbolizer, &Resource::default(), Granularity::Lines);
        let Dictionary { stacks, locations, functions, strings, .. } = &set.dictionary;
        let name = |line: &Line| strings.text(functions.get(line.function).unwrap().name);
        let names = |sample: &Sample| {
            let places = stacks.get(sample.stack).unwrap().locations.iter().map(|id| locations.get(*id).unwrap());
            places.flat_map(|place| place.lines.iter().map(name)).collect::<Vec<_>>().join(" ")
        };
        let told: Vec<String> = set.profiles[0].samples.iter().map(names).collect();
        let from_leaf = "shop::fill shop::serve";
        let in_the_middle = "shop::serve __rust_alloc alloc::alloc::alloc shop::fill";
        let elided = format!("shop::fill {GAP} shop::serve");
        assert_eq!(told, [from_leaf, in_the_middle, "__rust_alloc __rust_alloc", &elided]);
        let bytes = &set.profiles[1].samples;
        assert_eq!(bytes[0].value, 2 * bytes[1].value);
    }
}
