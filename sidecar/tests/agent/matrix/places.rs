//! Places of stacks, and what the program that they are of says of each: its own runtime, which needs no symbols, is asked about every address.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::rc::Rc;

use profiler_proto::ProfileSet;
use profiler_proto::model::{Location, LocationId, Sample};

use super::program::Program;

/// Functions of a place, innermost first: name, file, line.
pub(super) type Lines = Vec<(String, String, u32)>;

/// A place of a stack.
#[derive(Debug)]
pub(super) struct Place {
    /// Whether it is of the process's own code: not of the kernel's functions, and no remark.
    pub(super) is_own: bool,
    /// 0 of those, and where places are told by line.
    pub(super) address: u64,
    pub(super) lines: Lines,
}

impl Place {
    /// The name of the function that the others are inlined into.
    pub(super) fn function(&self) -> &str {
        self.lines.last().map_or("", |(name, ..)| name)
    }

    /// Whether it is in a program of which nothing is known, or in busybox, which has no symbols.
    pub(super) fn is_unknown(&self) -> bool {
        ["[unknown]+0x", "busybox+0x"].iter().any(|begin| self.function().starts_with(begin))
    }
}

/// The places of a profile, each made once.
pub(super) struct Places<'a> {
    set: &'a ProfileSet,
    known: BTreeMap<LocationId, Rc<Place>>,
}

impl<'a> Places<'a> {
    pub(super) fn of(set: &'a ProfileSet) -> Self {
        Self { set, known: BTreeMap::new() }
    }

    /// The stack of a sample, leaf first.
    pub(super) fn stack(&mut self, sample: &Sample) -> Vec<Rc<Place>> {
        let (set, known) = (self.set, &mut self.known);
        let locations = &set.dictionary.stacks.get(sample.stack).unwrap().locations;
        let place = |id: &LocationId| Rc::clone(known.entry(*id).or_insert_with(|| Rc::new(place(set, *id))));
        locations.iter().map(place).collect()
    }
}

fn place(set: &ProfileSet, id: LocationId) -> Place {
    let location: &Location = set.dictionary.locations.get(id).unwrap();
    let text = |id| set.dictionary.strings.text(id).to_owned();
    let line = |line: &profiler_proto::model::Line| {
        let function = set.dictionary.functions.get(line.function).unwrap();
        (text(function.name), text(function.filename), line.line)
    };
    let is_own = location.address != 0 || !location.mapping.is_zero();
    Place { is_own, address: location.address, lines: location.lines.iter().map(line).collect() }
}

/// An address of a stack: where it was interrupted, or where a call will return to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Address {
    Interrupted(u64),
    Return(u64),
}

/// What a runtime says of an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Lines(Lines),
    /// It is no code of Go.
    Nothing,
    /// The runtime takes an address for a return address, which at the end of a function belongs to the next one.
    Unclear,
}

impl Said {
    /// Whether a place is told so.
    pub(super) fn is_of(&self, told: &Lines) -> bool {
        match self {
            // What has no name at all is called by where it is, or by its symbol.
            Self::Lines(lines) if lines.iter().all(|(name, ..)| name.is_empty()) => told.len() == 1,
            Self::Lines(lines) => {
                let called = |name: &String| if name.is_empty() { "[unnamed]".to_owned() } else { name.clone() };
                lines.iter().map(|(name, file, line)| (called(name), file.clone(), *line)).eq(told.iter().cloned())
            }
            // Names of others come from symbols, which have no lines.
            Self::Nothing => told.iter().all(|(_, file, _)| file.is_empty()),
            Self::Unclear => true,
        }
    }
}

/// What the program itself says of addresses of a process that ran it, in which its function `main` was at `main`.
pub(super) fn said_by(program: &Program, main: &str, addresses: &[Address]) -> Vec<Said> {
    let mut command = Command::new(&program.path);
    let mut child =
        command.args(["-places", main]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it ran before");
    let question = |address: &Address| match address {
        Address::Interrupted(at) => format!("{at:x}\n"),
        Address::Return(at) => format!("{at:x} call\n"),
    };
    let questions: String = addresses.iter().map(question).collect();
    let mut input = child.stdin.take().unwrap();
    let answers = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(questions.as_bytes()).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(answers.status.success(), "{}: {:?}", program.name(), answers.status);
    let answers: Vec<Said> = String::from_utf8(answers.stdout).unwrap().lines().map(said).collect();
    assert_eq!(answers.len(), addresses.len(), "{}", program.name());
    answers
}

fn said(answer: &str) -> Said {
    let frame = |frame: &str| {
        let mut parts = frame.split(' ');
        let mut next = || parts.next().unwrap();
        let (name, file, line) = (text(next()), text(next()), next().parse().unwrap());
        // As the runtime says that a table has none.
        (name, if file == "?" { String::new() } else { file }, line)
    };
    match answer {
        "" => Said::Nothing,
        "?" => Said::Unclear,
        _ => Said::Lines(answer.split(';').map(frame).collect()),
    }
}

/// Any bytes, as hexadecimal digits; what is no UTF-8 of them as profiles have it.
fn text(digits: &str) -> String {
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
