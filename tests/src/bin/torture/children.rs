//! Children: programs started in every way there is, and forked children that live on without their parent's profiler.
//!
//! In: the bench; `libraries` for the way that only C has. Out: how many children there were and how many ended as they
//! should; of forked ones that started a profiler of their own, how many stacks they exported.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use profiler_tests::library::{Library, paths};
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use profiler_tests::{Error, Result};
use serde_json::{Value, json};

use crate::bench::{self, Time, beside_busy, torture};

const PROGRAM: &str = "/bin/true";
/// As many are started at least, however slow the machine is.
const LEAST: usize = 12;

/// Starts programs while two threads are busy: by fork and exec, by posix_spawn, by vfork.
pub(crate) fn spawn(options: &Options) -> Result<Value> {
    let library = Library::open(paths(options)?.first().ok_or("which library?")?)?;
    torture(options, |time, _| {
        let (mut started, mut well) = (0, 0);
        beside_busy(2, || {
            while time.is_left() || started < LEAST {
                let mut forked = Command::new(PROGRAM);
                // SAFETY: the hook does nothing; that there is one makes the standard library fork.
                unsafe { forked.pre_exec(|| Ok(())) };
                let outcomes = [
                    forked.status()?.success(),
                    Command::new(PROGRAM).status()?.success(),
                    library.vfork(c"/bin/true")? == 0,
                ];
                started += outcomes.len();
                well += outcomes.into_iter().filter(|well| *well).count();
            }
            Ok::<_, Error>(())
        })?;
        Ok(json!({ "started": started, "well": well }))
    })
}

/// Starts a profiler, forks, stops; the child works on, starts a profiler of its own and stops it. Again and again.
pub(crate) fn offspring(options: &Options) -> Result<Value> {
    let time = Time::of(options)?;
    let (mut rounds, mut exported, mut balanced) = (0_u64, 0, 0_u64);
    while time.is_left() || rounds == 0 {
        let profiler = bench::start()?;
        let (mut from_child, to_parent) = pipe()?;
        let (from_parent, to_child) = pipe()?;
        beside_busy(1, || spin(Duration::from_millis(50)));
        // SAFETY: fork(2), from the only thread of this process that is not the profiler's: what else holds a lock is
        //         the profiler, of which the child uses nothing that has one; see `child`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop((from_child, to_child));
            // The parent's, which does nothing here but must not be dropped twice.
            drop(profiler);
            let code = self::child(from_parent, to_parent).map_or(1, |()| 0);
            // SAFETY: _exit(2) ends the child at once.
            unsafe { libc::_exit(code) }
        }
        drop((from_parent, to_parent));
        spin(Duration::from_millis(50));
        let outcome = bench::end(profiler)?;
        // Now the child knows that its parent has stopped.
        drop(to_child);
        let mut text = String::new();
        from_child.read_to_string(&mut text)?;
        let of_child: Value =
            serde_json::from_str(&text).map_err(|error| format!("{error}: the child said {text:?}"))?;
        ended_well(child)?;
        rounds += 1;
        for stats in [&outcome["stats"], &of_child["stats"]] {
            exported += stats["exported"].as_u64().unwrap_or(0);
            balanced += u64::from(stats["balances"] == true && stats["pending"] == 0 && stats["taken"] != 0);
        }
    }
    Ok(json!({ "rounds": rounds, "exported": exported, "balanced": balanced }))
}

/// Works until the parent has stopped its profiler, and on; then under a profiler of its own. Writes its account.
fn child(mut from_parent: File, mut to_parent: File) -> Result<()> {
    spin(Duration::from_millis(50));
    from_parent.read_to_end(&mut Vec::new())?;
    spin(Duration::from_millis(50));
    let profiler = bench::start()?;
    beside_busy(1, || spin(Duration::from_millis(100)));
    write!(to_parent, "{}", bench::end(profiler)?)?;
    Ok(())
}

fn pipe() -> Result<(File, File)> {
    let (reader, writer) = std::io::pipe()?;
    let owned = |fd: std::os::fd::OwnedFd| File::from(fd);
    Ok((owned(reader.into()), owned(writer.into())))
}

fn ended_well(child: i32) -> Result<()> {
    let mut status = 0;
    // SAFETY: waitpid(2) writes the status of our own child, which has closed its pipe and ends.
    let outcome = unsafe { libc::waitpid(child, &raw mut status, 0) };
    match outcome == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        true => Ok(()),
        false => Err(format!("a child ended with status {status:#x}").into()),
    }
}
