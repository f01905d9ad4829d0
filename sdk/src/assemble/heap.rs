//! The four profiles of the heap.
//!
//! In: a [`HeapWindow`], the symbols, the resource. Out: a [`ProfileSet`] in Go's types and order, each sample with the tags and the
//! span that were in force when its memory was allocated; the allocator's own figures as attributes.

use std::collections::HashMap;

use profiler_proto::model::{
    AttributeId, AttributeSetId, Dictionary, Kind, LinkId, Profile, ProfileSet, Sample, StackId, Value,
};
use profiler_proto::resource::Resource;

use super::threads::ThreadLabels;
use super::{Assembly, merged, nanos, set_of};
use crate::aggregate::{Entry, Tally};
use crate::context::tags::texts;
use crate::heap::{HeapWindow, Row, Site};
use crate::symbolize::Symbolizer;

/// Stands for the stacks that had no room.
const BEYOND: &str = "[stacks beyond the bound]";
/// Says to pprof what is shown first.
const DEFAULT_SAMPLE_TYPE: &str = "profiler.pprof.default_sample_type";

/// The profiles of `window`, whose symbols the symbolizer has learned.
pub(crate) fn assemble(window: &HeapWindow, symbolizer: &Symbolizer, resource: &Resource) -> ProfileSet {
    let (tags, tag_sets) = tag_sets(&window.sites);
    let mut assembly = Assembly::new(symbolizer, &window.eras, tags, ThreadLabels::default());
    let kinds = Kind::heap(&mut assembly.dictionary, i64::try_from(window.interval).unwrap_or(i64::MAX));
    let places: Vec<(StackId, AttributeSetId, LinkId)> =
        window.rows.iter().map(|row| assembly.place(row, &window.sites[row.site], tag_sets[row.site])).collect();
    let attributes = attributes(window, &mut assembly.dictionary);
    let (time_unix_nanos, duration_nanos) = nanos(window.started_at, window.duration);
    let values: [fn(&Row) -> i64; 4] = [
        |row| row.allocated.objects(),
        |row| row.allocated.bytes(),
        |row| row.in_use.objects(),
        |row| row.in_use.bytes(),
    ];
    let profiles = kinds.into_iter().zip(values).map(|(kind, value)| {
        let samples = window.rows.iter().zip(&places).map(|(row, (stack, attributes, link))| Sample {
            stack: *stack,
            attributes: *attributes,
            link: *link,
            value: value(row),
        });
        Profile { kind, time_unix_nanos, duration_nanos, attributes, samples: merged(samples) }
    });
    set_of(profiles.collect(), assembly.dictionary, resource)
}

/// The tags of each site by a number, and the number of each.
#[expect(clippy::type_complexity, reason = "it is what `Assembly` takes, and what it is asked by")]
fn tag_sets(sites: &[Site]) -> (HashMap<u32, Vec<(&'static str, String)>>, Vec<u32>) {
    let mut numbers: HashMap<&[u8], u32> = HashMap::new();
    let mut tag_sets = Vec::with_capacity(sites.len());
    for site in sites {
        let next = numbers.len() as u32;
        tag_sets.push(*numbers.entry(&site.tags).or_insert(next));
    }
    let tags = numbers.into_iter().map(|(bytes, number)| (number, texts(bytes).collect()));
    (tags.collect(), tag_sets)
}

impl Assembly<'_> {
    fn place(&mut self, row: &Row, site: &Site, tag_set: u32) -> (StackId, AttributeSetId, LinkId) {
        let Site { head, era, addresses, is_beyond, .. } = site;
        let gap_behind = (head.elided > 0).then_some(usize::from(head.leaf_frames));
        let (tid, tally) = (0, Tally::default());
        let Row { trace_id, span_id, .. } = *row;
        let (end, era, thread_name) = (head.end, *era, None);
        let entry = Entry { tag_set, trace_id, span_id, tid, thread_name, end, era, addresses, gap_behind, tally };
        let stack = if *is_beyond { self.beyond() } else { self.stack(&entry) };
        (stack, self.labels(tag_set, tid, thread_name), self.link(&entry))
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
        ("profiler.heap.not_noted", stats.not_noted),
        ("profiler.heap.without_stack", stats.without_stack),
        ("profiler.heap.without_span", window.without_span),
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
    attributes.extend(window.first.map(|first| dictionary.attribute(DEFAULT_SAMPLE_TYPE, first)));
    dictionary.attribute_set(attributes)
}
