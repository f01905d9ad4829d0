//! Inputs for the tests: small programs, built as users build theirs.
//!
//! In: what to build. Out: files in a folder that goes when the test ends. A tool that is missing fails the test: the C
//! compiler and binutils are there wherever Rust can link.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::{Folders, Symbol, Symbolizer};
use super::learn;
use crate::unwind::modules::{Module, Modules};

/// Inlined calls, three deep, in C; one function has the name that a C++ compiler would give it.
const C: &str = r#"
static inline __attribute__((always_inline)) int innermost(int n) {
    volatile int kept = n * 3;
    return kept + 1;
}
static inline __attribute__((always_inline)) int inner(int n) {
    return innermost(n) ^
           innermost(n + 1);
}
__attribute__((noinline)) int outer(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += inner(i);
    return sum;
}
__attribute__((noinline)) int cpp(int n) __asm__("_ZN5store4findEi");
__attribute__((noinline)) int cpp(int n) { return outer(n) + 2; }
__attribute__((noinline)) static int hidden(int n) { return cpp(n) * 5; }
int entry(int n) { return hidden(n) - 7; }
"#;

/// The same in Rust, with a generic function and a closure.
const RUST: &str = r#"
#[inline(always)]
fn innermost<T: Copy + Into<u64>>(value: T) -> u64 {
    std::hint::black_box(value.into()) * 3
}
#[inline(always)]
fn inner(values: &[u32]) -> u64 {
    values.iter().map(|value| innermost(*value)).sum()
}
pub mod shelf {
    #[inline(never)]
    pub fn outer(values: &[u32]) -> u64 {
        super::inner(values) + super::innermost(values.len() as u32)
    }
}
fn main() {
    let values: Vec<u32> = (0..std::env::args().count() as u32).collect();
    println!("{}", shelf::outer(&values));
}
"#;

/// C++ with what names are made of there: namespaces, templates, operators, closures, parameters of the library's own types.
const CPP: &str = r#"
#include <cstdint>
#include <map>
#include <string>
#include <vector>
#define OUT __attribute__((noinline))
namespace store {
namespace {
OUT int local(const std::string &text) { return (int)text.size() * 3; }
}
struct Shelf {
    std::vector<int> places;
    OUT explicit Shelf(int n) : places(n, 1) {}
    OUT ~Shelf() { places.clear(); }
    OUT int operator[](unsigned long at) const { return places[at]; }
    OUT Shelf &operator+=(const Shelf &other) { places.push_back(other[0]); return *this; }
    OUT operator bool() const { return !places.empty(); }
    virtual OUT int find(const std::map<std::string, std::vector<int>> &by_name, int *const *found) const {
        return (int)by_name.size() + **found;
    }
};
template <typename T, int N> OUT T most(const T (&values)[N]) {
    T most = values[0];
    for (const T &value : values) most = value > most ? value : most;
    return most;
}
template <typename F> OUT auto twice(F &&work) -> decltype(work(1)) { return work(1) + work(2); }
inline __attribute__((always_inline)) int innermost(int n) { volatile int kept = n * 3; return kept + 1; }
inline __attribute__((always_inline)) int inner(int n) { return innermost(n) ^ innermost(n + 1); }
OUT int outer(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += inner(i);
    return sum;
}
}
extern "C" int entry(int n) {
    store::Shelf shelf(n), other(2);
    shelf += other;
    int numbers[3] = {n, 2, 3};
    long longs[2] = {n, 5};
    int *pointer = numbers;
    int sum = store::outer(n) + store::most(numbers) + (int)store::most(longs);
    sum += store::twice([n](int m) __attribute__((noinline)) { return n * m; });
    return shelf ? sum + shelf.find({}, &pointer) + store::local("text") : 0;
}
"#;

/// A function with an inlined one and a type of its own, of which as many are made as asked for.
const REPEATED: &str = r#"
#define FUNCTION(n) \
    struct s##n { struct s##n *next; int a##n; long b##n[4]; const char *name##n; double d##n; }; \
    static inline __attribute__((always_inline)) int inner##n(struct s##n *p, int k) { \
        int sum = p->a##n * k; \
        for (int i = 0; i < k; i++) sum += (int)p->b##n[i & 3] ^ i; \
        return sum; \
    } \
    static __attribute__((used, noinline)) int outer##n(struct s##n *p, int k) { \
        int x = inner##n(p, k), y = inner##n(p->next, k + 1); \
        p->d##n += x; \
        return x * y; \
    }
"#;

/// A folder for one test.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("profiler-symbols-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A library of C code.
    pub(super) fn c(&self, name: &str, flags: &[&str]) -> PathBuf {
        let (source, library) = (self.0.join("code.c"), self.0.join(name));
        std::fs::write(&source, C).unwrap();
        let mut gcc = Command::new("cc");
        gcc.args(["-shared", "-fPIC", "-O2", "-g", "-Wl,--build-id"]).args(flags).arg(source).arg("-o").arg(&library);
        tool(&mut gcc);
        library
    }

    /// A library of C++ code.
    pub(super) fn cpp(&self, name: &str, flags: &[&str]) -> PathBuf {
        let (source, library) = (self.0.join("code.cpp"), self.0.join(name));
        std::fs::write(&source, CPP).unwrap();
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-shared", "-fPIC", "-O1", "-g", "-Wl,--build-id"]);
        tool(compiler.args(flags).arg(source).arg("-o").arg(&library));
        library
    }

    /// A library with as many units of debug information, each of 200 functions: some 220 KB a unit.
    pub(super) fn large(&self, name: &str, units: usize) -> PathBuf {
        let (source, object, library) = (self.0.join("large.c"), self.0.join("large.o"), self.0.join(name));
        let functions: String = (0..200).map(|n| format!("FUNCTION({n})\n")).collect();
        std::fs::write(&source, [REPEATED, &functions].concat()).unwrap();
        tool(Command::new("cc").args(["-c", "-fPIC", "-O2", "-g", "-o"]).arg(&object).arg(source));
        // One object many times: nothing in it has a name that others see.
        let mut linker = Command::new("cc");
        linker.args(["-shared", "-Wl,--build-id", "-o"]).arg(&library).args(std::iter::repeat_n(&object, units));
        tool(&mut linker);
        library
    }

    /// A library of assembly.
    pub(super) fn assembly(&self, name: &str, code: &str) -> PathBuf {
        let (source, library) = (self.0.join("code.s"), self.0.join(name));
        std::fs::write(&source, code).unwrap();
        tool(Command::new("cc").args(["-shared", "-nostdlib", "-Wl,--build-id"]).arg(source).arg("-o").arg(&library));
        library
    }

    /// A Rust program.
    pub(super) fn rust(&self, name: &str, flags: &[&str]) -> PathBuf {
        let (source, program) = (self.0.join("code.rs"), self.0.join(name));
        std::fs::write(&source, RUST).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        tool(
            Command::new(rustc)
                .args(["-Copt-level=3", "-Cdebuginfo=2"])
                .args(flags)
                .arg(source)
                .arg("-o")
                .arg(&program),
        );
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is in the folder for temporary files.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Runs a tool to its end; what it said.
pub(super) fn tool(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; apt-get install g++ binutils"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(super) fn objcopy(flags: &[&str], files: &[&Path]) {
    tool(Command::new("objcopy").args(flags).args(files));
}

/// Addresses of functions: name, start, end.
pub(super) fn functions(file: &Path) -> Vec<(String, u64, u64)> {
    let listed = tool(Command::new("nm").args(["--defined-only", "--print-size"]).arg(file));
    let function = |line: &str| {
        let mut parts = line.split(' ');
        let start = u64::from_str_radix(parts.next()?, 16).ok()?;
        let size = u64::from_str_radix(parts.next()?, 16).ok()?;
        matches!(parts.next()?, "t" | "T" | "W").then(|| Some((parts.next()?.to_owned(), start, start + size)))?
    };
    let mut functions: Vec<_> = listed.lines().filter_map(function).collect();
    functions.sort_by_key(|(_, start, _)| *start);
    functions
}

/// Addresses of a section.
pub(super) fn section(file: &Path, name: &str) -> std::ops::Range<u64> {
    let listed = tool(Command::new("readelf").args(["-SW"]).arg(file));
    let line = listed.lines().find(|line| line.split_whitespace().any(|part| part == name)).unwrap();
    // Behind the name: type, address, offset, size.
    let mut parts = line.split_whitespace().skip_while(|part| *part != name).skip(2);
    let mut number = || u64::from_str_radix(parts.next().unwrap(), 16).unwrap();
    let (start, _, size) = (number(), number(), number());
    start..start + size
}

/// The file as if it were loaded at address 0.
pub(super) fn loaded(file: &Path) -> Module {
    loaded_as(file, super::super::elf::Elf::open(file).unwrap().build_id)
}

/// The same, of a build that may be another than the file's. Without a build id, its bytes are in memory.
pub(super) fn loaded_as(file: &Path, build_id: Option<String>) -> Module {
    let image: &[u8] = if build_id.is_none() { std::fs::read(file).unwrap().leak() } else { &[] };
    let bias = if build_id.is_none() { image.as_ptr() as u64 } else { 0 };
    let range = bias..bias + if build_id.is_none() { image.len() as u64 } else { 1 << 40 };
    Module {
        bias,
        path: Some(file.to_owned()),
        name: file.to_str().unwrap().to_owned(),
        code: range.clone(),
        segments: vec![range.clone()],
        range,
        code_offset: 0,
        build_id,
        file_id: std::sync::OnceLock::new(),
        unwind: None,
    }
}

/// What is said about these addresses of a module, as its file counts them.
pub(super) fn symbols(module: Module, folders: &Folders, wanted: &[u64]) -> Vec<Arc<Symbol>> {
    let wanted: Vec<u64> = wanted.iter().map(|address| address + module.bias).collect();
    let modules = Modules::only(module);
    let mut symbolizer = Symbolizer::new(Some(folders.clone()));
    learn(&mut symbolizer, &wanted, &modules);
    wanted.iter().map(|address| symbolizer.symbol(*address, &modules)).collect()
}
