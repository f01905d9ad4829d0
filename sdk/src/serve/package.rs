//! Whose code a function is: the crate, library or kernel that a frame is coloured and grouped by.
//!
//! In: a demangled name and the file that is mapped there. Out: a package and what sort of code it is. Pure text work;
//! the names of Rust functions are those of RFC 2603 (v0) and of the legacy scheme, as demanglers write them.

/// What sort of code a frame is; the number is the `kind` of `/api/profile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sort {
    /// The profiled program's own crates.
    Own = 0,
    /// `core`, `alloc`, `std` and what the compiler adds.
    Std = 1,
    /// Another crate.
    Dependency = 2,
    /// C and C++: libc, other shared objects, what is linked in.
    Native = 3,
    /// The kernel.
    Kernel = 4,
    /// An address that has no name.
    Unresolved = 5,
    /// No code: a process, at the root of all that ran in it. (6 is what the page tells from other dependencies.)
    Process = 7,
}

/// The crates that come with the compiler.
const STD: [&str; 9] =
    ["core", "core_arch", "alloc", "std", "proc_macro", "test", "panic_unwind", "std_detect", "compiler_builtins"];

/// The first parts of the paths of Go's standard library (`go list std`, Go 1.26).
const GO_STD: [&str; 50] = [
    "archive",
    "bufio",
    "builtin",
    "bytes",
    "cmp",
    "compress",
    "container",
    "context",
    "crypto",
    "database",
    "debug",
    "embed",
    "encoding",
    "errors",
    "expvar",
    "flag",
    "fmt",
    "go",
    "hash",
    "html",
    "image",
    "index",
    "internal",
    "io",
    "iter",
    "log",
    "maps",
    "math",
    "mime",
    "net",
    "os",
    "path",
    "plugin",
    "reflect",
    "regexp",
    "runtime",
    "slices",
    "sort",
    "strconv",
    "strings",
    "structs",
    "sync",
    "syscall",
    "testing",
    "text",
    "time",
    "unicode",
    "unique",
    "unsafe",
    "weak",
];

/// How many types inside types are looked through for a name; real names need two or three.
const NESTING: u8 = 8;

/// The package of the function `name` in the mapped file `file`, and its sort; what is [`Sort::Dependency`] here may
/// turn out to be the program's own, which its name does not tell.
pub(super) fn of<'a>(name: &'a str, file: &'a str) -> (&'a str, Sort) {
    let file = base_name(file);
    if is_kernel(file) {
        return ("kernel", Sort::Kernel);
    }
    if is_unresolved(name, file) || is_marker(name, file) {
        return (file, Sort::Unresolved);
    }
    match rust_crate(name, NESTING) {
        Some(_) if is_cpp_runtime(file) => (file, Sort::Native),
        Some(krate) if krate.starts_with("__rustc") => ("std", Sort::Std),
        Some(krate) if is_std(krate) => (krate, Sort::Std),
        Some(krate) => (krate, Sort::Dependency),
        None if is_compiler_symbol(name) => ("std", Sort::Std),
        None if file.is_empty() => ("native", Sort::Native),
        None => (file, Sort::Native),
    }
}

/// The same for a function whose source file is known to be Go's.
///
/// A name is the path of its package, a dot, and what is in it: `net/http.(*conn).serve`, `github.com/x/y.Map[...].Put`, dots in the last
/// part of a path being written `%2e` (Go 1.26, `cmd/internal/objabi/path.go`, `PathToPrefix`). What is `main` is the program's own.
pub(super) fn of_go<'a>(name: &'a str, file: &'a str) -> (&'a str, Sort) {
    let file = base_name(file);
    match go_package(name) {
        None if is_unresolved(name, file) || is_marker(name, file) => (file, Sort::Unresolved),
        // Type equality, hash functions, wrappers: what the compiler made.
        None => ("runtime", Sort::Std),
        Some("main") => ("main", Sort::Own),
        Some(package) if package.split('/').next().is_some_and(|first| GO_STD.contains(&first)) => (package, Sort::Std),
        Some(package) => (package, Sort::Dependency),
    }
}

/// The path in front of the first dot behind the last slash, slashes and dots in brackets (types) left aside.
fn go_package(name: &str) -> Option<&str> {
    let path = &name[..name.find(['[', '(', ' ', ':']).unwrap_or(name.len())];
    let last = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = last + path[last..].find('.')?;
    (dot > last).then(|| &path[..dot])
}

/// Whether a source file is Go's, or assembly of a Go package.
pub(super) fn is_go_source(file: &str) -> bool {
    file.ends_with(".go") || (file.ends_with(".s") && file.contains("/src/"))
}

/// Whether a source file is the program's own: not the compiler's, not a registry's, not a git dependency's.
pub(super) fn is_own_source(file: &str) -> bool {
    const FOREIGN: [&str; 9] = [
        // Go's modules.
        "/pkg/mod/",
        "/rustc/",
        "/rustc-",
        "/rustlib/",
        "/rust/deps/",
        "/registry/src/",
        "/git/checkouts/",
        "/cargo/registry/",
        "/vendor/",
    ];
    let relative_std = ["library/", "vendor/"].iter().any(|prefix| file.starts_with(prefix));
    // Built with `-trimpath`, a file of a module stands in `path@version/`.
    let is_source = file.ends_with(".rs") || (file.ends_with(".go") && !file.contains("@v"));
    !file.is_empty() && !relative_std && is_source && !FOREIGN.iter().any(|part| file.contains(part))
}

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The name of the crate that cargo builds an executable from: `shop-1a2b3c4d5e6f7a8b` (a test binary) is `shop`.
pub(super) fn crate_of_executable(path: &str) -> String {
    let name = base_name(path);
    let name = match name.rsplit_once('-') {
        Some((stem, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => stem,
        _ => name,
    };
    name.replace('-', "_")
}

fn is_std(krate: &str) -> bool {
    STD.contains(&krate) || krate.starts_with("__rustc")
}

/// Symbols without a path that come with Rust's runtime.
fn is_compiler_symbol(name: &str) -> bool {
    ["__rust_", "rust_begin_unwind", "rust_eh_personality", "rust_panic", "__rdl_", "__rg_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn is_kernel(file: &str) -> bool {
    file.starts_with("[kernel") || file.starts_with("[guest.kernel") || file == "kernel" || file.starts_with("vmlinux")
}

/// `std::` in there is C++'s.
fn is_cpp_runtime(file: &str) -> bool {
    file.starts_with("libstdc++") || file.starts_with("libc++")
}

/// No name, or the stand-in `<file>+0x<offset>`.
fn is_unresolved(name: &str, file: &str) -> bool {
    let offset = name.strip_prefix(file).and_then(|rest| rest.strip_prefix("+0x"));
    name.is_empty() || offset.is_some_and(|hex| !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// No place in the code but a remark of whoever took the stack: `[frames left out]`.
fn is_marker(name: &str, file: &str) -> bool {
    file.is_empty() && name.starts_with('[') && name.ends_with(']')
}

/// The crate that a demangled name belongs to; `None` for a name without a path, or one nested deeper than `nesting`.
fn rust_crate(name: &str, nesting: u8) -> Option<&str> {
    match name.strip_prefix('<') {
        Some(inner) => crate_of_impl(inner, nesting.checked_sub(1)?),
        None => first_segment(name),
    }
}

/// The crate of `Type as Trait>::method`: the type's, and the trait's where the type is a primitive or the standard
/// library's. By the rule of orphans, an implementation stands with the one or the other.
fn crate_of_impl(inner: &str, nesting: u8) -> Option<&str> {
    let (of_type, of_trait) = type_and_trait(inner);
    let of_type = rust_crate(without_sigils(of_type), nesting);
    let of_trait = of_trait.and_then(|path| rust_crate(path, nesting));
    let first_foreign = [of_type, of_trait].into_iter().flatten().find(|krate| !is_std(krate));
    first_foreign.or(of_type).or(of_trait)
}

/// Splits `Type as Trait>::…` (or `impl Trait for Type>::…`) at the bracket's own level.
fn type_and_trait(inner: &str) -> (&str, Option<&str>) {
    let inner = &inner[..end_of_bracket(inner)];
    if let Some(rest) = inner.strip_prefix("impl ") {
        return match split_at_level(rest, " for ") {
            Some((of_trait, of_type)) => (of_type, Some(of_trait)),
            None => (rest, None),
        };
    }
    match split_at_level(inner, " as ") {
        Some((of_type, of_trait)) => (of_type, Some(of_trait)),
        None => (inner, None),
    }
}

/// Where the bracket that was opened before `text` closes; the end if it does not.
fn end_of_bracket(text: &str) -> usize {
    levels(text).find(|(_, depth)| *depth < 0).map_or(text.len(), |(at, _)| at)
}

/// Splits at the first `separator` outside of any bracket.
fn split_at_level<'a>(text: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let outside = |(at, depth): (usize, i32)| (depth == 0 && text[at..].starts_with(separator)).then_some(at);
    let at = levels(text).find_map(outside)?;
    Some((&text[..at], &text[at + separator.len()..]))
}

/// Every character's position with the depth of brackets behind it; the `>` of an arrow closes nothing.
fn levels(text: &str) -> impl Iterator<Item = (usize, i32)> + '_ {
    text.char_indices().scan((0, ' '), |(depth, before), (at, char)| {
        match char {
            '<' | '(' | '[' | '{' => *depth += 1,
            '>' if *before == '-' => {}
            '>' | ')' | ']' | '}' => *depth -= 1,
            _ => {}
        }
        *before = char;
        Some((at, *depth))
    })
}

/// A type without references, pointers, slices and tuples around its first name.
fn without_sigils(mut path: &str) -> &str {
    const SIGILS: [&str; 8] = ["&", "*const ", "*mut ", "mut ", "dyn ", "[", "(", " "];
    while let Some(rest) = SIGILS.iter().find_map(|sigil| path.strip_prefix(sigil)) {
        path = rest;
    }
    path
}

/// The identifier before the first `::`; v0's crate hash (`core[1a2b]`) is not part of it.
fn first_segment(path: &str) -> Option<&str> {
    let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(path.len());
    let (segment, rest) = path.split_at(end);
    let rest = match rest.strip_prefix('[') {
        Some(hash) => hash.split_once(']').map_or("", |(_, rest)| rest),
        None => rest,
    };
    (!segment.is_empty() && rest.starts_with("::")).then_some(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str) -> (&str, Sort) {
        of(name, "/usr/bin/shop")
    }

    /// Check that plain paths belong to their first segment.
    #[test]
    fn a_path_belongs_to_its_first_segment() {
        assert_eq!(package("shop::pricing::price"), ("shop", Sort::Dependency));
        assert_eq!(package("tokio::runtime::task::raw::poll::<F, S>"), ("tokio", Sort::Dependency));
        assert_eq!(package("core::ptr::drop_in_place::<shop::Order>"), ("core", Sort::Std));
        assert_eq!(package("alloc[57f2]::raw_vec::finish_grow"), ("alloc", Sort::Std));
        assert_eq!(package("__rustc::__rust_alloc"), ("std", Sort::Std));
        assert_eq!(package("__rust_begin_short_backtrace"), ("std", Sort::Std));
        assert_eq!(package("shop::main::{{closure}}"), ("shop", Sort::Dependency));
    }

    /// Check that an implementation belongs to its type, and to its trait where the type is the standard library's.
    #[test]
    fn an_implementation_belongs_to_its_type_or_trait() {
        assert_eq!(package("<tokio::runtime::Handle>::block_on").0, "tokio");
        assert_eq!(package("<tokio::task::Core<T, S> as core::future::Future>::poll").0, "tokio");
        assert_eq!(package("<shop::Order as serde::Serialize>::serialize::<X>").0, "shop");
        assert_eq!(package("<&mut hyper::proto::Conn<I> as core::future::Future>::poll").0, "hyper");
        assert_eq!(package("<alloc::vec::Vec<T> as serde::Serialize>::serialize").0, "serde");
        assert_eq!(package("<alloc::vec::Vec<shop::Item> as core::clone::Clone>::clone"), ("alloc", Sort::Std));
        assert_eq!(package("<[u8] as sha2::Block>::compress").0, "sha2");
        assert_eq!(package("<u64 as core::fmt::Display>::fmt"), ("core", Sort::Std));
        assert_eq!(package("<T as core::convert::Into<U>>::into"), ("core", Sort::Std));
        assert_eq!(package("<dyn shop::Rule as shop::Named>::name").0, "shop");
        assert_eq!(package("<impl core::fmt::Display for shop::Order>::fmt").0, "shop");
        assert_eq!(package("shop::<impl core::fmt::Display for shop::Order>::fmt").0, "shop");
        assert_eq!(package("<<shop::Order as shop::Sum>::Total as core::ops::Add>::add").0, "shop");
        assert_eq!(package("<fn(&u8) -> bool as regex::Test>::test").0, "regex");
        assert_eq!(package("<(hyper::A, tokio::B) as core::cmp::Ord>::cmp").0, "hyper");
    }

    /// Check that C functions belong to the file that they are mapped from.
    #[test]
    fn a_c_function_belongs_to_its_file() {
        assert_eq!(of("__memcpy_avx2", "/lib/x86_64-linux-gnu/libc.so.6"), ("libc.so.6", Sort::Native));
        assert_eq!(of("clock_gettime", "[vdso]"), ("[vdso]", Sort::Native));
        assert_eq!(of("main", "/usr/bin/shop"), ("shop", Sort::Native));
        assert_eq!(of("zstd_compress", ""), ("native", Sort::Native));
        assert_eq!(of("std::__1::basic_string::append", "/usr/lib/libc++.so.1"), ("libc++.so.1", Sort::Native));
        assert_eq!(of("do_syscall_64", "[kernel.kallsyms]"), ("kernel", Sort::Kernel));
    }

    /// Check that stand-ins for names are told from names.
    #[test]
    fn a_stand_in_is_unresolved() {
        assert_eq!(of("libc.so.6+0x28b0", "/lib/libc.so.6"), ("libc.so.6", Sort::Unresolved));
        assert_eq!(of("", "/usr/bin/shop"), ("shop", Sort::Unresolved));
        assert_eq!(of("[frames left out]", ""), ("", Sort::Unresolved));
        assert_eq!(of("libc.so.6+0x", "/lib/libc.so.6").1, Sort::Native);
    }

    /// Check that odd names end in a package, not in a panic or an endless loop.
    #[test]
    fn odd_names_are_native() {
        for name in ["<", "<<<<", "<a as", ">>::x", "::", "é", "<&&&", "a[b", "<impl  for >::x", "{closure#0}"] {
            assert_eq!(package(name), ("shop", Sort::Native), "{name}");
        }
        assert_eq!(package(&"<".repeat(1_000_000)), ("shop", Sort::Native));
    }

    /// Check that the program's own sources are told from the compiler's and from dependencies'.
    #[test]
    fn own_sources_are_told_from_others() {
        assert!(is_own_source("src/main.rs") && is_own_source("/home/me/shop/pricing/src/lib.rs"));
        for foreign in [
            "",
            "/rustc/1a2b/library/core/src/ptr/mod.rs",
            "library/std/src/rt.rs",
            "/rust/deps/hashbrown-0.16.1/src/raw.rs",
            "/usr/src/rustc-1.96.0/library/std/src/rt.rs",
            "/home/me/.cargo/registry/src/index-1/tokio-1.54.1/src/lib.rs",
            "/home/me/.cargo/git/checkouts/x-1/2/src/lib.rs",
            "../sysdeps/x86_64/memcpy.S",
        ] {
            assert!(!is_own_source(foreign), "{foreign}");
        }
    }

    /// Check that the crate of an executable is found, test binaries included.
    #[test]
    fn an_executable_names_its_crate() {
        assert_eq!(crate_of_executable("/usr/bin/web-shop"), "web_shop");
        assert_eq!(crate_of_executable("target/debug/deps/serve-0123456789abcdef"), "serve");
    }
    /// Check that a function of Go belongs to the path of its package, and that the standard library, the program and modules are told
    /// apart.
    #[test]
    fn a_function_of_go_belongs_to_its_package() {
        let package = |name: &'static str| of_go(name, "/usr/bin/inventory");
        for (name, expected) in [
            ("main.main", ("main", Sort::Own)),
            ("main.(*Stock).Reserve.func1", ("main", Sort::Own)),
            ("runtime.mallocgc", ("runtime", Sort::Std)),
            ("net/http.(*conn).serve", ("net/http", Sort::Std)),
            ("internal/runtime/maps.(*Iter).Next", ("internal/runtime/maps", Sort::Std)),
            ("slices.SortFunc[go.shape.[]main.Item,go.shape.struct { main.a/b int }]", ("slices", Sort::Std)),
            ("github.com/x/y.(*T).M", ("github.com/x/y", Sort::Dependency)),
            ("github.com/x/y/v2.Map[go.shape.string,github.com/a/b.C].Put", ("github.com/x/y/v2", Sort::Dependency)),
            ("stock/shelf.Find", ("stock/shelf", Sort::Dependency)),
            ("gopkg.in/yaml%2ev3.Unmarshal", ("gopkg.in/yaml%2ev3", Sort::Dependency)),
            ("type:.eq.main.Key", ("runtime", Sort::Std)),
            ("gosave_systemstack_switch", ("runtime", Sort::Std)),
            ("inventory+0x1a", ("inventory", Sort::Unresolved)),
            ("", ("inventory", Sort::Unresolved)),
        ] {
            assert_eq!(package(name), expected, "{name}");
        }
        for odd in [".", "/", "a/.", "[", "é.é", "...", "/.a", "a/b[", "(x.y)"] {
            package(odd);
        }
        assert!(
            is_go_source("/usr/local/go/src/runtime/proc.go") && is_go_source("/usr/local/go/src/runtime/asm_amd64.s")
        );
        assert!(!is_go_source("src/main.rs") && !is_go_source("../sysdeps/x86_64/memcpy.S"));
    }

    /// Check that a module's sources are told from the program's, trimmed or not.
    #[test]
    fn sources_of_modules_are_told_from_the_programs() {
        assert!(is_own_source("/home/me/shop/stock/stock.go") && is_own_source("example.com/shop/stock/stock.go"));
        for foreign in [
            "/home/me/go/pkg/mod/github.com/x/y@v1.2.3/y.go",
            "github.com/x/y@v1.2.3/y.go",
            "/a/vendor/github.com/x/y.go",
        ] {
            assert!(!is_own_source(foreign), "{foreign}");
        }
    }
}
