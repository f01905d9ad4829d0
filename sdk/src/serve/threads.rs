//! `/debug/pprof/threads`: the threads of processes, by name and state.
//!
//! In: processes. Out: of each a profile as Go's `threadcreate` has it, with what the kernel tells instead of where they were made: the name at the
//! root, below it the state; threads of one name and state are counted together. Reads `/proc/PID/task`, of at most [`MOST_THREADS`] threads of all
//! processes; the others are counted as such. Runs on the server's runtime and gives way after every [`TURN`] of them, for that thread exports, too.

use std::fs::{self, ReadDir};
use std::io::Read;
use std::path::Path;

use profiler_proto::model::{Function, Id, Kind, Line, Location, LocationId, Stack};
use profiler_proto::{Dictionary, Profile, ProfileSet, Sample};
use tokio::task::yield_now;

use super::clock::now;
use super::source::{CaptureError, Target};

/// More threads are not looked at: each costs opening a file.
const MOST_THREADS: usize = 10_000;
/// So many are read at a stretch: well below a millisecond.
const TURN: usize = 16;
/// The first line of `status` is the name, the third the state; a name has 15 bytes, each of which may be written as four.
const HEAD_OF_STATUS: u64 = 256;
/// What stands for threads that were not looked at.
const UNSEEN: &str = "(not looked at: too many threads)";

/// The threads of `targets`, a set for each that is there.
pub(super) async fn of(targets: Vec<Target>) -> Result<Vec<ProfileSet>, CaptureError> {
    of_at_most(MOST_THREADS, targets).await
}

async fn of_at_most(mut left: usize, targets: Vec<Target>) -> Result<Vec<ProfileSet>, CaptureError> {
    let mut sets = Vec::new();
    for target in targets {
        // One that is gone has none.
        let Ok(tasks) = fs::read_dir(folder(&target)) else { continue };
        let mut set = ProfileSet::default();
        set.resource.set("service.name", target.service.as_str());
        set.resource.set("process.pid", i64::from(target.pid));
        let mut samples = seen(tasks, &mut left, &mut set.dictionary).await;
        if left == 0 {
            samples.extend(unseen(&target, samples.len(), &mut set.dictionary));
        }
        let kind = Kind::threads(&mut set.dictionary);
        set.profiles.push(Profile { kind, time_unix_nanos: now(), samples, ..Profile::default() });
        sets.push(set.compacted());
    }
    if sets.is_empty() { Err(CaptureError::NoProcess) } else { Ok(sets) }
}

fn folder(target: &Target) -> String {
    format!("/proc/{}/task", target.pid)
}

/// A sample for each thread in `tasks`, as long as any are `left` to be looked at.
async fn seen(mut tasks: ReadDir, left: &mut usize, dictionary: &mut Dictionary) -> Vec<Sample> {
    let mut samples = Vec::new();
    loop {
        let before = *left;
        for task in tasks.by_ref().take(before.min(TURN)) {
            *left -= 1;
            // One that ended in between is none.
            let Some((name, state)) = task.ok().and_then(|task| name_and_state(&task.path())) else { continue };
            samples.push(sample(&name, &state, dictionary));
        }
        if before - *left < TURN {
            return samples;
        }
        yield_now().await;
    }
}

/// What stands for the threads of `target` above those that were looked at.
fn unseen(target: &Target, looked_at: usize, dictionary: &mut Dictionary) -> Option<Sample> {
    let more = threads(&folder(target))?.saturating_sub(looked_at);
    let stack = Stack { locations: [location(UNSEEN, dictionary)].into() };
    let stack = dictionary.stacks.intern(stack);
    (more > 0).then(|| Sample { stack, value: i64::try_from(more).unwrap_or(i64::MAX), ..Sample::default() })
}

/// How many threads there are: the folder has a link for each, beside the two of an empty one (Linux 6.12, fs/proc/base.c, `proc_task_getattr`).
#[cfg(unix)]
fn threads(folder: &str) -> Option<usize> {
    let links = std::os::unix::fs::MetadataExt::nlink(&fs::metadata(folder).ok()?);
    usize::try_from(links).ok()?.checked_sub(2)
}

#[cfg(not(unix))]
fn threads(_folder: &str) -> Option<usize> {
    None
}

/// The lines `Name:` and `State:` of a thread's `status` (proc_pid_status(5)).
fn name_and_state(task: &Path) -> Option<(String, String)> {
    let mut head = Vec::new();
    fs::File::open(task.join("status")).and_then(|file| file.take(HEAD_OF_STATUS).read_to_end(&mut head)).ok()?;
    let head = String::from_utf8_lossy(&head);
    let line = |key: &str| head.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
    Some((line("Name:")?, line("State:")?))
}

fn sample(name: &str, state: &str, dictionary: &mut Dictionary) -> Sample {
    let locations = [state, name].map(|text| location(text, dictionary)).into();
    let stack = dictionary.stacks.intern(Stack { locations });
    let tags = [dictionary.attribute("thread.name", name), dictionary.attribute("thread.state", state)];
    Sample { stack, attributes: dictionary.attribute_set(tags), value: 1, ..Sample::default() }
}

/// A place that is no code: each name has one, for readers know places by their addresses.
fn location(name: &str, dictionary: &mut Dictionary) -> LocationId {
    let name = dictionary.strings.intern_str(name);
    let function = dictionary.functions.intern(Function { name, ..Function::default() });
    let lines = Box::from([Line { function, line: 0, column: 0 }]);
    dictionary.locations.intern(Location { address: function.index().into(), lines, ..Location::default() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    fn own() -> Vec<Target> {
        vec![Target::new("a", std::process::id())]
    }

    /// Check that threads of one name are counted together, below it their states, and that a process that is gone has none.
    #[test]
    fn threads_are_counted_by_name_and_state() {
        let gate = Arc::new(Barrier::new(4));
        let threads = [(); 3].map(|()| {
            let gate = Arc::clone(&gate);
            let wait = move || {
                gate.wait();
                gate.wait();
            };
            thread::Builder::new().name("counted".into()).spawn(wait).unwrap()
        });
        // They have their names now.
        gate.wait();
        let set = run(of(own())).unwrap().remove(0);
        let (dictionary, profile) = (&set.dictionary, &set.profiles[0]);
        let named = profile.samples.iter().filter(|sample| {
            dictionary.value_of(sample.attributes, "thread.name").and_then(|name| name.as_str()) == Some("counted")
        });
        assert_eq!(named.map(|sample| sample.value).sum::<i64>(), 3);
        assert!(profile.kind.is_state(dictionary) && profile.samples.iter().all(|sample| sample.value > 0));
        // Above the bound they are counted without names: here there are four and this one at least.
        let set = run(of_at_most(2, own())).unwrap().remove(0);
        let sum = |named: bool| {
            let samples = set.profiles[0].samples.iter();
            let with =
                samples.filter(|sample| set.dictionary.value_of(sample.attributes, "thread.name").is_some() == named);
            with.map(|sample| sample.value).sum::<i64>()
        };
        assert!(sum(true) <= 2 && sum(false) >= 3, "{} and {}", sum(true), sum(false));
        gate.wait();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(run(of(vec![Target::new("a", u32::MAX)])), Err(CaptureError::NoProcess));
    }

    /// Check that others have their turns while many threads are looked at, and that each is counted.
    #[test]
    fn many_threads_hold_up_nobody() {
        let folder = std::env::temp_dir().join(format!("profiler-threads-{}", std::process::id()));
        for thread in 0..5000 {
            let folder = folder.join(thread.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("status"), "Name:\tworker\nUmask:\t0022\nState:\tS (sleeping)\n").unwrap();
        }
        let turns = Arc::new(AtomicUsize::new(0));
        let (samples, left) = run(async {
            let counted = Arc::clone(&turns);
            let other = tokio::spawn(async move {
                loop {
                    counted.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            });
            let mut left = MOST_THREADS;
            let samples = seen(fs::read_dir(&folder).unwrap(), &mut left, &mut Dictionary::default()).await;
            other.abort();
            (samples, left)
        });
        assert_eq!((samples.len(), left), (5000, MOST_THREADS - 5000));
        assert!(turns.load(Ordering::Relaxed) >= 5000 / TURN, "{turns:?}");
        fs::remove_dir_all(folder).unwrap();
    }
}
