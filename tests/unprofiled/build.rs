//! Hands on where jemalloc was built.
//!
//! In: what the build of `tikv-jemalloc-sys` tells cargo (`root`). Out: a variable for the program's own build.

fn main() {
    // Without it, the program does not compile, which says what is missing.
    if let Ok(root) = std::env::var("DEP_JEMALLOC_ROOT") {
        println!("cargo::rustc-env=JEMALLOC_ROOT={root}");
    }
}
