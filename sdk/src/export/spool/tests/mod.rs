//! A spool on real disks, under real processes.

mod bytes;
mod disks;
mod folder;
mod front;
mod processes;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::folder::{Bounds, Folder};
use super::replay::{Found, Position};

/// Little enough that a test has many segments.
const SMALL: Bounds = Bounds { folder: 8 << 10, segment: 1 << 10 };
/// Tells a child where its folder is.
const VARIABLE: &str = "PROFILER_TEST_SPOOL";

/// A folder of a test, removed when it is dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("profiler-spool-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The folder of a child: [`VARIABLE`].
    fn of_child() -> Option<PathBuf> {
        std::env::var_os(VARIABLE).map(PathBuf::from)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// A folder, with all that is in it known.
fn open(path: &Path, bounds: Bounds) -> Folder {
    let mut folder = Folder::open(path, bounds).unwrap();
    folder.survey(|_| {}).unwrap();
    folder
}

/// All that is in a folder.
fn read(folder: &Folder) -> Vec<Found> {
    let (mut position, mut next) = (Position::default(), 0);
    let found = std::iter::from_fn(|| {
        let found = folder.read(&mut position, |header| header.number >= next).unwrap()?;
        next = match &found {
            Found::Whole(header, _) | Found::Damaged(header) => header.number + 1,
            Found::Missing(numbers) => numbers.end,
        };
        Some(found)
    });
    found.collect()
}

/// Numbers and bodies of all records in a folder, all of which are whole.
fn records(folder: &Folder) -> Vec<(u64, Vec<u8>)> {
    let whole = |found| match found {
        Found::Whole(header, body) => (header.number, body),
        other => panic!("{other:?}"),
    };
    read(folder).into_iter().map(whole).collect()
}

/// A body that tells which one it is.
fn body(number: u64) -> Vec<u8> {
    format!("body {number} ").repeat(1 + number as usize % 30).into_bytes()
}

/// This program again, to run the test `name` of `tests` alone with the folder `path`, after the words of `script` for a shell in
/// which `$0` is the folder.
fn again(script: &str, name: &str, path: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{script} exec \"$@\"")).arg(path).arg(std::env::current_exe().unwrap());
    let name = format!("export::spool::tests::{name}");
    command.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env(VARIABLE, path);
    command
}

/// Runs a child to its end, which must be a good one.
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Waits for what a thread of the spool does.
async fn until(mut is_done: impl FnMut() -> bool) {
    let waited = async {
        while !is_done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap();
}
