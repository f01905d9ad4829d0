//! A Go program of 100 MB: how long until the agent can name its functions, what that takes of memory, and how fast it names them then.
//!
//! `sidecar/benches/symbols.rs`, in a fresh process each time, reads a program of a quarter of a million generated functions, each with an inlined
//! call; it is built once, which takes minutes, and kept. *Repeated* look-ups are of addresses that were asked for before, as nearly all of a
//! profile's are; *new* ones read the tables.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::run;
use serde_json::Value;

use super::super::Row;
use super::{Needs, on_pod, say, spread};
use crate::lab::Lab;
use crate::pod::{Pod, go};
use crate::report::Report;

const NAME: &str = "sidecar-symbols";

/// The row.
pub(crate) const ROW: Row = Row {
    name: NAME,
    what: "a Go program of 100 MB",
    measure: |lab, report| on_pod(lab, report, NAME, Needs::Nothing, measure),
};

/// Packages, and functions in each.
const PACKAGES: usize = 84;
const FUNCTIONS: usize = 3000;

fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let program = large(&pod.folder)?;
    let one = |_| run(Command::new(pod.symbols()).arg(&program), Duration::from_secs(300))?.json();
    let said = (0..if lab.quick { 3 } else { 9 }).map(one).collect::<Result<Vec<Value>>>()?;
    say(report, NAME, "size of the program", "MB", 1, fs::metadata(&program)?.len() as f64 / 1e6);
    let mut add = |what: &str, unit, digits, name: &str, divisor: f64| -> Result<()> {
        let of = |said: &Value| said[name].as_f64().map(|value| value / divisor);
        let values: Option<Vec<f64>> = said.iter().map(of).collect();
        spread(report, NAME, what, unit, digits, &values.ok_or_else(|| format!("the bench did not say {name}"))?);
        Ok(())
    };
    add("until its first function has a name (goal < 100)", "ms", 2, "ready_ms", 1.0)?;
    add("memory that this took (goal < 10)", "MB", 2, "ready_bytes", 1e6)?;
    add("look-ups a second, repeated (goal ≥ 5)", "M", 2, "repeated", 1e6)?;
    add("look-ups a second, new", "M", 3, "new", 1e6)?;
    add("memory after all of them", "MB", 2, "all_bytes", 1e6)
}

/// The program, built if it is not there.
fn large(folder: &Path) -> Result<PathBuf> {
    let program = folder.join(format!("large-{PACKAGES}-{FUNCTIONS}"));
    if !program.exists() {
        let source = folder.join("large-source");
        write_source(&source)?;
        go(&source, ".", &folder.join("large-unfinished"))?;
        fs::rename(folder.join("large-unfinished"), &program)?;
    }
    Ok(program)
}

/// A module of as many packages, in the folder.
fn write_source(folder: &Path) -> Result<()> {
    let mut main = String::from("package main\n\nimport (\n");
    let mut calls = String::new();
    for package in 0..PACKAGES {
        let inner = folder.join(format!("p{package}"));
        fs::create_dir_all(&inner)?;
        fs::write(inner.join("all.go"), package_source(package)?)?;
        writeln!(main, "\t\"large/p{package}\"")?;
        writeln!(calls, "\tsum += p{package}.All()")?;
    }
    write!(main, ")\n\nfunc main() {{\n\tsum := uint64(0)\n{calls}\tprintln(sum)\n}}\n")?;
    fs::write(folder.join("main.go"), main)?;
    Ok(fs::write(folder.join("go.mod"), "module large\n\ngo 1.21\n")?)
}

/// Functions, and one that names them all, so that the linker keeps them.
fn package_source(package: usize) -> Result<String> {
    let mut text = format!("package p{package}\n\nfunc mix(x uint64) uint64 {{ return (x ^ x>>7) * 31 }}\n\n");
    let mut all = String::from("var all = []func(uint64, []uint64) uint64{\n");
    for function in 0..FUNCTIONS {
        writeln!(
            text,
            "func NumberedFunction{function}(x uint64, y []uint64) uint64 {{\n\tfor i := range y {{\n\t\tif x&1 == {} {{\n\t\t\tx = mix(x + y[i])\n\t\t}} else {{\n\t\t\tx += mix(y[i]) * {function}\n\t\t}}\n\t}}\n\treturn x\n}}\n",
            function & 1
        )?;
        writeln!(all, "\tNumberedFunction{function},")?;
    }
    write!(
        text,
        "{all}}}\n\n// All is called by main.\nfunc All() (sum uint64) {{\n\tfor _, each := range all {{\n\t\tsum += each(sum, nil)\n\t}}\n\treturn sum\n}}\n"
    )?;
    Ok(text)
}
