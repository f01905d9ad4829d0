//! Functions and the functions inlined into them, by the entries of a unit.
//!
//! In: a unit and sorted addresses. Out: for each address the chain of entries that cover it, and the names of entries.
//! The unit's entries are passed once, in their order; only those that cover an address stay.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gimli::constants as dw;
use gimli::{Attribute, AttributeValue, DebugInfoOffset, Reader, UnitOffset};

use super::super::bytes::Cursor;
use super::super::pace::{Pace, Unreadable};
use super::lines::Site;
use super::units::{OPENING, Unit, Units, each_range, inside};

/// Most functions inlined into each other at one address.
pub(super) const MAX_CHAIN: usize = 96;
/// Most functions at all addresses of one unit: 16 MB. Of what is beyond, the functions inlined last are not known.
const MAX_ENTRIES: usize = 1 << 19;
/// Most steps from an entry to the one that has its name.
const MAX_HOPS: usize = 8;

type Sections = gimli::Dwarf<Cursor>;

/// A function, or a copy of one that was inlined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) offset: UnitOffset,
    /// Where the function around it calls it.
    pub(super) site: Site,
}

/// The entries that cover each address, the physical function first.
pub(super) async fn chains(
    sections: &Sections,
    unit: &Unit,
    wanted: &[u64],
    pace: &mut Pace,
) -> Result<Vec<Vec<Entry>>, Unreadable> {
    let (mut chains, mut room) = (vec![Vec::new(); wanted.len()], MAX_ENTRIES);
    let abbreviations = &unit.inner.abbreviations;
    let mut entries = unit.inner.header.entries_raw(abbreviations, None)?;
    let mut attributes = Vec::new();
    // How deep the function is that covers something; what is not in it covers nothing.
    let mut within: Option<isize> = None;
    while !entries.is_empty() {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let entry = entries.read_abbreviation()?;
        // Attributes may take no bytes, and an entry have any number of them.
        let count = 1 + entry.map_or(0, |entry| entry.attributes().len());
        if pace.step(u32::try_from(count).unwrap_or(u32::MAX))? {
            pace.rest().await;
        }
        let Some(entry) = entry else { continue };
        within = within.filter(|function| depth > *function);
        let is_function = entry.tag() == dw::DW_TAG_subprogram;
        let is_inlined = entry.tag() == dw::DW_TAG_inlined_subroutine && within.is_some();
        if !is_function && !is_inlined {
            entries.skip_attributes(entry.attributes())?;
            continue;
        }
        entries.read_attributes(entry.attributes(), &mut attributes)?;
        let covered = covered(sections, unit, &attributes, wanted, pace).await?;
        let indexes: usize = covered.iter().map(ExactSizeIterator::len).sum();
        if pace.step(u32::try_from(indexes).unwrap_or(u32::MAX))? {
            pace.rest().await;
        }
        let found = Entry { offset, site: site(&attributes) };
        if add(&mut chains, covered, &found, is_function, &mut room) && is_function {
            within = within.or(Some(depth));
        }
    }
    Ok(chains)
}

/// The indexes of the addresses that an entry with these attributes covers, each once.
async fn covered(
    sections: &Sections,
    unit: &Unit,
    attributes: &[Attribute<Cursor>],
    wanted: &[u64],
    pace: &mut Pace,
) -> Result<Vec<Range<usize>>, Unreadable> {
    let mut covered = Vec::new();
    let cover = |range| {
        covered.extend(Some(inside(wanted, &range)).filter(|indexes| !indexes.is_empty()));
        // A list may say the same over and over.
        if covered.len() > 2 * wanted.len() {
            unite(&mut covered);
        }
    };
    each_range(sections, unit, attributes, pace, cover).await?;
    unite(&mut covered);
    Ok(covered)
}

/// Sorted, and those that meet as one.
fn unite(ranges: &mut Vec<Range<usize>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|later, earlier| {
        let meets = later.start <= earlier.end;
        if meets {
            earlier.end = earlier.end.max(later.end);
        }
        meets
    });
}

/// Adds an entry to the chains of what it covers, as far as there is room; whether that is anything.
fn add(
    chains: &mut [Vec<Entry>],
    covered: Vec<Range<usize>>,
    found: &Entry,
    is_function: bool,
    room: &mut usize,
) -> bool {
    let mut any = false;
    for index in covered.into_iter().flatten() {
        any = true;
        let chain = &mut chains[index];
        if is_function {
            *room += chain.len();
            chain.clear();
        }
        if *room > 0 && chain.len() < MAX_CHAIN {
            *room -= 1;
            chain.push(found.clone());
        }
    }
    any
}

fn site(attributes: &[Attribute<Cursor>]) -> Site {
    let mut site = Site::default();
    for attribute in attributes {
        let number = || u32::try_from(attribute.udata_value().unwrap_or(0)).unwrap_or(0);
        match attribute.name() {
            dw::DW_AT_call_file => {
                site.file = match attribute.value() {
                    AttributeValue::FileIndex(file) => Some(file),
                    value => value.udata_value(),
                }
            }
            dw::DW_AT_call_line => site.line = number(),
            dw::DW_AT_call_column => site.column = number(),
            _ => {}
        }
    }
    site
}

/// Names of the entries of one unit, which may be told in other units.
pub(super) struct Names<'a> {
    sections: &'a Sections,
    units: &'a Units,
    unit: &'a Unit,
    known: HashMap<UnitOffset, Arc<str>>,
    /// The last other unit that was asked: the next question is often about the same.
    other: Option<(usize, Unit)>,
}

/// Where the way to a name leads next.
enum Next {
    Here(UnitOffset),
    Elsewhere(DebugInfoOffset),
}

impl<'a> Names<'a> {
    pub(super) fn new(sections: &'a Sections, units: &'a Units, unit: &'a Unit) -> Self {
        Self { sections, units, unit, known: HashMap::new(), other: None }
    }

    /// The name of a function: the linker's where it is told, else the source's, else nothing.
    pub(super) fn name(&mut self, entry: UnitOffset, pace: &mut Pace) -> Arc<str> {
        if let Some(known) = self.known.get(&entry) {
            return Arc::clone(known);
        }
        let name = self.find(entry, pace).and_then(|name| pace.text(&name)).unwrap_or_default();
        self.known.insert(entry, Arc::clone(&name));
        name
    }

    fn find(&mut self, entry: UnitOffset, pace: &mut Pace) -> Option<String> {
        let mut in_source = None;
        let (mut at, mut elsewhere) = (entry, false);
        for _ in 0..MAX_HOPS {
            let unit = if elsewhere { &self.other.as_ref()?.1 } else { self.unit };
            let attributes = attributes(unit, at).ok()?;
            let text = |name| attributes.iter().find(|a| a.name() == name).and_then(|a| self.text(unit, a.value()));
            if let Some(name) = text(dw::DW_AT_linkage_name).or_else(|| text(dw::DW_AT_MIPS_linkage_name)) {
                return Some(name);
            }
            in_source = in_source.or_else(|| text(dw::DW_AT_name));
            match next(&attributes) {
                Some(Next::Here(offset)) => at = offset,
                Some(Next::Elsewhere(offset)) => {
                    at = self.go_to(offset, pace)?;
                    elsewhere = true;
                }
                None => break,
            }
        }
        in_source
    }

    /// Opens the unit that holds an entry; the entry's offset in it.
    fn go_to(&mut self, entry: DebugInfoOffset, pace: &mut Pace) -> Option<UnitOffset> {
        let number = self.units.holding(entry)?;
        if self.other.as_ref().is_none_or(|(known, _)| *known != number) {
            // Who is to rest, rests after the next name.
            pace.step(OPENING).ok()?;
            self.other = Some((number, self.units.open(self.sections, number).ok()?));
        }
        let (_, unit) = self.other.as_ref()?;
        entry.to_unit_offset(&unit.inner.header)
    }

    fn text(&self, unit: &Unit, value: AttributeValue<Cursor>) -> Option<String> {
        let text = self.sections.attr_string(&unit.inner, value).ok()?;
        text.to_string_lossy().ok().map(std::borrow::Cow::into_owned).filter(|text| !text.is_empty())
    }
}

fn attributes(unit: &Unit, entry: UnitOffset) -> gimli::Result<Vec<Attribute<Cursor>>> {
    let mut entries = unit.inner.header.entries_raw(&unit.inner.abbreviations, Some(entry))?;
    let mut attributes = Vec::new();
    if let Some(entry) = entries.read_abbreviation()? {
        entries.read_attributes(entry.attributes(), &mut attributes)?;
    }
    Ok(attributes)
}

fn next(attributes: &[Attribute<Cursor>]) -> Option<Next> {
    let origin = |a: &&Attribute<Cursor>| matches!(a.name(), dw::DW_AT_abstract_origin | dw::DW_AT_specification);
    match attributes.iter().find(origin)?.value() {
        AttributeValue::UnitRef(offset) => Some(Next::Here(offset)),
        AttributeValue::DebugInfoRef(offset) => Some(Next::Elsewhere(offset)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what a list says over and over counts once, and that there is room for so many entries and no more.
    #[test]
    fn entries_are_added_once_and_up_to_a_bound() {
        let mut covered = vec![3..5, 0..2, 3..4, 1..3, 7..8, 3..5];
        unite(&mut covered);
        assert_eq!(covered, [0..5, 7..8]);
        let found = Entry { offset: UnitOffset(1), site: Site::default() };
        let (mut chains, mut room) = (vec![Vec::new(); 8], 8);
        let mut add = |is_function| add(&mut chains, covered.clone(), &found, is_function, &mut room);
        assert!(add(true) && add(false) && add(false));
        let lengths = |chains: &[Vec<Entry>]| chains.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(&chains), [2, 2, 1, 1, 1, 0, 0, 1]);
    }
}
