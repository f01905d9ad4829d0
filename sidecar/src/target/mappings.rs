//! The mappings of a process: which file, and which part of it, lies where in its memory.
//!
//! In: `/proc/PID/maps`, line by line. Out: [`Mappings`], those with code or a file; or every line, to whoever scans. A process can have
//! as many as it likes and give their files any name: what is kept is bounded, and what was left out is counted.
//!
//! Source: proc_pid_maps(5); fs/proc/task_mmu.c, `show_map_vma`. The kernel writes a line feed in a name as `\012` and leaves a backslash as it
//! is, so a name with the one or the other is not told apart; ` (deleted)` can be part of a name as well. Who opens a file by its
//! name therefore compares [`Mapping::device`] and [`Mapping::inode`].

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::fault::Fault;
use super::folder::Folder;

/// Most mappings that are kept. The kernel's own bound is 65,530 unless an administrator raised it (`vm.max_map_count`).
const MOST: usize = 1 << 17;
/// Most lines that are looked at.
const MOST_LINES: usize = 1 << 20;
/// Most bytes of a line. The kernel's names are at most 4,096 bytes, each up to four characters.
const LINE_BYTES: usize = 20 << 10;
/// Bytes of a read: the kernel answers with whole lines, at most a page of them unless one is longer.
const READ_BYTES: usize = 32 << 10;
/// Most bytes of names that are kept of one process: those of a browser with all its libraries take a hundredth of it.
const MOST_NAMES: usize = 1 << 20;

/// A device by its two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Device {
    /// Its driver.
    pub major: u32,
    /// Which of the driver's.
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.major, self.minor)
    }
}

/// A part of a process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Where the first of the kernel's mappings ends that are one here: `/proc/PID/map_files` has a link for each of those.
    pub first_end: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// Where its file lies; not always what stat(2) says (overlayfs, btrfs).
    pub device: Device,
    /// Which file of the device; 0: none.
    pub inode: u64,
    /// Whether its bytes may be run.
    pub executable: bool,
    /// The name as the kernel writes it: a path as we would see it, `[vdso]`, `[anon:…]`, or nothing.
    pub name: Arc<Path>,
}

impl Mapping {
    /// Whether it is of a file, be it deleted by now.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.inode != 0
    }

    /// The path without the mark of a deleted file, and whether there was one.
    #[must_use]
    pub fn path(&self) -> (&Path, bool) {
        undeleted(&self.name)
    }

    /// The address in the file's own numbering of bytes.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        (self.start..self.end).contains(&address).then(|| self.offset.checked_add(address - self.start))?
    }

    /// Whether `next` goes on where this one ends, in memory and in the same file.
    fn goes_on_in(&self, next: &Line<'_>) -> bool {
        self.is_file()
            && (self.end, self.device, self.inode, self.executable)
                == (next.start, next.device, next.inode, next.executable)
            && self.offset.checked_add(self.end - self.start) == Some(next.offset)
            && self.name.as_os_str().as_bytes() == next.name
    }
}

/// A path without the mark ` (deleted)`, and whether there was one.
pub(crate) fn undeleted(path: &Path) -> (&Path, bool) {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(bare) => (Path::new(OsStr::from_bytes(bare)), true),
        None => (path, false),
    }
}

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// As of [`Mapping`], all of them.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// Where its file lies.
    pub device: Device,
    /// Which file of the device; 0: none.
    pub inode: u64,
    /// Whether it may be read.
    pub readable: bool,
    /// Whether its bytes may be run.
    pub executable: bool,
    /// The name as the kernel writes it.
    pub name: &'a [u8],
}

impl<'a> Line<'a> {
    /// Reads a line, without its line feed.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let (range, rest) = word(line)?;
        let (permissions, rest) = word(rest)?;
        let (offset, rest) = word(rest)?;
        let (device, rest) = word(rest)?;
        let (inode, rest) = word(rest)?;
        let (start, end) = split(range, b'-')?;
        let (major, minor) = split(device, b':')?;
        let (start, end) = (hex(start)?, hex(end)?);
        let name = rest.iter().position(|byte| *byte != b' ').and_then(|at| rest.get(at..));
        (start < end).then_some(Self {
            start,
            end,
            offset: hex(offset)?,
            device: Device { major: u32::try_from(hex(major)?).ok()?, minor: u32::try_from(hex(minor)?).ok()? },
            inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
            readable: permissions.first() == Some(&b'r'),
            executable: permissions.get(2) == Some(&b'x'),
            name: name.unwrap_or_default(),
        })
    }
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(at)?;
    (!word.is_empty()).then(|| (word, rest.get(1..).unwrap_or_default()))
}

fn split(text: &[u8], by: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == by)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn hex(text: &[u8]) -> Option<u64> {
    // `from_str_radix` takes a sign, which the kernel never writes.
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, 16).ok()
}

/// How a scan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scan {
    /// Lines that were understood.
    pub lines: usize,
    /// Lines that were not: too long, or no line of this kind.
    pub unclear: usize,
    /// There were more than anybody looks at.
    pub is_cut: bool,
    /// Mappings that are kept without their name, for which there was no room.
    pub nameless: usize,
}

/// Calls `see` with every line of `maps` until it says `false`.
///
/// # Errors
/// When reading fails.
pub(super) fn scan(maps: impl Read, mut see: impl FnMut(&Line<'_>) -> bool) -> io::Result<Scan> {
    let mut maps = BufReader::with_capacity(READ_BYTES, maps);
    let (mut line, mut scan) = (Vec::new(), Scan::default());
    loop {
        line.clear();
        if maps.by_ref().take(LINE_BYTES as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(scan);
        }
        if scan.lines + scan.unclear >= MOST_LINES {
            return Ok(Scan { is_cut: true, ..scan });
        }
        let is_whole = line.pop_if(|last| *last == b'\n').is_some();
        if !is_whole && line.len() >= LINE_BYTES {
            maps.skip_until(b'\n')?;
            scan.unclear += 1;
            continue;
        }
        match Line::parse(&line) {
            Some(line) => {
                scan.lines += 1;
                if !see(&line) {
                    return Ok(scan);
                }
            }
            None => scan.unclear += 1,
        }
    }
}

/// The mappings of a process that have code or a file, by address; neighbours of one file in one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mappings {
    list: Vec<Mapping>,
    scan: Scan,
}

impl Mappings {
    /// Reads those of the process that `folder` is of.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub fn read(folder: &Folder) -> Result<Self, Fault> {
        Self::parse(folder.file("maps")?).map_err(|error| folder.fault("maps", error))
    }

    /// Calls `see` with every mapping of the process that `folder` is of, until it says `false`.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub fn each(folder: &Folder, see: impl FnMut(&Line<'_>) -> bool) -> Result<Scan, Fault> {
        scan(folder.file("maps")?, see).map_err(|error| folder.fault("maps", error))
    }

    /// Reads the text of `maps`.
    ///
    /// # Errors
    /// When reading fails.
    pub fn parse(maps: impl Read) -> io::Result<Self> {
        let (mut list, mut names) = (Vec::new(), Names::default());
        let scan = scan(maps, |line| keep(&mut list, &mut names, line))?;
        let is_cut = scan.is_cut || list.len() >= MOST;
        Ok(Self { scan: Scan { is_cut, nameless: names.refused, ..scan }, list })
    }

    /// The mapping in which `address` lies.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let behind = self.list.partition_point(|mapping| mapping.start <= address);
        self.list.get(behind.checked_sub(1)?).filter(|mapping| address < mapping.end)
    }

    /// All of them, by address.
    #[must_use]
    pub fn list(&self) -> &[Mapping] {
        &self.list
    }

    /// What was read, and whether it was all.
    #[must_use]
    pub fn scan(&self) -> Scan {
        self.scan
    }
}

/// Names, each kept once, within a bound.
#[derive(Debug, Default)]
struct Names {
    known: HashSet<Arc<Path>>,
    bytes: usize,
    refused: usize,
}

impl Names {
    fn intern(&mut self, name: &[u8]) -> Arc<Path> {
        let name = Path::new(OsStr::from_bytes(name));
        if let Some(known) = self.known.get(name) {
            return Arc::clone(known);
        }
        let cost = name.as_os_str().len() + size_of::<Arc<Path>>();
        if self.bytes + cost > MOST_NAMES {
            self.refused += 1;
            return self.intern_nothing();
        }
        self.bytes += cost;
        let name = Arc::from(name);
        self.known.insert(Arc::clone(&name));
        name
    }

    /// The name of what has none.
    fn intern_nothing(&mut self) -> Arc<Path> {
        let nothing = Path::new("");
        self.known.get(nothing).cloned().unwrap_or_else(|| {
            let nothing = Arc::from(nothing);
            self.known.insert(Arc::clone(&nothing));
            nothing
        })
    }
}

/// Keeps `line` if it is worth it; `false`: there is no more room. What comes out of order is left out, for [`Mappings::find`] rests on it.
fn keep(list: &mut Vec<Mapping>, names: &mut Names, line: &Line<'_>) -> bool {
    let last = list.last_mut();
    if !(line.inode != 0 || line.executable) || last.as_ref().is_some_and(|last| line.start < last.end) {
        return true;
    }
    let name = match last {
        Some(last) if last.goes_on_in(line) => {
            last.end = line.end;
            return true;
        }
        Some(last) if last.name.as_os_str().as_bytes() == line.name => Arc::clone(&last.name),
        _ => names.intern(line.name),
    };
    let Line { start, end, offset, device, inode, executable, .. } = *line;
    list.push(Mapping { start, end, first_end: end, offset, device, inode, executable, name });
    list.len() < MOST
}

#[cfg(test)]
mod tests;
