//! Links the scenarios as the README tells users to who want other profilers to find their threads' contexts: with the symbol
//! exported. And one program without a build id, as some linkers make them all.
//!
//! In: nothing. Out: arguments for the linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bin=heap=-Wl,--build-id=none");
    println!("cargo::rustc-link-arg-bin=scenario=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1");
}
