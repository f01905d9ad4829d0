//! Profiles as pprof files in a folder, the oldest of which make room for new ones.
//!
//! In: what the builder [`Files`] was told, or `PROFILER_FILES_DIR`. Out: a [`Folder`], checked, or an error that names the method or the
//! variable. Nothing is looked at or written here: a folder may come later.
//!
//! What waits in the queue is a [`batch`], [`writer`] hands it to a thread that may be held up by a disk, and [`folder`] is what that
//! thread does.

pub(super) mod batch;
pub(super) mod folder;
pub(super) mod writer;

use std::path::PathBuf;

use self::folder::{Folder, Written};
use crate::error::Error;
use crate::variables::Variables;

/// A folder that profiles are written to as pprof files, as code sets it: `checkout-cpu-20261122T151500Z-5be1f00d.pb.gz`, by service,
/// kind, start in UTC, and a number that keeps processes apart.
///
/// The folder must be there, and should be for profiles alone. Files appear whole, under their names, or not at all. The oldest of a
/// service make room for new ones; files with other names are left alone.
///
/// ```
/// use profiler::export::Files;
///
/// let files = Files::new("/var/lib/checkout/profiles").keep(1000).keep_bytes(1 << 30);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Files {
    folder: PathBuf,
    files: usize,
    bytes: u64,
}

/// An hour of profiles of CPU time, at one each 10 s.
const FILES: usize = 360;
const BYTES: u64 = 256 << 20;

/// The folder that the environment names.
const FOLDER: &str = "PROFILER_FILES_DIR";

impl Files {
    /// Files in `folder`: at most 360, which is an hour of them, and 256 MiB.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), files: FILES, bytes: BYTES }
    }

    /// How many files of a service stay: 1 to 10,000.
    pub fn keep(mut self, files: usize) -> Self {
        self.files = files;
        self
    }

    /// How many bytes they may take together: 4 MiB (a file is smaller) to 1 TiB.
    pub fn keep_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// The folder that the environment describes by itself.
    pub(super) fn described(variables: &Variables<'_>) -> Result<Option<Folder>, Error> {
        variables.text(FOLDER)?.map(|folder| Self::new(folder).checked(FOLDER)).transpose()
    }

    /// Notes that destinations of code are in force.
    pub(super) fn outweigh(variables: &Variables<'_>) {
        variables.outweigh("Config::export", FOLDER);
    }

    /// The folder, if all of it can be; `setting` is what named it.
    pub(super) fn checked(self, setting: &str) -> Result<Folder, Error> {
        if !(1..=10_000).contains(&self.files) {
            return Err(Error::setting("Files::keep", self.files, "1 to 10000 files can be kept", "keep 360"));
        }
        if !(4 << 20..=1 << 40).contains(&self.bytes) {
            let why = "4194304 (4 MiB) to 1099511627776 bytes (1 TiB) can be kept";
            return Err(Error::setting("Files::keep_bytes", self.bytes, why, "keep 268435456 (256 MiB)"));
        }
        // Absolute, for the program may go to another folder.
        let path = std::path::absolute(&self.folder).map_err(|error| {
            let remedy = "name a folder that is there, by its absolute path";
            Error::setting(setting, self.folder.display(), error.to_string(), remedy)
        })?;
        Ok(Folder { path, most_files: self.files, most_bytes: self.bytes, written: Written::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that bounds and folders that cannot be are refused by the method or variable that set them.
    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |files: Files| files.checked("Files::new").unwrap_err().to_string();
        assert!(refused(Files::new("")).starts_with("Files::new=\"\": "));
        assert!(refused(Files::new("/a").keep(0)).starts_with("Files::keep=\"0\": 1 to 10000"));
        assert!(refused(Files::new("/a").keep_bytes(1 << 20)).starts_with("Files::keep_bytes=\"1048576\": 4194304"));
        let lookup = |name: &str| (name == FOLDER).then(|| "profiles".into());
        let folder = Files::described(&Variables::new(&lookup)).unwrap().unwrap();
        assert!(folder.path.is_absolute() && folder.path.ends_with("profiles"), "{folder:?}");
        assert!(Files::described(&Variables::new(&|_| None)).unwrap().is_none());
    }
}
