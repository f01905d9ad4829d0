//! How much at the leaf of a stack of the heap is the allocator's, which nobody asked about: what Rust puts between the code that allocates and
//! jemalloc, and jemalloc's functions.
//!
//! In: the symbol at the leaf; whole functions that `heap::frames` knows by address are not there any more. Out: how many of its functions, innermost
//! first, are the allocator's. By name: what is inlined has no address of its own. Go does the same with functions of its runtime (1.26,
//! src/runtime/pprof/protomem.go, `writeHeapProto`). Pure.

use crate::symbolize::{Frame, Symbol};

/// Modules all of whose functions are the allocator's, one function beside them, and what the path of their files holds. Line tables tell of an inlined function its last name only: its
/// module is then that of its file, and a folder of the user's may have the same name.
///
/// Source: Rust 1.9x, library/alloc/src/alloc.rs, library/core/src/alloc and library/alloc/src/boxed.rs; tikv-jemallocator 0.6 and 0.7, src/lib.rs.
const MODULES: [(&str, &str); 4] = [
    ("alloc::alloc::", "/library/alloc/src/alloc.rs"),
    ("core::alloc::", "/library/core/src/alloc/"),
    ("alloc::boxed::box_new_uninit", "/library/alloc/src/boxed.rs"),
    ("tikv_jemallocator::", "/tikv-jemallocator-"),
];

/// What the compiler makes of `#[global_allocator]`, and what it calls.
///
/// Source: Rust 1.9x, compiler/rustc_ast/src/expand/allocator.rs, `global_fn_name` and `default_fn_name`.
const MADE: [&str; 6] =
    ["__rust_alloc", "__rust_alloc_zeroed", "__rust_realloc", "__rg_alloc", "__rg_alloc_zeroed", "__rg_realloc"];

/// What C calls, with jemalloc's prefix or, where it is everybody's allocator, without.
///
/// Source: jemalloc(3), "SYNOPSIS"; jemalloc 5.3.1, src/jemalloc.c.
const OF_C: [&str; 10] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "mallocx",
    "rallocx",
];

/// How many functions of this symbol, innermost first, are the allocator's.
pub(super) fn functions(symbol: &Symbol) -> usize {
    let frames = &symbol.frames;
    // All that jemalloc inlines is its own.
    if frames.last().is_some_and(|physical| is_of_c(&physical.name)) {
        return frames.len();
    }
    frames.iter().take_while(|frame| is_of_rust(frame)).count()
}

fn is_of_c(name: &str) -> bool {
    OF_C.contains(&name.strip_prefix("_rjem_").unwrap_or(name))
}

fn is_of_rust(frame: &Frame) -> bool {
    // `<alloc::alloc::Global as core::alloc::Allocator>::allocate`: whose it is stands first.
    let name = frame.name.trim_start_matches('<');
    let is_in = |(module, file): &(&str, &str)| {
        name.starts_with(module) && (frame.file.is_empty() || frame.file.contains(file))
    };
    MADE.contains(&name.strip_prefix("__rustc::").unwrap_or(name)) || MODULES.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::Language;

    const STD: &str = "/rustc/5980/library/alloc/src/alloc.rs";
    const CORE: &str = "/rustc/5980/library/core/src/alloc/global.rs";
    const CRATE: &str = "/home/dev/.cargo/registry/src/registry/tikv-jemallocator-0.7.0/src/lib.rs";
    const OWN: &str = "/home/dev/alloc/src/alloc.rs";

    /// How many of these functions, of each the name and the file, are hidden.
    fn hidden(functions: &[(&str, &str)]) -> usize {
        let frame =
            |(name, file): &(&str, &str)| Frame { name: (*name).into(), file: (*file).into(), ..Frame::default() };
        let symbol = Symbol { frames: functions.iter().map(frame).collect(), language: Language::Rust, first: 0 };
        super::functions(&symbol)
    }

    /// Check that what line tables name by its last part is known by its file, too, and what debug information names in full by its name.
    #[test]
    fn inlined_functions_of_the_allocator_are_hidden() {
        let line_tables = [
            ("tikv_jemallocator::alloc", CRATE),
            ("__rust_alloc", "examples/src/bin/shop/main.rs"),
            ("alloc::alloc::alloc", STD),
            ("alloc::alloc::alloc_impl_runtime", STD),
            ("alloc::alloc::allocate", STD),
            ("alloc::raw_vec::finish_grow", "/rustc/5980/library/alloc/src/raw_vec/mod.rs"),
            ("shop::fill", "examples/src/bin/shop/main.rs"),
        ];
        assert_eq!(hidden(&line_tables), 5);
        let in_full = [
            ("<tikv_jemallocator::Jemalloc as core::alloc::global::GlobalAlloc>::alloc", CRATE),
            ("__rustc::__rust_alloc", "src/main.rs"),
            ("alloc::alloc::Global::alloc_impl", STD),
            ("<alloc::alloc::Global as core::alloc::Allocator>::allocate", STD),
            ("<alloc::alloc::Global>::alloc_impl_runtime", STD),
            ("alloc::alloc::exchange_malloc", STD),
            ("alloc::boxed::box_new_uninit", "/rustc/5980/library/alloc/src/boxed.rs"),
            ("core::alloc::global::GlobalAlloc::alloc_zeroed", CORE),
            ("shop::fill", "src/main.rs"),
        ];
        assert_eq!(hidden(&in_full), 8);
        // A build without lines, in which they are functions of their own.
        assert_eq!((hidden(&[("alloc::alloc::alloc", "")]), hidden(&[("__rustc::__rust_realloc", "")])), (1, 1));
    }

    /// Check that of a function that C calls all is hidden which is inlined in it.
    #[test]
    fn functions_that_c_calls_are_hidden_whole() {
        let inlined = ["prof_malloc", "imalloc_body", "imalloc"].map(|name| (name, "src/jemalloc.c"));
        let with = |physical| hidden(&[&inlined[..], &[(physical, "src/jemalloc.c")]].concat());
        assert_eq!(["_rjem_aligned_alloc", "aligned_alloc", "_rjem_mallocx"].map(with), [4; 3]);
        assert_eq!(["_rjem_like", "my_malloc", "shop::malloc"].map(with), [0; 3]);
    }

    /// Check that code of the user's stays whatever it is called, and that behind it, also where it is an allocator around jemalloc.
    #[test]
    fn code_of_the_user_stays() {
        for (name, file) in [
            ("alloc::alloc::alloc", OWN),
            ("tikv_jemallocator::alloc", "/home/dev/tikv_jemallocator/src/lib.rs"),
            ("shop::alloc::alloc", "src/alloc.rs"),
            ("<shop::Counting as core::alloc::global::GlobalAlloc>::alloc", "src/main.rs"),
            ("<shop::Counting as core::alloc::global::GlobalAlloc>::alloc", ""),
            ("alloc", ""),
            ("alloc::vec::Vec<u8>::with_capacity", "/rustc/5980/library/alloc/src/vec/mod.rs"),
        ] {
            assert_eq!(hidden(&[(name, file), ("shop::main", "src/main.rs")]), 0, "{name}");
            let around = [("tikv_jemallocator::alloc", CRATE), (name, file), ("__rust_alloc", ""), ("shop::main", "")];
            assert_eq!(hidden(&around), 1, "{name}");
        }
    }
}
