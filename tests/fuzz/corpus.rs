//! What coverage-guided runs found, and every input that failed once: one archive for each target (`corpus/TARGET.tar.gz`), which `guided keep` writes.
//!
//! In: a target. Out: names and bytes, for the tests `fuzz_smoke`, and for those of what is not public. Source: tar(5), "POSIX ustar Archives".

use std::io::Read;
use std::path::Path;

/// The inputs of a target, by name; there are some.
pub(crate) fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    let archive = format!("tests/fuzz/corpus/{target}.tar.gz");
    let file = std::fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(archive)).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let (mut inputs, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((head, behind)) = rest.split_first_chunk::<512>() {
        let text = |from: usize, to: usize| str::from_utf8(&head[from..to]).unwrap().trim_matches(['\0', ' ']);
        if text(0, 100).is_empty() {
            break;
        }
        let size = usize::from_str_radix(text(124, 136), 8).unwrap();
        inputs.push((text(0, 100).to_owned(), behind[..size].to_vec()));
        rest = &behind[size.next_multiple_of(512)..];
    }
    assert!(!inputs.is_empty(), "the corpus of {target} is kept");
    inputs
}
