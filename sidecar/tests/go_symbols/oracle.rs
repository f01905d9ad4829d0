//! What a program's own runtime says of its text, compared with what its file says.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use profiler_sidecar::go::{Call, Elision, Function, Program};

use super::build::run;

/// Compares every `step`th address; gives how many.
pub(crate) fn compare(runner: &[&Path], program: &Program, step: u64) -> u64 {
    let (theirs, ours) = (theirs(runner, step), ours(program, step));
    let differs = theirs.iter().find(|(entry, said)| ours.get(entry) != Some(said));
    if let Some((entry, said)) = differs.or_else(|| ours.iter().find(|(entry, _)| !theirs.contains_key(entry))) {
        let function = program.function(program.text().start + entry);
        panic!("{function:?}: {said:x?}, not {:x?}\n{}", ours.get(entry), difference(runner, program, *entry, step));
    }
    ours.values().map(|(count, _)| count).sum()
}

/// The program, or an emulator and the program.
fn command(runner: &[&Path]) -> Command {
    let mut command = Command::new(runner[0]);
    command.args(&runner[1..]);
    command
}

/// Addresses and hash of each function, by its entry from the start of the text on.
pub(crate) type Said = BTreeMap<u64, (u64, u64)>;

fn theirs(runner: &[&Path], step: u64) -> Said {
    read(&String::from_utf8(run(command(runner).args(["-every", &step.to_string()]))).unwrap())
}

/// Checks that a file says what its runtime said; gives of how many functions.
pub(crate) fn compare_with(theirs: &Said, program: &Program, step: u64) -> usize {
    let ours = ours(program, step);
    for (entry, said) in theirs {
        let function = program.function(program.text().start + entry);
        assert_eq!(ours.get(entry), Some(said), "{function:x?}");
    }
    ours.len()
}

/// Reads what a program wrote.
pub(crate) fn read(text: &str) -> Said {
    let line = |line: &str| {
        let mut parts = line.split(' ');
        let mut next = |radix| u64::from_str_radix(parts.next().unwrap(), radix).unwrap();
        (next(10), (next(10), next(16)))
    };
    text.lines().map(line).collect()
}

fn ours(program: &Program, step: u64) -> Said {
    let start = program.text().start;
    let mut said = Said::new();
    let mut description = String::new();
    let mut entry = start;
    while let Some(function) = program.function(entry) {
        let (mut count, mut hash) = (0, Fnv::new());
        for pc in addresses(&function, start, step) {
            describe(program, pc, &mut description);
            hash.add(&description);
            count += 1;
        }
        if count > 0 {
            said.insert(entry - start, (count, hash.0));
        }
        entry = function.end;
    }
    said
}

/// Every `step`th address of the text that is in this function. The last address of a function is left out, for the runtime takes an
/// address for a return address.
fn addresses(function: &Function, start: u64, step: u64) -> impl Iterator<Item = u64> {
    let first = start + (function.entry - start).next_multiple_of(step);
    (first..function.end - 1).step_by(step as usize)
}

/// An address in the words of `tests/go/symbols`.
fn describe(program: &Program, pc: u64, into: &mut String) {
    into.clear();
    let frames = program.frames(pc, Call::Interrupted);
    let mut elision = Elision::default();
    for frame in &*frames {
        // The runtime leaves out wrappers only where it looks for inlined calls.
        if elision.shows(frame.role) || frames.len() == 1 {
            let file = if frame.file.is_empty() { "?" } else { &frame.file };
            writeln!(into, "{} {file}:{} {}", frame.function, frame.line, frame.start_line).unwrap();
        }
    }
    writeln!(into, "{}", program.stack_depth(pc).unwrap_or(-1)).unwrap();
}

/// The first address of a function that is told differently.
fn difference(runner: &[&Path], program: &Program, entry: u64, step: u64) -> String {
    let arguments = ["-of", &entry.to_string(), "-every", &step.to_string()];
    let text = String::from_utf8(run(command(runner).args(arguments))).unwrap();
    let mut theirs = text.split_inclusive('\n');
    let start = program.text().start;
    let function = program.function(start + entry).unwrap();
    let mut ours = String::new();
    for pc in addresses(&function, start, step) {
        describe(program, pc, &mut ours);
        let address = theirs.next().unwrap_or("nothing\n");
        let theirs: String = theirs.by_ref().take(ours.lines().count()).collect();
        if theirs != ours || address.trim_end() != (pc - start).to_string() {
            return format!("at {pc:#x} ({address}) the runtime says\n{theirs}not\n{ours}");
        }
    }
    "as many addresses, all alike".to_owned()
}

/// Source: hash/fnv, `New64a`.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
