//! What the compiler says of programs that must not compile. Those that must are `kinds.rs` and `tagged.rs`.
//!
//! In: `ui/*.rs`, each with what is said of it beside it. `TRYBUILD=overwrite` accepts what is said now, as a newer
//! compiler may in other words; read the difference then.

/// Check that wrong attributes are refused where they are wrong, with what to write, and that a scope stays on its thread.
#[test]
fn wrong_programs_are_refused() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
