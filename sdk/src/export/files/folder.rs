//! The folder itself: room is made in it, files are written to it.
//!
//! In: a batch. Out: its files, each whole and on the disk before it has its name. Runs on a thread of its own, which a disk may hold
//! up for ever. What is in the folder is not to be trusted: nothing is followed, opened or removed that is not ours by its name.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::batch::{Batch, PprofFile, start_of};

/// Where files go, and how many stay.
#[derive(Debug)]
pub(in crate::export) struct Folder {
    pub(super) path: PathBuf,
    /// Of one service, as are the bytes.
    pub(super) most_files: usize,
    pub(super) most_bytes: u64,
    pub(super) written: Written,
}

/// What tells this folder's own files from others, and in which order they were written: after a clock was set back, their names do not.
#[derive(Debug)]
pub(in crate::export) struct Written {
    /// Other than that of all others in this process, for two destinations may have one folder.
    writer: u32,
    /// Names by their order.
    order: Mutex<HashMap<String, u64>>,
}

impl Default for Written {
    fn default() -> Self {
        static WRITERS: AtomicU32 = AtomicU32::new(0);
        Self { writer: WRITERS.fetch_add(1, Ordering::Relaxed), order: Mutex::default() }
    }
}

impl Written {
    fn order(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        // A map, changed in steps that cannot panic: what a poisoned lock guards is whole.
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This name is the latest.
    fn add(&self, name: &str) {
        let mut order = self.order();
        let next = order.values().max().map_or(1, |last| last + 1);
        order.insert(name.to_owned(), next);
    }
}

/// A file that is there. In the order of time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// Behind all others, those that were written here, in that order.
    order: u64,
    start: String,
    path: PathBuf,
    bytes: u64,
}

/// How long a file may take to get its name: one that still has none was left by a process that was killed.
const LONGEST_DRAFT: Duration = Duration::from_secs(600);

impl Folder {
    /// The name in `stats()`.
    pub(in crate::export) fn name(&self) -> String {
        format!("files {}", self.path.display())
    }

    /// Writes `batch`, after the oldest files have gone that there is no room for beside it.
    ///
    /// # Errors
    /// If anything cannot be done, which is said with its path. All of it may be tried again.
    pub(super) fn write(&self, batch: &Batch) -> Result<(), String> {
        self.make_room(batch)?;
        for file in &batch.files {
            self.write_file(file)?;
        }
        // The names, too, are to be there after the power has failed.
        let synced = File::open(&self.path).and_then(|folder| Descriptor::of(folder)?.with(File::sync_all));
        match synced {
            // What some file systems say of every folder: there the names are there with the files.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            synced => synced.map_err(said("sync", &self.path)),
        }
    }

    fn make_room(&self, batch: &Batch) -> Result<(), String> {
        let mut kept = self.kept(&batch.service)?;
        kept.sort();
        let names: HashSet<_> = kept.iter().filter_map(|file| file.path.file_name()?.to_str()).collect();
        self.written.order().retain(|name, _| names.contains(name.as_str()));
        let mut files = kept.len() + batch.files.len();
        let mut bytes = kept.iter().fold(batch.bytes(), |sum, file| sum.saturating_add(file.bytes));
        let mut failed = Ok(());
        for oldest in kept {
            if files <= self.most_files && bytes <= self.most_bytes {
                return Ok(());
            }
            // One that somebody else holds fast is no reason to keep the next.
            match remove(&oldest.path) {
                Ok(()) => (files, bytes) = (files - 1, bytes.saturating_sub(oldest.bytes)),
                Err(why) => failed = Err(why),
            }
        }
        if files <= self.most_files && bytes <= self.most_bytes { Ok(()) } else { failed }
    }

    /// The files of `service`. What was left without a name is removed.
    fn kept(&self, service: &str) -> Result<Vec<Kept>, String> {
        let (mut kept, order) = (Vec::new(), self.written.order().clone());
        for name in self.names(service)? {
            let draft = draft_of(&name);
            let Some(start) = start_of(draft.unwrap_or(&name), service) else { continue };
            let path = self.path.join(&name);
            // Of the link itself, where it is one.
            let Some(metadata) = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file) else { continue };
            match draft {
                None => {
                    let order = order.get(&name).copied().unwrap_or(0);
                    kept.push(Kept { order, start: start.to_owned(), path, bytes: metadata.len() });
                }
                // Tidying: what cannot be removed stays.
                Some(_) if is_left(&metadata) => _ = fs::remove_file(&path),
                Some(_) => {}
            }
        }
        Ok(kept)
    }

    /// The names of the files of `service`, drafts among them.
    fn names(&self, service: &str) -> Result<Vec<String>, String> {
        let said = || said("read", &self.path);
        // Opened before the listing and closed after it: closed by the host in between, it says that the listing's descriptor may be, too,
        // and the standard library panics where that cannot be closed.
        let witness = File::open(&self.path).and_then(Descriptor::of).map_err(said())?;
        let mut entries = fs::read_dir(&self.path).map_err(said())?;
        let is_of_service = |name: &String| start_of(draft_of(name).unwrap_or(name), service).is_some();
        let names = entries.by_ref().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let names = names.filter(is_of_service).collect();
        if !witness.is_ours() {
            std::mem::forget(entries);
            return Err(said()(io::Error::other("the program has closed the descriptor")));
        }
        Ok(names)
    }

    fn write_file(&self, file: &PprofFile) -> Result<(), String> {
        let path = self.path.join(&file.name);
        let draft = self.path.join(self.draft(&file.name));
        let written = write_whole(&draft, &file.contents).and_then(|()| fs::rename(&draft, &path));
        written.map_err(|error| {
            // Where not even that can be done, it is removed later.
            let _removed = fs::remove_file(&draft);
            said("write", &path)(error)
        })?;
        self.written.add(&file.name);
        Ok(())
    }

    /// What the file `name` is called until it is whole.
    fn draft(&self, name: &str) -> String {
        format!(".{name}.{}{DRAFT}", self.written.writer)
    }
}

/// What a file's name ends with, behind a dot before it, until it is whole.
const DRAFT: &str = ".tmp";

/// A new file; one that is there, or a link, is not written through.
fn write_whole(path: &Path, contents: &[u8]) -> io::Result<()> {
    let file = Descriptor::of(File::options().write(true).create_new(true).open(path)?)?;
    file.with(|mut file| {
        file.write_all(contents)?;
        file.sync_data()
    })
}

/// An open file, closed only if it still is the one that was opened: a disk takes its time, in which a host may close all descriptors
/// that it does not know, and open files of its own in their place.
struct Descriptor {
    /// `None` only while it is dropped.
    file: Option<File>,
    identity: Identity,
}

impl Descriptor {
    fn of(file: File) -> io::Result<Self> {
        Ok(Self { identity: identity(&file)?, file: Some(file) })
    }

    /// Does `work`, which came to nothing if the file is another one afterwards.
    fn with(&self, work: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let done = self.file.as_ref().map_or(Ok(()), work);
        if self.is_ours() { done } else { Err(io::Error::other("the program has closed the descriptor")) }
    }

    fn is_ours(&self) -> bool {
        self.file.as_ref().is_some_and(|file| identity(file).is_ok_and(|identity| identity == self.identity))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.file.take());
        }
    }
}

/// What tells a file from others: device and number.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(file: &File) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt;

    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Nothing runs there that writes files.
#[cfg(not(unix))]
fn identity(file: &File) -> io::Result<Identity> {
    file.metadata().map(|_| (0, 0))
}

/// The name that a draft will have.
fn draft_of(name: &str) -> Option<&str> {
    let name = name.strip_prefix('.')?.strip_suffix(DRAFT)?;
    // Earlier versions left out who writes.
    let writer = name.rsplit_once('.').filter(|(_, end)| end.bytes().all(|byte| byte.is_ascii_digit()));
    Some(writer.map_or(name, |(name, _)| name))
}

/// Whether nobody can be writing to it any more.
fn is_left(draft: &fs::Metadata) -> bool {
    draft.modified().is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LONGEST_DRAFT))
}

/// Removes a file that another process may remove as well.
fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(said("remove", path)(error)),
        _ => Ok(()),
    }
}

fn said(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> String {
    move |error| format!("cannot {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests;
