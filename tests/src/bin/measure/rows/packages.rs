//! What a user's program grows by: packages in the dependency tree, and bytes of a release build.
//!
//! Packages are those that `cargo tree` lists for the profiler's own, without build and test dependencies. Bytes are the
//! sizes of the subjects' programs less that of the one without a profiler; they hold whatever those link, and no debug
//! information. TLS is `rustls` with `ring` where a profiler has it: ours and pyroscope; pprof sends nothing.

use std::collections::BTreeSet;
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
        packages.push((who, tree(who)?.len() as f64));
        bytes.push((who, (length(lab, who)? - bare) / 1e6));
    }
    let what = "packages in cargo tree, itself included".into();
    report.add(Line { row: ROW.name, what, unit: "", digits: 0, values: packages });
    let what = "of a release build beyond one without".into();
    report.add(Line { row: ROW.name, what, unit: "MB", digits: 2, values: bytes });
    Ok(())
}

/// Name and version of the package of `who`.
pub(crate) fn version(who: Who) -> Result<String> {
    let package = who.package().ok_or("nobody has no package")?;
    let own = tree(who)?.into_iter().find(|line| line.starts_with(&format!("{package} ")));
    Ok(own.ok_or_else(|| format!("cargo tree does not list {package}"))?)
}

/// The packages in the tree of `who`, as `name version`.
fn tree(who: Who) -> Result<BTreeSet<String>> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["tree", "--edges=normal", "--prefix=none", "--format={p}", "--features=profiler-tests/peers"]);
    command.args(["--package", who.package().ok_or("nobody has no package")?]).current_dir(workspace());
    let finished = run(&mut command, Duration::from_secs(60))?;
    if !finished.status.success() {
        return Err(format!("cargo tree: {}", finished.stderr).into());
    }
    let named = |line: &String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Ok(finished.lines.iter().filter(|line| !line.is_empty()).map(named).collect())
}

fn length(lab: &Lab, who: Who) -> Result<f64> {
    Ok(std::fs::metadata(lab.program(who)?)?.len() as f64)
}
