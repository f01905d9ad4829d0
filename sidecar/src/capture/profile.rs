//! From what was captured to profiles: Go's kinds, names, stacks.
//!
//! In: a [`Source`] and what it captured. Out: profiles of one [`ProfileSet`], which `profiler_proto::validate` finds nothing amiss with. Pure: the
//! clock is an argument.

use std::sync::Arc;

use profiler_proto::hash::Map;
use profiler_proto::model::{
    AttributeId, AttributeSetId, Function, FunctionId, Kind, Line, Link, LinkId, Location, LocationId, Mapping,
    MappingId, Profile, ProfileSet, Sample, Scope, Stack, StackId,
};
use profiler_proto::resource::Resource;

use crate::aggregate::Context;
use crate::elf;
use crate::go::layouts::status;
use crate::go::{Frame, Frames};

use super::buckets::Walk;
use super::contention::Contention;
use super::frames::{self, Place};
use super::goroutines::{Goroutine, Goroutines};
use super::heap::Heap;
use super::loaded::Loaded;
use super::modules::Module;
use super::names::Held;
use super::source::{Code, Source};
use super::stack::{End, Pc};
use super::work::Work;

/// Most locations that are found again without looking at their lines, and bytes that their names may have.
const LOCATIONS: usize = 1 << 16;
const HELD: usize = 16 << 20;
/// Bytes that functions and locations of one set may have: those of the largest real programs have a few million.
const NAMES: usize = 16 << 20;
/// What a function or a location takes beside its text and its lines.
const BESIDE: usize = 64;

/// When something was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its start, nanoseconds since 1970 UTC.
    pub start_unix_nanos: u64,
    /// Its length; 0: a moment, as Go's own files have it.
    pub duration_nanos: u64,
}

impl Window {
    /// A moment, in nanoseconds since 1970 UTC.
    #[must_use]
    pub fn moment(unix_nanos: u64) -> Self {
        Self { start_unix_nanos: unix_nanos, duration_nanos: 0 }
    }

    /// Its end, nanoseconds since 1970 UTC.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start_unix_nanos.saturating_add(self.duration_nanos)
    }
}

/// Profiles of one process under way.
#[derive(Debug)]
pub struct Builder<'s> {
    source: &'s Source,
    set: ProfileSet,
    mapping: MappingId,
    functions: Map<(Arc<str>, Arc<str>, u32), FunctionId>,
    /// By address and the frames there, which are kept so that no others come to lie where they are.
    locations: Map<(u64, usize), (LocationId, Frames)>,
    held: Held,
    /// What names may still cost, and how many goroutines and records have none for want of it.
    work: Work,
    unnamed: u64,
    /// Bytes that functions and locations may still have, and of how many goroutines and records the stacks end for want of them.
    room: usize,
    cut: u64,
    /// Tags and span of labels, and whether these are all, by where the labels are as long as the goroutines are looked at.
    contexts: Map<usize, (Box<[AttributeId]>, LinkId, bool)>,
}

/// How much of a stack is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// All of it.
    All,
    /// Its leaf's side: there is no room for other functions.
    Cut,
    /// Nothing: to name it would cost more than all may.
    Unknown,
}

/// Stands for the frames of a goroutine that runs: they are in registers.
const RUNNING: &str = "[running]";
/// Stands where the rest of a stack is not known. As in CPU profiles.
const INCOMPLETE: &str = "[stack incomplete]";
/// Stands where a stack goes on, on another one or beyond what is walked. As in CPU profiles.
const LEFT_OUT: &str = "[frames left out]";

impl<'s> Builder<'s> {
    /// Begins with the process that `resource` is.
    #[must_use]
    pub fn new(source: &'s Source, resource: Resource) -> Self {
        let scope = Scope { name: "profiler_sidecar".into(), version: env!("CARGO_PKG_VERSION").into() };
        let mut set = ProfileSet { resource, scope, ..ProfileSet::default() };
        let mapping = mapping(source.code(), source.loaded().program().elf(), &mut set);
        let (functions, locations, held, contexts) = Default::default();
        let (work, unnamed, room, cut) = (Work::for_names().awaited(source.awaited()), 0, NAMES, 0);
        Self { source, set, mapping, functions, locations, held, work, unnamed, room, cut, contexts }
    }

    /// The same, with so many bytes of functions and locations at most, about.
    #[must_use]
    pub fn naming_within(self, bytes: usize) -> Self {
        Self { room: bytes, ..self }
    }

    /// The same, looking names up for so much work at most, as that of reading so many bytes.
    #[must_use]
    pub fn looking_up_within(self, work: u64) -> Self {
        Self { work: Work::new(work), ..self }
    }

    /// What was added.
    #[must_use]
    pub fn finish(self) -> ProfileSet {
        self.set
    }

    /// The four profiles of a heap. Its records are taken, so that each is let go when it is told.
    pub fn heap(&mut self, heap: &mut Heap, window: Window) {
        let period = i64::try_from(heap.rate).unwrap_or(i64::MAX).max(1);
        let kinds = Kind::heap(&mut self.set.dictionary, period);
        let mut sums = Sums::default();
        for record in std::mem::take(&mut heap.records) {
            let stack = self.stack(|loaded| frames::of_heap(loaded, &record.stack));
            let (all, live) = (record.allocated.unsampled(heap.rate), record.in_use.unsampled(heap.rate));
            sums.add((stack, AttributeSetId::ZERO, LinkId::ZERO), [all.objects, all.bytes, live.objects, live.bytes]);
        }
        let losses = self.losses(&heap.walk, &[("torn", heap.torn), ("mixed", heap.mixed.into())]);
        self.add(kinds, window, losses, &sums);
    }

    /// The profile of goroutines: how many have a stack, labels and state. Those of the runtime itself are left out, as in Go. How many there are by
    /// `runtime.NumGoroutine`, which counts none that the runtime started; none where some have no names, for among those may be the runtime's own.
    pub fn goroutines(&mut self, goroutines: &Goroutines, window: Window) -> Option<u64> {
        let kind = Kind::goroutine(&mut self.set.dictionary);
        let (mut sums, mut count, mut short, mut stacks) = (Sums::default(), Some(0), 0, Map::default());
        for goroutine in &goroutines.list {
            // Equal stacks are one, and named once.
            let Goroutine { stack, end, status, start_pc, .. } = goroutine;
            let key = (stack.as_ptr().addr(), stack.is_empty().then_some(*status), *end, *start_pc);
            let shown = stacks.entry(key).or_insert_with(|| self.shown(goroutine));
            let Some((stack, names, is_started)) = *shown else { continue };
            self.note(names);
            let (attributes, link, is_cut) = self.context_of(goroutine);
            sums.add((stack, attributes, link), [1]);
            count = count.map(|count| count + u64::from(is_started)).filter(|_| names != Names::Unknown);
            short += u64::from(is_cut);
        }
        let Goroutines { beyond, broken, over_bytes, over_work, changed, labels_cut, labels_changed, .. } = *goroutines;
        let all = Walk { beyond, broken, over_bytes, over_work, ..Walk::default() };
        let (cut, short) = (("labels_cut", labels_cut), ("labels_short", short));
        let others = [("changed", changed), cut, short, ("labels_changed", labels_changed)];
        let losses = self.losses(&all, &others);
        self.contexts.clear();
        self.add([kind], window, losses, &sums);
        count
    }

    /// The stack of a goroutine, and whether the program started it; none of the runtime's own.
    fn shown(&mut self, goroutine: &Goroutine) -> Option<(StackId, Names, bool)> {
        let source = self.source;
        let named = self.work.done(source.loaded(), |_| {
            let places = places_of(source, goroutine);
            let starter = Starter::of(source, goroutine);
            (!starter.is_system(goroutine, &places)).then_some((places, starter == Starter::Program))
        });
        // Whether it is one of the runtime's own would have to be looked up, too.
        let Some(named) = named else { return Some((self.left_out(), Names::Unknown, false)) };
        let (places, is_started) = named?;
        let (stack, names) = self.marked(&places, goroutine);
        Some((stack, names, is_started))
    }

    /// Counts a goroutine or record by how much its stack tells.
    fn note(&mut self, names: Names) {
        self.unnamed += u64::from(names == Names::Unknown);
        self.cut += u64::from(names == Names::Cut);
    }

    /// The two profiles of contention: events and time.
    pub fn contention(&mut self, contention: &Contention, window: Window) {
        let kinds = Kind::contention(&mut self.set.dictionary, contention.kind);
        let mut sums = Sums::default();
        for record in &contention.records {
            let stack = self.stack(|loaded| frames::kept(loaded, &record.stack));
            sums.add((stack, AttributeSetId::ZERO, LinkId::ZERO), [record.count, contention.delay_nanos(record)]);
        }
        let losses = self.losses(&contention.walk, &[]);
        self.add(kinds, window, losses, &sums);
    }

    /// A profile of each kind, with its column of the sums.
    fn add<const N: usize>(&mut self, kinds: [Kind; N], window: Window, attributes: AttributeSetId, sums: &Sums<N>) {
        for (column, kind) in kinds.into_iter().enumerate() {
            self.set.profiles.push(Profile {
                kind,
                time_unix_nanos: window.start_unix_nanos,
                duration_nanos: window.duration_nanos,
                attributes,
                samples: sums.samples(column),
            });
        }
    }

    /// What is missing, by cause: `profiler.capture.beyond` and others.
    fn losses(&mut self, walk: &Walk, others: &[(&str, u64)]) -> AttributeSetId {
        let walked = [
            ("beyond", walk.beyond),
            ("over_bytes", walk.over_bytes),
            ("foreign", walk.foreign),
            ("implausible", walk.implausible),
            ("over_work", walk.over_work + std::mem::take(&mut self.unnamed)),
            ("names_cut", std::mem::take(&mut self.cut)),
            ("broken", walk.broken),
        ];
        let told = walked.iter().chain(others).filter(|(_, count)| *count > 0);
        let dictionary = &mut self.set.dictionary;
        let attributes: Vec<AttributeId> = told
            .map(|(cause, count)| {
                dictionary.attribute(&format!("profiler.capture.{cause}"), i64::try_from(*count).unwrap_or(i64::MAX))
            })
            .collect();
        dictionary.attribute_set(attributes)
    }

    /// Labels and state, and the span that labels name; as on CPU samples. And whether there are more labels, or longer ones. Goroutines share sets of labels, so each is looked at once.
    fn context_of(&mut self, goroutine: &Goroutine) -> (AttributeSetId, LinkId, bool) {
        let dictionary = &mut self.set.dictionary;
        let state = dictionary.attribute("go.goroutine.state", goroutine.state().to_string());
        if goroutine.labels.is_empty() {
            return (dictionary.attribute_set([state]), LinkId::ZERO, false);
        }
        let (labels, link, is_cut) = self.contexts.entry(goroutine.labels.address()).or_insert_with(|| {
            let bytes = |(key, value): (&str, &str)| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
            let (labels, labels_cut) = (goroutine.labels.iter().map(bytes).collect(), goroutine.labels.is_cut());
            let sample = crate::sample::Sample { labels, labels_cut, ..Default::default() };
            let Context { tags, span, is_cut } = Context::of(&sample);
            let link = span.map(|span| Link { trace_id: span.trace_id, span_id: span.span_id });
            let link = link.map_or(LinkId::ZERO, |link| dictionary.links.intern(link));
            (tags.iter().map(|(key, value)| dictionary.attribute(key, value.as_str())).collect(), link, is_cut)
        });
        let attributes: Vec<AttributeId> = labels.iter().copied().chain([state]).collect();
        (dictionary.attribute_set(attributes), *link, *is_cut)
    }

    /// A goroutine's stack, with a mark where frames are missing: at its leaf where its function alone is known, at its root where the walk ended before.
    fn marked(&mut self, places: &[Place], goroutine: &Goroutine) -> (StackId, Names) {
        let (leaf, root) = match goroutine.end {
            _ if goroutine.stack.is_empty() && goroutine.status == status::RUNNING => (Some(RUNNING), None),
            _ if goroutine.stack.is_empty() => (Some(INCOMPLETE), None),
            End::Root => (None, None),
            End::Cut => (None, Some(LEFT_OUT)),
            End::Lost => (None, Some(INCOMPLETE)),
        };
        let leaf = leaf.map(|mark| self.remark(mark));
        let mut locations: Vec<LocationId> = leaf.into_iter().collect();
        let names = self.locate(places, &mut locations);
        locations.extend(root.filter(|_| names == Names::All).map(|mark| self.remark(mark)));
        (self.set.dictionary.stacks.intern(Stack { locations: locations.into() }), names)
    }

    /// A place that is none in the code.
    fn remark(&mut self, text: &str) -> LocationId {
        let dictionary = &mut self.set.dictionary;
        let name = dictionary.strings.intern_str(text);
        let function = dictionary.functions.intern(Function { name, system_name: name, ..Function::default() });
        let lines = [Line { function, line: 0, column: 0 }].into();
        dictionary.locations.intern(Location { lines, ..Location::default() })
    }

    /// The stack of the places that `named` gives.
    fn stack(&mut self, named: impl FnOnce(&Loaded) -> Vec<Place>) -> StackId {
        let Some(places) = self.work.done(self.source.loaded(), named) else {
            self.note(Names::Unknown);
            return self.left_out();
        };
        let mut locations = Vec::with_capacity(places.len());
        let names = self.locate(&places, &mut locations);
        self.note(names);
        self.set.dictionary.stacks.intern(Stack { locations: locations.into() })
    }

    /// Adds the locations of places; where there is no room for all of them, a mark stands for the others.
    fn locate(&mut self, places: &[Place], locations: &mut Vec<LocationId>) -> Names {
        for place in places {
            let Some(location) = self.location(place) else {
                locations.push(self.remark(LEFT_OUT));
                return Names::Cut;
            };
            locations.push(location);
        }
        Names::All
    }

    /// A stack whose names would cost more than all may.
    fn left_out(&mut self) -> StackId {
        let locations = [self.remark(LEFT_OUT)].into();
        self.set.dictionary.stacks.intern(Stack { locations })
    }

    /// The location of a place; none, where it is a new one and there is no room.
    fn location(&mut self, place: &Place) -> Option<LocationId> {
        let key = (place.address, place.lines.as_ptr().addr());
        if let Some((known, _)) = self.locations.get(&key) {
            return Some(*known);
        }
        if self.room == 0 {
            return None;
        }
        let lines =
            place.lines.iter().map(|frame| Line { function: self.function(frame), line: frame.line, column: 0 });
        let lines = lines.collect();
        let attributes = self.set.dictionary.attribute("profile.frame.type", "go");
        let attributes = self.set.dictionary.attribute_set([attributes]);
        // Text may be mapped in parts, of which `code` is the first.
        let code = self.source.code();
        let mapping = if (code.start..code.end).contains(&place.address) {
            self.mapping
        } else {
            let (set, at) = (&mut self.set, place.address);
            let of_plugin = |module: &Module| mapping(&module.code, module.program.elf(), set);
            self.source.loaded().of_module(at, of_plugin).unwrap_or(MappingId::ZERO)
        };
        let location = Location { mapping, address: place.address, lines, attributes };
        let (before, bytes) = (self.set.dictionary.locations.len(), size_of_val(&*location.lines));
        let id = self.set.dictionary.locations.intern(location);
        if self.set.dictionary.locations.len() > before {
            self.room = self.room.saturating_sub(BESIDE + bytes);
        }
        if self.locations.len() < LOCATIONS && self.held.bytes() < HELD {
            self.held.hold(&place.lines);
            self.locations.insert(key, (id, Frames::clone(&place.lines)));
        }
        Some(id)
    }

    fn function(&mut self, frame: &Frame) -> FunctionId {
        let key = (Arc::clone(&frame.function), Arc::clone(&frame.file), frame.start_line);
        if let Some(known) = self.functions.get(&key) {
            return *known;
        }
        self.room = self.room.saturating_sub(BESIDE + frame.function.len() + frame.file.len());
        let dictionary = &mut self.set.dictionary;
        let function = Function {
            name: dictionary.strings.intern_str(&frame.function),
            system_name: dictionary.strings.intern_str(&frame.function),
            filename: dictionary.strings.intern_str(&frame.file),
            start_line: frame.start_line,
        };
        let id = dictionary.functions.intern(function);
        self.functions.insert(key, id);
        id
    }
}

/// The places of a goroutine's stack; of one that runs, its function alone.
#[must_use]
pub fn places_of(source: &Source, goroutine: &Goroutine) -> Vec<Place> {
    let start = [Pc { address: goroutine.start_pc, is_return: false }];
    let stack = if goroutine.stack.is_empty() { &start[..] } else { &goroutine.stack };
    frames::walked(source.loaded(), stack)
}

/// Whether a goroutine is the runtime's own: Go's profiles leave such out. Of those that run finalizers and cleanups, the stack says whether they are at it. One that
/// runs has none that could be read, and is taken for being at it: there it spends its time.
///
/// Source: runtime/traceback.go, `isSystemGoroutine`.
#[must_use]
pub fn is_system(source: &Source, goroutine: &Goroutine, places: &[Place]) -> bool {
    Starter::of(source, goroutine).is_system(goroutine, places)
}

/// Who started a goroutine, by its function. `newproc1` (runtime/proc.go) counts by that whom `NumGoroutine` leaves out, whatever they do later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Starter {
    Program,
    Runtime,
    /// The runtime, to call the program's finalizers or cleanups.
    Caller,
}

impl Starter {
    fn of(source: &Source, goroutine: &Goroutine) -> Self {
        /// `FuncID_runtime_main`, `FuncID_corostart`, `FuncID_handleAsyncEvent`.
        const OURS: [&str; 3] = ["runtime.main", "runtime.corostart", "runtime.handleAsyncEvent"];
        const CALLING: [&str; 3] = ["runtime.runfinq", "runtime.runFinalizers", "runtime.runCleanups"];
        let frames = source.loaded().frames(goroutine.start_pc, crate::go::Call::Interrupted);
        match frames.last().map(|frame| &*frame.function) {
            Some(start) if CALLING.contains(&start) => Self::Caller,
            Some(start) if start.starts_with("runtime.") && !OURS.contains(&start) => Self::Runtime,
            _ => Self::Program,
        }
    }

    /// Whether a goroutine that it started is the runtime's own, with these places on its stack.
    fn is_system(self, goroutine: &Goroutine, places: &[Place]) -> bool {
        let is_running = goroutine.stack.is_empty() && goroutine.status == status::RUNNING;
        let mut frames = places.iter().flat_map(|place| place.lines.iter());
        match self {
            Self::Program => false,
            Self::Runtime => true,
            Self::Caller => !is_running && frames.all(|frame| frame.function.starts_with("runtime.")),
        }
    }
}

/// What tells one sample from another.
type Key = (StackId, AttributeSetId, LinkId);

/// Values by stack, attributes and link: equal ones are one sample.
#[derive(Debug)]
struct Sums<const N: usize> {
    places: Map<Key, usize>,
    values: Vec<(Key, [i64; N])>,
}

impl<const N: usize> Default for Sums<N> {
    fn default() -> Self {
        Self { places: Map::default(), values: Vec::new() }
    }
}

impl<const N: usize> Sums<N> {
    fn add(&mut self, key: Key, values: [i64; N]) {
        let place = *self.places.entry(key).or_insert(self.values.len());
        match self.values.get_mut(place) {
            Some((_, sums)) => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(value)),
            None => self.values.push((key, values)),
        }
    }

    /// The samples of one column that are not zero.
    fn samples(&self, column: usize) -> Vec<Sample> {
        let of_column = || {
            let values = self.values.iter().filter_map(|(key, values)| Some((*key, *values.get(column)?)));
            values.filter(|(_, value)| *value != 0)
        };
        // Counted first: where there are very many, room for twice as many is megabytes.
        let mut samples = Vec::with_capacity(of_column().count());
        samples.extend(of_column().map(|((stack, attributes, link), value)| Sample { stack, attributes, link, value }));
        samples
    }
}

/// The code of a program or plugin; none where it has no build id, without which a mapping says nothing that a receiver could use.
fn mapping(code: &Code, elf: &elf::File, set: &mut ProfileSet) -> MappingId {
    let dictionary = &mut set.dictionary;
    let gnu = elf.build_id().map(|id| ("gnu", id.iter().map(|byte| format!("{byte:02x}")).collect::<String>()));
    let id = gnu.or_else(|| elf.go_build_id().filter(|id| !id.is_empty()).map(|id| ("go", id)));
    let Some((of, id)) = id else { return MappingId::ZERO };
    let attributes = [dictionary.attribute(&format!("process.executable.build_id.{of}"), id)];
    let mapping = Mapping {
        start: code.start,
        limit: code.end,
        offset: code.offset,
        filename: dictionary.strings.intern_str(&code.path.to_string_lossy()),
        attributes: dictionary.attribute_set(attributes),
    };
    dictionary.mappings.intern(mapping)
}
