//! A file that a setting names: settings, certificates, keys.
//!
//! In: a path. Out: all that is in it; what is no regular file, or larger than such files are, is refused before it is read: a device has no end, and a pipe may wait
//! for ever.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Most bytes.
const MOST: u64 = 1 << 20;

/// What is in it.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| error.to_string();
    let found = std::fs::metadata(path).map_err(said)?;
    if !found.is_file() || found.len() > MOST {
        return Err("it is not a file of at most 1 MiB".into());
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MOST).read_to_end(&mut bytes)).map_err(said)?;
    Ok(bytes)
}
