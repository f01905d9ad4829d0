//! The distinct functions of a tree, with what is known of each.
//!
//! In: locations of any number of profile sets. Out: columns by frame number, frame 0 being the root's "all". A function
//! is one frame wherever it stands: lines, addresses and inlining do not split it, for that would split its share.

use std::collections::{HashMap, HashSet};

use profiler_proto::model::{Function, Id, Line, Location, LocationId, Mapping, StringId, Strings};
use profiler_proto::{Dictionary, ProfileSet};

use super::package::{self, Sort};

/// What is known of one function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) name: StringId,
    pub(super) package: StringId,
    pub(super) file: StringId,
    /// The function's first line, or the lowest one that was seen of its file; 0 is unknown.
    pub(super) line: u32,
    /// Whether it was inlined wherever it was seen.
    pub(super) inlined: bool,
    pub(super) sort: Sort,
}

/// The distinct frames of a tree.
///
/// Invariant: no two have both name and package in common, but for frames 0 and 1.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) names: Strings,
    pub(super) files: Strings,
    pub(super) packages: Strings,
    pub(super) table: Vec<Frame>,
    known: HashMap<(StringId, StringId), u32>,
    /// Crates that the executables are built from.
    executables: HashSet<StringId>,
    /// By package: functions whose sources are the program's own, less those whose sources are not. One alone may stand
    /// in a file of another crate, whose code was inlined there.
    own_sources: HashMap<StringId, i64>,
}

/// Bytes of a name, or of the path of a file, that are shown, and tell one from others: more than any compiler's names for people have.
const MOST_TEXT: usize = 4096;

/// The number of the root's frame.
pub(super) const ALL: u32 = 0;
/// The number of the frame that stands for nodes that were merged away.
pub(super) const TRIMMED: u32 = 1;

impl Frames {
    /// The root's frame and that of trimmed nodes.
    pub(super) fn new() -> Self {
        let (names, files, packages) = (Strings::new(), Strings::new(), Strings::new());
        let (table, known, executables, own_sources) = Default::default();
        let mut frames = Self { names, files, packages, table, known, executables, own_sources };
        for name in ["all", "(trimmed)"] {
            let name = frames.names.intern_str(name);
            let (package, file) = (StringId::ZERO, StringId::ZERO);
            frames.table.push(Frame { name, package, file, line: 0, inlined: false, sort: Sort::Unresolved });
        }
        frames
    }

    /// The name of a frame.
    pub(super) fn name(&self, frame: u32) -> &str {
        self.table.get(frame as usize).map_or("", |frame| self.names.text(frame.name))
    }

    /// The sort of a frame, once all are known.
    pub(super) fn sort(&self, frame: &Frame) -> Sort {
        let own = frame.sort == Sort::Dependency && self.is_own(frame.package);
        if own { Sort::Own } else { frame.sort }
    }

    /// Whether a crate is the profiled program's: its executable's, or one of its sources' tree. This crate is neither,
    /// wherever it stands.
    fn is_own(&self, package: StringId) -> bool {
        let of_sources = self.own_sources.get(&package).is_some_and(|votes| *votes > 0);
        let ours = self.packages.text(package) == env!("CARGO_CRATE_NAME");
        self.executables.contains(&package) || (of_sources && !ours)
    }

    /// Names the crate that the executable of `set` is built from as the program's own.
    pub(super) fn note_executable(&mut self, set: &ProfileSet) {
        let path = ["process.executable.path", "process.executable.name"]
            .iter()
            .find_map(|key| set.resource.get(key)?.as_str());
        let first_mapping =
            || set.dictionary.mappings.iter().nth(1).map(|mapping| set.dictionary.strings.text(mapping.filename));
        if let Some(path) = path.or_else(first_mapping) {
            self.executables.insert(self.packages.intern_str(&package::crate_of_executable(path)));
        }
    }

    /// The frame that stands for a process.
    pub(super) fn process(&mut self, name: &str) -> u32 {
        self.intern(name, (name, Sort::Process), None)
    }

    /// Puts the frames of a location behind `into`, the outermost first.
    fn expand(&mut self, location: &Location, dictionary: &Dictionary, into: &mut Vec<u32>) {
        let file = mapped_file(location, dictionary);
        let is_go = frame_type(location, dictionary) == Some("go");
        if location.lines.is_empty() {
            into.push(self.intern(&unnamed(location, file, dictionary), package::of("", file), None));
        }
        for (depth, line) in location.lines.iter().enumerate().rev() {
            let function = dictionary.functions.get(line.function).copied().unwrap_or_default();
            let name = name_of(&function, dictionary);
            let source = Source::of(&function, line, depth + 1 < location.lines.len(), dictionary);
            into.push(match name {
                "" => self.intern(&unnamed(location, file, dictionary), package::of("", file), Some(source)),
                name if is_go || package::is_go_source(source.file) => {
                    self.intern(name, package::of_go(name, file), Some(source))
                }
                name => self.intern(name, package::of(name, file), Some(source)),
            });
        }
    }

    /// The number of a frame, with what its source adds to what is known of it.
    fn intern(&mut self, name: &str, (package, sort): (&str, Sort), source: Option<Source<'_>>) -> u32 {
        let (name, package) = (self.names.intern_str(name), self.packages.intern_str(package));
        let next = u32::try_from(self.table.len()).unwrap_or(u32::MAX);
        let number = *self.known.entry((name, package)).or_insert(next);
        if number == next {
            self.table.push(Frame { name, package, file: StringId::ZERO, line: 0, inlined: source.is_some(), sort });
        }
        if let (Some(source), Some(frame)) = (source, self.table.get_mut(number as usize)) {
            frame.inlined &= source.inlined;
            if frame.file.is_zero() && !source.file.is_empty() {
                frame.file = self.files.intern_str(source.file);
                let vote = if package::is_own_source(source.file) { 1 } else { -1 };
                *self.own_sources.entry(package).or_default() += vote;
            }
            // What a macro brought along may stand in another file, whose lines say nothing here.
            let same_file = self.files.text(frame.file) == source.file;
            if same_file && source.line != 0 && (frame.line == 0 || source.line < frame.line) {
                frame.line = source.line;
            }
        }
        number
    }
}

/// What debug information says of a frame.
struct Source<'a> {
    file: &'a str,
    line: u32,
    inlined: bool,
}

impl<'a> Source<'a> {
    fn of(function: &Function, line: &Line, inlined: bool, dictionary: &'a Dictionary) -> Self {
        let line = if function.start_line > 0 { function.start_line } else { line.line };
        Self { file: text(function.filename, dictionary), line, inlined }
    }
}

/// The frames of one set's locations, made once for each location.
pub(super) struct LocationFrames {
    /// Frame numbers, those of one location side by side, the outermost first.
    frames: Vec<u32>,
    /// By location: where its frames begin and end in `frames`; `None` until it is asked for.
    spans: Vec<Option<(usize, usize)>>,
}

impl LocationFrames {
    /// Nothing known yet of the locations of `dictionary`.
    pub(super) fn new(dictionary: &Dictionary) -> Self {
        Self { frames: Vec::new(), spans: vec![None; dictionary.locations.len()] }
    }

    /// The frames of a location, the outermost first; none for an id of another dictionary.
    pub(super) fn of(&mut self, id: LocationId, dictionary: &Dictionary, frames: &mut Frames) -> &[u32] {
        let span = self.spans.get_mut(id.index() as usize);
        let (Some(location), Some(span)) = (dictionary.locations.get(id), span) else {
            return &[];
        };
        let (start, end) = *span.get_or_insert_with(|| {
            let start = self.frames.len();
            frames.expand(location, dictionary, &mut self.frames);
            (start, self.frames.len())
        });
        &self.frames[start..end]
    }
}

/// The demangled name, else the linker's.
fn name_of<'a>(function: &Function, dictionary: &'a Dictionary) -> &'a str {
    let id = if function.name.is_zero() { function.system_name } else { function.name };
    text(id, dictionary)
}

/// The file mapped at a location; `[kernel]` where the location says that it is the kernel's.
fn mapped_file<'a>(location: &Location, dictionary: &'a Dictionary) -> &'a str {
    if frame_type(location, dictionary) == Some("kernel") {
        return "[kernel]";
    }
    dictionary.mappings.get(location.mapping).map_or("", |mapping| text(mapping.filename, dictionary))
}

/// A text as far as it is shown. Each function asks for it, and texts that others sent may be of megabytes.
fn text(id: StringId, dictionary: &Dictionary) -> &str {
    let text = dictionary.strings.text(id);
    &text[..text.floor_char_boundary(MOST_TEXT)]
}

/// What sort of frames a location has, where it says so (OpenTelemetry semantic conventions, `profile.frame.type`).
fn frame_type<'a>(location: &Location, dictionary: &'a Dictionary) -> Option<&'a str> {
    dictionary.value_of(location.attributes, "profile.frame.type")?.as_str()
}

/// The stand-in for a name: `libc.so.6+0x28b0`, an offset in the file.
fn unnamed(location: &Location, file: &str, dictionary: &Dictionary) -> String {
    let address = location.address;
    match dictionary.mappings.get(location.mapping) {
        Some(Mapping { start, offset, .. }) if !location.mapping.is_zero() => {
            format!("{}+{:#x}", package::base_name(file), address.wrapping_sub(*start).wrapping_add(*offset))
        }
        _ => format!("{address:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::{Stacks, nodes_of};

    fn frame<'a>(frames: &'a Frames, name: &str) -> &'a Frame {
        frames.table.iter().find(|frame| frames.names.text(frame.name) == name).unwrap()
    }

    /// Check that a function is one frame with the lowest line seen in its file, inlined only if it always was.
    #[test]
    fn a_function_is_one_frame() {
        let stacks = Stacks::new().sample("shop::main;shop::a@src/a.rs|shop::b@src/b.rs:9|shop::c@src/c.rs", 1);
        let stacks = stacks.sample("shop::main;shop::b@src/macros.rs:1", 1);
        let (nodes, frames) =
            nodes_of(&[stacks.sample("shop::b@src/b.rs:4;shop::a@src/a.rs|shop::c@src/c.rs", 1).set()]);
        let names: Vec<&str> = nodes.frame.iter().map(|frame| frames.name(*frame)).collect();
        assert_eq!(
            names,
            ["all", "shop::main", "shop::a", "shop::b", "shop::c", "shop::b", "shop::b", "shop::a", "shop::c"]
        );
        assert_eq!(frames.table.len(), 2 + 4);
        let of = |name: &str| (frames.files.text(frame(&frames, name).file), frame(&frames, name).line);
        assert_eq!((of("shop::a"), of("shop::b")), (("src/a.rs", 7), ("src/b.rs", 4)));
        let inlined = ["shop::main", "shop::a", "shop::b", "shop::c"].map(|name| frame(&frames, name).inlined);
        assert_eq!(inlined, [false, false, false, true]);
    }

    /// Check that functions of Go are of their packages, and that a module without a dot in its name is the program's own by its sources.
    #[test]
    fn functions_of_go_are_of_their_packages() {
        let path = "main.main@/app/main.go;stock/shelf.Find@/app/shelf/find.go;github.com/x/y.(*T).M@/home/me/go/pkg/mod/github.com/x/y@v1.2.3/y.go;runtime.mallocgc@/usr/local/go/src/runtime/malloc.go";
        let (_, frames) = nodes_of(&[Stacks::new().sample(path, 1).set()]);
        let of = |name: &str| (frames.packages.text(frame(&frames, name).package), frames.sort(frame(&frames, name)));
        assert_eq!(of("main.main"), ("main", Sort::Own));
        assert_eq!(of("stock/shelf.Find"), ("stock/shelf", Sort::Own));
        assert_eq!(of("github.com/x/y.(*T).M"), ("github.com/x/y", Sort::Dependency));
        assert_eq!(of("runtime.mallocgc"), ("runtime", Sort::Std));
        let (mut frames, mut dictionary) = (Frames::new(), Dictionary::default());
        let name = dictionary.strings.intern_str("github.com/x/y.assembly");
        let function = dictionary.functions.intern(Function { name, ..Function::default() });
        let frame_type = dictionary.attribute("profile.frame.type", "go");
        let attributes = dictionary.attribute_set([frame_type]);
        let lines = Box::from([Line { function, line: 0, column: 0 }]);
        frames.expand(&Location { lines, attributes, ..Location::default() }, &dictionary, &mut Vec::new());
        assert_eq!(frames.packages.text(frame(&frames, "github.com/x/y.assembly").package), "github.com/x/y");
    }

    /// Check that a crate is the program's own for its name, or for where its sources stand, and otherwise is not.
    #[test]
    fn own_crates_are_known_by_name_or_sources() {
        let foreign = "tokio::spawn@/home/me/.cargo/registry/src/index/tokio-1.54.1/src/lib.rs";
        let path = format!("shop::main;pricing::price@pricing/src/lib.rs;pricing::sum;{foreign};core::cmp::max");
        let (_, frames) = nodes_of(&[Stacks::new().sample(&path, 1).set()]);
        let sorts = ["shop::main", "pricing::price", "pricing::sum", "tokio::spawn", "core::cmp::max"]
            .map(|name| frames.sort(frame(&frames, name)));
        assert_eq!(sorts, [Sort::Own, Sort::Own, Sort::Own, Sort::Dependency, Sort::Std]);
    }

    /// Check that of a long text, to which many functions may refer, so much is shown as tells it from others.
    #[test]
    fn long_names_are_cut() {
        let long = |end: &str| format!("shop::{}{end}", "é".repeat(MOST_TEXT));
        let path =
            format!("{};{};shop::{};short@{}", long("a"), long("b"), "x".repeat(MOST_TEXT), "é".repeat(MOST_TEXT));
        let (nodes, frames) = nodes_of(&[Stacks::new().sample(&path, 1).set()]);
        let lengths: Vec<usize> = nodes.frame.iter().map(|frame| frames.name(*frame).len()).collect();
        assert_eq!(lengths, [3, MOST_TEXT, MOST_TEXT, MOST_TEXT, 5]);
        assert_eq!(nodes.frame[1], nodes.frame[2]);
        assert_ne!(nodes.frame[1], nodes.frame[3]);
        assert_eq!(frames.files.text(frame(&frames, "short").file).len(), MOST_TEXT);
    }

    /// Check that what has no name shows its file and the offset there.
    #[test]
    fn what_has_no_name_shows_its_place() {
        let mut set = Stacks::new().set();
        let mapping = Mapping { start: 0x7000, offset: 0x100, ..*set.dictionary.mappings.iter().nth(1).unwrap() };
        let mapping = set.dictionary.mappings.intern(mapping);
        let location = Location { mapping, address: 0x70ab, ..Location::default() };
        let mut frames = Frames::new();
        let mut numbers = Vec::new();
        frames.expand(&location, &set.dictionary, &mut numbers);
        frames.expand(&Location { address: 0x70ab, ..Location::default() }, &set.dictionary, &mut numbers);
        let names: Vec<&str> = numbers.iter().map(|number| frames.name(*number)).collect();
        assert_eq!(names, ["shop+0x1ab", "0x70ab"]);
        assert!(numbers.iter().all(|number| frames.table[*number as usize].sort == Sort::Unresolved));
    }
}
