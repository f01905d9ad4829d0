//! `runtime.firstmoduledata`: where the text begins, and from where the tables of inlined calls are counted.
//!
//! It is found without symbols: it is the record whose first word points to the header of `pclntab`, and the next ones to its parts. In
//! position-independent programs these words may stand in the relocations only. Source: runtime/symtab.go, `moduledata`, of Go 1.18 to 1.27.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::Version;
use super::header::{Form, Header};
use super::inline::{FUNCDATA_INL_TREE, InlinedCall};
use super::pclntab::Table;
use crate::elf::{File, OF_TABLES, Pattern};

/// Words of it that are looked at.
const WORDS: usize = 48;
/// Most places that are tried: what points to the header, and is not it.
const PLACES: usize = 64;

const MIN_PC: usize = 20;
const MAX_PC: usize = 21;
const TEXT: usize = 22;
const END_OF_TEXT: usize = 23;

/// The record's first words.
#[derive(Debug)]
pub(super) struct ModuleData([u64; WORDS]);

pub(super) fn find(elf: &File, header: &Header) -> Option<ModuleData> {
    in_file(elf, header).or_else(|| in_relocations(elf, header))
}

/// In the section that Go's linker has for it since 1.26, or anywhere in the data.
fn in_file(elf: &File, header: &Header) -> Option<ModuleData> {
    let at = |address| {
        let mut words = [[0; 8]; WORDS];
        elf.read(address, words.as_flattened_mut()).ok()?;
        Some(ModuleData(words.map(u64::from_le_bytes))).filter(|found| found.is_of(header))
    };
    let section = elf.section(".go.module").and_then(|section| at(section.address));
    section.or_else(|| {
        let pattern = Pattern { word: header.address, mask: u64::MAX, align: 8 };
        let found = |address| at(address).map_or(ControlFlow::Continue(()), ControlFlow::Break);
        elf.search(|segment| segment.writable, (pattern, OF_TABLES), found)
    })
}

/// In a position-independent program: what the file has, with the words that the loader would write.
fn in_relocations(elf: &File, header: &Header) -> Option<ModuleData> {
    if !elf.is_relocatable() {
        return None;
    }
    let mut places: BTreeMap<u64, [u64; WORDS]> = BTreeMap::new();
    elf.relative_words(|address, word| {
        if word == header.address && places.len() < PLACES {
            let mut words = [[0; 8]; WORDS];
            if elf.read(address, words.as_flattened_mut()).is_ok() {
                places.insert(address, words.map(u64::from_le_bytes));
            }
        }
    });
    elf.relative_words(|address, word| {
        let from = address.saturating_sub(8 * (WORDS as u64 - 1));
        for (place, words) in places.range_mut(from..=address) {
            if let Some(slot) = words.get_mut(((address - place) / 8) as usize) {
                *slot = word;
            }
        }
    });
    places.into_values().map(ModuleData).find(|found| found.is_of(header))
}

impl ModuleData {
    /// Whether its pointers are those to the parts of the table, and its text is one.
    fn is_of(&self, header: &Header) -> bool {
        let parts =
            [(0, 0), (1, header.names), (4, header.units), (7, header.files), (10, header.values), (13, header.lines)];
        let parts = parts.iter().all(|(word, part)| Some(self.0[*word]) == header.address.checked_add(*part));
        let text = [self.0[TEXT], self.0[MIN_PC], self.0[MAX_PC], self.0[END_OF_TEXT]];
        parts && self.0[TEXT] != 0 && text.is_sorted()
    }

    pub(super) fn text(&self) -> u64 {
        self.0[TEXT]
    }

    /// `gofunc`: the word that it is in this version, or else the one from which the tables of inlined calls make sense.
    pub(super) fn inlined(&self, table: &Table, version: Option<&Version>) -> Option<u64> {
        let word = match table.form() {
            Form::Go118 => 38,
            Form::Go120 if version.is_some_and(|version| version.is_before(27)) => 40,
            Form::Go120 => 43,
        };
        let words = [word].into_iter().chain(WORDS_OF_GOFUNC);
        let sound = |base: &u64| *base != 0 && is_sound(table, *base);
        words.filter_map(|word| self.0.get(word).copied()).find(sound)
    }
}

/// Where `gofunc` was, and where it may come to be.
const WORDS_OF_GOFUNC: std::ops::Range<usize> = 36..48;

/// Whether the first inlined calls of some functions say what can be, counted from `base`.
fn is_sound(table: &Table, base: u64) -> bool {
    /// Functions that are looked through, and trees that are enough.
    const FUNCTIONS: u32 = 4096;
    const TREES: u32 = 32;
    let mut trees = 0;
    for number in 0..table.functions().min(FUNCTIONS) {
        let Some(function) = table.numbered(number) else { return false };
        let Some(tree) = table.funcdata(FUNCDATA_INL_TREE, &function) else { continue };
        let Some(call) = InlinedCall::read(table, Some(base), tree, 0) else { return false };
        let len = function.end.saturating_sub(function.entry);
        let inside = u64::try_from(call.parent).is_ok_and(|parent| parent < len);
        if !inside || call.func_id > 64 || call.padding != 0 || call.start_line < 0 || !table.is_name(call.name) {
            return false;
        }
        trees += 1;
        if trees == TREES {
            break;
        }
    }
    true
}
