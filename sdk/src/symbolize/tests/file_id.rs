//! Hashes of files, beside what other tools and the files themselves say.

use std::process::Command;

use super::super::bytes::Storage;
use super::super::file_id::{file_id, hash};
use super::build::{Folder, loaded_as, tool};
use crate::unwind::modules::Modules;

/// Check that the hash is what `sha256sum` says of the three parts, of files shorter and longer than two parts.
#[test]
fn the_hash_is_of_both_ends_and_the_length() {
    for len in [0, 1, 4095, 4096, 4097, 8192, 20_000] {
        let bytes: Vec<u8> = (0..len).map(|n| (n * 7 % 251) as u8).collect();
        let folder = Folder::new();
        let (file, parts) = (folder.0.join("file"), folder.0.join("parts"));
        std::fs::write(&file, &bytes).unwrap();
        let part = len.min(4096);
        let length = (len as u64).to_be_bytes();
        std::fs::write(&parts, [&bytes[..part], &bytes[len - part..], &length].concat()).unwrap();
        let expected = tool(Command::new("sha256sum").arg(&parts));
        assert_eq!(hash(&Storage::open(&file).unwrap()).unwrap(), expected[..32], "{len}");
    }
}

/// Check that a library without a build id has a hash that stays, and that one that was replaced has none.
#[test]
fn a_library_without_a_build_id_has_a_hash() {
    let folder = Folder::new();
    let library = folder.c("code.so", &["-Wl,--build-id=none"]);
    let (module, replaced) = (loaded_as(&library, None), loaded_as(&library, None));
    let expected = hash(&Storage::open(&library).unwrap()).unwrap();
    assert_eq!(file_id(&module), Some(expected.as_str()));
    std::fs::write(&library, b"something else").unwrap();
    assert_eq!((file_id(&module), file_id(&replaced)), (Some(expected.as_str()), None));
    std::fs::remove_file(&library).unwrap();
    assert_eq!(file_id(&replaced), None);
}

/// Check that a file that is gone is looked for once: another one in its place would not be it.
#[test]
fn a_file_that_is_gone_is_looked_for_once() {
    let folder = Folder::new();
    let library = folder.c("code.so", &["-Wl,--build-id=none"]);
    let (module, aside) = (loaded_as(&library, None), folder.0.join("aside"));
    std::fs::rename(&library, &aside).unwrap();
    assert_eq!(file_id(&module), None);
    std::fs::rename(&aside, &library).unwrap();
    assert_eq!(file_id(&module), None);
}

/// Check that the vDSO, which has no file, has one too.
#[test]
fn the_vdso_has_a_hash() {
    let modules = Modules::read(&Default::default());
    let vdso = modules.iter().find(|module| module.path.is_none()).unwrap();
    assert_eq!(file_id(vdso).map(str::len), Some(32));
}
