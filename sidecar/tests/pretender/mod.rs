//! A program of C that pretends to be one of Go.
//!
//! In: a real Go program. Out: `sleep`, with the tables and the build information of that one, by `objcopy`. For tests of commands (`runtime`) and of the agent.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes it in `folder`.
pub(crate) fn make(go: &Path, folder: &Path) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let (pretends, mut copy) = (folder.join("pretends"), Command::new("objcopy"));
    for section in [".gopclntab", ".go.buildinfo"] {
        let part = folder.join(section);
        let mut dump = Command::new("objcopy");
        dump.args(["-O", "binary", "--only-section", section, "--set-section-flags", &format!("{section}=alloc")]);
        assert!(dump.arg(go).arg(&part).status().unwrap().success());
        copy.arg("--add-section").arg(format!("{section}={}", part.display()));
    }
    assert!(copy.arg("/bin/sleep").arg(&pretends).status().expect("objcopy: run `make setup`").success());
    pretends
}
