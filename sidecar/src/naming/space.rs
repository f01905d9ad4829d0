//! What lies where in the memory of one process.
//!
//! In: its mappings, read again when an address is in none of them, and now and then, for they change. Out: of an address, the module and the
//! binary. How often they are read depends on what it costs: a process with a hundred thousand mappings takes no more than any other.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::binary::{Binary, Identity};
use super::book::Book;
use super::frame::Module;
use crate::elf::Segment;
use crate::target::{Fault, Mapping, Mappings, Process};

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

/// The memory of a process.
#[derive(Debug)]
pub(super) struct Space {
    process: Process,
    /// By address, as the mappings are.
    parts: Vec<Part>,
    first_read_at: Option<Instant>,
    read_at: Option<Instant>,
    cost: Duration,
    /// Whether the last reading failed: the process is gone, or does not let us.
    pub(super) is_closed: bool,
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
    segments: Arc<[Segment]>,
    source: Source,
}

/// Where names come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    File(Identity),
    Vdso,
    /// The file cannot be had, or there is none.
    Nothing,
}

/// What is at an address.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) image: Image,
    /// The address in the file's numbering; of what has no file, from the mapping's start on.
    pub(super) address: u64,
    pub(super) executable: bool,
}

impl Space {
    pub(super) fn new(process: Process) -> Self {
        Self { process, parts: Vec::new(), first_read_at: None, read_at: None, cost: Duration::ZERO, is_closed: false }
    }

    /// Reads the mappings where it is time to; whether what was known of addresses holds no more.
    pub(super) fn refresh(&mut self, now: Instant) -> bool {
        self.is_due(now, STALE) && self.read(now)
    }

    /// Reads the mappings because an address is in none of them, unless that was done just now; as [`Self::refresh`].
    pub(super) fn look_again(&mut self, now: Instant) -> bool {
        let is_young = self.first_read_at.is_none_or(|first| now.saturating_duration_since(first) < YOUTH);
        self.is_due(now, if is_young { AGAIN_YOUNG } else { AGAIN }) && self.read(now)
    }

    fn is_due(&self, now: Instant, least: Duration) -> bool {
        let pause = least.max(self.cost.saturating_mul(SHARE));
        self.read_at.is_none_or(|read_at| now.saturating_duration_since(read_at) >= pause)
    }

    fn read(&mut self, now: Instant) -> bool {
        let begin = Instant::now();
        let outcome = self.process.mappings();
        self.first_read_at.get_or_insert(now);
        (self.read_at, self.cost) = (Some(now), begin.elapsed());
        self.is_closed = outcome.is_err();
        match outcome {
            Ok(mappings) => self.take(&mappings),
            // What was known of one that has ended stays true of its last samples.
            Err(fault) => {
                tracing::debug!(%fault, "mappings cannot be read");
                false
            }
        }
    }

    /// Takes new mappings for the old ones; whether one of these that was in use is gone.
    fn take(&mut self, mappings: &Mappings) -> bool {
        let mut old = std::mem::take(&mut self.parts).into_iter().peekable();
        let mut has_changed = false;
        for mapping in mappings.list() {
            while let Some(gone) = old.next_if(|part| part.mapping.start < mapping.start) {
                has_changed |= gone.image.is_some();
            }
            let same = old.next_if(|part| part.mapping.start == mapping.start);
            let image = same.and_then(|part| {
                let is_same = part.mapping == *mapping;
                has_changed |= !is_same && part.image.is_some();
                // A file that could not be had is tried again.
                part.image.filter(|image| is_same && image.source != Source::Nothing)
            });
            self.parts.push(Part { mapping: mapping.clone(), image });
        }
        has_changed | old.any(|part| part.image.is_some())
    }

    /// What is at an address.
    pub(super) fn find(&mut self, address: u64, book: &mut Book) -> Option<Place> {
        let behind = self.parts.partition_point(|part| part.mapping.start <= address);
        let part = self.parts.get_mut(behind.checked_sub(1)?).filter(|part| address < part.mapping.end)?;
        if part.image.is_none() {
            part.image = Some(image(self.process, &part.mapping, book));
        }
        let image = part.image.clone()?;
        let inside = address - part.mapping.start;
        let address = match image.source {
            Source::Nothing if !part.mapping.is_file() => inside,
            _ => image.address_of(part.mapping.offset.saturating_add(inside)),
        };
        Some(Place { image, address, executable: part.mapping.executable })
    }

    /// Looks at the file that is mapped first and has code: the program.
    pub(super) fn open_program(&mut self, book: &mut Book) {
        let code = |part: &Part| part.mapping.executable && part.mapping.is_file();
        if let Some(start) = self.parts.iter().find(|part| code(part)).map(|part| part.mapping.start) {
            self.find(start, book);
        }
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Part>()
    }

    /// The binary of a place; opened again where it was closed since.
    pub(super) fn binary(&self, place: &Place, book: &mut Book) -> Option<Arc<Binary>> {
        let identity = match place.image.source {
            Source::File(identity) => identity,
            Source::Vdso => return book.vdso(),
            Source::Nothing => return None,
        };
        if let Some(known) = book.find(&identity) {
            return Some(known);
        }
        let part = self.parts.iter().find(|part| part.mapping.start == place.image.module.start)?;
        let (again, binary) = book.open(self.process.open_mapped(&part.mapping).ok()?).ok()?;
        (again == identity).then_some(binary)
    }
}

impl Image {
    /// The address of a byte of the file in the file's numbering; code goes first, where a page is loaded twice.
    fn address_of(&self, offset: u64) -> u64 {
        let mut code = self.segments.iter().filter(|segment| segment.executable);
        let holds =
            |segment: &&Segment| offset.checked_sub(segment.offset).is_some_and(|inside| inside < segment.file_size);
        let segment = code.find(holds).or_else(|| self.segments.iter().find(holds));
        segment.map_or(offset, |segment| segment.address.wrapping_add(offset - segment.offset))
    }
}

/// Looks at the file of a mapping.
fn image(process: Process, mapping: &Mapping, book: &mut Book) -> Image {
    let (binary, source) = match source(process, mapping, book) {
        Some((binary, source)) => (Some(binary), source),
        None => (None, Source::Nothing),
    };
    let path = mapping.path().0.to_string_lossy();
    let path = if path.is_empty() { "[anon]" } else { path.get(..path.floor_char_boundary(1024)).unwrap_or_default() };
    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
    let module = Module {
        start: mapping.start,
        end: mapping.end,
        offset: mapping.offset,
        path: path.into(),
        build_ids: binary.as_ref().map(|binary| Arc::clone(binary.build_ids())).unwrap_or_default(),
    };
    let segments = binary.map(|binary| binary.segments()).unwrap_or_default();
    Image { module: Arc::new(module), name: name.as_ref().into(), segments: segments.into(), source }
}

fn source(process: Process, mapping: &Mapping, book: &mut Book) -> Option<(Arc<Binary>, Source)> {
    if mapping.name.as_os_str() == "[vdso]" {
        return book.vdso().map(|binary| (binary, Source::Vdso));
    }
    if !mapping.is_file() {
        return None;
    }
    let file = process.open_mapped(mapping).inspect_err(|fault: &Fault| tracing::debug!(%fault, "no names")).ok()?;
    let (identity, binary) = book.open(file).ok()?;
    Some((binary, Source::File(identity)))
}
