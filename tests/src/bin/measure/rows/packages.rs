//! What a user's program grows by: packages in the dependency tree, and bytes of a release build.
//!
//! Packages are those that `cargo tree` lists for a user who adds the profiler and nothing else, without build and test
//! dependencies. Bytes are the
//! sizes of the subjects' programs less that of the one without a profiler. Each of them holds the same web service (axum), so
//! what a profiler shares with one (tokio, hyper) does not count; and they are stripped. TLS is `rustls` with `ring` where a profiler has it: ours and pyroscope; pprof sends nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::run;

use super::Row;
use crate::lab::{Lab, workspace};
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "size", what: "packages and bytes that a program grows by", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let (mut packages, mut bytes) = (Vec::new(), Vec::new());
    let bare = length(lab, Who::Nobody)?;
    for who in Who::PROFILERS {
        packages.push((who, tree(who, lab.target())?.len() as f64));
        bytes.push((who, (length(lab, who)? - bare) / 1e6));
    }
    let what = "packages in cargo tree, itself included".into();
    report.add(Line { row: ROW.name, what, unit: "", digits: 0, values: packages });
    let what = "of a stripped release build of a web service".into();
    report.add(Line { row: ROW.name, what, unit: "MB", digits: 2, values: bytes });
    Ok(())
}

/// Name and version of the package of `who`.
pub(crate) fn version(who: Who, target: &Path) -> Result<String> {
    let package = who.package().ok_or("nobody has no package")?;
    let own = tree(who, target)?.into_iter().find(|line| line.starts_with(&format!("{package} ")));
    Ok(own.ok_or_else(|| format!("cargo tree does not list {package}"))?)
}

/// Name and version of the package of `who` as `Cargo.lock` has it, also where it was never fetched.
pub(crate) fn locked_version(who: Who) -> Result<String> {
    let package = who.package().ok_or("nobody has no package")?;
    let lock = std::fs::read_to_string(workspace().join("Cargo.lock"))?;
    let rest = lock.split_once(&format!("name = \"{package}\"\nversion = \"")).map(|(_, rest)| rest);
    let version = rest.and_then(|rest| rest.split('"').next());
    Ok(format!("{package} v{}", version.ok_or_else(|| format!("{package} is not in Cargo.lock"))?))
}

/// The packages in the tree of `who`, as `name version`.
fn tree(who: Who, target: &Path) -> Result<BTreeSet<String>> {
    let directory = target.join("measure").join(who.name());
    std::fs::create_dir_all(directory.join("src"))?;
    std::fs::write(directory.join("src/lib.rs"), "")?;
    std::fs::write(directory.join("Cargo.toml"), manifest(who)?)?;
    // The same versions as everywhere here; cargo takes out what is not needed.
    std::fs::copy(workspace().join("Cargo.lock"), directory.join("Cargo.lock"))?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["tree", "--offline", "--edges=normal", "--prefix=none", "--format={p}"]).current_dir(&directory);
    let finished = run(&mut command, Duration::from_secs(60))?;
    if !finished.status.success() {
        return Err(format!("cargo tree: {}", finished.stderr).into());
    }
    let named = |line: &String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let packages = finished.lines.iter().filter(|line| !line.is_empty()).map(named);
    Ok(packages.filter(|package| !package.starts_with(USER)).collect())
}

/// The name of a user's package.
const USER: &str = "user-of-a-profiler";

/// The manifest of a user who adds the profiler of `who` and nothing else.
fn manifest(who: Who) -> Result<String> {
    let dependency = match who {
        Who::Nobody | Who::Off | Who::Jemalloc | Who::JemallocPprof | Who::BareHooks => {
            return Err("no size is measured of it".into());
        }
        Who::Ours => format!("profiler-sdk = {{ path = {:?} }}", workspace().canonicalize()?.join("sdk")),
        Who::Pprof => "pprof = { version = \"0.15\", default-features = false }".into(),
        // Its other TLS features bring an implementation in C of their own.
        Who::Pyroscope => "pyroscope = { version = \"2\", default-features = false, \
                           features = [\"backend-pprof-rs\", \"rustls-no-provider\"] }"
            .into(),
    };
    let package = format!("[package]\nname = \"{USER}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n");
    Ok(format!("{package}\n[dependencies]\n{dependency}\n\n[workspace]\n"))
}

/// The size of its program without its symbol table (strip(1)).
fn length(lab: &Lab, who: Who) -> Result<f64> {
    let stripped = lab.target().join("measure").join(format!("{}.stripped", who.program()));
    std::fs::create_dir_all(lab.target().join("measure"))?;
    let mut command = Command::new("strip");
    let finished = run(command.arg("-o").arg(&stripped).arg(lab.program(who)?), Duration::from_secs(60))?;
    if !finished.status.success() {
        return Err(format!("strip: {}", finished.stderr).into());
    }
    Ok(std::fs::metadata(stripped)?.len() as f64)
}
