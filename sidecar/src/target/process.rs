//! One process: a number together with the time of its start, so that a later process of the same number is not taken for it.
//!
//! In: a pid. Out: its line of `/proc/PID/stat`, its memory, mappings and files. Numbers are those of the `/proc` that we see,
//! which is to be that of our own pid namespace.

use std::fs::File;

use super::fault::Fault;
use super::files::Files;
use super::folder::Folder;
use super::mappings::{Mapping, Mappings};
use super::memory::Memory;
use super::stat::{Stat, State};

/// Most bytes of `/proc/PID/stat`: 52 numbers and a name of at most 64 bytes.
const STAT_BYTES: usize = 4096;

/// Most bytes of `/proc/PID/status` up to the number of the process: a name, of which each of its 64 bytes may be written as four, and four short lines.
const STATUS_BYTES: usize = 1024;

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    pid: u32,
    start_time: u64,
}

impl Process {
    /// The process that has this number now, ended ones included as long as they have it.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(pid: u32) -> Result<Self, Fault> {
        Self::find_with(pid).map(|(process, _, _)| process)
    }

    /// The same, with its open folder and what `stat` says.
    ///
    /// # Errors
    /// When there is none.
    pub fn find_with(pid: u32) -> Result<(Self, Folder, Stat), Fault> {
        let folder = Folder::open(pid)?;
        let stat = stat(&folder)?;
        Ok((Self { pid, start_time: stat.start_time }, folder, stat))
    }

    /// The process that somebody means by its number, and what `stat` says. A thread has a folder by its number, too, which no list of `/proc` shows (proc(5)).
    ///
    /// # Errors
    /// When there is none, or the number is a thread's.
    pub fn named(pid: u32) -> Result<(Self, Stat), Fault> {
        let found = Self::find_with(pid);
        let (process, folder, stat) =
            found.map_err(|fault| if fault.is_gone() { Fault::Nobody { pid } } else { fault })?;
        let (status, _) = folder.read("status", STATUS_BYTES)?;
        match leader(&status) {
            Some(of) if of != pid => Err(Fault::Thread { pid, of }),
            Some(_) => Ok((process, stat)),
            None => Err(Fault::Unclear { pid, what: "status".into() }),
        }
    }

    /// A process by what was found of it earlier.
    #[must_use]
    pub fn new(pid: u32, start_time: u64) -> Self {
        Self { pid, start_time }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ticks from boot to its start.
    #[must_use]
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Its folder, open, after a look that it is still the same process.
    ///
    /// # Errors
    /// [`Fault::Gone`] when it is not.
    pub fn folder(&self) -> Result<Folder, Fault> {
        let folder = Folder::open(self.pid)?;
        let stat = stat(&folder)?;
        if stat.start_time == self.start_time { Ok(folder) } else { Err(Fault::Gone { pid: self.pid }) }
    }

    /// Whether it still runs. What was read of its memory before a `true` was its own.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let stat = Folder::open(self.pid).and_then(|folder| stat(&folder));
        stat.is_ok_and(|stat| stat.start_time == self.start_time && stat.state == State::Alive)
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory::of(self.pid)
    }

    /// Its mappings that have code or a file, by address. The kernel writes a line for each, so it takes the longer the more there are.
    ///
    /// # Errors
    /// When it is gone, or does not let us.
    pub fn mappings(&self) -> Result<Mappings, Fault> {
        Mappings::read(&self.folder()?)
    }

    /// Its files.
    ///
    /// # Errors
    /// When it is gone.
    pub fn files(&self) -> Result<Files, Fault> {
        self.folder().map(Files::new)
    }

    /// Its program. Can wait: see [`Files`].
    ///
    /// # Errors
    /// When it is gone, does not let us, or has none.
    pub fn open_exe(&self) -> Result<File, Fault> {
        self.files()?.exe().map(|(file, _)| file)
    }

    /// The file behind one of its mappings. Can wait: see [`Files`].
    ///
    /// # Errors
    /// When it is gone, does not let us, the mapping has none, or the file cannot be reached any more.
    pub fn open_mapped(&self, mapping: &Mapping) -> Result<File, Fault> {
        self.files()?.mapped(mapping)
    }
}

/// What the kernel says of the process that a folder is of.
///
/// # Errors
/// When it is gone.
pub(crate) fn stat(folder: &Folder) -> Result<Stat, Fault> {
    let (bytes, _) = folder.read("stat", STAT_BYTES)?;
    Stat::parse(&bytes).ok_or_else(|| Fault::Unclear { pid: folder.pid(), what: "stat".into() })
}

/// The process that a thread is of, by its `status`: `Tgid`. A name cannot pass for a line, as the kernel writes its line ends as `\n` (fs/proc/array.c, `proc_task_name`).
fn leader(status: &[u8]) -> Option<u32> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let number = lines.find_map(|line| line.strip_prefix(b"Tgid:"))?;
    std::str::from_utf8(number).ok()?.trim().parse().ok()
}
