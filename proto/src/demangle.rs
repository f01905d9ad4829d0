//! Names of functions as people write them.
//!
//! In: what symbol tables and debug information call a function, which may be anything. Out: the demangled name, bounded in length and in the work that it
//! takes, and the language that its mangling is of. Pure: the clock is an argument.

use std::fmt::{self, Write};
use std::time::Duration;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Longest C++ name that is demangled.
const MAX_CPP: usize = 1 << 10;
/// How deep its parts may be nested. `cpp_demangle` tries a malformed name again at each level, some in four ways: with these bounds the worst that was found takes
/// 0.7 s; with its own of 96 levels, one of 184 bytes took minutes and gigabytes. Of the names of LLVM and Clang one in 240 is nested deeper.
const MAX_DEPTH: u32 = 48;
/// Most arguments of templates, in a name with a conversion operator, that may belong to a parameter of a template: they are
/// read twice at each level.
const MAX_CONVERSIONS: usize = 8;
/// Most letters in a name that may be `new`, or `new[]`: what is behind one is read twice. Of 43,000 names of LLVM and the C++ library none has as many.
const MAX_NEW: usize = 8;
/// What a name may take. What it takes beyond that is taken off the file's [`Patience`].
const USUAL: Duration = Duration::from_micros(100);

/// A name as people write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name; what is longer than it may be is cut, and ends with `…`.
    pub text: String,
    /// Whether its mangling is Rust's.
    pub is_rust: bool,
}

/// How long C++ names of one file may still be slow: one may take long, many would take for ever.
#[derive(Debug, Clone)]
pub struct Patience(Duration);

impl Patience {
    /// With names that take so long in all, beside the tenth of a millisecond that each may.
    #[must_use]
    pub const fn of(time: Duration) -> Self {
        Self(time)
    }

    /// None: C++ names are left as they are.
    #[must_use]
    pub const fn none() -> Self {
        Self(Duration::ZERO)
    }

    /// Whether there is none left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_zero()
    }
}

/// Rust names (both manglings) without their hash, C++ names as long as there is `patience`, and everything else as it is; of at most `most` bytes, and `…`.
///
/// `clock`: a time that goes forward, such as that since a start, or the CPU time of the thread.
#[must_use]
pub fn demangled(name: &str, most: usize, patience: &mut Patience, clock: impl Fn() -> Duration) -> Name {
    let mut text = Cut::of(most);
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // The only error is that it was cut.
        let _cut = write!(text, "{rust:#}");
        return Name { text: text.finish(), is_rust: true };
    }
    // A few bytes can stand for a name of any length: it is cut while it is written.
    let is_tried = name.starts_with("_Z") && name.len() <= MAX_CPP && !patience.is_over() && !multiplies(name);
    let mut is_cpp = false;
    if is_tried {
        let begin = clock();
        is_cpp = write_cpp(name, &mut text).is_some();
        patience.0 = patience.0.saturating_sub(clock().saturating_sub(begin).saturating_sub(USUAL));
    }
    if !is_cpp {
        text = Cut::of(most);
        let _cut = text.write_str(name);
    }
    Name { text: text.finish(), is_rust: false }
}

/// Whether a linker's name is a Rust one.
#[must_use]
pub fn is_rust(name: &str) -> bool {
    rustc_demangle::try_demangle(name).is_ok()
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

/// Text up to so many bytes.
struct Cut {
    text: String,
    most: usize,
    is_full: bool,
}

impl Cut {
    fn of(most: usize) -> Self {
        Self { text: String::new(), most, is_full: false }
    }

    fn finish(self) -> String {
        if self.is_full { self.text + "…" } else { self.text }
    }
}

impl Write for Cut {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let fits = more.floor_char_boundary(self.most.saturating_sub(self.text.len()));
        self.text.push_str(&more[..fits]);
        self.is_full |= fits < more.len();
        if self.is_full { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MOST: usize = 8 << 10;
    const LONG: Duration = Duration::from_secs(1);

    fn stopped() -> Duration {
        Duration::ZERO
    }

    fn demangled(name: &str) -> String {
        super::demangled(name, MOST, &mut Patience::of(LONG), stopped).text
    }

    /// Check that names lose their mangling and their hash, and tell the language.
    #[test]
    fn names_are_demangled() {
        let named = |name: &str| {
            let Name { text, is_rust } = super::demangled(name, MOST, &mut Patience::of(LONG), stopped);
            assert_eq!(is_rust, super::is_rust(name));
            (text, is_rust)
        };
        for (name, shown, is_rust) in [
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad", true),
            ("_RNvC6_123foo3bar", "123foo::bar", true),
            ("_ZN3Foo3barEv", "Foo::bar()", false),
            ("malloc", "malloc", false),
        ] {
            assert_eq!(named(name), (shown.to_owned(), is_rust));
        }
    }

    /// What a fuzzer found: each level is tried in several ways, some ninety levels deep.
    const FOUND: &str = "_ZlStStStC1IiClStStC1IiColStStC1IiCoC1ioCCtIStC1IiColStStC1IiClStStC1IiColStStC1IiCoC1ioCCtI1CtStStC1IiClStStC1IiColStStC1IiCoC1ioCCtIStC1IiColStStC1IiClStStC1IiColStStC1IiCoC1ioCCtI11";

    /// Check that C++ names whose parts could be read in ever more ways are left as they are, at once, and others that are
    /// like them are demangled.
    #[test]
    fn names_that_would_take_for_ever_are_kept() {
        let nested = |times: usize| format!("_ZN1acv{}i{}EIiEEv", "T_I".repeat(times + 1), "EIE".repeat(times));
        let failing = |times: usize| format!("_Z1aIX{}{}mmdcL_Z", "nw".repeat(2 * times), "dt".repeat(times));
        let news = |times: usize| format!("_Z1aIX{}Evv", "na".repeat(times));
        for name in [nested(25), failing(16), news(34), format!("_Z1fI{}vEvv", "1aI".repeat(90)), FOUND.to_owned()] {
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

    /// Check that where patience with C++ names is over, those are kept as they are, and that slow ones take it, well-formed or not; quick ones and others do not.
    #[test]
    fn patience_is_for_cpp_names_that_are_slow() {
        let time = Cell::new(Duration::ZERO);
        let within = |name: &str, patience: &mut Patience, takes: Duration| {
            let clock = || time.replace(time.get() + takes);
            super::demangled(name, MOST, patience, clock).text
        };
        let mut none = Patience::none();
        assert_eq!(within("_ZN3Foo3barEv", &mut none, USUAL), "_ZN3Foo3barEv");
        assert_eq!(within("_RNvC6_123foo3bar", &mut none, USUAL), "123foo::bar");
        let mut some = Patience::of(LONG);
        for name in ["_ZN3Foo3barEv", "_RNvC6_123foo3bar", "malloc"].into_iter().cycle().take(10_000) {
            let takes = if name.starts_with("_ZN") { USUAL } else { LONG };
            assert_ne!(within(name, &mut some, takes), "_ZN3Foo3barEv");
        }
        let slow = ["_ZN3Foo3barEv", "_ZN3Foo3bar"].into_iter().cycle().take(50);
        slow.for_each(|name| _ = within(name, &mut some, LONG / 50 + USUAL));
        assert!(some.is_over());
        assert_eq!(within("_ZN3Foo3barEv", &mut some, USUAL), "_ZN3Foo3barEv");
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
            assert!(demangled.len() <= MOST + "…".len() && demangled.ends_with('…'), "{name:.40} {demangled:.40}");
        }
        assert!(demangled(&"é".repeat(10_000)).ends_with("é…"));
        for name in ["_Z", "_ZN", "_R", "_RNvC", "_ZZ", "", "é"] {
            assert_eq!(demangled(name), name);
        }
    }
}
