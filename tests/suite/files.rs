//! Profiles as files of a folder that the environment names, read by Go's tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profiler_tests::process::{Finished, Running};

use crate::scenario::{command, half_turn, number, result};

/// Check that a program is told of a folder by its environment alone, that everything it took is in files there, and that `go tool pprof`
/// shows from each in which function it was.
#[test]
fn profiles_of_a_folder_are_read_by_go() {
    let _turn = half_turn();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("files");
    let _gone = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let outcome = result(command("settings", &["service=shop"]).env("PROFILER_FILES_DIR", &folder));
    assert_eq!(outcome["flushed"], true, "{outcome}");
    let figures = ["/stats/exported", "/stats/destinations/0/delivered"].map(|path| number(&outcome, path));
    assert!(figures[0] > 0 && figures == [number(&outcome, "/stats/taken"); 2], "{outcome}");
    let files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("shop-cpu-20") && name.ends_with(".pb.gz"), "{name}");
        let top = top(&file);
        assert!(top.contains("Type: cpu") && top.contains("profiler_tests::workload::spin"), "{top}");
    }
}

/// What `go tool pprof -top` shows of a file.
fn top(file: &Path) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-symbolize=none", "-top", "-nodecount=1000"]).arg(file);
    let running = Running::start(command.env("GOTOOLCHAIN", "local"), Duration::from_secs(60)).unwrap();
    let Finished { status, lines, stderr } = running.finish().unwrap();
    assert!(status.success(), "{status}\n{stderr}");
    lines.join("\n")
}
