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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what has no end, or may wait for ever, is refused before it is read, and so is what is too large, and that a file is read whole.
    #[test]
    fn what_is_no_such_file_is_not_read() {
        let folder = std::env::temp_dir().join(format!("profiler-sidecar-named-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (pipe, large, small) = (folder.join("pipe"), folder.join("large"), folder.join("small"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&large, vec![b'x'; 1 + MOST as usize]).unwrap();
        std::fs::write(&small, vec![b'x'; MOST as usize]).unwrap();
        for path in [Path::new("/dev/zero"), &folder, &pipe, &large] {
            assert!(read(path).unwrap_err().contains("at most 1 MiB"), "{}", path.display());
        }
        assert_eq!(read(&small).map(|bytes| bytes.len() as u64), Ok(MOST));
        assert!(read(&folder.join("none")).unwrap_err().contains("No such file"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
