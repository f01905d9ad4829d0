//! What the signal handler can reach, read from the machine code: no allocator, no lock, no part of the standard library.
//!
//! In: a debug build of a program with the profiler in it, in which nothing is inlined, through `objdump`, `readelf` and
//! `nm`. Out: every function that a chain of calls leads to from the handler is one of the few modules that are written for
//! it, of `core`, or one of the C library's that only move bytes. Functions whose address is taken count as called.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, Cursor};
use std::process::{Command, Stdio};

/// The handler.
const ROOT: &str = "profiler::cpu::handler::on_sigprof";
/// What may be reached: the modules written for the handler, and `core`, which has no allocator and no locks.
const MODULES: [&str; 5] = ["profiler::context", "profiler::cpu", "profiler::others", "profiler::unwind", "core::"];
/// Functions of the C library that only move bytes, the one that reads a word of the thread's descriptor, and one of `core` under the name of its
/// type.
const FUNCTIONS: [&str; 7] =
    ["memcpy", "memmove", "memset", "memcmp", "bcmp", "pthread_getspecific", "<[u8]>::starts_with"];
/// Where a chain ends: what never returns, for it reports a bug of ours.
const ENDS: [&str; 5] = ["panic", "unwrap_failed", "expect_failed", "_fail", "_Unwind_Resume"];

/// A function: in the program, by its address, or in a library, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Function {
    Here(u64),
    Library(String),
}

fn lines(tool: &str, arguments: &[&str]) -> impl Iterator<Item = String> {
    let program = env!("CARGO_BIN_EXE_torture");
    let output = Command::new(tool).args(arguments).arg(program).stderr(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{tool}, which comes with the linker: {error}"));
    Cursor::new(output.stdout).lines().map_while(Result::ok)
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Names of the program's functions by address.
fn names() -> BTreeMap<u64, String> {
    let symbol = |line: String| {
        let (start, rest) = line.split_once(' ')?;
        let (kind, name) = rest.split_once(' ')?;
        matches!(kind, "t" | "T" | "w" | "W").then_some((address(start)?, name.to_owned()))
    };
    lines("nm", &["--demangle"]).filter_map(symbol).collect()
}

/// What the dynamic linker writes where: addresses of functions, here or in a library.
fn pointers() -> HashMap<u64, Function> {
    let relocation = |line: String| {
        let mut words = line.split_whitespace();
        let (place, kind) = (address(words.next()?)?, words.nth(1)?);
        let target = match kind {
            "R_X86_64_RELATIVE" => Function::Here(address(words.next()?)?),
            "R_X86_64_GLOB_DAT" | "R_X86_64_JUMP_SLOT" => {
                Function::Library(words.nth(1)?.split('@').next()?.to_owned())
            }
            _ => return None,
        };
        Some((place, target))
    };
    lines("readelf", &["--relocs", "--wide"]).filter_map(relocation).collect()
}

/// Which function names which others: in calls, in jumps, and where an address is taken.
fn edges(names: &BTreeMap<u64, String>, pointers: &HashMap<u64, Function>) -> HashMap<u64, BTreeSet<Function>> {
    let mut edges: HashMap<u64, BTreeSet<Function>> = HashMap::new();
    let mut current = 0;
    for line in lines("objdump", &["--disassemble", "--no-show-raw-insn"]) {
        if let Some(start) = line.strip_suffix(">:").and_then(|line| address(line.split_once(' ')?.0)) {
            current = start;
        } else if let Some(target) = target(&line, names, pointers) {
            edges.entry(current).or_default().insert(target);
        }
    }
    edges
}

/// The function that an instruction names. `…  call   1b2f40 <name>` or `…  mov  0x2f(%rip),%rax  # 1b2f40 <name>`: the word
/// before the last `<` is an address, of a function or of a pointer to one.
fn target(line: &str, names: &BTreeMap<u64, String>, pointers: &HashMap<u64, Function>) -> Option<Function> {
    let (before, name) = line.rsplit_once(" <")?;
    let place = address(before.rsplit([' ', '\t']).next()?)?;
    match pointers.get(&place) {
        Some(function) if before.contains("# ") => Some(function.clone()),
        // Without `+0x…` behind the name: a jump within the function itself has that.
        _ => (!name.contains('+') && names.contains_key(&place)).then_some(Function::Here(place)),
    }
}

/// Whether a function may be reached. A trait of `core` on whatever type is allowed too (`<[T; N] as core::…>::…`): one that
/// allocates or locks has to call something that is not.
fn is_allowed(name: &str) -> bool {
    let path = name.trim_start_matches('<');
    MODULES.iter().any(|module| path.starts_with(module)) || name.contains(" as core::") || FUNCTIONS.contains(&name)
}

/// Check that from the handler only code written for it can be reached.
#[test]
fn the_handler_reaches_nothing_that_allocates_or_locks() {
    let (names, pointers) = (names(), pointers());
    let edges = edges(&names, &pointers);
    let root = names.iter().find(|(_, name)| *name == ROOT).expect("there is no handler");
    let (mut reached, mut open) = (BTreeSet::new(), vec![Function::Here(*root.0)]);
    let mut wrong = BTreeSet::new();
    while let Some(function) = open.pop() {
        let name = match &function {
            Function::Library(name) => name.as_str(),
            // Addresses of data are taken too.
            Function::Here(start) => match names.get(start) {
                Some(name) => name.as_str(),
                None => continue,
            },
        };
        if ENDS.iter().any(|end| name.contains(end)) || !reached.insert(function.clone()) {
            continue;
        }
        if !is_allowed(name) {
            wrong.insert(name.to_owned());
        }
        if let Function::Here(start) = function {
            open.extend(edges.get(&start).into_iter().flatten().cloned());
        }
    }
    assert!(reached.len() > 100, "only {} functions were found", reached.len());
    assert!(wrong.is_empty(), "the handler can reach {wrong:#?}");
}
