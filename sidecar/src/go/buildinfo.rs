//! What Go's linker says of a build: the version of Go, the main module.
//!
//! Found by its section, or where there are no sections by its first words. Source: debug/buildinfo/buildinfo.go of Go 1.27, and
//! cmd/link/internal/ld/data.go, `buildinfo`.

use std::ops::ControlFlow;

use super::Version;
use crate::elf::{Fault, File, Pattern, Segment, Why};

/// `\xff Go buildinf:`, the length of a pointer, flags.
const MAGIC: &[u8; 14] = b"\xff Go buildinf:";
/// Bytes before the strings.
const HEADER: usize = 32;
/// It begins at a multiple of this.
const ALIGN: usize = 16;
/// Longest version.
const VERSION: u64 = 256;
/// Most bytes of what is said of modules; a large program has 100 KB.
const MODULES: u64 = 4 << 20;

/// What a build left in its program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BuildInfo {
    /// The Go that built it.
    pub version: Version,
    /// Import path of the main package; empty where it is not known.
    pub path: String,
    /// The main module and its version; empty where they are not known.
    pub module: Module,
    /// The commit (`vcs.revision`), where the build had one.
    pub revision: Option<String>,
}

/// A module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its version; `(devel)` where it was built from a checkout.
    pub version: String,
}

impl BuildInfo {
    /// Reads it; `None` where there is none.
    ///
    /// # Errors
    ///
    /// Where it is there and damaged.
    pub fn read(elf: &File) -> Result<Option<Self>, Fault> {
        let Some(at) = find(elf) else { return Ok(None) };
        let fault = |why| Fault::new("Go's build info", at, why);
        let mut header = [0; HEADER];
        elf.read(at, &mut header).map_err(|inner| fault(inner.why))?;
        let [.., pointer, flags] = *header.first_chunk::<16>().unwrap_or(&[0; 16]);
        const INLINE: u8 = 2;
        let (version, modules) = if flags & INLINE != 0 {
            // A segment may lie at the end of all addresses.
            let behind = at.checked_add(HEADER as u64).ok_or(fault(Why::Outside))?;
            let (version, next) = counted(elf, behind, VERSION).ok_or(fault(Why::Outside))?;
            (version, counted(elf, next, MODULES).map(|(modules, _)| modules))
        } else if pointer == 8 && flags == 0 {
            let [version, modules] = [16, 24].map(|at| word(&header, at));
            (pointed(elf, version, VERSION).ok_or(fault(Why::Outside))?, pointed(elf, modules, MODULES))
        } else {
            return Err(fault(Why::Malformed("not of 64 bits, little-endian")));
        };
        Ok(Some(Self::parse(&String::from_utf8_lossy(&version), &modules.unwrap_or_default())))
    }

    fn parse(version: &str, modules: &[u8]) -> Self {
        let mut info = Self { version: Version::parse(version), ..Self::default() };
        // Sixteen bytes before and behind mark it in the file. Source: cmd/go/internal/modload/build.go, `infoStart`.
        let modules = modules.get(16..modules.len().saturating_sub(16)).unwrap_or_default();
        for line in String::from_utf8_lossy(modules).lines() {
            let mut words = line.split('\t');
            match (words.next(), words.next(), words.next()) {
                (Some("path"), Some(path), _) => info.path = path.to_owned(),
                (Some("mod"), Some(path), version) => {
                    info.module = Module { path: path.to_owned(), version: version.unwrap_or_default().to_owned() };
                }
                (Some("build"), Some(setting), _) => {
                    let revision = setting.strip_prefix("vcs.revision=").map(str::to_owned);
                    info.revision = info.revision.or(revision);
                }
                _ => {}
            }
        }
        info
    }
}

/// Its address. A file with sections has it in the section of its name, or has none.
fn find(elf: &File) -> Option<u64> {
    let is_there = |at: u64| {
        let mut magic = [0; MAGIC.len()];
        elf.read(at, &mut magic).is_ok() && magic == *MAGIC
    };
    if !elf.sections().is_empty() {
        let section = elf.section(".go.buildinfo")?;
        return Some(section.address).filter(|at| is_there(*at));
    }
    let [first @ .., _, _, _, _, _, _] = *MAGIC;
    let pattern = Pattern { word: u64::from_le_bytes(first), mask: u64::MAX, align: ALIGN };
    let found = |at| if is_there(at) { ControlFlow::Break(at) } else { ControlFlow::Continue(()) };
    let data = |segment: &Segment| segment.writable && !segment.executable;
    elf.search(data, pattern, found).or_else(|| elf.search(|segment| !data(segment), pattern, found))
}

/// The string at `at`, of at most `most` bytes: its length in groups of seven bits, then itself. And where it ends.
fn counted(elf: &File, at: u64, most: u64) -> Option<(Vec<u8>, u64)> {
    let (mut len, mut at) = (0u64, at);
    for shift in (0..63).step_by(7) {
        let mut byte = [0];
        elf.read(at, &mut byte).ok()?;
        at = at.checked_add(1)?;
        len |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    Some((bytes(elf, at, len, most)?, at.checked_add(len)?))
}

/// The string whose header (pointer and length) is at `at`: how it was up to Go 1.17.
fn pointed(elf: &File, at: u64, most: u64) -> Option<Vec<u8>> {
    let mut header = [0; 16];
    elf.read(at, &mut header).ok()?;
    bytes(elf, word(&header, 0), word(&header, 8), most)
}

fn bytes(elf: &File, at: u64, len: u64, most: u64) -> Option<Vec<u8>> {
    if len > most || len > elf.readable(at) {
        return (len == 0).then(Vec::new);
    }
    let mut bytes = vec![0; len as usize];
    elf.read(at, &mut bytes).ok()?;
    Some(bytes)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}
