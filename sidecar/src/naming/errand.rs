//! What is asked of the file behind one mapping, in one go: what it is, and what is at addresses in it.
//!
//! In: a mapping, what is known of its file, addresses. Out: the file as profiles tell it, a [`Spot`] for each address. Opens and reads the
//! file, for which it may wait: it is run by the [`super::reader`], and owns all that it needs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::allowance::{End, Stint};
use super::binary::{Binary, Found, Identity};
use super::book::Book;
use super::frame::Module;
use super::process::within;
use super::space::{Image, Place, Source};
use super::split;
use super::spot::Spot;
use crate::go::Call;
use crate::target::{Device, Fault, Mapping, Process};

/// Longest path that is told; a longer one is cut.
const MAX_PATH: usize = 1024;

/// What is asked.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) process: Process,
    /// Which of the mappings of the process it is about.
    pub(super) part: usize,
    pub(super) mapping: Mapping,
    /// What is known of the file.
    pub(super) image: Option<Image>,
    pub(super) asked: Vec<(u64, Call)>,
}

/// What came of errands to one file system, in one go.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) answers: Vec<Answer>,
    /// Whether all was asked.
    pub(super) end: End,
}

impl Answers {
    /// Asks one after the other, as long as that may go on, and somebody waits so long. Can wait for the file system.
    pub(super) fn of(errands: Vec<Errand>, book: &Book, patience: Duration) -> Self {
        let mut stint = Stint::begin(book.addresses(), patience / 4 * 3);
        let mut answers = Vec::with_capacity(errands.len());
        for errand in errands {
            if !stint.goes_on() {
                break;
            }
            answers.push(errand.run(book, &mut stint));
        }
        Self { answers, end: stint.over() }
    }
}

/// What came of one.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) part: usize,
    pub(super) image: Image,
    pub(super) spots: Vec<(u64, Call, Spot)>,
}

impl Errand {
    /// The file system that is waited for; `None`: nothing is.
    pub(super) fn device(&self) -> Option<Device> {
        let is_read = self.image.as_ref().is_none_or(|image| matches!(image.source, Source::File(_)));
        (is_read && self.mapping.is_file()).then_some(self.mapping.device)
    }

    /// Asks, as long as that may go on. Can wait for the file.
    fn run(self, book: &Book, stint: &mut Stint<'_>) -> Answer {
        let Self { process, part, mapping, image, asked } = self;
        let (image, binary) = match image {
            Some(image) if asked.is_empty() => (image, None),
            Some(image) => again(process, &mapping, image, book),
            None => open(process, &mapping, book),
        };
        let mut is_put_off = false;
        let spot = |(address, call): (u64, Call)| {
            let place = Place::in_mapping(&mapping, &image, within(address, call)).shifted(address);
            let found = binary.as_ref().map_or_else(Found::default, |binary| binary.find(place.address, call));
            is_put_off |= found.is_put_off;
            (address, call, Spot::of(address, &place, &found))
        };
        let spots = asked.into_iter().take_while(|_| stint.goes_on()).map(spot).collect();
        let image = if is_put_off { image.put_off() } else { image };
        Answer { part, spots, image }
    }
}

/// The binary that is known, opened again where it was closed since.
fn again(process: Process, mapping: &Mapping, image: Image, book: &Book) -> (Image, Option<Arc<Binary>>) {
    let identity = match image.source {
        Source::File(identity) => identity,
        Source::Vdso => return (image, book.vdso()),
        Source::Lost(_) | Source::Nothing => return (image, None),
    };
    // Its root may be another one by now.
    let opened = || open_binary(process, mapping, book).filter(|(found, _)| found.is_same_file(identity));
    match book.find(&identity).or_else(|| opened().map(|(_, binary)| binary)) {
        Some(binary) => (image, Some(binary)),
        None => (Image { source: Source::Lost(identity), ..image }, None),
    }
}

/// Looks at the file of a mapping.
fn open(process: Process, mapping: &Mapping, book: &Book) -> (Image, Option<Arc<Binary>>) {
    let found = source(process, mapping, book);
    let image = image(mapping, found.as_ref().map(|(binary, source)| (&**binary, *source)));
    (image, found.map(|(binary, _)| binary))
}

/// A mapping as profiles tell it, with what is known of its file.
pub(super) fn image(mapping: &Mapping, found: Option<(&Binary, Source)>) -> Image {
    let path = mapping.path().0.to_string_lossy();
    let path =
        if path.is_empty() { "[anon]" } else { path.get(..path.floor_char_boundary(MAX_PATH)).unwrap_or_default() };
    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
    let module = Module {
        start: mapping.start,
        end: mapping.end,
        offset: mapping.offset,
        path: path.into(),
        build_ids: found.map(|(binary, _)| Arc::clone(binary.build_ids())).unwrap_or_default(),
    };
    let segments = found.map(|(binary, _)| Arc::clone(binary.segments())).unwrap_or_default();
    let source = found.map_or(Source::Nothing, |(_, source)| source);
    Image { module: Arc::new(module), name: name.as_ref().into(), segments, source }
}

fn source(process: Process, mapping: &Mapping, book: &Book) -> Option<(Arc<Binary>, Source)> {
    if mapping.name.as_os_str() == "[vdso]" {
        return book.vdso().map(|binary| (binary, Source::Vdso));
    }
    if !mapping.is_file() {
        return None;
    }
    let (identity, binary) = open_binary(process, mapping, book)?;
    Some((binary, Source::File(identity)))
}

/// The binary of a mapping, with the symbols that were split off from it, if they are in the root of the process or in ours.
fn open_binary(process: Process, mapping: &Mapping, book: &Book) -> Option<(Identity, Arc<Binary>)> {
    let opened = process.files().and_then(|files| Ok((files.mapped(mapping)?, files)));
    let (file, files) = opened.inspect_err(|fault: &Fault| tracing::debug!(%fault, "no names")).ok()?;
    book.open(file, files.root(), |elf| split::find(elf, &files, mapping)).ok()
}
