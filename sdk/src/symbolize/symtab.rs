//! Functions by the symbol table of an ELF file.
//!
//! In: sorted addresses, as the file counts them. Out: the linker's name of the function that each is in. The table is
//! read once from end to end and nothing of it is kept, so that memory depends on the addresses alone.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::Reader;

use super::bytes::Cursor;
use super::elf::Elf;
use super::pace::{Pace, Unreadable};

const ENTRY: usize = 24;
/// Entries that are read at once.
const ENTRIES: usize = 128;
/// Most entries that are read: more than a browser has.
const MAX_ENTRIES: u64 = 1 << 22;
/// Most functions at one address, all addresses taken together: linkers make one of those that are alike.
const ALIASES: u64 = 256;
/// Steps that reading a name counts for.
const NAME: u32 = 32;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_LOCAL: u8 = 0;

/// A function that may hold an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// The nearest start wins, then the name that other modules see.
    start: u64,
    global: bool,
    name: u32,
    /// Where its section ends.
    section_end: u64,
}

/// What the table says about one address.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The function that it is in.
    inside: Option<Candidate>,
    /// The last function of unknown size that begins between the address before and this one.
    unsized_before: Option<Candidate>,
    /// The last end of a function between the address before and this one.
    end_before: u64,
}

/// What a symbol table says.
#[derive(Debug, Default)]
pub(super) struct Linked {
    /// The name of the function at each address.
    pub(super) names: Vec<Option<Arc<str>>>,
    /// Whether it says of the same addresses over and over: it is not worth another try.
    pub(super) in_circles: bool,
}

/// The names of the functions at `wanted`, from `.symtab` or, where that was stripped, from `.dynsym`.
pub(super) async fn functions(elf: &Elf, wanted: &[u64], pace: &mut Pace) -> Result<Linked, Unreadable> {
    let (table, names) = if elf.has(".symtab") { (".symtab", ".strtab") } else { (".dynsym", ".dynstr") };
    let (table, names) = (elf.plain(table), elf.plain(names));
    let mut places = vec![Place::default(); wanted.len()];
    pace.allow(MAX_ENTRIES + wanted.len() as u64 * ALIASES);
    let in_circles = match read(table, |section| elf.end_of(section), wanted, &mut places, pace).await {
        Ok(()) => false,
        // What was read until then is as good as any.
        Err(Unreadable::TooLong) => true,
        Err(error) => return Err(error),
    };
    pace.allow(wanted.len() as u64 * u64::from(NAME));
    Ok(Linked { names: texts(&names, chosen(wanted, &places), pace).await?, in_circles })
}

/// Notes what a table says. One that goes on and on is used up to its bound.
async fn read(
    mut table: Cursor,
    end_of: impl Fn(u16) -> u64,
    wanted: &[u64],
    places: &mut [Place],
    pace: &mut Pace,
) -> Result<(), Unreadable> {
    let mut left = (table.len() / ENTRY).min(MAX_ENTRIES as usize);
    let mut bytes = [0; ENTRIES * ENTRY];
    while left > 0 {
        let count = left.min(ENTRIES);
        left -= count;
        let (entries, _) = bytes.split_at_mut(count * ENTRY);
        table.read_slice(entries)?;
        for entry in entries.as_chunks().0 {
            let noted = note(entry, &end_of, wanted, places);
            if pace.step(u32::try_from(1 + noted).unwrap_or(u32::MAX))? {
                pace.rest().await;
            }
        }
    }
    Ok(())
}

/// The texts at these places of `names`, as far as there is room for them. Each is read and kept once, however many
/// addresses have it.
async fn texts(
    names: &Cursor,
    places: impl Iterator<Item = Option<u32>>,
    pace: &mut Pace,
) -> Result<Vec<Option<Arc<str>>>, Unreadable> {
    let mut known: HashMap<u32, Option<Arc<str>>> = HashMap::new();
    let mut texts = Vec::with_capacity(places.size_hint().0);
    for place in places {
        let Some(place) = place else {
            texts.push(None);
            continue;
        };
        if let Some(known) = known.get(&place) {
            texts.push(known.clone());
            continue;
        }
        if pace.step(NAME)? {
            pace.rest().await;
        }
        let text = names.text(u64::from(place)).ok().map(unversioned).filter(|name| !name.is_empty());
        let text = text.and_then(|text| pace.text(&text));
        known.insert(place, text.clone());
        texts.push(text);
    }
    Ok(texts)
}

/// The name without the version that linkers write behind it in `.symtab`: `memcpy` for `memcpy@@GLIBC_2.14`.
///
/// Source: GNU ld manual, "VERSION Command".
fn unversioned(mut name: String) -> String {
    name.truncate(name.find('@').unwrap_or(name.len()));
    name
}

/// Notes one entry of the table; of how many addresses it says something.
///
/// Source: elf(5), "String and symbol tables": name, info, other, section, value, size.
fn note(entry: &[u8; ENTRY], end_of: impl Fn(u16) -> u64, wanted: &[u64], places: &mut [Place]) -> usize {
    let [n0, n1, n2, n3, info, _, s0, s1, rest @ ..] = entry;
    let (name, section) = (u32::from_le_bytes([*n0, *n1, *n2, *n3]), u16::from_le_bytes([*s0, *s1]));
    if !matches!(info & 0xf, STT_FUNC | STT_GNU_IFUNC) || section == 0 {
        return 0;
    }
    let [start, size] = [0, 8].map(|at| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&rest[at..at + 8]);
        u64::from_le_bytes(bytes)
    });
    let section_end = end_of(section);
    let candidate = Some(Candidate { start, global: info >> 4 != STB_LOCAL, name, section_end });
    let first = wanted.partition_point(|address| *address < start);
    if size == 0 {
        if let Some(place) = places.get_mut(first) {
            place.unsized_before = place.unsized_before.max(candidate);
        }
        return 0;
    }
    let end = start.saturating_add(size);
    let behind = wanted.partition_point(|address| *address < end);
    let inside = places.get_mut(first..behind).unwrap_or_default();
    let noted = inside.len();
    for place in inside {
        place.inside = place.inside.max(candidate);
    }
    if let Some(place) = places.get_mut(behind) {
        place.end_before = place.end_before.max(end);
    }
    noted
}

/// The name of each place. A function without a size, as assembly has them, reaches to the next function, and no further
/// than its section: what linkers make behind it, as calls into libraries, has no symbols.
fn chosen(wanted: &[u64], places: &[Place]) -> impl Iterator<Item = Option<u32>> {
    let (mut last_unsized, mut last_end) = (None::<Candidate>, 0);
    wanted.iter().zip(places).map(move |(address, place)| {
        last_unsized = last_unsized.max(place.unsized_before);
        last_end = last_end.max(place.end_before);
        let reaches = |candidate: &Candidate| candidate.start >= last_end && *address < candidate.section_end;
        let open = last_unsized.filter(reaches);
        place.inside.or(open).map(|candidate| candidate.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of a symbol table: a local function.
    fn entry(name: u32, info: u8, start: u64, size: u64) -> Vec<u8> {
        let parts = [&name.to_le_bytes()[..], &[info, 0, 1, 0], &start.to_le_bytes(), &size.to_le_bytes()];
        parts.concat()
    }

    /// Check that a function goes by its name alone, whichever of its versions it is.
    #[test]
    fn a_version_is_no_part_of_a_name() {
        let names = ["memcpy@@GLIBC_2.14", "memcpy@GLIBC_2.2.5", "main", "@"].map(|name| unversioned(name.into()));
        assert_eq!(names, ["memcpy", "memcpy", "main", ""]);
    }

    /// Check that an address is in the function that covers it, that a function without a size ends where the next one
    /// begins, and that data is no function.
    #[test]
    fn functions_end_where_they_say_or_where_the_next_begins() {
        let (local, global, object) = (STT_FUNC, 0x10 | STT_FUNC, 1);
        let table = [
            entry(1, local, 0x100, 0x10),
            entry(2, global, 0x100, 0x10),
            entry(3, local, 0x110, 0),
            entry(4, local, 0x140, 0x20),
            entry(5, object, 0x170, 0x20),
        ];
        let wanted = [0xff, 0x100, 0x10f, 0x110, 0x13f, 0x140, 0x160, 0x171];
        let mut places = vec![Place::default(); wanted.len()];
        for entry in &table {
            note(entry.as_slice().try_into().unwrap(), |_| 0x200, &wanted, &mut places);
        }
        let names: Vec<_> = chosen(&wanted, &places).collect();
        assert_eq!(names, [None, Some(2), Some(2), Some(3), Some(3), Some(4), None, None]);
    }

    /// Check that a function without a size ends with its section, and that one that is in none has no addresses.
    #[test]
    fn functions_without_a_size_end_with_their_section() {
        let mut nowhere = entry(9, STT_FUNC, 0x180, 0);
        nowhere[6..8].copy_from_slice(&0xfff1_u16.to_le_bytes());
        let table = [entry(1, STT_FUNC, 0x100, 0), entry(2, STT_FUNC, 0x140, 0x10), nowhere];
        let wanted = [0x100, 0x11f, 0x120, 0x13f, 0x140, 0x180];
        let mut places = vec![Place::default(); wanted.len()];
        for entry in &table {
            let end_of = |section| if section == 1 { 0x120 } else { 0 };
            note(entry.as_slice().try_into().unwrap(), end_of, &wanted, &mut places);
        }
        let names: Vec<_> = chosen(&wanted, &places).collect();
        assert_eq!(names, [Some(1), Some(1), None, None, Some(2), None]);
    }
}
