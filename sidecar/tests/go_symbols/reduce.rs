//! A small file with the first functions of a Go program: its tables as they are, at the addresses that they had, and nothing else.
//!
//! In: a program of this machine's processor that is not position-independent, with section headers. Out: an ELF file of some ten kilobytes: seeds for
//! fuzzing, and fixtures of versions that cannot be had everywhere. Layouts as `sidecar/src/go/pclntab.rs` names them.

use std::ops::Range;

use profiler_sidecar::elf::File;

/// Where the file is loaded: nothing of a real program is there.
const BASE: u64 = 0x1000_0000;
/// Bytes of file header and program headers.
const HEADERS: usize = 64 + 2 * 56;
/// Offsets of parts are those of tables of which the end is not told: so much is kept behind the last beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slack {
    pub(crate) parts: usize,
    pub(crate) names: usize,
}
/// All that the functions can ask for: of names, a small program's.
pub(crate) const AMPLE: Slack = Slack { parts: 2048, names: 128 << 10 };
/// `FUNCDATA_InlTree`.
const TREE: usize = 3;

/// What is kept of each part.
struct Ends {
    names: usize,
    units: usize,
    values: usize,
    trees: Range<usize>,
}

struct Source<'a> {
    /// The table, and the parts of it.
    table: &'a [u8],
    parts: [usize; 5],
    /// `go:func.*`.
    trees: &'a [u8],
    module: &'a [u8],
    build: &'a [u8],
}

/// The first `count` functions of a program of Go 1.`minor`.
pub(crate) fn reduced(program: &[u8], minor: u32, count: usize, slack: Slack) -> Vec<u8> {
    let source = Source::of(program, minor);
    let (records, offsets, ends) = source.records(count, slack);
    let part = |number: usize, len: usize| {
        let start = source.parts[number];
        let end = source.parts.get(number + 1).map_or(source.table.len(), |end| *end);
        source.table[start..end.min(start + len)].to_vec()
    };
    let units = part(1, ends.units);
    let file = |word: &[u8; 4]| Some(u32::from_le_bytes(*word)).filter(|offset| *offset != u32::MAX);
    let files = units.as_chunks().0.iter().filter_map(file).max().unwrap() as usize + slack.parts / 8;
    let mut functions = Vec::new();
    for (number, offset) in offsets.iter().enumerate() {
        let at = source.parts[4] + 8 * number;
        functions.extend(&source.table[at..at + 4]);
        functions.extend((8 * count as u32 + 4 + offset).to_le_bytes());
    }
    let end = source.parts[4] + 8 * count;
    functions.extend(&source.table[end..end + 4]);
    functions.extend(records);
    let parts = [part(0, ends.names), units, part(2, files), part(3, ends.values), functions];
    let text = u64_at(source.module, 8 * 22)..source.text_end(count);
    linked(&source, &parts, &ends.trees, text, minor)
}

impl<'a> Source<'a> {
    fn of(program: &'a [u8], minor: u32) -> Self {
        let elf = File::of_bytes(program.to_vec()).unwrap();
        let section = |name: &str| {
            let section = elf.section(name).unwrap();
            (section.address, &program[section.offset as usize..][..section.size as usize])
        };
        let (address, table) = section(".gopclntab");
        let parts = [32, 40, 48, 56, 64].map(|at| u64_at(table, at) as usize);
        let is_module = |at: &usize| {
            let words = [u64_at(program, *at), u64_at(program, *at + 8)];
            words == [address, address + parts[0] as u64]
        };
        let module = (0..program.len() - 400).step_by(8).find(is_module).unwrap();
        let module = &program[module..module + 8 * 48];
        let trees = elf.offset_of(u64_at(module, 8 * word_of_trees(minor))).unwrap() as usize;
        Self { table, parts, trees: &program[trees..], module, build: section(".go.buildinfo").1 }
    }

    /// The records of the first functions, where each begins among them, and how much of other parts they need.
    fn records(&self, count: usize, slack: Slack) -> (Vec<u8>, Vec<u32>, Ends) {
        let (mut records, mut offsets) = (Vec::new(), Vec::new());
        let mut ends = Ends { names: 0, units: 0, values: 0, trees: self.trees.len()..0 };
        let fixed = if self.table[0] & 1 == 0 { 40 } else { 44 };
        for number in 0..count {
            let lines = self.parts[4];
            let at = lines + u32_at(self.table, lines + 8 * number + 4) as usize;
            let word = |offset: usize| u32_at(self.table, at + offset) as usize;
            let (pcdata, funcdata) = (word(28), usize::from(self.table[at + fixed - 1]));
            let len = fixed + 4 * (pcdata + funcdata);
            // Those of inlined functions may stand behind them.
            ends.names = ends.names.max(word(4) + slack.names);
            ends.units = ends.units.max(4 * word(32) + slack.parts);
            let values = [16, 20, 24].into_iter().chain((fixed..).step_by(4).take(pcdata)).map(word).max();
            ends.values = ends.values.max(values.unwrap() + slack.parts);
            if funcdata > TREE && word(fixed + 4 * (pcdata + TREE)) != u32::MAX as usize {
                let tree = word(fixed + 4 * (pcdata + TREE));
                ends.trees = ends.trees.start.min(tree)..ends.trees.end.max(tree + slack.parts);
            }
            offsets.push(records.len() as u32);
            records.extend(&self.table[at..at + len]);
        }
        (records, offsets, ends)
    }

    fn text_end(&self, count: usize) -> u64 {
        u64_at(self.module, 8 * 22) + u64::from(u32_at(self.table, self.parts[4] + 8 * count))
    }
}

/// Puts the parts into a file.
fn linked(source: &Source<'_>, parts: &[Vec<u8>; 5], trees: &Range<usize>, text: Range<u64>, minor: u32) -> Vec<u8> {
    let mut file = vec![0; HEADERS];
    let build = begin(&mut file);
    file.extend(source.build);
    let table = begin(&mut file);
    file.extend(&source.table[..72]);
    let mut module = source.module.to_vec();
    let mut at = [0; 5];
    for (number, part) in parts.iter().enumerate() {
        file.resize(file.len().next_multiple_of(8), 0);
        at[number] = file.len() - table;
        file.extend(part);
        set(&mut file, table + 32 + 8 * number, (at[number]) as u64);
        set(&mut module, [8, 32, 56, 80, 104][number], BASE + (table + at[number]) as u64);
    }
    let functions = u32_at(&parts[4], 4) as u64 / 8;
    set(&mut file, table + 8, functions);
    let table_end = file.len();
    let trees_at = begin(&mut file);
    file.extend(&source.trees[trees.start..trees.end.min(source.trees.len())]);
    let module_at = begin(&mut file);
    set(&mut module, 0, BASE + table as u64);
    set(&mut module, 8 * 20, text.start);
    set(&mut module, 8 * 21, text.end);
    set(&mut module, 8 * 23, text.end);
    set(&mut module, 8 * word_of_trees(minor), BASE + trees_at as u64 - trees.start as u64);
    file.extend(&module);
    let names = [
        (".go.buildinfo", 1, build, source.build.len(), 0),
        (".gopclntab", 1, table, table_end - table, 0),
        // Symbols that have the names of functions in Go's own table.
        (".symtab", 2, 0, 0, 5),
        (".noptrdata", 1, module_at, module.len(), 0),
        (".strtab", 3, table + at[0], parts[0].len(), 0),
    ];
    sections(&mut file, &names, &symbols(source, functions as usize));
    headers(&mut file, text);
    file
}

/// An entry of a symbol table for each function.
fn symbols(source: &Source<'_>, functions: usize) -> Vec<u8> {
    let mut symbols = vec![0; 24];
    for number in 0..functions {
        let at = source.parts[4] + 8 * number;
        let record = source.parts[4] + u32_at(source.table, at + 4) as usize;
        let entry = u32_at(source.table, at);
        symbols.extend(u32_at(source.table, record + 4).to_le_bytes());
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((u64_at(source.module, 8 * 22) + u64::from(entry)).to_le_bytes());
        symbols.extend(u64::from(u32_at(source.table, at + 8) - entry).to_le_bytes());
    }
    symbols
}

type Named = (&'static str, u32, usize, usize, u32);

/// Adds the section headers: each with name, type, offset, length, link.
fn sections(file: &mut Vec<u8>, named: &[Named], symbols: &[u8]) {
    let symbols_at = begin(file);
    file.extend(symbols);
    let mut names = vec![0];
    let mut table = vec![0; 64];
    let own = [(".shstrtab", 3, file.len(), 0, 0)];
    for (name, kind, at, len, link) in named.iter().chain(&own) {
        let (at, len) = if *kind == 2 { (symbols_at, symbols.len()) } else { (*at, *len) };
        let mut section = [0; 64];
        section[..4].copy_from_slice(&(names.len() as u32).to_le_bytes());
        names.extend(format!("{name}\0").bytes());
        section[4..8].copy_from_slice(&kind.to_le_bytes());
        let len = if *name == ".shstrtab" { names.len() } else { len };
        for (field, value) in [(16, BASE + at as u64), (24, at as u64), (32, len as u64)] {
            section[field..field + 8].copy_from_slice(&value.to_le_bytes());
        }
        section[40..44].copy_from_slice(&link.to_le_bytes());
        table.extend(section);
    }
    file.extend(&names);
    let at = begin(file);
    set(file, 0x28, at as u64);
    let count = named.len() as u8 + 2;
    (file[0x3a], file[0x3c], file[0x3e]) = (64, count, count - 1);
    file.extend(table);
}

/// File header and program headers: the text, which has no bytes, and all of the file.
fn headers(file: &mut [u8], text: Range<u64>) {
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[0x10..0x14].copy_from_slice(&[2, 0, 62, 0]);
    (file[0x20], file[0x36], file[0x38]) = (64, 56, 2);
    let len = file.len() as u64;
    let segments = [(5_u32, 0, text.start, 0, text.end - text.start), (6, 0, BASE, len, len)];
    for (number, (flags, offset, address, in_file, in_memory)) in segments.into_iter().enumerate() {
        let at = 64 + 56 * number;
        file[at..at + 4].copy_from_slice(&1_u32.to_le_bytes());
        file[at + 4..at + 8].copy_from_slice(&flags.to_le_bytes());
        let words = [offset, address, 0, in_file, in_memory, 0];
        (at + 8..).step_by(8).zip(words).for_each(|(at, word)| set(file, at, word));
    }
}

fn word_of_trees(minor: u32) -> usize {
    match minor {
        ..20 => 38,
        20..27 => 40,
        _ => 43,
    }
}

/// Where the next part begins.
fn begin(file: &mut Vec<u8>) -> usize {
    file.resize(file.len().next_multiple_of(64), 0);
    file.len()
}

fn set(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}
