//! Files and lines by the line table of a unit.
//!
//! In: the unit's line program and sorted addresses. Out: the row that covers each, and the paths of files by number. The
//! program is run once; only the rows that were asked for stay.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gimli::constants as dw;
use gimli::{
    AttributeValue, ColumnType, DebugLineOffset, IncompleteLineProgram, LineInstruction, LineRow, Reader, Section,
};

use super::super::bytes::Cursor;
use super::super::pace::{Pace, Unreadable};
use super::Position;
use super::units::{Unit, inside};

/// Most bytes of a table of files, which is in memory while its program runs: some 120 bytes for each that it has. The
/// largest of Rust's own libraries has 8,000, for 321 files.
const MAX_HEADER: u64 = 1 << 17;

type Sections = gimli::Dwarf<Cursor>;

/// A place in the source: the file by its number in the unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) file: Option<u64>,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The lines of one unit at some addresses.
pub(super) struct Lines<'a> {
    sections: &'a Sections,
    unit: &'a gimli::Unit<Cursor>,
    folder: Option<AttributeValue<Cursor>>,
    program: Option<IncompleteLineProgram<Cursor>>,
    found: Vec<Site>,
    paths: HashMap<u64, Arc<str>>,
}

impl<'a> Lines<'a> {
    /// Runs the unit's line program. One that is malformed gives the lines before the place where it is.
    pub(super) async fn read(
        sections: &'a Sections,
        unit: &'a Unit,
        wanted: &[u64],
        pace: &mut Pace,
    ) -> Result<Self, Unreadable> {
        let mut lines = Self {
            sections,
            unit: &unit.inner,
            folder: unit.attribute(dw::DW_AT_comp_dir),
            program: None,
            found: vec![Site::default(); wanted.len()],
            paths: HashMap::new(),
        };
        let Some(offset) = unit.lines else { return Ok(lines) };
        match lines.run(offset, wanted, pace).await {
            Ok(()) | Err(Unreadable::Malformed(_)) => Ok(lines),
            Err(error) => Err(error),
        }
    }

    async fn run(&mut self, offset: DebugLineOffset, wanted: &[u64], pace: &mut Pace) -> Result<(), Unreadable> {
        check_header(self.sections.debug_line.reader(), offset)?;
        let program = self.sections.debug_line.program(offset, 8, None, None)?;
        let program = self.program.insert(program);
        let mut instructions = program.header().instructions();
        let (mut row, mut sequence) = (LineRow::new(program.header()), Sequence::default());
        while let Some(instruction) = instructions.next_instruction(program.header())? {
            if pace.step(1)? {
                pace.rest().await;
            }
            match instruction {
                // No compiler adds files here, and each would be kept.
                LineInstruction::DefineFile(_) => continue,
                LineInstruction::SetAddress(address) => sequence.goes_to(address, &row),
                _ => {}
            }
            if row.execute(instruction, program)? {
                if let Some((range, site)) = sequence.add(&row) {
                    self.found[inside(wanted, &range)].fill(site);
                }
                row.reset(program.header());
            }
        }
        Ok(())
    }

    /// Where the code at the address with this index is from.
    pub(super) fn found(&mut self, index: usize, pace: &mut Pace) -> Position {
        let site = self.found.get(index).copied().unwrap_or_default();
        self.position(&site, pace)
    }

    pub(super) fn position(&mut self, site: &Site, pace: &mut Pace) -> Position {
        let Some(file) = site.file else { return Position::default() };
        let path = match self.paths.get(&file) {
            Some(known) => Arc::clone(known),
            None => {
                let path = self.path(file).and_then(|path| pace.text(&path)).unwrap_or_default();
                self.paths.insert(file, Arc::clone(&path));
                path
            }
        };
        Position { file: path, line: site.line, column: site.column }
    }

    /// The path of a file: an absolute name, or a name in a folder, which may itself be in the unit's.
    fn path(&self, file: u64) -> Option<String> {
        let header = self.program.as_ref()?.header();
        let file = header.file(file)?;
        let name = self.text(file.path_name())?;
        let unit_folder = || self.folder.clone().and_then(|folder| self.text(folder));
        let folder = match file.directory_index() {
            // Up to version 4, 0 is the unit's own folder.
            0 if header.version() <= 4 => None,
            _ => file.directory(header).and_then(|folder| self.text(folder)),
        };
        let path = folder.map_or(name.clone(), |folder| in_folder(&folder, &name));
        Some(if path.starts_with('/') { path } else { in_folder(&unit_folder().unwrap_or_default(), &path) })
    }

    fn text(&self, value: AttributeValue<Cursor>) -> Option<String> {
        let text = self.sections.attr_string(self.unit, value).ok()?;
        text.to_string_lossy().ok().map(std::borrow::Cow::into_owned)
    }
}

/// Rows with ascending addresses, up to an end.
#[derive(Default)]
struct Sequence {
    /// Where the first row is.
    start: Option<u64>,
    /// Start of the row before, and what it says.
    before: Option<(u64, Site)>,
    /// Whether it went on where no code is: rows do not count until it goes elsewhere.
    is_nowhere: bool,
}

impl Sequence {
    /// The next rows are at another address. One that is lower, or one of the highest, is `gimli`'s mark of code that
    /// the linker threw away, too.
    fn goes_to(&mut self, address: u64, row: &LineRow) {
        self.is_nowhere = address < row.address() || address >= u64::MAX - 1;
    }

    /// Adds a row; what the row before says of which addresses. Of a sequence that begins at 0 or 1 the linker threw the
    /// code away; its addresses are those of other code.
    fn add(&mut self, row: &LineRow) -> Option<(Range<u64>, Site)> {
        let Self { start, before, is_nowhere } = std::mem::take(self);
        let start = start.unwrap_or(row.address());
        if !row.end_sequence() {
            let now = if is_nowhere { before } else { Some((row.address(), site(row))) };
            *self = Self { start: Some(start), before: now, is_nowhere };
        }
        let (begin, site) = before.filter(|_| start > 1 && !is_nowhere)?;
        Some((begin..row.address(), site))
    }
}

fn in_folder(folder: &str, name: &str) -> String {
    match folder {
        _ if name.starts_with('/') => name.to_owned(),
        "" => name.to_owned(),
        _ => format!("{}/{name}", folder.trim_end_matches('/')),
    }
}

fn site(row: &LineRow) -> Site {
    let small = |value: u64| u32::try_from(value).unwrap_or(0);
    Site {
        file: Some(row.file_index()),
        line: row.line().map_or(0, |line| small(line.get())),
        column: match row.column() {
            ColumnType::LeftEdge => 0,
            ColumnType::Column(column) => small(column.get()),
        },
    }
}

/// Refuses a table of files that is larger than any compiler makes.
///
/// Source: DWARF 5, 6.2.4 "The Line Number Program Header": length, version, (from 5 on) sizes, length of the header.
fn check_header(section: &Cursor, offset: DebugLineOffset) -> Result<(), Unreadable> {
    let mut header = section.clone();
    header.skip(offset.0)?;
    let (_, format) = header.read_initial_length()?;
    if header.read_u16()? >= 5 {
        header.skip(2)?;
    }
    if header.read_length(format)? as u64 > MAX_HEADER {
        return Err(Unreadable::TooLarge("table of files"));
    }
    Ok(())
}
