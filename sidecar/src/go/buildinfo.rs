//! Which Go built a program, as its linker says.
//!
//! Found by its section, or where there are no sections by its first words. What stands there of modules and settings is not read: it can be of any length. Source:
//! debug/buildinfo/buildinfo.go of Go 1.27, and cmd/link/internal/ld/data.go, `buildinfo`.

use std::ops::ControlFlow;

use super::Version;
use crate::elf::{Fault, File, Pattern, Segment, Why};

/// `\xff Go buildinf:`, the length of a pointer, flags.
const MAGIC: &[u8; 14] = b"\xff Go buildinf:";
/// Bytes before the strings.
const HEADER: usize = 32;
/// It begins at a multiple of this.
const ALIGN: usize = 16;
/// How far it is looked for where there are no sections, which is done of each program that begins: the linker puts it before all other data.
const NEAR: u64 = 32 << 20;
/// Longest version.
const VERSION: u64 = 256;

/// The Go that built a program; `None` where nothing says that one did.
///
/// # Errors
///
/// Where what says it is damaged.
pub fn version(elf: &File) -> Result<Option<Version>, Fault> {
    let Some(at) = find(elf) else { return Ok(None) };
    let fault = |why| Fault::new("Go's build info", at, why);
    let mut header = [0; HEADER];
    elf.read(at, &mut header).map_err(|inner| fault(inner.why))?;
    let [.., pointer, flags] = *header.first_chunk::<16>().unwrap_or(&[0; 16]);
    const INLINE: u8 = 2;
    let text = if flags & INLINE != 0 {
        // A segment may lie at the end of all addresses.
        at.checked_add(HEADER as u64).and_then(|behind| counted(elf, behind))
    } else if pointer == 8 && flags == 0 {
        pointed(elf, word(&header, 16))
    } else {
        return Err(fault(Why::Malformed("not of 64 bits, little-endian")));
    };
    let text = text.ok_or(fault(Why::Outside))?;
    Ok(Some(Version::parse(&String::from_utf8_lossy(&text))))
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
    let near = (pattern, NEAR);
    elf.search(data, near, found).or_else(|| elf.search(|segment| !data(segment), near, found))
}

/// The string at `at`: its length in groups of seven bits, then itself.
fn counted(elf: &File, at: u64) -> Option<Vec<u8>> {
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
    bytes(elf, at, len)
}

/// The string whose header (pointer and length) is at `at`: how it was up to Go 1.17.
fn pointed(elf: &File, at: u64) -> Option<Vec<u8>> {
    let mut header = [0; 16];
    elf.read(at, &mut header).ok()?;
    bytes(elf, word(&header, 0), word(&header, 8))
}

fn bytes(elf: &File, at: u64, len: u64) -> Option<Vec<u8>> {
    if len > VERSION || len > elf.readable(at) {
        return (len == 0).then(Vec::new);
    }
    let mut bytes = vec![0; len as usize];
    elf.read(at, &mut bytes).ok()?;
    Some(bytes)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}
