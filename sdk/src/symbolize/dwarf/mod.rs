//! Debug information: inlined functions, files and lines.
//!
//! In: an ELF file with DWARF 2 to 5 and sorted addresses, as the file counts them. Out: what is at each of them. Every
//! look-up streams once through the units that hold an address and keeps nothing but the answers, so that memory depends
//! on the addresses and not on the size of the program. Read with `gimli`, whose parsers take any bytes.

mod functions;
mod lines;
mod units;

use std::sync::Arc;

use gimli::SectionId;

use self::units::Units;
use super::bytes::Cursor;
use super::elf::Elf;
use super::pace::{Pace, Unreadable};

/// How many units are asked about one address; more than one claims it only where the file is strange.
const MAX_CLAIMS: usize = 4;

/// Most steps that an address takes beside those over its units: it is claimed by some, and covered by functions in each.
const STEPS_OF_ADDRESS: usize = MAX_CLAIMS * (1 + functions::MAX_CHAIN);

/// Most steps of one look-up, some seconds: enough for gigabytes.
const MAX_STEPS: u64 = 1 << 28;

/// The debug information of one file, and which unit covers what.
pub(super) struct Debug {
    sections: gimli::Dwarf<Cursor>,
    units: Units,
}

/// What debug information says about an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The functions there, the physical one first, the innermost inlined one last.
    pub(super) functions: Vec<Call>,
    /// Where the innermost function is at that address.
    pub(super) position: Position,
}

/// A function, and where the one around it calls it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// As the linker would name it, or as the source does; empty where neither is told.
    pub(super) name: Arc<str>,
    pub(super) site: Position,
}

/// A place in the source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) file: Arc<str>,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The sections that are read: the others are not even unpacked.
const SECTIONS: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

impl Debug {
    /// Opens the debug information of a file: finds out which unit covers what.
    pub(super) async fn open(elf: &Elf, pace: &mut Pace) -> Result<Self, Unreadable> {
        // Unpacking is bounded by what is unpacked.
        pace.allow(MAX_STEPS);
        let mut loaded = Vec::with_capacity(SECTIONS.len());
        for id in SECTIONS {
            loaded.push((*id, elf.section(id.name(), pace).await?));
        }
        let load = |id| {
            let found = loaded.iter().find(|(known, _)| *known == id);
            Ok::<_, gimli::Error>(found.map_or_else(Cursor::nothing, |(_, bytes)| bytes.clone()))
        };
        let sections = gimli::Dwarf::load(load)?;
        pace.allow(steps(&sections));
        let units = Units::read(&sections, pace).await?;
        Ok(Self { sections, units })
    }

    /// What is at the addresses `wanted`, which are sorted.
    ///
    /// # Errors
    /// When it leads round in circles; `places` holds what was found before.
    pub(super) async fn look_up(
        &self,
        wanted: &[u64],
        places: &mut [Place],
        pace: &mut Pace,
    ) -> Result<(), Unreadable> {
        pace.allow(steps(&self.sections) + (wanted.len() * STEPS_OF_ADDRESS) as u64);
        for (unit, indexes) in self.units.claims(wanted, pace).await? {
            let here: Vec<u64> = indexes.iter().map(|index| wanted[*index]).collect();
            // A unit that cannot be read takes the names of its own addresses with it and no others.
            match self.look_up_in(unit, &here, pace).await {
                Ok(found) => {
                    for (index, found) in indexes.into_iter().zip(found) {
                        if places[index].is_poorer_than(&found) {
                            places[index] = found;
                        }
                    }
                }
                Err(Unreadable::TooLong) => return Err(Unreadable::TooLong),
                Err(error) => tracing::debug!(%error, "a unit of debug information cannot be read"),
            }
        }
        Ok(())
    }
}

impl Debug {
    async fn look_up_in(&self, unit: usize, wanted: &[u64], pace: &mut Pace) -> Result<Vec<Place>, Unreadable> {
        let unit = self.units.open(&self.sections, unit)?;
        let chains = functions::chains(&self.sections, &unit, wanted, pace).await?;
        let mut lines = lines::Lines::read(&self.sections, &unit, wanted, pace).await?;
        let mut names = functions::Names::new(&self.sections, &self.units, &unit);
        let mut places = Vec::with_capacity(chains.len());
        for (index, chain) in chains.iter().enumerate() {
            let call = |entry: &functions::Entry| Call {
                name: names.name(entry.offset, pace),
                site: lines.position(&entry.site, pace),
            };
            let functions = chain.iter().map(call).collect();
            places.push(Place { functions, position: lines.found(index, pace) });
            if pace.step(16)? {
                pace.rest().await;
            }
        }
        Ok(places)
    }
}

impl Place {
    /// Whether `other` says more about the same address.
    fn is_poorer_than(&self, other: &Self) -> bool {
        let wealth = |place: &Self| (place.functions.len(), place.position.line > 0);
        wealth(self) < wealth(other)
    }
}

/// How many steps reading may take: each byte of these sections makes one step at most, in each of two passes. No file
/// may take more than [`MAX_STEPS`].
fn steps(sections: &gimli::Dwarf<Cursor>) -> u64 {
    use gimli::{Reader, Section};

    let bytes =
        [sections.debug_info.reader().len(), sections.debug_line.reader().len(), sections.debug_abbrev.reader().len()];
    let ranges = sections.ranges.debug_ranges().reader().len() + sections.ranges.debug_rnglists().reader().len();
    MAX_STEPS.min((1 << 16) + 2 * (bytes.iter().sum::<usize>() + ranges) as u64)
}
