//! A Go program of 100 MB: how long until the agent can name its functions, what that takes of memory, and how fast it names them then.
//!
//! `sidecar/benches/tables.rs`, in a process of its own, reads a program of 120,000 generated functions, each with an inlined call. *Repeated*
//! look-ups are of addresses that were asked for before, as nearly all of a profile's are; *new* ones read the tables.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::{build, run};

use super::super::Row;
use super::say;
use crate::lab::{Lab, workspace};
use crate::pod::{Pod, go};
use crate::report::Report;

/// The row.
pub(crate) const ROW: Row = Row { name: "sidecar-tables", what: "a Go program of 100 MB", measure };

/// Packages, and functions in each.
const PACKAGES: usize = 40;
const FUNCTIONS: usize = 3000;

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let folder = &Pod::of(lab)?.folder;
    let program = folder.join("large");
    if !program.exists() {
        write_source(&folder.join("large-source"))?;
        go(&folder.join("large-source"), &program)?;
    }
    let options = ["--release", "--package=profiler-sidecar", "--bench=tables"];
    let bench = build(workspace(), &options)?.pop().ok_or("cargo built no bench")?;
    let said = run(Command::new(bench).arg(&program), Duration::from_secs(300))?.json()?;
    let figure = |name: &str| said[name].as_f64().ok_or_else(|| format!("the bench did not say {name}"));
    let mut add = |what: &str, unit, digits, value| say(report, ROW.name, what, unit, digits, value);
    add("size of the program", "MB", 1, fs::metadata(&program)?.len() as f64 / 1e6);
    add("until its first function has a name (goal < 100)", "ms", 2, figure("ready_ms")?);
    add("memory that this took (goal < 10)", "MB", 2, figure("ready_bytes")? / 1e6);
    add("look-ups a second, repeated (goal ≥ 5)", "M", 2, figure("repeated")? / 1e6);
    add("look-ups a second, new", "M", 3, figure("new")? / 1e6);
    add("memory after all of them", "MB", 2, figure("all_bytes")? / 1e6);
    Ok(())
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
