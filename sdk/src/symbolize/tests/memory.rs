//! How much memory symbolizing takes, measured in a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::{Folders, Symbolizer};
use super::build::{Folder, functions, loaded, tool};
use super::learn;
use crate::unwind::modules::Modules;

/// Tells what else to measure.
const VARIABLE: &str = "PROFILER_TEST_SYMBOLIZE";
/// Tells a child the file that has a program's path and the addresses.
const LIST: &str = "PROFILER_TEST_SYMBOLIZE_LIST";
/// Addresses that are symbolized, spread over all functions.
const ADDRESSES: usize = 3000;
/// Most KiB that may come while symbolizing: pages of four open files, the index of one, the cache (8 MiB), what the
/// allocator keeps; none of it grows with the debug information.
const MOST_KIB: u64 = 16 << 10;
/// Most KiB that may stay: the cache, and what the allocator keeps.
const MOST_LEFT_KIB: u64 = 12 << 10;

/// A figure of `/proc/self/status`, in KiB.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Check that symbolizing addresses all over this test, which has tens of megabytes of debug information, takes little
/// memory at its peak and gives back what the names do not need. Resident memory counts whole, file pages too. Another
/// program is measured with `PROFILER_TEST_SYMBOLIZE=/path/to/it`.
#[test]
fn memory_is_bounded_and_given_back() {
    if let Some(list) = std::env::var_os(LIST) {
        return measure(Path::new(&list));
    }
    let another = std::env::var_os(VARIABLE).map(PathBuf::from);
    measure_in_a_child(&another.unwrap_or_else(|| std::env::current_exe().unwrap()));
}

/// Check the same of a library of more than a hundred megabytes, all of whose functions have debug information in full.
#[test]
fn memory_does_not_grow_with_debug_information() {
    let folder = Folder::new();
    let library = folder.large("large.so", 500);
    let length = fs::metadata(&library).unwrap().len();
    assert!(length > 100 << 20, "it has only {length} bytes");
    measure_in_a_child(&library);
}

/// The list of functions is made here: what it leaves in the allocator must not serve what is measured.
fn measure_in_a_child(program: &Path) {
    let functions = functions(program);
    let step = (functions.len() / ADDRESSES).max(1);
    let mut list = format!("{}\n", program.display());
    functions.iter().step_by(step).for_each(|(_, start, end)| list += &format!("{}\n", (start + end) / 2));
    let folder = Folder::new();
    let path = folder.0.join("addresses");
    fs::write(&path, list).unwrap();
    let name = "symbolize::tests::memory::memory_is_bounded_and_given_back";
    let mut child = Command::new(std::env::current_exe().unwrap());
    print!("{}", tool(child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(LIST, path)));
}

fn measure(list: &Path) {
    let list = fs::read_to_string(list).unwrap();
    let (program, wanted) = list.split_once('\n').unwrap();
    let program = Path::new(program);
    let mut wanted: Vec<u64> = wanted.lines().map(|address| address.parse().unwrap()).collect();
    wanted.dedup();
    assert!(wanted.len() > 1000, "{}", wanted.len());
    let modules = Modules::only(loaded(program));
    let mut symbolizer = Symbolizer::new(Some(Folders::new(&|_| None)));
    // Source: proc(5), `/proc/pid/clear_refs`: 5 resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    learn(&mut symbolizer, &wanted, &modules);
    let added = status("VmHWM").saturating_sub(before);
    (0..super::super::MAX_IDLE).for_each(|_| learn(&mut symbolizer, &wanted, &modules));
    assert!(symbolizer.open.is_empty());
    let left = status("VmRSS").saturating_sub(before);
    let file = fs::metadata(program).unwrap().len() >> 20;
    println!("{} addresses of {file} MiB: {added} KiB at the peak, {left} KiB after", wanted.len());
    let with_lines = wanted.iter().filter(|address| symbolizer.symbol(**address, &modules).frames[0].line > 0).count();
    // Ours have; those of dependencies are built without.
    assert!(with_lines > wanted.len() / 4, "{with_lines} of {} have lines", wanted.len());
    assert!(added <= MOST_KIB && left <= MOST_LEFT_KIB, "{added} KiB at the peak, {left} KiB after");
}
