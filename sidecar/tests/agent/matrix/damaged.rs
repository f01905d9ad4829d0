//! Programs whose functions have lost their names, as an obfuscator or anybody may leave them: what stands there instead is shown, and all else is as it was.

use std::os::unix::fs::PermissionsExt as _;

use profiler_sidecar::elf;

use super::each_undisturbed;
use super::program::{self, Form, Program, VERSIONS};
use crate::{folder, is_root};

/// What becomes of a name; as many bytes, or fewer.
type Damage = fn(&str) -> Vec<u8>;

/// How programs are called of which no name is left.
const HASHED: &str = "hashed";

/// As a hash would be written.
fn hashed(name: &str) -> Vec<u8> {
    let mut state = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b'a' + (state >> 33) as u8 % 26
    };
    name.bytes().map(letter).collect()
}

/// The program's own names in all ways in which one can be none; the runtime's as they are.
fn strange(name: &str) -> Vec<u8> {
    match name {
        "main.light" | "main.mix" => Vec::new(),
        "main.heavy" => b"\xff\xfe\n\x1b(1m;".to_vec(),
        "main.scramble" => b" ".to_vec(),
        _ if name.starts_with("main.") => hashed(name),
        _ => name.as_bytes().to_vec(),
    }
}

/// Check that programs without names, without symbols or with them, are recorded as they are: completely, with whole stacks, and each address with what the
/// program's own runtime says of it, whatever that is.
#[test]
fn programs_without_names_are_recorded_as_they_are() {
    if !is_root() {
        return;
    }
    let programs = program::all("damaged", &[VERSIONS[0], VERSIONS[6]], |_| vec![Form::Normal, Form::Stripped]);
    let ways: [(&str, Damage); 2] = [(HASHED, hashed), ("strange", strange)];
    let damaged = programs.iter().flat_map(|program| ways.map(|(name, damage)| renamed(program, name, damage)));
    let damaged: Vec<Program> = damaged.collect();
    // Where labels are is found by the name of one of the runtime's functions.
    each_undisturbed(&damaged, |recorded| recorded.check_without_names(!recorded.program.name().ends_with(HASHED)));
}

/// Check the same of a program as garble builds it, with no version in it and a table of functions with a magic of its own: all but labels, which are found by
/// version.
#[test]
fn programs_of_garble_are_recorded_as_they_are() {
    if !is_root() {
        return;
    }
    let garbled = [Program::build_garbled(&folder("garbled"))];
    each_undisturbed(&garbled, |recorded| recorded.check_without_names(false));
}

/// A copy of a program in which each function has another name.
fn renamed(program: &Program, name: &str, damage: Damage) -> Program {
    let mut bytes = std::fs::read(&program.path).unwrap();
    let elf = elf::File::of_bytes(bytes.clone()).unwrap();
    let table = elf.section(".gopclntab").unwrap().offset as usize;
    let word = |at: usize| u64::from_le_bytes(bytes[table + at..table + at + 8].try_into().unwrap()) as usize;
    // Names, and behind them the units: runtime/symtab.go, `pcHeader`.
    let names = table + word(32)..table + word(40);
    let mut at = 0;
    let names = &mut bytes[names];
    let mut changed = 0;
    while let Some(len) = names[at..].iter().position(|byte| *byte == 0) {
        let old = String::from_utf8(names[at..at + len].to_vec()).unwrap();
        let new = damage(&old);
        names[at..at + len].fill(0);
        names[at..at + new.len()].copy_from_slice(&new);
        changed += i32::from(new != old.as_bytes());
        at += len + 1;
    }
    assert!(changed > 10, "{changed} names of {}", program.name());
    let path = program.file(&format!("-{name}"));
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Program { path }
}
