//! What must hold for any bytes taken for an ELF file: the entry point of the fuzz target and of the smoke test. Not public interface.
//!
//! In: bytes from a fuzzer. Out: whether they were read as a file at all; a broken property is a failed assertion, which is why nothing else may
//! call this. Everything that naming and discovery ask of a file is asked.

use std::ops::ControlFlow;

use super::{File, OF_TABLES, Pattern, Symbol};

/// Places in each loaded segment that are asked for.
const PLACES: u64 = 16;

/// Any bytes.
#[must_use]
pub fn file(bytes: Vec<u8>) -> bool {
    let Ok(file) = File::of_bytes(bytes) else { return false };
    asked(&file);
    true
}

/// What is asked of any file.
pub(crate) fn asked(file: &File) {
    let _ids = (file.build_id(), file.go_build_id(), file.debug_link(), file.machine(), file.has_symbol_table());
    let _variables = file.variables(&["runtime.allgs", "runtime.mbuckets"]);
    assert!(file.sections().iter().all(|section| section.name().len() < 32), "the name of a section is cut");
    let segments = file.loaded().map(|segment| (segment.address, segment.offset, segment.file_size));
    for (address, offset, size) in segments.collect::<Vec<_>>() {
        for inside in (0..PLACES).map(|place| (size / PLACES).wrapping_mul(place)) {
            at(file, address.wrapping_add(inside));
            let _mapped = [true, false].map(|code| file.mapped_address_of(offset.wrapping_add(inside), code));
        }
    }
    relocated(file);
    searched(file);
}

/// What lies at an address.
fn at(file: &File, address: u64) {
    if let Some(offset) = file.offset_of(address) {
        assert!(file.address_of(offset).is_some(), "nothing is loaded from {offset:#x}");
    }
    let mut bytes = [0; 40];
    let readable = file.readable(address);
    let (is_read, is_all) = (file.read(address, &mut bytes).is_ok(), readable >= bytes.len() as u64);
    assert_eq!(is_read, is_all, "{readable} bytes from {address:#x} on");
    let Some(symbols) = file.symbols() else { return };
    if let Some(Symbol { name, address: start, .. }) = symbols.find(file, address) {
        assert!(start <= address, "{name} is behind {address:#x}");
        assert!(!name.is_empty() && symbols.address_of(file, &name).is_some(), "{name} is not found by its name");
    }
}

/// Relocations are no more than the file has room for.
fn relocated(file: &File) {
    let mut count = 0;
    file.relative_words(|_, _| count += 1);
    assert!(count <= file.size() / 24, "{count} relocations in {} bytes", file.size());
}

/// A word that is found is there.
fn searched(file: &File) {
    let pattern = Pattern { word: 0x08, mask: 0xff, align: 8 };
    let found: Option<()> = file.search(
        |_| true,
        (pattern, OF_TABLES),
        |address| {
            let mut word = [0; 8];
            // Where segments lie in the same place, the first one is what is read.
            let _read = file.read(address, &mut word);
            ControlFlow::Continue(())
        },
    );
    assert_eq!(found, None, "nobody ended the search");
}
