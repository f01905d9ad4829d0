//! The units of debug information, and which addresses each covers.
//!
//! In: `.debug_info`. Out: an index of spans, bounded in size, and units opened one at a time. Opening reads the unit's
//! first entry and its abbreviations, nothing else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use gimli::constants as dw;
use gimli::{Attribute, AttributeValue, DebugAbbrev, DebugInfoOffset, DebugLineOffset, Section, UnitHeader};

use super::super::bytes::Cursor;
use super::super::pace::{Pace, Unreadable};
use super::MAX_CLAIMS;

/// Most units and most spans of one file: 8 MB in all. What is beyond has no inlined functions and no lines.
const MAX_UNITS: usize = 1 << 18;
const MAX_SPANS: usize = 1 << 18;
/// Spans of one unit this near to each other are taken as one: between functions is padding.
const PADDING: u64 = 64;
/// Most bytes of the abbreviations of one unit; compilers write some thousands.
const MAX_ABBREVIATIONS: u64 = 1 << 18;
/// Steps that opening a unit counts for.
pub(super) const OPENING: u32 = 64;

type Sections = gimli::Dwarf<Cursor>;

/// All units of a file.
#[derive(Default)]
pub(super) struct Units {
    /// Where each begins, ascending.
    offsets: Vec<usize>,
    spans: Vec<(Range<u64>, u32)>,
}

/// An open unit.
pub(super) struct Unit {
    pub(super) inner: gimli::Unit<Cursor>,
    pub(super) lines: Option<DebugLineOffset>,
    root: Vec<Attribute<Cursor>>,
}

impl Units {
    /// Reads the first entry of each unit. What is behind a malformed header cannot be found and is left out.
    pub(super) async fn read(sections: &Sections, pace: &mut Pace) -> Result<Self, Unreadable> {
        let mut units = Self::default();
        let mut headers = sections.debug_info.units();
        while let Ok(Some(header)) = headers.next() {
            if units.offsets.len() >= MAX_UNITS || units.spans.len() >= MAX_SPANS {
                tracing::debug!("debug information has more units than are read");
                break;
            }
            let Some(offset) = header.debug_info_offset() else { continue };
            let number = units.offsets.len() as u32;
            units.offsets.push(offset.0);
            if let Ok(unit) = Unit::open(sections, header) {
                let (mut spans, room) = (Vec::new(), MAX_SPANS - units.spans.len());
                let add = |span| {
                    if spans.len() < room {
                        spans.push(span);
                    }
                };
                match each_range(sections, &unit, &unit.root, pace, add).await {
                    Ok(()) | Err(Unreadable::Malformed(_)) => {}
                    Err(error) => return Err(error),
                }
                units.spans.extend(joined(spans).map(|span| (span, number)));
            }
            if pace.step(OPENING)? {
                pace.rest().await;
            }
        }
        units.spans.shrink_to_fit();
        units.offsets.shrink_to_fit();
        Ok(units)
    }

    /// The units that cover some of the sorted addresses, with the indexes of these.
    pub(super) async fn claims(
        &self,
        wanted: &[u64],
        pace: &mut Pace,
    ) -> Result<BTreeMap<usize, Vec<usize>>, Unreadable> {
        let mut claims: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut claimed = vec![0; wanted.len()];
        for (span, unit) in &self.spans {
            for index in inside(wanted, span) {
                if pace.step(1)? {
                    pace.rest().await;
                }
                if claimed[index] >= MAX_CLAIMS {
                    continue;
                }
                let indexes = claims.entry(*unit as usize).or_default();
                if indexes.last() != Some(&index) {
                    claimed[index] += 1;
                    indexes.push(index);
                }
            }
        }
        for indexes in claims.values_mut() {
            indexes.sort_unstable();
            indexes.dedup();
        }
        Ok(claims)
    }

    pub(super) fn open(&self, sections: &Sections, number: usize) -> Result<Unit, Unreadable> {
        let offset = self.offsets.get(number).ok_or(gimli::Error::NoEntryAtGivenOffset(0))?;
        Ok(Unit::open(sections, sections.debug_info.header_from_offset(DebugInfoOffset(*offset))?)?)
    }

    /// The unit that holds an entry of `.debug_info`.
    pub(super) fn holding(&self, entry: DebugInfoOffset) -> Option<usize> {
        self.offsets.partition_point(|offset| *offset <= entry.0).checked_sub(1)
    }
}

impl Unit {
    fn open(sections: &Sections, header: UnitHeader<Cursor>) -> gimli::Result<Self> {
        if header.address_size() != 8 {
            return Err(gimli::Error::UnsupportedAddressSize(header.address_size()));
        }
        // `gimli` would read until the table ends; a malformed one ends with its section.
        let table = sections.debug_abbrev.reader().up_to(header.debug_abbrev_offset().0 as u64, MAX_ABBREVIATIONS)?;
        let abbreviations = DebugAbbrev::from(table).abbreviations(gimli::DebugAbbrevOffset(0))?;
        let mut root = Vec::new();
        let mut entries = header.entries_raw(&abbreviations, None)?;
        if let Some(entry) = entries.read_abbreviation()? {
            entries.read_attributes(entry.attributes(), &mut root)?;
        }
        let encoding = header.encoding();
        let file_type = sections.file_type;
        let mut unit = Self {
            inner: gimli::Unit {
                abbreviations: Arc::new(abbreviations),
                name: None,
                comp_dir: None,
                low_pc: 0,
                str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file_type),
                addr_base: gimli::DebugAddrBase(0),
                loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(encoding, file_type),
                rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, file_type),
                line_program: None,
                dwo_id: None,
                header,
            },
            lines: None,
            root: Vec::new(),
        };
        unit.note_bases(&root);
        unit.root = root;
        if let Some(low) = unit.attribute(dw::DW_AT_low_pc) {
            unit.inner.low_pc = sections.attr_address(&unit.inner, low)?.unwrap_or(0);
        }
        Ok(unit)
    }

    fn note_bases(&mut self, root: &[Attribute<Cursor>]) {
        for attribute in root {
            match attribute.value() {
                AttributeValue::DebugStrOffsetsBase(base) => self.inner.str_offsets_base = base,
                AttributeValue::DebugAddrBase(base) => self.inner.addr_base = base,
                AttributeValue::DebugRngListsBase(base) => self.inner.rnglists_base = base,
                AttributeValue::DebugLineRef(offset) => self.lines = Some(offset),
                _ => {}
            }
        }
    }

    /// An attribute of the unit's first entry.
    pub(super) fn attribute(&self, name: gimli::DwAt) -> Option<AttributeValue<Cursor>> {
        self.root.iter().find(|attribute| attribute.name() == name).map(Attribute::value)
    }
}

/// Calls `found` with each range of addresses that an entry with these attributes covers.
pub(super) async fn each_range(
    sections: &Sections,
    unit: &Unit,
    attributes: &[Attribute<Cursor>],
    pace: &mut Pace,
    mut found: impl FnMut(Range<u64>),
) -> Result<(), Unreadable> {
    let value = |name| attributes.iter().find(|attribute| attribute.name() == name).map(Attribute::value);
    // Code that the linker threw away is said to be at 0, or at 1 in lists.
    let mut found = |range: Range<u64>| {
        if range.start > 1 && range.end > range.start {
            found(range);
        }
    };
    if let Some(ranges) = value(dw::DW_AT_ranges)
        && let Some(mut ranges) = sections.attr_ranges(&unit.inner, ranges)?
    {
        while let Some(range) = ranges.next()? {
            found(range.begin..range.end);
            if pace.step(1)? {
                pace.rest().await;
            }
        }
        return Ok(());
    }
    let (Some(low), Some(high)) = (value(dw::DW_AT_low_pc), value(dw::DW_AT_high_pc)) else { return Ok(()) };
    let Some(low) = sections.attr_address(&unit.inner, low)? else { return Ok(()) };
    let high = match high {
        AttributeValue::Udata(size) => low.saturating_add(size),
        address => sections.attr_address(&unit.inner, address)?.unwrap_or(0),
    };
    found(low..high);
    Ok(())
}

/// The indexes of the sorted addresses that are in `range`.
pub(super) fn inside(wanted: &[u64], range: &Range<u64>) -> Range<usize> {
    let first = wanted.partition_point(|address| *address < range.start);
    first..first.max(wanted.partition_point(|address| *address < range.end))
}

/// Sorted, and neighbours as one.
fn joined(mut spans: Vec<Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    spans.sort_unstable_by_key(|span| span.start);
    spans.dedup_by(|later, earlier| {
        let near = later.start <= earlier.end.saturating_add(PADDING);
        if near {
            earlier.end = earlier.end.max(later.end);
        }
        near
    });
    spans.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::tests::run;

    /// Check that a file all of whose units claim all addresses is given up, and no address is claimed by more units than are asked.
    #[test]
    fn units_that_claim_everything_are_given_up() {
        let units = Units { offsets: (0..100).collect(), spans: (0..100).map(|unit| (0..1000, unit)).collect() };
        let (wanted, mut pace): (Vec<u64>, _) = ((0..100).collect(), Pace::default());
        let mut claims = |steps| {
            pace.allow(steps);
            run(units.claims(&wanted, &mut pace))
        };
        assert_eq!(claims(10_000).unwrap().values().map(Vec::len).sum::<usize>(), 100 * MAX_CLAIMS);
        assert!(matches!(claims(9_999), Err(Unreadable::TooLong)));
    }

    /// Check that neighbours become one span, and that each address is claimed by those that hold it.
    #[test]
    fn spans_are_joined_and_claim_addresses() {
        let spans: Vec<_> = joined(vec![0x200..0x210, 0x100..0x110, 0x118..0x140, 0x120..0x130]).collect();
        assert_eq!(spans, [0x100..0x140, 0x200..0x210]);
        let spans = spans.into_iter().map(|span| (span, 0)).chain([(0x130..0x204, 1)]).collect();
        let units = Units { offsets: vec![0, 100], spans };
        let wanted = [0xff, 0x100, 0x13f, 0x140, 0x203, 0x204, 0x210];
        let claims = run(units.claims(&wanted, &mut Pace::default())).unwrap();
        assert_eq!(claims, BTreeMap::from([(0, vec![1, 2, 4, 5]), (1, vec![2, 3, 4])]));
        assert_eq!((units.holding(DebugInfoOffset(99)), units.holding(DebugInfoOffset(100))), (Some(0), Some(1)));
    }
}
