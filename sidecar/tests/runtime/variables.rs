//! Where variables are found: by symbols, by debug information and by their use in code, beside where another reader of the same program's debug information
//! says that they are.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use profiler_sidecar::capture::{Code, Function, Loaded, Memory, Source, Variables};
use profiler_sidecar::elf::{File, Machine};
use profiler_sidecar::go::{Program, debug_info, layouts};
use profiler_sidecar::target::{Fault, Piece};

use crate::running::Running;
use crate::{is_torture, programs};

/// What a program is built with, for which processor, and whether its code is such as is looked for. With C, the system's linker puts it together, here for its
/// own processor alone.
const FORMS: [(&[&str], &str, bool); 7] = [
    (&[], "amd64", true),
    (&["-buildmode=pie"], "amd64", true),
    (&["-ldflags=-linkmode=external"], "amd64", true),
    (&["-ldflags=-linkmode=external -extldflags=-static"], "amd64", true),
    (&["-gcflags=all=-N -l"], "amd64", false),
    (&[], "arm64", true),
    (&["-buildmode=pie"], "arm64", true),
];

/// Check each variable of each version, for both processors, and of the oldest and the newest in each form: all ways in which it is found agree, and are right.
/// `make torture` has each version in each form.
#[test]
fn all_ways_to_find_variables_agree() {
    for (place, version) in programs::VERSIONS.into_iter().enumerate() {
        let has_all = is_torture() || [0, 6].contains(&place);
        for (flags, processor, is_optimized) in FORMS.into_iter().filter(|(flags, ..)| has_all || flags.is_empty()) {
            let program = programs::build("parked", version, flags, processor);
            let (what, expected) = (format!("{version} {flags:?} {processor}"), told(&program));
            let loaded = OnDisk::open(&program);
            let elf = loaded.program().elf();
            let symbols = elf.variables(&NAMES);
            assert!(symbols.iter().all(Option::is_some), "{what}: {symbols:?}");
            assert_eq!(debug_info::variables(elf, &NAMES), symbols, "{what}");
            assert_eq!(find(&loaded), expected, "{what}, by symbols");
            if is_optimized {
                assert_eq!(find(&Hidden(&loaded)), expected, "{what}, by its code");
            }
        }
    }
}

/// What symbols and debug information must name.
const NAMES: [&str; 12] = [
    "runtime.mbuckets",
    "runtime.bbuckets",
    "runtime.xbuckets",
    "runtime.MemProfileRate",
    "runtime.blockprofilerate",
    "runtime.mutexprofilerate",
    "runtime.ticks",
    "runtime.allgs",
    "runtime.gcController",
    "runtime.memstats",
    "runtime.gomaxprocs",
    "runtime.profMemActiveLock",
];

/// The variables of a program, as its file counts addresses.
fn find(code: &(impl Code + Disk)) -> Variables {
    let program = code.disk().program();
    let layout = layouts::of(program.version().minor.into()).unwrap();
    Variables::find(code, &OnDisk(program.elf()), &layout).unwrap()
}

/// A program's file as memory.
struct OnDisk<'f>(&'f File);

impl OnDisk<'_> {
    fn open(program: &Path) -> Loaded {
        let elf = Arc::new(File::open(std::fs::File::open(program).unwrap()).unwrap());
        Loaded::new(Arc::new(Program::open(elf).unwrap().unwrap()), 0)
    }
}

impl Memory for OnDisk<'_> {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        for piece in pieces {
            piece.read = self.0.read(piece.address, piece.buffer).map_or(0, |()| piece.buffer.len());
        }
        Ok(())
    }
}

/// What stands behind a program that was opened.
trait Disk {
    fn disk(&self) -> &Loaded;
}

impl Disk for Loaded {
    fn disk(&self) -> &Loaded {
        self
    }
}

/// A program whose variables nothing names.
struct Hidden<'l>(&'l Loaded);

impl Disk for Hidden<'_> {
    fn disk(&self) -> &Loaded {
        self.0
    }
}

impl Code for Hidden<'_> {
    fn machine(&self) -> Machine {
        self.0.machine()
    }

    fn extent(&self, name: &str) -> Option<Range<u64>> {
        self.0.extent(name)
    }

    fn symbol(&self, _: &str) -> Option<u64> {
        None
    }

    fn data(&self) -> Range<u64> {
        self.0.data()
    }

    fn function(&self, pc: u64) -> Option<Function> {
        self.0.function(pc)
    }

    fn depth(&self, pc: u64) -> Option<u64> {
        self.0.depth(pc)
    }
}

/// Check processes of the oldest and the newest version: of a program with symbols; of the same one without them, whose debug information is left, as it was built or
/// as it was not optimized, or packed with zstd, as other linkers than Go's do; of one that has neither.
#[test]
fn variables_of_a_process_are_found_by_what_its_program_has() {
    for version in [programs::VERSIONS[0], programs::VERSIONS[6]] {
        for flags in [&[][..], &["-gcflags=all=-N -l"]] {
            let program = programs::build("parked", version, flags, "amd64");
            let expected = told(&program);
            assert_eq!(found(&program), expected, "{version} {flags:?}");
            let ways: [&[&str]; 2] = [&[".symtab"], &[".symtab", ".debug_info"]];
            for less in &ways[..if flags.is_empty() { 2 } else { 1 }] {
                let stripped = without(less, &program);
                assert_eq!(found(&stripped), expected, "{version} {flags:?}, without {less:?}");
                std::fs::remove_file(stripped).unwrap();
            }
            let packed = without(&[".symtab"], &packed(&program));
            assert_eq!(found(&packed), expected, "{version} {flags:?}, packed with zstd");
            std::fs::remove_file(packed).unwrap();
        }
    }
}

/// Check a program that the linker wrote with debug information and without symbols, which it does since 1.22: it has what symbols would say. Of the newest version;
/// of each in `make torture`.
#[test]
fn the_linker_leaves_out_symbols_alone() {
    for version in &programs::VERSIONS[if is_torture() { 1 } else { 6 }..] {
        let flags = ["-gcflags=all=-N -l", "-ldflags=-s -w=0"];
        let program = programs::build("parked", version, &flags, "amd64");
        let loaded = OnDisk::open(&program);
        assert!(!loaded.program().elf().has_symbol_table(), "{version}");
        assert_eq!(find(&loaded), told(&program), "{version}");
    }
}

/// What the debug information of a program says.
fn told(program: &Path) -> Variables {
    let tool = programs::build("layouts", "local", &[], "amd64");
    let told = Command::new(&tool).arg(program).output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    let facts: HashMap<&str, u64> = text.lines().filter_map(variable).collect();
    assert_eq!(facts["runtime.mbuckets"] + 8, facts["runtime.bbuckets"]);
    assert_eq!(facts["runtime.mbuckets"] + 16, facts["runtime.xbuckets"]);
    assert_eq!(facts["runtime.blockprofilerate"] + 8, facts["runtime.mutexprofilerate"]);
    let at = |name: &str| Some(facts[name]);
    Variables {
        buckets: at("runtime.mbuckets"),
        memory_rate: at("runtime.MemProfileRate"),
        block_rate: at("runtime.blockprofilerate"),
        ticks: at("runtime.ticks"),
        goroutines: at("runtime.allgs"),
        pacer: at("runtime.gcController"),
        // A field of it, whose place in each version the same debug information says.
        collections: Some(facts["runtime.memstats"] + field(&text, "runtime.mstats.last_gc_unix")),
        processors: at("runtime.gomaxprocs"),
        publishing: at("runtime.profMemActiveLock"),
    }
}

/// The same program, whose debug information is packed with zstd.
fn packed(program: &Path) -> PathBuf {
    let packed = program.with_extension("zstd");
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--decompress-debug-sections", "--compress-debug-sections=zstd"]).args([program, &packed]);
    assert!(objcopy.status().unwrap().success(), "{}", program.display());
    packed
}

/// What is found in a process of the program.
fn found(program: &Path) -> Variables {
    let running = Running::start(program, &[]);
    *Source::find(running.pid()).unwrap().variables()
}

/// The same program, whose sections of these names are no longer said to have anything. Source: elf(5), `e_shoff`, `e_shentsize`, `sh_type`, `SHT_NULL`. Another
/// process writes it: who starts a process here would hold it open, and it could not be run.
fn without(sections: &[&str], program: &Path) -> PathBuf {
    let mut elf = std::fs::read(program).unwrap();
    let parsed = File::of_bytes(elf.clone()).unwrap();
    let word = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
    let (table, entry) = (word(0x28), usize::from(u16::from_le_bytes([elf[0x3a], elf[0x3b]])));
    let found = parsed.sections().iter().enumerate().filter(|(_, section)| sections.contains(&section.name()));
    let places: Vec<usize> = found.map(|(number, _)| table + number * entry).collect();
    assert_eq!(places.len(), sections.len());
    places.iter().for_each(|place| elf[place + 4..place + 8].fill(0));
    // `.debug_info` is found by its name.
    places.iter().for_each(|place| elf[*place..place + 4].fill(0));
    let (written, stripped) = (program.with_extension("written"), program.with_extension("stripped"));
    std::fs::write(&written, elf).unwrap();
    let copied = Command::new("install").arg("-m755").args([&written, &stripped]).status().unwrap();
    assert!(copied.success());
    std::fs::remove_file(written).unwrap();
    stripped
}

/// "var runtime.allgs 0x5f2350 24 struct []*runtime.g".
fn variable(line: &str) -> Option<(&str, u64)> {
    let mut words = line.strip_prefix("var ")?.split(' ');
    Some((words.next()?, u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?))
}

/// "field runtime.mstats.last_gc_unix 3592 8".
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("field ")?.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
