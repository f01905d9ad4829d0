//! The table that Go's runtime finds functions by: `pclntab`.
//!
//! A header with the offsets of its parts: names, compilation units, files, values by pc, functions. Source: runtime/symtab.go (`pcHeader`,
//! `findfunc`, `funcline1`), runtime/runtime2.go (`_func`), cmd/link/internal/ld/pcln.go, of Go 1.18 to 1.27.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::Version;
use super::header::{Form, Header, PATTERN};
use super::moduledata;
use super::pcvalue::Steps;
use crate::elf::{Fault, File, OF_TABLES, Record, Segment, Why};

/// Most places that are tried as the table: each may cost a search for what points to it.
const TRIES: usize = 8;

/// A program's table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) elf: Arc<File>,
    pub(super) header: Header,
    /// Where the text begins, from which functions are counted, and where the last function ends.
    text: Range<u64>,
    /// `go:func.*`, from which the tables of inlined calls are counted.
    inlined: Option<u64>,
    /// Whether `moduledata` was found, which points to it.
    is_pointed_to: bool,
}

/// A function: `_func`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Func {
    pub(super) entry: u64,
    pub(super) end: u64,
    pub(super) name: u32,
    pub(super) args: i32,
    pub(super) deferreturn: u32,
    pub(super) pcsp: u32,
    pub(super) pcfile: u32,
    pub(super) pcln: u32,
    pub(super) unit: u32,
    pub(super) start_line: u32,
    pub(super) func_id: u8,
    pub(super) flags: u8,
    pcdata: u32,
    funcdata: u8,
    /// Where the offsets of its tables begin, from the header on.
    tables: u64,
}

/// What the section with the table is called, in programs that lie where they were linked, and in others. Source: cmd/link/internal/ld/pcln.go, data.go.
pub(crate) const FUNCTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

impl Table {
    /// Finds the table; `None` where there is none.
    pub(super) fn find(elf: &Arc<File>, version: Option<&Version>) -> Result<Option<Self>, Fault> {
        let section = FUNCTIONS.iter().find_map(|name| elf.section(name)).filter(|section| section.address != 0);
        if let Some(section) = section {
            return Self::of(elf, Header::read_called_so(elf, section.address)?, version).map(Some);
        }
        // A file with sections that says of none that it is Go's is not searched, for that means to read all of it.
        if !elf.sections().is_empty() && version.is_none() {
            return Ok(None);
        }
        let (table, fault) = Self::search(elf, version);
        // Without build info, what only looks like a table is no fault of a Go program.
        match (table, fault.filter(|_| version.is_some())) {
            (None, Some(fault)) => Err(fault),
            (table, _) => Ok(table),
        }
    }

    /// Looks for the table in all data; gives the first fault of what only looks like it, too. One that `moduledata` points to comes first:
    /// a program may hold another program's file, which has a table like any.
    fn search(elf: &Arc<File>, version: Option<&Version>) -> (Option<Self>, Option<Fault>) {
        let (mut tries, mut fault, mut other) = (0, None, None);
        let found = |address| {
            let header = match Header::read(elf, address) {
                Ok(header) => header,
                Err(inner) => {
                    fault.get_or_insert(inner);
                    return ControlFlow::Continue(());
                }
            };
            tries += 1;
            match Self::of(elf, header, version) {
                Ok(table) if table.is_pointed_to => return ControlFlow::Break(Some(table)),
                Ok(table) => _ = other.get_or_insert(table),
                Err(inner) => _ = fault.get_or_insert(inner),
            }
            if tries < TRIES { ControlFlow::Continue(()) } else { ControlFlow::Break(None) }
        };
        let table = elf.search(|segment: &Segment| !segment.executable, (PATTERN, OF_TABLES), found).flatten();
        (table.or(other), fault)
    }

    fn of(elf: &Arc<File>, header: Header, version: Option<&Version>) -> Result<Self, Fault> {
        let fault = |what| Fault::new("the table of functions", header.address, Why::Malformed(what));
        let found = moduledata::find(elf, &header);
        let start = found.as_ref().map_or(header.text, moduledata::ModuleData::text);
        if start == 0 {
            return Err(fault("moduledata is not found, and the text's start is nowhere else"));
        }
        let (elf, is_pointed_to) = (Arc::clone(elf), found.is_some());
        let mut table = Self { elf, header, text: start..u64::MAX, inlined: None, is_pointed_to };
        let last = table.word(header.lines, 2 * u64::from(header.functions)).filter(|last| *last > 0);
        let end = last.and_then(|last| start.checked_add(u64::from(last)));
        table.text = start..end.ok_or(fault("it does not say where the text ends"))?;
        table.inlined = found.and_then(|found| found.inlined(&table, version));
        Ok(table)
    }

    pub(super) fn form(&self) -> Form {
        self.header.form
    }

    pub(super) fn text(&self) -> Range<u64> {
        self.text.clone()
    }

    pub(super) fn knows_inlined_calls(&self) -> bool {
        self.inlined.is_some()
    }

    pub(super) fn functions(&self) -> u32 {
        self.header.functions
    }

    /// The function that `pc` is in.
    pub(super) fn function(&self, pc: u64) -> Option<Func> {
        let inside = pc.checked_sub(self.text.start).filter(|_| self.text.contains(&pc))?;
        let inside = u32::try_from(inside).ok()?;
        // The last function that begins at or before the address; equal entries do not occur.
        let (mut low, mut high) = (0, self.header.functions);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.word(self.header.lines, 2 * u64::from(middle))? <= inside { low = middle } else { high = middle }
        }
        self.numbered(low).filter(|function| (function.entry..function.end).contains(&pc))
    }

    /// The function of this number, in the order of addresses.
    pub(super) fn numbered(&self, number: u32) -> Option<Func> {
        let mut entry = [0; 12];
        self.read(self.header.lines.checked_add(8 * u64::from(number))?, &mut entry)?;
        let entry = Record::new(entry);
        let start = self.text.start.checked_add(u64::from(entry.u32::<0>()))?;
        let end = self.text.start.checked_add(u64::from(entry.u32::<8>()))?;
        let at = self.header.lines.checked_add(u64::from(entry.u32::<4>()))?;
        let mut fixed = [0; 40];
        self.read(at, &mut fixed)?;
        let fixed = Record::new(fixed);
        let (start_line, kinds, len) = match self.header.form {
            Form::Go118 => (0, fixed.u32::<36>(), 40),
            Form::Go120 => (fixed.u32::<36>(), self.word(at, 10)?, 44),
        };
        let [func_id, flags, _, funcdata] = kinds.to_le_bytes();
        Some(Func {
            entry: start,
            end,
            name: fixed.u32::<4>(),
            args: fixed.i32::<8>(),
            deferreturn: fixed.u32::<12>(),
            pcsp: fixed.u32::<16>(),
            pcfile: fixed.u32::<20>(),
            pcln: fixed.u32::<24>(),
            unit: fixed.u32::<32>(),
            start_line,
            func_id,
            flags,
            pcdata: fixed.u32::<28>(),
            funcdata,
            tables: at.checked_add(len)?,
        })
    }

    /// The value at `pc` of the table at `offset`, one of those that a function names; -1 where it has none, as the runtime says it.
    pub(super) fn value(&self, offset: u32, function: &Func, pc: u64, steps: &mut Steps) -> i32 {
        if offset == 0 {
            return -1;
        }
        let start = self.header.values.saturating_add(u64::from(offset));
        steps.value(self, start, self.header.quantum, function.entry, pc).unwrap_or(-1)
    }

    /// The value at `pc` of the function's table `number` (`PCDATA`).
    pub(super) fn pcdata(&self, number: u32, function: &Func, pc: u64, steps: &mut Steps) -> i32 {
        if number >= function.pcdata {
            return -1;
        }
        let offset = self.word(function.tables, u64::from(number)).unwrap_or(0);
        self.value(offset, function, pc, steps)
    }

    /// The offset of the function's datum `number` (`FUNCDATA`), from `go:func.*` on.
    pub(super) fn funcdata(&self, number: u8, function: &Func) -> Option<u32> {
        if number >= function.funcdata {
            return None;
        }
        let word = u64::from(function.pcdata) + u64::from(number);
        self.word(function.tables, word).filter(|offset| *offset != u32::MAX)
    }

    /// Fills `into` with what the function's datum at `offset` has.
    pub(super) fn read_inlined(&self, base: Option<u64>, offset: u64, into: &mut [u8]) -> Option<()> {
        let at = base.or(self.inlined)?.checked_add(offset)?;
        self.elf.read(at, into).ok()
    }

    /// Where file `number` of a compilation unit has its name, from the names of files on.
    pub(super) fn file(&self, unit: u32, number: u32) -> Option<u32> {
        let word = u64::from(unit.checked_add(number)?);
        self.word(self.header.units, word).filter(|offset| *offset != u32::MAX)
    }

    /// The file's offset of the name of a function. There is one at 0, though Go's runtime takes that for none and shows it as nothing.
    pub(super) fn name_offset(&self, at: u32) -> Option<u64> {
        let inside = self.header.names.checked_add(u64::from(at)).filter(|inside| *inside < self.header.units)?;
        Some(self.header.offset + inside)
    }

    /// Whether a name begins there.
    pub(super) fn is_name(&self, at: u32) -> bool {
        let Some(before) = at.checked_sub(1) else { return true };
        let mut around = [0; 2];
        let before = self.header.names.checked_add(u64::from(before)).filter(|before| *before < self.header.units);
        before.and_then(|before| self.read(before, &mut around)).is_some() && around[0] == 0 && around[1] != 0
    }

    /// The file's offset of the name of a file.
    pub(super) fn file_offset(&self, at: u32) -> Option<u64> {
        let inside = self.header.files.checked_add(u64::from(at)).filter(|inside| *inside < self.header.values)?;
        Some(self.header.offset + inside)
    }

    /// Fills `into` from `inside` on, counted from the header.
    pub(super) fn read(&self, inside: u64, into: &mut [u8]) -> Option<()> {
        inside.checked_add(into.len() as u64).filter(|end| *end <= self.header.len)?;
        self.elf.read_at(self.header.offset + inside, into).ok()
    }

    /// How many bytes there are from `inside` on.
    pub(super) fn rest(&self, inside: u64) -> u64 {
        self.header.len.saturating_sub(inside)
    }

    pub(super) fn word(&self, base: u64, number: u64) -> Option<u32> {
        let mut word = [0; 4];
        self.read(base.checked_add(number.checked_mul(4)?)?, &mut word)?;
        Some(u32::from_le_bytes(word))
    }
}
