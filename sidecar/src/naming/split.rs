//! Symbols that were split off from a program or library: by its build id, then by the debug link in it.
//!
//! In: a file without a symbol table of its own, the files of the process that has it mapped. Out: the file with the symbols, if it belongs to the first: the build
//! id says so, else the checksum in the link. Looked for in the process's own root, then in ours, where debuginfod clients may have put it; nothing is
//! fetched. Opens and reads files, for which it may wait: only the threads that read do it ([`super::reader`]).
//!
//! Source: GDB manual, "Debugging Information in Separate Files"; debuginfod(7), `DEBUGINFOD_CACHE_PATH`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::elf;
use crate::target::{Files, Mapping};

/// Largest file of which a checksum is made, where there are no build ids: a tenth of a second.
const MAX_CHECKSUM: u64 = 128 << 20;
/// Where distributions put them.
const SYSTEM: &str = "/usr/lib/debug";

/// The file with the symbols of `own`.
pub(super) fn find(own: &elf::File, files: &Files, mapping: &Mapping) -> Option<elf::File> {
    if own.has_symbol_table() {
        return None;
    }
    let id = own.build_id().filter(|id| id.len() > 1 && id.len() <= 64);
    by_id(id.as_deref(), files).or_else(|| by_link(own, id.as_deref(), files, mapping.path().0))
}

fn by_id(id: Option<&[u8]>, files: &Files) -> Option<elf::File> {
    let id = id?;
    let name = super::binary::hex(id);
    let (first, rest) = name.split_at_checked(2)?;
    let system = Path::new(SYSTEM).join(".build-id").join(first).join(format!("{rest}.debug"));
    let cached = caches().into_iter().map(|cache| cache.join(&name).join("debuginfo"));
    let ours = [system.clone()].into_iter().chain(cached).filter_map(|path| regular(&path));
    files.below_root(&system).ok().into_iter().chain(ours).find_map(|file| {
        let found = with_symbols(file)?;
        (found.build_id().as_deref() == Some(id)).then_some(found)
    })
}

fn by_link(own: &elf::File, id: Option<&[u8]>, files: &Files, path: &Path) -> Option<elf::File> {
    let (name, checksum) = own.debug_link()?;
    // Of the name alone: it is the linker's, or whoever made the file.
    let name = Path::new(&name).file_name()?;
    let folder = path.parent()?;
    let system = Path::new(SYSTEM).join(folder.strip_prefix("/").ok()?);
    [folder.join(name), folder.join(".debug").join(name), system.join(name)].iter().find_map(|path| {
        let file = files.below_root(path).ok()?;
        let again = file.try_clone().ok()?;
        let found = with_symbols(file)?;
        let belongs = match (id, found.build_id()) {
            (Some(id), Some(found)) => found == id,
            _ => checksum_of(again) == Some(checksum),
        };
        belongs.then_some(found)
    })
}

/// Where debuginfod clients keep what they fetched.
fn caches() -> Vec<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = [
        folder("DEBUGINFOD_CACHE_PATH"),
        folder("XDG_CACHE_HOME").map(|cache| cache.join("debuginfod_client")),
        folder("HOME").map(|home| home.join(".cache/debuginfod_client")),
    ];
    caches.into_iter().flatten().filter(|path| path.is_absolute()).collect()
}

/// A file of ours.
fn regular(path: &Path) -> Option<File> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    File::open(path).ok()
}

fn with_symbols(file: File) -> Option<elf::File> {
    elf::File::open(file).ok().filter(elf::File::has_symbol_table)
}

/// The CRC-32 of a whole file, which may become longer meanwhile.
fn checksum_of(file: File) -> Option<u32> {
    let len = file.metadata().ok().filter(|metadata| metadata.len() <= MAX_CHECKSUM)?.len();
    let mut file = file.take(len);
    let (mut checksum, mut chunk) = (flate2::Crc::new(), vec![0; 64 << 10]);
    loop {
        let read = file.read(&mut chunk).ok()?;
        let Some(part) = chunk.get(..read).filter(|part| !part.is_empty()) else { return Some(checksum.sum()) };
        checksum.update(part);
    }
}
