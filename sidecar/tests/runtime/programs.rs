//! Go programs of `tests/go`, built by any version in any form, once: what is built stays in the target folder and is taken again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One of each minor version that layouts are known of; the toolchain comes from the Go module proxy where it is not there yet.
pub(crate) const VERSIONS: [&str; 7] =
    ["go1.21.13", "go1.22.12", "go1.23.12", "go1.24.13", "go1.25.11", "go1.26.8", "go1.27.0"];

/// The executable of `tests/go/NAME`, built by `version` (or by the installed one: `local`) with `flags` for `architecture`.
pub(crate) fn build(name: &str, version: &str, flags: &[&str], architecture: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go").join(name);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
    std::fs::create_dir_all(&folder).unwrap();
    let form: String = flags.concat().chars().filter(|c| c.is_alphanumeric()).collect();
    let program = folder.join(format!("{name}-{version}-{architecture}-{form}"));
    // Tests run beside each other: one builds, the others wait. `go build` itself writes in place.
    let lock = File::create(program.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let mut command = Command::new("go");
    command.arg("build").args(flags).arg("-o").arg(&program).arg(".").current_dir(&source);
    // With C, a program is linked by the system's linker, whose work the others have nothing of.
    let with_c = flags.iter().any(|flag| flag.contains("-linkmode=external") || *flag == "-buildmode=plugin");
    command.env("GOTOOLCHAIN", toolchain(version)).env("GOARCH", architecture);
    command.env("CGO_ENABLED", if with_c { "1" } else { "0" });
    let output = command.env("GOFLAGS", "-mod=mod -buildvcs=false").output().expect("go is missing: run `make setup`");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// The installed toolchain is asked for as itself, so that it is not fetched again.
fn toolchain(version: &str) -> &str {
    let installed = Command::new("go").arg("env").arg("GOVERSION").env("GOTOOLCHAIN", "local").output().unwrap();
    if installed.stdout.trim_ascii() == version.as_bytes() { "local" } else { version }
}
