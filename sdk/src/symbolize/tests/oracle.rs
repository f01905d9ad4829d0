//! Our answers beside those of binutils' `addr2line`, which shares no code with us.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::super::{Folders, Language};
use super::build::{Folder, functions, loaded, symbols, tool};

/// What Rust 1.95 does where nothing is said; the option of that name is not stable.
const LEGACY: &str = "-Cdebuginfo=2";

/// A frame as both can tell it: the linker's name, file, line.
type Told = (String, String, u32);

/// Every third address of the functions whose names contain one of these.
fn addresses(file: &Path, of: &[&str]) -> Vec<u64> {
    let functions = functions(file);
    let wanted = functions.iter().filter(|(name, _, _)| of.iter().any(|part| name.contains(part)));
    let mut addresses: Vec<u64> = wanted.flat_map(|(_, start, end)| (*start..*end).step_by(3)).collect();
    addresses.dedup();
    assert!(addresses.len() > 5, "{of:?}");
    addresses
}

/// Innermost first, as `addr2line -f -i` tells it: for each address the address, then name and place of each frame.
fn told(file: &Path, wanted: &[u64]) -> Vec<Vec<Told>> {
    let wanted: Vec<String> = wanted.iter().map(|address| format!("{address:#x}")).collect();
    let text = tool(Command::new("addr2line").args(["-a", "-f", "-i", "-e"]).arg(file).args(&wanted));
    let mut told: Vec<Vec<Told>> = Vec::new();
    let mut lines = text.lines();
    while let Some(name) = lines.next() {
        if name.starts_with("0x") {
            told.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap().split(" (").next().unwrap();
        let (file, line) = place.rsplit_once(':').unwrap();
        let file = if file == "??" { "" } else { file };
        told.last_mut().unwrap().push((name.to_owned(), file.to_owned(), line.parse().unwrap_or(0)));
    }
    told
}

fn ours(file: &Path, wanted: &[u64]) -> Vec<Vec<Told>> {
    let symbols = symbols(loaded(file), &Folders::new(&|_| None), wanted);
    let frames = symbols.iter().map(|symbol| {
        let told = |frame: &super::super::Frame| {
            let name = if frame.system_name.is_empty() { &frame.name } else { &frame.system_name };
            (name.to_string(), frame.file.to_string(), frame.line)
        };
        symbol.frames.iter().map(told).collect()
    });
    frames.collect()
}

/// Where the two differ.
fn differences(file: &Path, wanted: &[u64]) -> String {
    let mut text = String::new();
    let mut deepest = 0;
    for ((address, ours), theirs) in wanted.iter().zip(ours(file, wanted)).zip(told(file, wanted)) {
        deepest = deepest.max(theirs.len());
        if ours != theirs {
            writeln!(text, "{address:#x}: {ours:?} instead of {theirs:?}").unwrap();
        }
    }
    assert!(deepest >= 3, "the test has no inlined functions");
    text
}

/// Check that C code has the functions, inlined functions, files and lines that `addr2line` finds, in every version of
/// DWARF that compilers write.
#[test]
fn c_code_is_told_as_addr2line_tells_it() {
    let folder = Folder::new();
    for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        let library = folder.c("code.so", &[version]);
        let wanted = addresses(&library, &["outer", "store", "hidden", "entry"]);
        let differences = differences(&library, &wanted);
        assert!(differences.is_empty(), "{version}\n{differences}");
    }
}

/// Check the same for C++, and that its functions are shown as binutils' `c++filt` writes them.
#[test]
fn cpp_code_is_told_as_binutils_tell_it() {
    let folder = Folder::new();
    // Parts of functions that the compiler makes functions of have names of their own.
    for flags in [&["-gdwarf-4"][..], &["-gdwarf-5", "-O2", "-fno-ipa-sra", "-fno-ipa-cp", "-fno-partial-inlining"]] {
        let library = folder.cpp("code.so", flags);
        // Constructors and destructors have two names each, in one place.
        let of = ["5outer", "4most", "5twice", "5local", "Shelf4find", "Shelfix", "ShelfpL", "Shelfcv"];
        let wanted = addresses(&library, &of);
        let differences = differences(&library, &wanted);
        assert!(differences.is_empty(), "{flags:?}\n{differences}");
        let shown = symbols(loaded(&library), &Folders::new(&|_| None), &wanted);
        let mut names: Vec<_> = shown.iter().map(|symbol| symbol.frames.last().unwrap()).collect();
        names.sort_by_key(|frame| &frame.system_name);
        names.dedup_by_key(|frame| &frame.system_name);
        let filtered = tool(Command::new("c++filt").args(names.iter().map(|frame| &*frame.system_name)));
        let ours: Vec<&str> = names.iter().map(|frame| &*frame.name).collect();
        assert_eq!(ours, filtered.lines().collect::<Vec<_>>(), "{flags:?}");
        assert!(ours.len() >= 8 && ours.contains(&"store::outer(int)"), "{ours:?}");
    }
}

/// Check the same for Rust, with both manglings; where the linker's names of inlined functions are told, they are equal.
#[test]
fn rust_code_is_told_as_addr2line_tells_it() {
    let folder = Folder::new();
    for mangling in ["-Csymbol-mangling-version=v0", LEGACY] {
        let program = folder.rust("code", &[mangling, "-Ccodegen-units=1"]);
        let wanted = addresses(&program, &["shelf", "4code4main", "lang_start"]);
        let differences = differences(&program, &wanted);
        assert!(differences.is_empty(), "{mangling}\n{differences}");
    }
}

/// Check that names are shown demangled, those of inlined functions too, and that lines alone give whole names.
#[test]
fn names_are_shown_as_people_write_them() {
    let folder = Folder::new();
    for (mangling, innermost) in
        [("-Csymbol-mangling-version=v0", "code::innermost::<u32>"), (LEGACY, "code::innermost")]
    {
        let program = folder.rust("code", &[mangling]);
        let wanted = addresses(&program, &["shelf"]);
        let symbols = symbols(loaded(&program), &Folders::new(&|_| None), &wanted);
        let physical = symbols.iter().map(|symbol| symbol.frames.last().unwrap());
        assert!(physical.clone().all(|frame| &*frame.name == "code::shelf::outer"), "{physical:?}");
        assert!(symbols.iter().all(|symbol| symbol.language == Language::Rust));
        assert!(symbols.iter().any(|symbol| &*symbol.frames[0].name == innermost), "{symbols:?}");
    }
    let library = folder.c("code.so", &[]);
    let wanted = addresses(&library, &["store", "hidden"]);
    let symbols = symbols(loaded(&library), &Folders::new(&|_| None), &wanted);
    let named = |name: &str| symbols.iter().filter(|symbol| &*symbol.frames.last().unwrap().name == name).count();
    assert!(named("store::find(int)") > 0 && named("hidden") > 0 && symbols[0].language == Language::Native);
}

/// Check that line tables without anything else name inlined functions and their lines.
#[test]
fn line_tables_are_enough_for_inlined_functions() {
    let folder = Folder::new();
    let program = folder.rust("code", &["-Cdebuginfo=line-tables-only"]);
    let wanted = addresses(&program, &["shelf"]);
    let symbols = symbols(loaded(&program), &Folders::new(&|_| None), &wanted);
    let inlined = symbols.iter().find(|symbol| symbol.frames[0].name.contains("innermost")).unwrap();
    assert!(inlined.frames[0].file.ends_with("code.rs") && inlined.frames[0].line == 4, "{inlined:?}");
    let outer = inlined.frames.last().unwrap();
    assert_eq!((&*outer.name, &outer.file, outer.line), ("code::shelf::outer", &inlined.frames[0].file, 13));
}
