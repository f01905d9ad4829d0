//! The files of a process: its program and what it has mapped, opened as it sees them, in its own container.
//!
//! In: an open `/proc/PID`, a mapping. Out: an open file that is regular and is the one that was mapped; or why not. Ways, in order:
//! `map_files` (exact, deleted files as well; takes CAP_CHECKPOINT_RESTORE), the path under the process's `root`, the same path under ours
//! (for a process in a `chroot`), the link `exe` (the program, deleted or not). A file is looked at before it is opened: a pipe
//! or a device that a process puts in place of its program is never opened, nor is a link followed out of its root.
//!
//! Everything here and every read of what it returns can wait for long, as long as the process likes, where a file lies on a network or a
//! FUSE file system of which it has control: `open`, `fstat` and `read` then sleep until an answer comes, and no flag
//! prevents that. So this type owns all that it needs: it can be moved to a thread that is left behind.
//!
//! Source: proc(5), openat2(2), open(2) `O_PATH`.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, openat, openat2, statat};
use rustix::io::Errno;

use super::fault::Fault;
use super::folder::Folder;
use super::mappings::{Device, Mapping, undeleted};

/// Which file, and which state of it: equal for two processes that run the same program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Where it lies, as stat(2) says.
    pub device: Device,
    /// Which file of the device.
    pub inode: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When its content changed last, as seconds and nanoseconds.
    pub modified: (i64, u64),
}

/// The root of a process: equal for two that find the same file by the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Root {
    /// The mount namespace, by its inode.
    mounts: u64,
    device: u64,
    inode: u64,
}

/// The files of one process.
#[derive(Debug)]
pub struct Files {
    folder: Folder,
}

/// A way to the file of a mapping.
type Way = fn(&Files, &Mapping) -> Result<OwnedFd, Fault>;
/// Whether what was found that way is the file, where its numbers say nothing.
type Says = fn(&Files, &Mapping) -> bool;

impl Files {
    /// Those of the process that `folder` is of.
    #[must_use]
    pub fn new(folder: Folder) -> Self {
        Self { folder }
    }

    /// The program that the process runs, deleted or not.
    ///
    /// # Errors
    /// When the process is gone, does not let us, or has none (the kernel's own, ended ones).
    pub fn exe(&self) -> Result<(File, Identity), Fault> {
        let found = self.look_through("exe")?;
        let stat = self.regular("exe", &found)?;
        Ok((self.reopen("exe", &found)?, identity(&stat)))
    }

    /// Where the program lay when it was started, and whether it was deleted since.
    ///
    /// # Errors
    /// As [`Self::exe`].
    pub fn exe_path(&self) -> Result<(PathBuf, bool), Fault> {
        let link = self.folder.link("exe")?;
        let (path, is_deleted) = undeleted(Path::new(OsStr::from_bytes(&link)));
        Ok((path.to_owned(), is_deleted))
    }

    /// The file behind a mapping.
    ///
    /// # Errors
    /// When the process is gone, does not let us, the mapping has no file, the file is not regular, or by its name there is another one.
    pub fn mapped(&self, mapping: &Mapping) -> Result<File, Fault> {
        let name = mapping.name.to_string_lossy().into_owned();
        if !mapping.is_file() {
            return Err(Fault::Missing { pid: self.folder.pid(), what: format!("file behind {name:?}") });
        }
        let mut worst = None;
        let ways: [(Way, Says); 4] = [
            (Self::by_range, |files, mapping| files.is_there(mapping)),
            (Self::by_root, |_, mapping| !mapping.path().1),
            // The same path may lead to another file there.
            (Self::by_our_root, |_, _| false),
            (Self::by_exe, |files, mapping| files.is_program(mapping)),
        ];
        for (way, says) in ways {
            let expected = |found| self.expected(&name, mapping, &found, says);
            match way(self, mapping).and_then(expected) {
                Ok(file) => return Ok(file),
                // What a later way says about another file matters less than what the path said.
                Err(fault) => worst = Some(more_telling(worst, fault)),
            }
        }
        Err(worst.unwrap_or(Fault::Missing { pid: self.folder.pid(), what: name }))
    }

    /// Those of `mappings` whose file is the program that the process runs.
    ///
    /// # Errors
    /// As [`Self::exe`].
    pub fn of_program<'m>(&self, mappings: impl Iterator<Item = &'m Mapping>) -> Result<Vec<&'m Mapping>, Fault> {
        let found = self.look_through("exe")?;
        let (stat, file_system) = (self.regular("exe", &found)?, file_system(&found));
        Ok(mappings.filter(|mapping| self.is_of(mapping, (&stat, file_system), Self::is_program)).collect())
    }

    /// The regular file of this path in the process's own root, out of which no link leads.
    ///
    /// # Errors
    /// When the process is gone, does not let us, or there is none.
    pub fn below_root(&self, path: &Path) -> Result<File, Fault> {
        let root = self.look_through("root")?;
        let name = path.to_string_lossy();
        let found = self.resolve(&root, path).map_err(|errno| self.folder.missing(&name, errno))?;
        self.regular(&name, &found)?;
        self.reopen(&name, &found)
    }

    /// Its root; `None` where we may not look.
    #[must_use]
    pub fn root(&self) -> Option<Root> {
        let stat = |link| statat(&self.folder, link, AtFlags::empty()).ok();
        let (mounts, root) = (stat("ns/mnt")?, stat("root")?);
        Some(Root { mounts: mounts.st_ino, device: root.st_dev, inode: root.st_ino })
    }

    /// By `map_files`, where each of the kernel's mappings has a link to its very file.
    fn by_range(&self, mapping: &Mapping) -> Result<OwnedFd, Fault> {
        self.look_through(&range(mapping))
    }

    fn by_root(&self, mapping: &Mapping) -> Result<OwnedFd, Fault> {
        let root = self.look_through("root")?;
        self.under(&root, mapping)
    }

    fn by_our_root(&self, mapping: &Mapping) -> Result<OwnedFd, Fault> {
        let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        self.under(&root.map_err(|errno| self.folder.missing("root", errno))?, mapping)
    }

    fn by_exe(&self, _: &Mapping) -> Result<OwnedFd, Fault> {
        self.look_through("exe")
    }

    /// By a link of the kernel's: `exe`, `root`, those in `map_files`. `O_PATH`: nothing is opened yet.
    fn look_through(&self, link: &str) -> Result<OwnedFd, Fault> {
        let outcome = openat(&self.folder, link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        outcome.map_err(|errno| self.folder.missing(link, errno))
    }

    /// By the mapping's path below `root`, out of which no link leads.
    fn under(&self, root: &OwnedFd, mapping: &Mapping) -> Result<OwnedFd, Fault> {
        let mut outcome = Err(Errno::NOENT);
        for path in spellings(&mapping.name) {
            outcome = self.resolve(root, &path);
            if outcome.is_ok() {
                break;
            }
        }
        let name = mapping.name.to_string_lossy();
        outcome.map_err(|errno| self.folder.missing(&name, errno))
    }

    fn resolve(&self, root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// Whether the kernel calls what lies there now as it calls the file of `mapping`: the process may run another program by now.
    fn is_there(&self, mapping: &Mapping) -> bool {
        let link = self.folder.link(&range(mapping));
        link.is_ok_and(|link| link == mapping.name.as_os_str().as_bytes())
    }

    /// Whether the kernel calls the program as it calls the file of `mapping`.
    fn is_program(&self, mapping: &Mapping) -> bool {
        self.folder.link("exe").is_ok_and(|link| link == mapping.name.as_os_str().as_bytes())
    }

    /// Whether `mapping` is of a file: by its numbers, or, where these say nothing, as the way that it was found on `says`.
    fn is_of(&self, mapping: &Mapping, (stat, file_system): (&Stat, Option<u64>), says: Says) -> bool {
        match sameness(mapping, stat, file_system) {
            Sameness::Same => true,
            Sameness::Unknown => says(self, mapping),
            Sameness::Other => false,
        }
    }

    /// Opens what was found, if it is the file that `mapping` is of.
    fn expected(&self, name: &str, mapping: &Mapping, found: &OwnedFd, says: Says) -> Result<File, Fault> {
        let stat = self.regular(name, found)?;
        if !self.is_of(mapping, (&stat, file_system(found)), says) {
            return Err(Fault::Replaced { pid: self.folder.pid(), what: name.to_owned() });
        }
        self.reopen(name, found)
    }

    /// What stat(2) says, of regular files only.
    fn regular(&self, name: &str, found: &OwnedFd) -> Result<Stat, Fault> {
        let stat = fstat(found).map_err(|errno| self.folder.missing(name, errno))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            return Ok(stat);
        }
        Err(Fault::NotRegular { pid: self.folder.pid(), what: name.to_owned() })
    }

    /// Opens for reading what so far was only found: the very file, whatever its path leads to by now.
    fn reopen(&self, name: &str, found: &OwnedFd) -> Result<File, Fault> {
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let outcome = openat(CWD, path, flags, Mode::empty());
        outcome.map(File::from).map_err(|errno| Fault::from_errno(self.folder.pid(), name, errno))
    }
}

/// Where the kernel's link to the file of a mapping is.
fn range(mapping: &Mapping) -> String {
    format!("map_files/{:x}-{:x}", mapping.start, mapping.first_end)
}

/// What tells more: that a file is another one, or that we may not, before that there is none.
fn more_telling(known: Option<Fault>, new: Fault) -> Fault {
    let rank = |fault: &Fault| match fault {
        Fault::Gone { .. } => 4,
        Fault::NotRegular { .. } => 3,
        Fault::Replaced { .. } => 2,
        Fault::Missing { .. } => 0,
        _ => 1,
    };
    match known {
        Some(known) if rank(&known) >= rank(&new) => known,
        _ => new,
    }
}

/// How the file of a name in `maps` may be called: as it stands there, and with its line feeds.
fn spellings(name: &Path) -> Vec<PathBuf> {
    let bytes = name.as_os_str().as_bytes();
    let mut spellings = vec![name.to_owned()];
    let mut unescaped = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, behind)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(behind) => {
                unescaped.push(b'\n');
                rest = behind;
            }
            None => {
                unescaped.push(*first);
                rest = behind;
            }
        }
    }
    if unescaped != bytes {
        spellings.push(PathBuf::from(OsStr::from_bytes(&unescaped)));
    }
    spellings
}

/// File systems whose files stat(2) puts on another device than `maps` does: the device there is that of the layer below or of the whole
/// file system. Source: include/uapi/linux/magic.h.
const SHIFTING: [u64; 3] =
    [0x794c_7630 /* overlayfs */, 0x9123_683e /* btrfs */, 0xca45_1a4e /* bcachefs */];

fn file_system(found: &OwnedFd) -> Option<u64> {
    fstatfs(found).ok().map(|answer| answer.f_type as u64)
}

/// What the numbers of a file say of whether it is the one of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sameness {
    Same,
    /// They are of different layers.
    Unknown,
    Other,
}

/// A file has the number and the device of its mapping, or the number where devices are no help. Of overlayfs both can differ: numbers are those of the
/// layer below or of the file system as a whole, with the layer in the upper bits or without (`xino`), before and after a file was copied up. Then the
/// name has to tell: one without the mark of a deleted file still leads to the file that was opened by it. Source:
/// Documentation/filesystems/overlayfs.rst, "Inode properties".
fn sameness(mapping: &Mapping, stat: &Stat, file_system: Option<u64>) -> Sameness {
    let shifts = file_system.is_some_and(|kind| SHIFTING.contains(&kind));
    let is_overlay = file_system == Some(SHIFTING[0]);
    let same_number = mapping.inode == stat.st_ino;
    match (same_number, mapping.device == device(stat)) {
        (true, true) => Sameness::Same,
        (true, false) if shifts => Sameness::Same,
        _ if is_overlay => Sameness::Unknown,
        _ => Sameness::Other,
    }
}

fn device(stat: &Stat) -> Device {
    Device { major: rustix::fs::major(stat.st_dev), minor: rustix::fs::minor(stat.st_dev) }
}

fn identity(stat: &Stat) -> Identity {
    Identity {
        device: device(stat),
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: (stat.st_mtime, stat.st_mtime_nsec),
    }
}
