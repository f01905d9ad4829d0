//! What lies where in the memory of one program of a process.
//!
//! In: its mappings, read again when an address is in none of them, and now and then, for they change. Out: of an address, the module and the
//! binary. How often they are read depends on what it costs: a process with a hundred thousand mappings takes no more than any other.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::binary::Identity;
use super::errand::Errand;
use super::frame::Module;
use super::reader::{Look, Reader};
use crate::elf::Segment;
use crate::go::Call;
use crate::target::{Mapping, Mappings, Process};

/// Shortest time between two readings that an unknown address asks for.
const AGAIN: Duration = Duration::from_secs(1);
/// The same while a process is young: it loads its libraries then.
const AGAIN_YOUNG: Duration = Duration::from_millis(50);
/// How long that is, from the first reading on.
const YOUTH: Duration = Duration::from_secs(2);
/// Time after which they are read in any case.
const STALE: Duration = Duration::from_secs(10);
/// So much longer than a reading takes is the time to the next one: one in a hundred of a processor at most.
const SHARE: u32 = 100;

/// Most mappings that are kept of a process with all kinds of them; of one with more, those with code alone.
const MANY: usize = 4096;
/// Most mappings with code: browsers, JVMs and machines for Wasm have some hundreds.
const MOST: usize = 16_384;

/// The memory of a program.
#[derive(Debug)]
pub(super) struct Space {
    process: Process,
    /// Which of those that the process runs one after the other.
    program: u64,
    /// By address, as the mappings are.
    parts: Vec<Part>,
    /// Bytes of their names, and of what is known of their files.
    names: usize,
    images: usize,
    /// Mappings that are left out, and those that are kept without their name.
    pub(super) left_out: u64,
    first_read_at: Option<Instant>,
    read_at: Option<Instant>,
    cost: Duration,
    /// Whether the last reading failed: the process is gone, does not let us, or runs another program; or gave no answer, and nothing is known.
    pub(super) is_closed: bool,
    /// Whether the process runs another program: what was read is all that will be.
    is_over: bool,
    /// Mappings whose files gave no answer before the last reading, and may give one now.
    retried: Vec<Range<u64>>,
}

/// A mapping, and what is known of its file once it was looked at.
#[derive(Debug)]
struct Part {
    mapping: Mapping,
    image: Option<Image>,
}

/// What is known of a mapping's file.
#[derive(Debug, Clone)]
pub(super) struct Image {
    /// As profiles tell it.
    pub(super) module: Arc<Module>,
    /// The file's name alone, or what stands for it.
    pub(super) name: Arc<str>,
    pub(super) segments: Arc<[Segment]>,
    pub(super) source: Source,
}

impl Image {
    /// The same, of whose file nothing more is asked before the mappings are read again.
    pub(super) fn put_off(self) -> Self {
        match self.source {
            Source::File(identity) => Self { source: Source::Lost(identity), ..self },
            Source::Lost(_) | Source::Vdso | Source::Nothing => self,
        }
    }
}

/// Where names come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    File(Identity),
    /// The same, but it could not be opened again, or its symbols are not read now.
    Lost(Identity),
    Vdso,
    /// The file cannot be had, or there is none.
    Nothing,
}

/// What is at an address.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) image: Image,
    /// The address.
    at: u64,
    /// The address in the file's numbering; of what has no file, from the mapping's start on.
    pub(super) address: u64,
    pub(super) executable: bool,
}

impl Space {
    pub(super) fn new(process: Process, program: u64) -> Self {
        Self {
            process,
            program,
            parts: Vec::new(),
            names: 0,
            images: 0,
            left_out: 0,
            first_read_at: None,
            read_at: None,
            cost: Duration::ZERO,
            is_closed: false,
            is_over: false,
            retried: Vec::new(),
        }
    }

    /// The addresses of which more may be known since the mappings were read last, if they are the same.
    pub(super) fn retried(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.retried)
    }

    /// Reads the mappings where it is time to; whether what was known of addresses holds no more.
    pub(super) fn refresh(&mut self, reader: &mut Reader, now: Instant) -> bool {
        self.is_due(now, STALE) && self.read(reader, now)
    }

    /// Reads the mappings because an address is in none of them, unless that was done just now; as [`Self::refresh`].
    pub(super) fn look_again(&mut self, reader: &mut Reader, now: Instant) -> bool {
        let is_young = self.first_read_at.is_none_or(|first| now.saturating_duration_since(first) < YOUTH);
        self.is_due(now, if is_young { AGAIN_YOUNG } else { AGAIN }) && self.read(reader, now)
    }

    fn is_due(&self, now: Instant, least: Duration) -> bool {
        let pause = least.max(self.cost.saturating_mul(SHARE));
        !self.is_over && self.read_at.is_none_or(|read_at| now.saturating_duration_since(read_at) >= pause)
    }

    fn read(&mut self, reader: &mut Reader, now: Instant) -> bool {
        let begin = Instant::now();
        // Who writes to its own memory map for long holds up those who read it.
        let look = reader.mappings(self.process, self.program);
        self.first_read_at.get_or_insert(now);
        (self.read_at, self.cost) = (Some(now), begin.elapsed());
        // One without an answer in time may have one the next time.
        let is_slow = matches!(look, Look::NoAnswer) && !self.parts.is_empty();
        self.is_closed = !matches!(look, Look::Mapped(_)) && (!is_slow || self.is_closed);
        self.is_over = matches!(look, Look::Over);
        match look {
            Look::Mapped(mappings) => return self.take(&mappings),
            Look::Closed(fault) => tracing::debug!(%fault, "mappings cannot be read"),
            Look::Over | Look::NoAnswer => {}
        }
        // What was known of one that has ended stays true of its last samples.
        false
    }

    /// Takes new mappings for the old ones, and has files that could not be had tried again; whether one of these that was in use is gone.
    fn take(&mut self, mappings: &Mappings) -> bool {
        let mut old = std::mem::take(&mut self.parts).into_iter().peekable();
        let mut has_changed = false;
        let (list, many) = (mappings.list(), mappings.list().len() > MANY);
        let is_kept = |mapping: &&Mapping| !many || mapping.executable;
        for mapping in list.iter().filter(is_kept).take(MOST) {
            while let Some(gone) = old.next_if(|part| part.mapping.start < mapping.start) {
                has_changed |= gone.image.is_some();
            }
            let same = old.next_if(|part| part.mapping.start == mapping.start);
            let image = same.and_then(|part| {
                let is_same = part.mapping == *mapping;
                has_changed |= !is_same && part.image.is_some();
                part.image.filter(|_| is_same)
            });
            let image = match image {
                Some(image) if mapping.is_file() => {
                    let (image, is_retried) = image.retried();
                    self.retried.extend(is_retried.then_some(mapping.start..mapping.end));
                    image
                }
                image => image,
            };
            self.parts.push(Part { mapping: mapping.clone(), image });
        }
        has_changed |= old.any(|part| part.image.is_some());
        self.count(mappings);
        has_changed
    }

    fn count(&mut self, mappings: &Mappings) {
        self.parts.shrink_to_fit();
        let is_new = |pair: &[Part]| !matches!(pair, [a, b] if Arc::ptr_eq(&a.mapping.name, &b.mapping.name));
        let length = |part: &Part| part.mapping.name.as_os_str().len();
        let first = self.parts.first().map_or(0, length);
        let others = self.parts.windows(2).filter(|pair| is_new(pair)).filter_map(|pair| pair.last()).map(length);
        self.names = first + others.sum::<usize>();
        self.images = self.parts.iter().filter_map(|part| part.image.as_ref()).map(Image::bytes).sum();
        let nameless = mappings.scan().nameless;
        self.left_out = (mappings.list().len().saturating_sub(self.parts.len()) + nameless) as u64;
    }

    /// Whether the process runs another program, and nothing is known of this one.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_over && self.parts.is_empty()
    }

    /// Forgets the mappings; they are read again when it is time to, as if they were still known.
    pub(super) fn unmap(&mut self) {
        (self.parts, self.names, self.images) = (Vec::new(), 0, 0);
    }

    /// Which mapping an address is in.
    pub(super) fn part_at(&self, address: u64) -> Option<usize> {
        let part = self.parts.partition_point(|part| part.mapping.start <= address).checked_sub(1)?;
        self.parts.get(part).filter(|part| address < part.mapping.end).map(|_| part)
    }

    /// Whether an address is in one.
    pub(super) fn holds(&self, address: u64) -> bool {
        self.part_at(address).is_some()
    }

    /// What is to be asked of the file of a mapping.
    pub(super) fn errand(&self, part: usize, asked: Vec<(u64, Call)>) -> Option<Errand> {
        let Part { mapping, image } = self.parts.get(part)?;
        Some(Errand { process: self.process, part, mapping: mapping.clone(), image: image.clone(), asked })
    }

    /// Keeps what was found of the file of a mapping.
    pub(super) fn keep(&mut self, part: usize, image: Image) {
        if let Some(part) = self.parts.get_mut(part) {
            let bytes = image.bytes();
            let before = part.image.replace(image).map_or(0, |before| before.bytes());
            self.images = self.images.saturating_add(bytes).saturating_sub(before);
        }
    }

    /// What is at an address, by the mapping alone, where its file gave no answer.
    pub(super) fn bare(&self, address: u64) -> Option<Place> {
        let Part { mapping, image } = self.parts.get(self.part_at(address)?)?;
        let image = image.clone().unwrap_or_else(|| super::errand::image(mapping, None));
        Some(Place::in_mapping(mapping, &image, address))
    }

    /// The file that is mapped first and has code: the program.
    pub(super) fn program(&self) -> Option<usize> {
        self.parts.iter().position(|part| part.mapping.executable && part.mapping.is_file())
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Part>() + self.names + self.images
    }
}

impl Place {
    /// What is at an address of the process, which is in this mapping.
    pub(super) fn in_mapping(mapping: &Mapping, image: &Image, at: u64) -> Self {
        let inside = at.saturating_sub(mapping.start);
        let address = match image.source {
            Source::Nothing if !mapping.is_file() => inside,
            _ => image.address_of(mapping.offset.saturating_add(inside), mapping.executable),
        };
        Self { image: image.clone(), at, address, executable: mapping.executable }
    }

    /// The same of an address near by, which may be behind the end of the mapping.
    pub(super) fn shifted(mut self, to: u64) -> Self {
        self.address = self.address.wrapping_add(to.wrapping_sub(self.at));
        self.at = to;
        self
    }
}

impl Image {
    /// The image as it is to be asked for anew, and whether it is: a file that could not be had may be there now.
    fn retried(self) -> (Option<Self>, bool) {
        match self.source {
            Source::Nothing => (None, true),
            Source::Lost(identity) => (Some(Self { source: Source::File(identity), ..self }), true),
            Source::File(_) | Source::Vdso => (Some(self), false),
        }
    }

    /// Bytes of memory, without segments, which all mappings of a file share.
    fn bytes(&self) -> usize {
        size_of::<Module>() + self.module.path.len() + self.name.len()
    }

    /// The address of a byte of the file in the file's numbering.
    fn address_of(&self, offset: u64, executable: bool) -> u64 {
        Segment::holder(&self.segments, offset, executable).map_or(offset, |segment| segment.page_address_of(offset))
    }
}
