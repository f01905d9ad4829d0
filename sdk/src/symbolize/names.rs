//! Names of functions as people write them.
//!
//! In: what symbol tables and debug information call a function, which may be anything. Out: the demangled name, with its module
//! path, bounded in length and in the work that it takes.

use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Longest name that is shown; what is longer is cut and ends with `…`.
const MAX_NAME: usize = 8 << 10;

/// Longest C++ name that is demangled, and how deep its parts may be nested. Whoever reads a malformed one tries again at
/// each level, some in four ways; with these bounds the worst that was found takes 0.7 s. Of the names of LLVM and Clang one in
/// 240 is nested deeper.
const MAX_CPP: usize = 1 << 10;
const MAX_DEPTH: u32 = 48;
/// Most arguments of templates, in a name with a conversion operator, that may belong to a parameter of a template: they are
/// read twice at each level.
const MAX_CONVERSIONS: usize = 8;
/// Most letters in a name that may be `new`, or `new[]`: what is behind one is read twice. Of 43,000 names of LLVM and the C++ library none has as many.
const MAX_NEW: usize = 8;
/// How long the C++ names of a module may take beside what each may, hundreds of times what those take that are too deep.
const MAX_SLOW: Duration = Duration::from_millis(500);
/// What each may take.
const USUAL: Duration = Duration::from_micros(100);

/// How long C++ names may still be slow: one may take long, many would take for ever.
#[derive(Debug)]
pub(super) struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(MAX_SLOW)
    }
}

impl Patience {
    /// C++ names stay as they are.
    pub(super) fn none() -> Self {
        Self(Duration::ZERO)
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_zero()
    }
}

/// Rust names (both manglings) without their hash, C++ names, and everything else as it is.
pub(super) fn demangled(name: &str, patience: &mut Patience) -> String {
    let mut text = Cut::default();
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // The only error is that it was cut.
        let _cut = write!(text, "{rust:#}");
        return text.finish();
    }
    // A few bytes can stand for a name of any length: it is cut while it is written.
    let is_tried = name.starts_with("_Z") && name.len() <= MAX_CPP && !patience.is_over() && !multiplies(name);
    let begin = Instant::now();
    let is_cpp = is_tried && write_cpp(name, &mut text).is_some();
    if is_tried {
        patience.0 = patience.0.saturating_sub(begin.elapsed().saturating_sub(USUAL));
    }
    if !is_cpp {
        text = Cut::default();
        let _cut = text.write_str(name);
    }
    text.finish()
}

/// Whether a C++ name may take many times the time of one that is hardly shorter.
fn multiplies(name: &str) -> bool {
    let count = |what| name.matches(what).count();
    (name.contains("cv") && count("_I") > MAX_CONVERSIONS) || count("nw") + count("na") > MAX_NEW
}

/// A C++ name as people write it, if it is one.
fn write_cpp(name: &str, text: &mut Cut) -> Option<()> {
    let symbol = Symbol::new_with_options(name, &ParseOptions::default().recursion_limit(MAX_DEPTH)).ok()?;
    let written = symbol.structured_demangle(text, &DemangleOptions::default());
    (written.is_ok() || text.is_full).then_some(())
}

/// Text up to [`MAX_NAME`].
#[derive(Default)]
struct Cut {
    text: String,
    is_full: bool,
}

impl Cut {
    fn finish(self) -> String {
        if self.is_full { self.text + "…" } else { self.text }
    }
}

impl Write for Cut {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let fits = more.floor_char_boundary(MAX_NAME - self.text.len());
        self.text.push_str(&more[..fits]);
        self.is_full |= fits < more.len();
        if self.is_full { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Whether a linker's name is a Rust one.
pub(super) fn is_rust(name: &str) -> bool {
    rustc_demangle::try_demangle(name).is_ok()
}

/// The name of an inlined Rust function of which debug information tells the last part only, as line tables do:
/// `poll<T>` in `…/tokio-1.54.1/src/runtime/task/core.rs` becomes `tokio::runtime::task::core::poll<T>`. The path is the
/// module's, which is all that a file name tells: the type of a method is not in it.
pub(super) fn qualified(name: &str, file: &str) -> String {
    let head = name.split(['<', '{', '(']).next().unwrap_or_default();
    match module_path(file) {
        Some(path) if !head.contains("::") && !name.starts_with(['_', '<']) => format!("{path}::{name}"),
        _ => name.to_owned(),
    }
}

/// The module of a source file below some `src` folder of a package: `tokio::runtime::task`.
fn module_path(file: &str) -> Option<String> {
    let (package, inside) = file.rsplit_once("/src/")?;
    let package = without_version(package.rsplit('/').next()?).replace('-', "_");
    let inside = inside.strip_suffix(".rs")?;
    // A program below `src/bin` is a crate of its own.
    let program = inside.strip_prefix("bin/").map(|program| program.split_once('/').unwrap_or((program, "")));
    let (package, inside) = program.map_or((package, inside), |(name, inside)| (name.replace('-', "_"), inside));
    let modules = inside.split('/').filter(|part| !matches!(*part, "" | "lib" | "main" | "mod"));
    Some([package.as_str()].into_iter().chain(modules).collect::<Vec<_>>().join("::"))
}

/// `tokio` for `tokio-1.54.1`, as registries name the folders of packages.
fn without_version(folder: &str) -> &str {
    match folder.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demangled(name: &str) -> String {
        super::demangled(name, &mut Patience::default())
    }

    /// Check that names lose their mangling and their hash.
    #[test]
    fn names_are_demangled() {
        assert_eq!(demangled("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
        assert_eq!(demangled("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(demangled("_ZN3Foo3barEv"), "Foo::bar()");
        assert_eq!(demangled("malloc"), "malloc");
    }

    /// Check that C++ names whose parts could be read in ever more ways are left as they are, at once, and others that are
    /// like them are demangled.
    #[test]
    fn names_that_would_take_for_ever_are_kept() {
        let nested = |times: usize| format!("_ZN1acv{}i{}EIiEEv", "T_I".repeat(times + 1), "EIE".repeat(times));
        let failing = |times: usize| format!("_Z1aIX{}{}mmdcL_Z", "nw".repeat(2 * times), "dt".repeat(times));
        let news = |times: usize| format!("_Z1aIX{}Evv", "na".repeat(times));
        for name in [nested(25), failing(16), news(34), format!("_Z1fI{}vEvv", "1aI".repeat(90))] {
            assert_eq!(demangled(&name), name);
        }
        for (name, shown) in [
            ("_ZNK5ShelfcvbEv", "Shelf::operator bool() const"),
            ("_ZN5ShelfcvPT_IiEEv", "Shelf::operator int*<int>()"),
            ("_ZN5ShelfcvSt6vectorIiSaIiEEEv", "Shelf::operator std::vector<int, std::allocator<int> >()"),
        ] {
            assert_eq!(demangled(name), shown);
        }
    }

    /// Check that where patience with C++ names is over, those are kept as they are, and that slow ones take it, well-formed or not.
    #[test]
    fn patience_is_for_cpp_names_that_are_slow() {
        let mut none = Patience::none();
        assert_eq!(super::demangled("_ZN3Foo3barEv", &mut none), "_ZN3Foo3barEv");
        assert_eq!(super::demangled("_RNvC6_123foo3bar", &mut none), "123foo::bar");
        // Well-formed: eight times `new`, each of them tried as what it is not, too; by the thousand.
        let slow = format!("_Z1aIX{}{}EEvv", "na".repeat(MAX_NEW), "Li1E".repeat(2 * MAX_NEW + 1));
        let mut some = Patience(Duration::from_millis(5));
        assert!(super::demangled(&slow, &mut some).contains("new"));
        for name in [slow.as_str(), "_ZN3Foo3bar"].into_iter().cycle().take(20_000) {
            super::demangled(name, &mut some);
        }
        assert!(some.is_over());
    }

    /// Check that a name that is longer than any is cut, also where few bytes stand for it, and that odd ones are kept.
    #[test]
    fn names_have_an_end() {
        // Each pair is twice as long as the one before, `f(x, p<x, x>, p<p<x, x>, p<x, x>>, …)`, and takes a few bytes.
        let digit = |n: u32| char::from_digit(n, 36).unwrap().to_ascii_uppercase();
        let seen =
            |n: u32| if n < 36 { format!("S{}_", digit(n)) } else { format!("S{}{}_", digit(n / 36), digit(n % 36)) };
        let pair = |n: u32| if n == 0 { "S_".to_owned() } else { seen(2 * n - 1) };
        let doubling =
            |times| format!("_Z1f1x{}", (0..times).map(|n| format!("1pI{0}{0}E", pair(n))).collect::<String>());
        assert_eq!(demangled(&doubling(2)), "f(x, p<x, x>, p<p<x, x>, p<x, x> >)");
        for name in [doubling(30), format!("_ZN{}E", "1a".repeat(50_000)), "x".repeat(100_000)] {
            let demangled = demangled(&name);
            assert!(demangled.len() <= MAX_NAME + "…".len() && demangled.ends_with('…'), "{name:.40} {demangled:.40}");
        }
        assert!(demangled(&"é".repeat(10_000)).ends_with("é…"));
        for name in ["_Z", "_ZN", "_R", "_RNvC", "_ZZ", "", "é"] {
            assert_eq!(demangled(name), name);
        }
    }

    /// Check that a short name gets the path of its module, and a full one stays as it is.
    #[test]
    fn short_names_get_their_module() {
        for (name, file, full) in [
            (
                "poll<T>",
                "/x/registry/src/index-1/tokio-1.54.1/src/runtime/task/core.rs",
                "tokio::runtime::task::core::poll<T>",
            ),
            ("unwrap<&a::B>", "/rustc/0123/library/core/src/option.rs", "core::option::unwrap<&a::B>"),
            ("price", "examples/src/bin/shop/orders.rs", "shop::orders::price"),
            ("{closure#0}", "/home/me/my-service/src/main.rs", "my_service::{closure#0}"),
            ("core::fmt::write", "/rustc/0123/library/core/src/fmt/mod.rs", "core::fmt::write"),
            ("__memcpy", "/glibc/src/string/memcpy.c", "__memcpy"),
            ("main", "main.c", "main"),
            ("f", "", "f"),
        ] {
            assert_eq!(qualified(name, file), full);
        }
    }
}
