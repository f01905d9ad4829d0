//! Files that are not well-formed, by accident or on purpose: they may cost their own names and nothing else.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::super::elf::Elf;
use super::super::pace::Pace;
use super::super::{Folders, Symbol, symtab};
use super::build::{Folder, functions, loaded, loaded_as, objcopy, section, symbols, tool};
use super::{learn, run, symbolizer};
use crate::unwind::modules::Modules;

/// Broken copies of each form of the library; `PROFILER_TEST_COPIES` makes it more.
const COPIES: u64 = 100;

fn copies() -> u64 {
    std::env::var("PROFILER_TEST_COPIES").map_or(COPIES, |copies| copies.parse().unwrap())
}

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        // Source: Marsaglia, "Xorshift RNGs", 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// A copy with some bytes changed, or cut off.
fn broken(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bytes = bytes.to_vec();
    match numbers.below(4) {
        0 => bytes.truncate(numbers.below(bytes.len())),
        1 => {
            let at = numbers.below(bytes.len() - 8);
            bytes[at..at + 8].fill([0xff, 0x7f, 0x80, 0][numbers.below(4)]);
        }
        _ => {
            for _ in 0..=numbers.below(16) {
                let at = numbers.below(bytes.len());
                bytes[at] = numbers.below(256) as u8;
            }
        }
    }
    bytes
}

fn has_lines(symbols: &[impl std::ops::Deref<Target = Symbol>]) -> bool {
    symbols.iter().any(|symbol| symbol.frames[0].line > 0)
}

/// Check that broken copies of a library, plain and compressed, do nothing worse than lose names.
#[test]
fn broken_files_lose_names_and_nothing_else() {
    let folder = Folder::new();
    for (form, flags) in [("none", "-gdwarf-5"), ("none", "-gdwarf-4"), ("zlib", "-gdwarf-5"), ("zstd", "-gdwarf-4")] {
        let library = folder.c("code.so", &[flags]);
        objcopy(&[&format!("--compress-debug-sections={form}")], &[&library]);
        let wanted: Vec<u64> =
            functions(&library).iter().flat_map(|(_, start, end)| (*start..*end).step_by(5)).collect();
        let (bytes, id) = (std::fs::read(&library).unwrap(), loaded(&library).build_id);
        let mut with_lines = 0;
        for seed in 1..=copies() {
            std::fs::write(&library, broken(&bytes, seed)).unwrap();
            let symbols = symbols(loaded_as(&library, id.clone()), &Folders::new(&|_| None), &wanted);
            assert!(symbols.iter().all(|symbol| !symbol.frames.is_empty()));
            with_lines += u64::from(has_lines(&symbols));
        }
        assert!((copies() / 8..copies()).contains(&with_lines), "{form}: {with_lines} with lines");
    }
}

/// Where the header of a section is in the file: `readelf` tells its number.
fn header_of(library: &Path, bytes: &[u8], name: &str) -> usize {
    let listed = tool(Command::new("readelf").args(["-SW"]).arg(library));
    let line = listed.lines().find(|line| line.split_whitespace().any(|part| part == name)).unwrap();
    let number: usize = line.split(['[', ']']).nth(1).unwrap().trim().parse().unwrap();
    let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
    table + 64 * number
}

/// Check that sections which claim a tebibyte, in a file that has it, neither fill memory nor take for ever.
#[test]
fn huge_sections_are_not_read_to_their_end() {
    let folder = Folder::new();
    for (section, form) in [
        (".symtab", "none"),
        (".debug_info", "none"),
        (".debug_line", "none"),
        (".debug_abbrev", "none"),
        (".debug_info", "zlib"),
    ] {
        let library = folder.c("code.so", &[]);
        objcopy(&[&format!("--compress-debug-sections={form}")], &[&library]);
        let wanted: Vec<u64> = functions(&library).iter().map(|(_, start, _)| *start).collect();
        let module = loaded(&library);
        let mut bytes = std::fs::read(&library).unwrap();
        let header = header_of(&library, &bytes, section);
        let start = u64::from_le_bytes(bytes[header + 24..header + 32].try_into().unwrap());
        let tebibyte: u64 = 1 << 40;
        bytes[header + 32..header + 40].copy_from_slice(&tebibyte.to_le_bytes());
        if form == "zlib" {
            // What it claims to become.
            bytes[start as usize + 8..start as usize + 16].copy_from_slice(&tebibyte.to_le_bytes());
        }
        std::fs::write(&library, &bytes).unwrap();
        std::fs::File::options().write(true).open(&library).unwrap().set_len(2 * tebibyte).unwrap();
        let symbols = symbols(module, &Folders::new(&|_| None), &wanted);
        let named = symbols.iter().filter(|symbol| &*symbol.frames.last().unwrap().name == "outer").count();
        assert_eq!(named, 1, "{section} {symbols:?}");
        assert_eq!(has_lines(&symbols), section != ".debug_info" || form == "none", "{section} {form} {symbols:?}");
    }
}

/// Check that a packed section that is far longer than what it unpacks to is not read: of a file with a hole there, zstd makes blocks without a byte, without end.
#[test]
fn a_hole_in_a_packed_section_is_not_read() {
    let folder = Folder::new();
    let library = folder.c("code.so", &[]);
    objcopy(&["--compress-debug-sections=zlib"], &[&library]);
    let wanted: Vec<u64> = functions(&library).iter().map(|(_, start, _)| *start).collect();
    let module = loaded(&library);
    let mut bytes = std::fs::read(&library).unwrap();
    let (header, start) = (header_of(&library, &bytes, ".debug_info"), bytes.len() as u64);
    let length: u64 = 1 << 40;
    bytes[header + 24..header + 32].copy_from_slice(&start.to_le_bytes());
    bytes[header + 32..header + 40].copy_from_slice(&length.to_le_bytes());
    // `struct Elf64_Chdr` of zstd, 1000 bytes; then the head of a frame.
    bytes.extend([2_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat());
    bytes.extend([1000_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat());
    bytes.extend([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x50]);
    std::fs::write(&library, &bytes).unwrap();
    std::fs::File::options().write(true).open(&library).unwrap().set_len(start + length).unwrap();
    let symbols = symbols(module, &Folders::new(&|_| None), &wanted);
    assert!(symbols.iter().any(|symbol| &*symbol.frames.last().unwrap().name == "outer"), "{symbols:?}");
    assert!(!has_lines(&symbols));
}

/// As many functions of 20,000 bytes, each with a name of 60,000.
fn long_names(count: usize) -> String {
    let name = "n".repeat(60_000);
    let function = |n| format!(".type {name}{n}, %function\n{name}{n}:\n.skip 20000\n.size {name}{n}, 20000\n");
    [".text\n".to_owned()].into_iter().chain((0..count).map(function)).collect()
}

/// The names of these addresses by the symbol table alone.
fn linked(library: &Path, wanted: &[u64]) -> Vec<Option<Arc<str>>> {
    let elf = Elf::open(library).unwrap();
    run(symtab::functions(&elf, wanted, &mut Pace::default())).unwrap().names
}

/// Check that a name is in memory once, however many addresses have it, and that names take no more than their bound.
#[test]
fn long_names_are_read_once_and_bounded() {
    let folder = Folder::new();
    for (functions, named) in [(1, 20_000), (200, 139 * 100)] {
        let library = folder.assembly("code.so", &long_names(functions));
        let text = section(&library, ".text");
        let wanted: Vec<u64> = text.step_by(functions).collect();
        let names: Vec<_> = linked(&library, &wanted).into_iter().flatten().collect();
        let texts: HashMap<_, _> = names.iter().map(|name| (name.as_ptr(), name.len())).collect();
        let bytes: usize = texts.values().sum();
        assert!(bytes <= 8 << 20, "{bytes} bytes of {} names", texts.len());
        assert_eq!((wanted.len(), names.len()), (20_000, named));
    }
}

/// As many symbols, each of which covers all of the code.
fn over_and_over(count: usize) -> String {
    let symbol = |n| format!(".type f{n}, %function\n.set f{n}, start\n.size f{n}, 20000\n");
    [".text\nstart:\n.skip 20000\n".to_owned()].into_iter().chain((0..count).map(symbol)).collect()
}

/// Check that a table of symbols that says of the same addresses over and over is given up for good, that names of what
/// was read remain, and that one with some names for each address is not given up.
#[test]
fn symbols_that_cover_everything_are_given_up() {
    let folder = Folder::new();
    for (symbols, given_up) in [(200, 0), (1000, 1)] {
        let library = folder.assembly("code.so", &over_and_over(symbols));
        let text = section(&library, ".text");
        let modules = Modules::only(loaded(&library));
        let mut symbolizer = symbolizer();
        let (first, later): (Vec<u64>, Vec<u64>) = text.partition(|address| address % 1000 != 7);
        learn(&mut symbolizer, &first, &modules);
        assert!(symbolizer.symbol(first[0], &modules).frames[0].name.starts_with('f'));
        assert_eq!((symbolizer.given_up.len(), symbolizer.stats.unresolved), (given_up, 0));
        assert_eq!(symbolizer.stats.notes.len(), given_up, "{:?}", symbolizer.stats.notes);
        learn(&mut symbolizer, &later, &modules);
        assert_eq!(symbolizer.symbol(later[0], &modules).frames[0].name.starts_with('f'), given_up == 0);
    }
}

/// A unit with 20,000 functions, each of which claims the same 20,000 ranges: 400 million steps in 400 kB.
const CIRCLES: &str = r#"
    .text
    .globl outer
    .type outer, %function
outer:
    .skip 64
    .size outer, 64
    .section .debug_abbrev
    .byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0
    .byte 2, 0x2e, 0, 0x55, 0x17, 0, 0
    .byte 0
    .section .debug_info
    .4byte 2f - 1f
1:  .2byte 4
    .4byte 0
    .byte 8
    .byte 1
    .8byte outer, 64
    .rept 20000
    .byte 2
    .4byte 0
    .endr
    .byte 0
2:
    .section .debug_ranges
    .rept 20000
    .8byte 16, 32
    .endr
    .8byte 0, 0
"#;

/// A library of this assembly: where its function begins, and the modules with it alone.
fn assembled(folder: &Folder, source: &str) -> (u64, Modules) {
    let library = folder.assembly("code.so", source);
    let (_, start, _) = functions(&library)[0];
    (start, Modules::only(loaded(&library)))
}

/// Check that debug information of which each part leads to all others is given up for good, and that names remain.
#[test]
fn debug_information_that_leads_in_circles_is_given_up() {
    let folder = Folder::new();
    let (start, modules) = assembled(&folder, CIRCLES);
    let mut symbolizer = symbolizer();
    for offset in [20, 21] {
        learn(&mut symbolizer, &[start + offset], &modules);
        assert_eq!(&*symbolizer.symbol(start + offset, &modules).frames[0].name, "outer");
        assert_eq!(symbolizer.given_up.len(), 1);
        let [note] = &symbolizer.stats.notes[..] else { panic!("{:?}", symbolizer.stats.notes) };
        assert!(note.contains("debug information lead round in circles"), "{note}");
    }
}

/// A function with one line, and behind it the lines of code that the linker threw away: they reach from 0 over everything.
const DEAD: &str = r#"
    .text
    .globl outer
    .type outer, %function
outer:
    .skip 64
    .size outer, 64
    .section .debug_abbrev
    .byte 1, 0x11, 0, 0x10, 0x17, 0x11, 1, 0x12, 7, 0, 0
    .byte 0
    .section .debug_info
    .4byte 2f - 1f
1:  .2byte 4
    .4byte 0
    .byte 8
    .byte 1
    .4byte 0
    .8byte outer, 64
2:
    .section .debug_line
    .4byte 2f - 1f
1:  .2byte 4
    .4byte 4f - 3f
3:  .byte 1, 1, 1, 0xfb, 14, 13
    .byte 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1
    .byte 0
    .asciz "code.c"
    .byte 0, 0, 0, 0
4:  .byte 0, 9, 2
    .8byte outer
    .byte 3, 4, 1, 2, 64, 0, 1, 1
    .byte 0, 9, 2
    .8byte 0
    .byte 1, 2, 8, 3, 30, 1, 2
    .uleb128 0x100000
    .byte 0, 1, 1
2:
"#;

/// Check that lines of code that the linker threw away are none of the code that is there.
#[test]
fn lines_of_discarded_code_are_ignored() {
    let folder = Folder::new();
    let library = folder.assembly("code.so", DEAD);
    let (_, start, end) = functions(&library)[0];
    let symbols = symbols(loaded(&library), &Folders::new(&|_| None), &[start, end - 1]);
    let lines: Vec<_> = symbols.iter().map(|symbol| (&*symbol.frames[0].file, symbol.frames[0].line)).collect();
    assert_eq!(lines, [("code.c", 5), ("code.c", 5)]);
}

/// A unit with 200 entries, each of 20,000 attributes that take no bytes: four million steps in 40 kB.
const WITHOUT_BYTES: &str = r#"
    .text
    .globl outer
    .type outer, %function
outer:
    .skip 64
    .size outer, 64
    .section .debug_abbrev
    .byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0
    .byte 2, 0x34, 0
    .rept 20000
    .byte 0x3f, 0x19
    .endr
    .byte 0, 0, 0
    .section .debug_info
    .4byte 2f - 1f
1:  .2byte 4
    .4byte 0
    .byte 8
    .byte 1
    .8byte outer, 64
    .fill 200, 1, 2
    .byte 0
2:
"#;

/// Check that attributes count that take no bytes.
#[test]
fn attributes_without_bytes_are_steps() {
    let folder = Folder::new();
    let (start, modules) = assembled(&folder, WITHOUT_BYTES);
    let mut symbolizer = symbolizer();
    learn(&mut symbolizer, &[start], &modules);
    assert_eq!(&*symbolizer.symbol(start, &modules).frames[0].name, "outer");
    assert_eq!(symbolizer.given_up.len(), 1);
}

/// The same function and line, in a table of as many files, each of which takes a byte.
fn many_files(count: usize) -> String {
    let begin = DEAD.find("1:  .2byte 4\n    .4byte 4f").unwrap();
    let header = format!(
        "1:  .2byte 5\n .byte 8, 0\n .4byte 4f - 3f\n3:  .byte 1, 1, 1, 0xfb, 14, 13\n .byte 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1\n \
         .byte 1, 1, 8, 1\n .asciz \"/\"\n .byte 1, 1, 0xf\n .uleb128 {count}\n .fill {count}, 1, 1\n"
    );
    [&DEAD[..begin], &header, &DEAD[DEAD.find("4:  .byte").unwrap()..]].concat()
}

/// Check that a table of files that would take more memory than any real one is not read.
#[test]
fn tables_of_files_are_bounded() {
    let folder = Folder::new();
    for (count, line) in [(100_000, 5), (140_000, 0)] {
        let library = folder.assembly("code.so", &many_files(count));
        let (_, start, _) = functions(&library)[0];
        let symbols = symbols(loaded(&library), &Folders::new(&|_| None), &[start]);
        assert_eq!((&*symbols[0].frames[0].name, symbols[0].frames[0].line), ("outer", line), "{count}");
    }
}

/// Check that a pipe, a folder and nothing in the place of debug information are passed over.
#[test]
fn what_is_no_file_is_not_read() {
    let folder = Folder::new();
    let library = folder.c("code.so", &[]);
    let wanted: Vec<u64> = functions(&library).iter().map(|(_, start, _)| *start).collect();
    std::fs::write(folder.0.join("code.so.debug"), "").unwrap();
    objcopy(&["--strip-debug"], &[&library]);
    objcopy(&[&format!("--add-gnu-debuglink={}", folder.0.join("code.so.debug").display())], &[&library]);
    std::fs::remove_file(folder.0.join("code.so.debug")).unwrap();
    tool(Command::new("mkfifo").arg(folder.0.join("code.so.debug")));
    std::fs::create_dir_all(folder.0.join(".debug/code.so.debug")).unwrap();
    let symbols = symbols(loaded(&library), &Folders::new(&|_| None), &wanted);
    assert!(symbols.iter().any(|symbol| &*symbol.frames[0].name == "outer") && !has_lines(&symbols));
}
