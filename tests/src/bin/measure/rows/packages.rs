//! What a user's program grows by: packages in the dependency tree, and bytes of a release build.
//!
//! Packages are those that `cargo tree` lists for a user who adds the profiler and nothing else, without build and test
//! dependencies. Bytes are the sizes of the subjects' programs less that of the one without a profiler. Each of them holds the same web
//! service (axum), so what a profiler shares with one (tokio, hyper) does not count; and they are stripped. TLS is `rustls` with `ring`
//! where a profiler has it: ours by default, and pyroscope; pprof sends nothing. Ours has a second pair of lines, without the feature `tls`:
//! the goals of 5 MB and 130 packages are about OTLP.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::{build, run};

use super::Row;
use crate::lab::{Lab, workspace};
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "size", what: "packages and bytes that a program grows by", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let (mut packages, mut bytes) = (Vec::new(), Vec::new());
    let bare = length(lab, lab.program(Who::Nobody)?)?;
    for who in Who::PROFILERS {
        packages.push((who, tree(who, &manifest(who)?, lab.target())?.len() as f64));
        bytes.push((who, (length(lab, lab.program(who)?)? - bare) / 1e6));
    }
    let (packages_alone, bytes_alone) = without_tls(lab)?;
    report.add(line("packages in cargo tree, itself included", packages));
    report.add(line("the same, OTLP without TLS", vec![(Who::Ours, packages_alone)]));
    report.add(Line { unit: "MB", digits: 2, ..line("of a stripped release build of a web service", bytes) });
    let bytes_alone = vec![(Who::Ours, bytes_alone)];
    report.add(Line { unit: "MB", digits: 2, ..line("the same, OTLP without TLS", bytes_alone) });
    Ok(())
}

fn line(what: &str, values: Vec<(Who, f64)>) -> Line {
    Line { row: ROW.name, what: what.into(), unit: "", digits: 0, values }
}

/// Packages and megabytes of ours without TLS. Its program and the one without a profiler are built anew, and then again as they were: they
/// share names.
fn without_tls(lab: &Lab) -> Result<(f64, f64)> {
    let bins = [Who::Ours, Who::Nobody].map(|who| format!("--bin={}", who.program()));
    let built = |features: &[&str]| {
        let options = ["--release", "--package=profiler-tests", "--no-default-features", &bins[0], &bins[1]];
        build(workspace(), &[&options[..], features].concat())
    };
    let programs = built(&[])?;
    let program = |who: Who| programs.iter().find(|path| path.ends_with(who.program())).ok_or("a program is missing");
    let bytes = length(lab, program(Who::Ours)?)? - length(lab, program(Who::Nobody)?)?;
    built(&["--features=peers"])?;
    let manifest = manifest_of(&ours(
        "default-features = false, features = [\"cpu\", \"export\", \"macros\", \"opentelemetry\", \"serve\"]",
    )?);
    Ok((tree(Who::Ours, &manifest, lab.target())?.len() as f64, bytes / 1e6))
}

/// Name and version of the package of `who`.
pub(crate) fn version(who: Who, target: &Path) -> Result<String> {
    let package = who.package().ok_or("nobody has no package")?;
    let own = tree(who, &manifest(who)?, target)?.into_iter().find(|line| line.starts_with(&format!("{package} ")));
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

/// The packages in the tree of a user of `who` with this manifest, as `name version`.
fn tree(who: Who, manifest: &str, target: &Path) -> Result<BTreeSet<String>> {
    let directory = target.join("measure").join(who.name());
    std::fs::create_dir_all(directory.join("src"))?;
    std::fs::write(directory.join("src/lib.rs"), "")?;
    std::fs::write(directory.join("Cargo.toml"), manifest)?;
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
        Who::Nobody | Who::Off | Who::Jemalloc | Who::JemallocPprof | Who::BareHooks | Who::OpenTelemetry => {
            return Err("no size is measured of it".into());
        }
        Who::Ours => ours("default-features = true")?,
        Who::Pprof => "pprof = { version = \"0.15\", default-features = false }".into(),
        // Its other TLS features bring an implementation in C of their own.
        Who::Pyroscope => "pyroscope = { version = \"2\", default-features = false, \
                           features = [\"backend-pprof-rs\", \"rustls-no-provider\"] }"
            .into(),
    };
    Ok(manifest_of(&dependency))
}

/// The dependency on this profiler with these features.
fn ours(features: &str) -> Result<String> {
    Ok(format!("profiler-sdk = {{ path = {:?}, {features} }}", workspace().canonicalize()?.join("sdk")))
}

fn manifest_of(dependency: &str) -> String {
    let package = format!("[package]\nname = \"{USER}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n");
    format!("{package}\n[dependencies]\n{dependency}\n\n[workspace]\n")
}

/// The size of a program without its symbol table (strip(1)).
fn length(lab: &Lab, program: &Path) -> Result<f64> {
    let stripped = lab.target().join("measure").join("stripped");
    std::fs::create_dir_all(lab.target().join("measure"))?;
    let mut command = Command::new("strip");
    let finished = run(command.arg("-o").arg(&stripped).arg(program), Duration::from_secs(60))?;
    if !finished.status.success() {
        return Err(format!("strip: {}", finished.stderr).into());
    }
    Ok(std::fs::metadata(stripped)?.len() as f64)
}
