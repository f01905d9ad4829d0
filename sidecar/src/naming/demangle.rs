//! Names of functions as people write them.
//!
//! In: what a symbol table calls a function, which may be anything. Out: the demangled name, bounded in length, and whether it is Rust's. Pure.

use std::fmt::{self, Write};

use super::frame::Kind;

/// Longest name that is shown; what is longer is cut and ends with `…`.
pub(super) const MAX_NAME: usize = 2048;

/// Rust names of both manglings without their hash, C++ names, and everything else as it is.
pub(super) fn demangled(name: &str) -> (String, Kind) {
    let mut text = Cut::default();
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // The only error is that it was cut.
        let _cut = write!(text, "{rust:#}");
        return (text.finish(), Kind::Rust);
    }
    // A few bytes can stand for a name of any length: it is cut while it is written.
    if name.starts_with("_Z") && name.len() <= MAX_NAME {
        let written = cpp_demangle::Symbol::new(name)
            .map(|symbol| symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::default()));
        if matches!(written, Ok(Ok(()))) || text.is_full {
            return (text.finish(), Kind::Native);
        }
        text = Cut::default();
    }
    let _cut = text.write_str(name);
    (text.finish(), Kind::Native)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names lose their mangling and their hash, and tell the language.
    #[test]
    fn names_are_demangled() {
        let rust = |name: &str| (name.to_owned(), Kind::Rust);
        let native = |name: &str| (name.to_owned(), Kind::Native);
        assert_eq!(demangled("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), rust("core::fmt::Formatter::pad"));
        assert_eq!(demangled("_RNvC6_123foo3bar"), rust("123foo::bar"));
        assert_eq!(demangled("_ZN3Foo3barEv"), native("Foo::bar()"));
        assert_eq!(demangled("malloc"), native("malloc"));
        assert_eq!(demangled("_Z"), native("_Z"));
        let long = demangled(&"é".repeat(5000)).0;
        assert!(long.len() <= MAX_NAME + 3 && long.ends_with('…'));
    }
}
