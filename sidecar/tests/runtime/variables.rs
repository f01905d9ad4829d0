//! Where variables are found by their use in code, beside where the debug information of the same program says that they are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use profiler_sidecar::capture::{Source, Variables};

use crate::programs;
use crate::running::Running;

/// Check each variable of each version: by symbols, and by the code of the same program without them.
#[test]
fn variables_are_where_dwarf_says() {
    for version in programs::VERSIONS {
        let program = programs::build("parked", version, &[], "amd64");
        let expected = told(&program);
        assert_eq!(found(&program), expected, "{version}");
        let stripped = without_symbols(&program);
        assert_eq!(found(&stripped), expected, "{version}, by its code");
        std::fs::remove_file(stripped).unwrap();
    }
}

/// Check that a program whose code was not optimized has its variables, by its symbols.
#[test]
fn variables_of_a_program_for_a_debugger_are_found() {
    let program = programs::build("parked", programs::VERSIONS[6], &["-gcflags=all=-N -l"], "amd64");
    let (found, expected) = (found(&program), told(&program));
    assert_eq!(Variables { collections: expected.collections, ..found }, expected);
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
    }
}

/// What is found in a process of the program.
fn found(program: &Path) -> Variables {
    let running = Running::start(program, &[]);
    *Source::find(running.pid()).unwrap().variables()
}

/// The same program, whose symbol table is no longer said to be one. Source: elf(5), `e_shoff`, `e_shentsize`, `e_shnum`, `SHT_SYMTAB`. Another process writes
/// it: who starts a process here would hold it open, and it could not be run.
fn without_symbols(program: &Path) -> PathBuf {
    let mut elf = std::fs::read(program).unwrap();
    let word = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes([elf[at], elf[at + 1]]));
    let headers = (0..half(0x3c)).map(|number| word(0x28) + number * half(0x3a));
    let table = headers.into_iter().find(|header| elf[header + 4..header + 8] == [2, 0, 0, 0]).unwrap();
    elf[table + 4] = 1;
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
