//! Files made by hand, for what no Go that can be had here writes; real programs are compared in `tests/go_symbols`.

use std::sync::Arc;

use super::*;

/// Where the one segment of these files is loaded.
const BASE: u64 = 0x40_0000;
/// Where its first byte is in the file.
const START: usize = 128;

/// A program with `data` in its one segment, which may be written to.
fn file(data: &[u8]) -> Arc<elf::File> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[0x10..0x14].copy_from_slice(&[2, 0, 62, 0]);
    bytes[0x20] = 64;
    bytes[0x36..0x3a].copy_from_slice(&[56, 0, 1, 0]);
    let (len, flags) = (data.len() as u64, 6 << 32);
    let segment = [1 | flags, START as u64, BASE, BASE, len, len, 8];
    bytes.extend(segment.iter().flat_map(|word| word.to_le_bytes()));
    bytes.resize(START, 0);
    bytes.extend_from_slice(data);
    Arc::new(elf::File::of_bytes(bytes).unwrap())
}

/// Build info with strings behind the header, as Go writes it since 1.18.
fn build_info(version: &str) -> Vec<u8> {
    let mut data = b"a word..a word..\xff Go buildinf:\x08\x02".to_vec();
    data.resize(48, 0);
    data.push(version.len() as u8);
    data.extend_from_slice(version.as_bytes());
    data
}

#[test]
fn the_version_is_what_the_build_left() {
    let version = buildinfo::version(&file(&build_info("go1.25.3"))).unwrap().unwrap();
    assert_eq!((version.minor, version.text.as_str()), (25, "go1.25.3"));
}

#[test]
fn a_program_that_lost_its_table_says_so() {
    let fault = Program::open(file(&build_info("go1.25.3"))).unwrap_err();
    assert_eq!(fault.to_string(), "the table of functions at 0x0: not in this Go program");
}

/// Up to Go 1.17 the header had pointers to the strings' headers.
#[test]
fn a_program_of_a_go_that_is_too_old_is_told_by_its_version() {
    let mut data = b"\xff Go buildinf:\x08\x00".to_vec();
    let words = [BASE + 32, BASE + 48, BASE + 64, 9, 0, 0];
    data.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    data.extend_from_slice(b"go1.17.13");
    let old = file(&data);
    assert_eq!(buildinfo::version(&old).unwrap().unwrap().text, "go1.17.13");
    let fault = Program::open(old).unwrap_err();
    assert_eq!(fault.to_string(), "the table of functions at 0x0: written by a Go before 1.18");
}

#[test]
fn build_info_that_reaches_out_of_the_file_is_refused() {
    let whole = build_info("go1.25.3");
    for end in [30, 40, 49, 52] {
        let fault = buildinfo::version(&file(&whole[..end])).unwrap_err();
        assert_eq!((fault.part, fault.at), ("Go's build info", BASE + 16), "{end} bytes");
    }
}

#[test]
fn a_file_without_anything_of_go_is_no_program_of_it() {
    assert!(Program::open(file(&[1; 4096])).unwrap().is_none());
    // What looks like the beginning of a table is none without its parts.
    let mut data = vec![0; 4096];
    data[64..72].copy_from_slice(&0x0801_0000_ffff_fff1_u64.to_le_bytes());
    assert!(Program::open(file(&data)).unwrap().is_none());
}

/// A program of two functions, of which the second one's name stands `far` behind the first one's. Source: runtime/symtab.go, `pcHeader`,
/// `functab`, and runtime/runtime2.go, `_func`, of Go 1.18.
fn two_functions(far: usize) -> pclntab::Table {
    let (names, lines) = (72, 72 + far + 16);
    let mut data = b"\xf0\xff\xff\xff\x00\x00\x01\x08".to_vec();
    let parts = [2, 0, BASE, names as u64, lines as u64, lines as u64, lines as u64, lines as u64];
    data.extend(parts.iter().flat_map(|part| part.to_le_bytes()));
    data.extend_from_slice(b"main.near\0");
    data.resize(names + far, 0);
    data.extend_from_slice(b"main.far\0");
    data.resize(lines, 0);
    let (first, second) = (20, 20 + 64);
    for (at, word) in [(0, 0), (4, first), (8, 16), (12, second), (16, 32), (second, 16), (second + 4, far as u32)] {
        data.resize(data.len().max(lines + second as usize + 64), 0);
        data[lines + at as usize..][..4].copy_from_slice(&word.to_le_bytes());
    }
    pclntab::Table::find(&file(&data), None).unwrap().unwrap()
}

/// Check that a search through names ends, however many there seem to be.
#[test]
fn names_are_searched_up_to_a_bound() {
    let found = |far| two_functions(far).find_all(&["main.near", "main.far"]);
    assert_eq!(found(1 << 20), [Some(BASE), Some(BASE + 16)]);
    assert_eq!(found(65 << 20), [Some(BASE), None]);
}
