//! What must hold for any bytes taken for a function's name: the entry point of the fuzz target, and its test.
//!
//! In: bytes from a fuzzer. Out: nothing; a broken property is a failed assertion, which is why nothing else may call this.

#[cfg(test)]
#[path = "../../../tests/fuzz/corpus.rs"]
mod corpus;

use super::demangle::{MAX_NAME, demangled};

/// Any bytes, by themselves and as names of either mangling.
pub(crate) fn name(bytes: &[u8]) {
    let name = String::from_utf8_lossy(bytes);
    for name in [name.to_string(), format!("_Z{name}"), format!("_R{name}")] {
        let (shown, _) = demangled(&name);
        assert!(shown.len() <= MAX_NAME + '…'.len_utf8(), "{} bytes for {name:?}", shown.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what coverage-guided runs found is shown within bounds.
    #[test]
    fn what_a_fuzzer_found_has_a_name() {
        for (file, bytes) in corpus::of("names") {
            assert!(std::panic::catch_unwind(|| name(&bytes)).is_ok(), "{file}");
        }
    }
}
