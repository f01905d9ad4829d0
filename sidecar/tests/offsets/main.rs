//! The table of offsets beside debug information of programs that real Go versions built.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is not as it must be")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use profiler_sidecar::go::offsets::{Offsets, of_release};

/// One of each release that the ordinary module proxy has. Go 1.18 to 1.20 are older than that; 1.19 was compared by hand (Debian's 1.19.8).
const VERSIONS: &[(u16, &str)] = &[
    (21, "go1.21.13"),
    (22, "go1.22.12"),
    (23, "go1.23.12"),
    (24, "go1.24.13"),
    (25, "go1.25.11"),
    (26, "go1.26.8"),
    (27, "go1.27.0"),
];

fn go(module: &str, version: &str, processor: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("offsets");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(format!("{module}-{version}-{processor}"));
    let mut go = Command::new("go");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go").join(module));
    go.env("GOTOOLCHAIN", version).env("GOFLAGS", "-mod=mod -buildvcs=false").env("CGO_ENABLED", "0");
    if processor != "own" {
        go.env("GOARCH", processor);
    }
    let output =
        go.arg("build").arg("-o").arg(&program).arg(".").output().unwrap_or_else(|error| panic!("go: {error}"));
    assert!(output.status.success(), "{module} {version}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// What debug information says.
fn truth(dump: &Path, program: &Path) -> HashMap<String, u32> {
    let output = Command::new(dump).arg(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, at)| (name.to_owned(), at.parse().unwrap()))
        .collect()
}

#[test]
fn the_table_is_what_debug_information_says() {
    let dump = go("offsets", "local", "own");
    for (minor, version) in VERSIONS {
        let Offsets { g_m, m_curg, g_goid, g_startpc, g_labels, g_sched_sp, g_sched_bp, .. } =
            of_release(*minor).unwrap();
        for processor in ["amd64", "arm64"] {
            let truth = truth(&dump, &go("labelled", version, processor));
            let at = |name: &str| truth[&format!("runtime.{name}")];
            let found = ["g.m", "m.curg", "g.goid", "g.startpc", "g.labels"].map(at);
            assert_eq!(found, [g_m, m_curg, g_goid, g_startpc, g_labels], "{version} {processor}");
            let found = ["gobuf.sp", "gobuf.bp"].map(|name| at("g.sched") + at(name));
            assert_eq!(found, [g_sched_sp, g_sched_bp], "{version} {processor}");
            // As the kernel side takes them to be in all versions.
            assert_eq!([at("m.g0"), at("g.stack") + at("stack.hi")], [0, 8], "{version} {processor}");
        }
    }
}
