//! A folder for what tests compile.

use std::path::PathBuf;

/// Deleted when dropped.
pub(in crate::unwind) struct Folder(PathBuf);

impl Folder {
    pub(in crate::unwind) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("truth-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The path of a file in it.
    pub(in crate::unwind) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
