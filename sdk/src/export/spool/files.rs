//! Single files of a spool's folder: names, and how they are opened, made and replaced.
//!
//! In: paths. Out: regular files; whatever else has one of our names (a link, a pipe, a folder) is an error and stays as it
//! is. For a thread that may wait for the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use super::record::NO_NUMBER;
use crate::error::Error;

/// The name of the segment whose first record is number `first`.
pub(super) fn name_of(first: u64) -> String {
    format!("{first:016x}.segment")
}

/// The number in the name of a segment. Numbers that no counter reaches are not ours.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let first = u64::from_str_radix(name.strip_suffix(".segment")?, 16).ok()?;
    (name_of(first) == name && first < NO_NUMBER).then_some(first)
}

/// The error of doing `what` to `path`.
pub(super) fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    let remedy = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "make room on the disk, or lower the bound of the spool"
        }
        ErrorKind::NotFound => "leave the folder to the profiler",
        _ => "give the spool a folder that the process may write to",
    };
    Error::environment(format!("{what} {}", path.display()), error, remedy)
}

/// Opens a file to read.
pub(super) fn open(path: &Path) -> io::Result<File> {
    regular(path)?;
    File::open(path)
}

/// Whether what could not be read will not be the next time either: it is not for us, or the disk has damaged it.
///
/// Source: errno(3): `EIO`; `EBADMSG` and `EUCLEAN`, by which file systems say that checksums or structures are wrong.
pub(super) fn is_lost(error: &io::Error) -> bool {
    const DAMAGED: [i32; 3] = [5, 74, 117];
    let is_damaged = error.raw_os_error().is_some_and(|number| DAMAGED.contains(&number));
    error.kind() == io::ErrorKind::PermissionDenied || cfg!(target_os = "linux") && is_damaged
}

/// Makes a file that is not there.
pub(super) fn create(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().write(true).create_new(true)).open(path)
}

/// Appends `parts` to a file of `length` bytes, or leaves it as long as it was.
pub(super) fn append(path: &Path, length: u64, parts: [&[u8]; 2]) -> io::Result<()> {
    if regular(path)? != length {
        return Err(io::Error::other(format!("somebody else has changed it: it is not {length} bytes long any more")));
    }
    let mut file = OpenOptions::new().append(true).open(path)?;
    let written = parts.iter().try_for_each(|part| file.write_all(part));
    if written.is_err() {
        // What cannot be taken back has no valid checksum, or belongs to a record that nobody was told of.
        let _shortened = file.set_len(length);
    }
    written
}

/// Waits until the disk has the content of a file.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    regular(path)?;
    OpenOptions::new().append(true).open(path)?.sync_data()
}

/// Waits until the disk knows the files of a folder by name.
pub(super) fn sync_names(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Gives the file `name` the content `bytes`, all at once. Not synced: after a power cut it may be the old one, or none.
pub(super) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
    for path in [&path, &new] {
        match regular(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let _left_by_a_crash = fs::remove_file(&new);
    create(&new)?.write_all(bytes)?;
    fs::rename(new, path)
}

/// The length of a regular file.
pub(super) fn regular(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_file() { Ok(metadata.len()) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Lets nobody else read: profiles tell of the program.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
