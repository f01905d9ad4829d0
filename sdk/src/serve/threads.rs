//! `/debug/pprof/threads`: the threads of a process, by name and state.
//!
//! In: a process. Out: a profile as Go's `threadcreate` has it, with what the kernel tells instead of where they were made: the name at the
//! root, below it the state; threads of one name and state are counted together. Reads `/proc/PID/task`, at most [`MOST_THREADS`] of them.

use std::fs;
use std::io::Read;
use std::path::Path;

use profiler_proto::model::{Function, Id, Kind, Line, Location, LocationId, Stack};
use profiler_proto::{Dictionary, Profile, ProfileSet, Sample};

use super::site::now;
use super::source::Target;

/// More threads are not looked at: each costs opening a file.
const MOST_THREADS: usize = 10_000;
/// The first line of `status` is the name, the third the state; a name has 15 bytes, each of which may be written as four.
const HEAD_OF_STATUS: u64 = 256;

/// The threads of `target`; `None` if it is gone.
pub(super) fn of(target: &Target) -> Option<ProfileSet> {
    let tasks = fs::read_dir(format!("/proc/{}/task", target.pid)).ok()?;
    let mut set = ProfileSet::default();
    set.resource.set("service.name", target.service.as_str());
    set.resource.set("process.pid", i64::from(target.pid));
    let mut samples = Vec::new();
    for task in tasks.take(MOST_THREADS).flatten() {
        // One that ended in between is none.
        let Some((name, state)) = name_and_state(&task.path()) else { continue };
        samples.push(sample(&name, &state, &mut set.dictionary));
    }
    let kind = Kind::threads(&mut set.dictionary);
    set.profiles.push(Profile { kind, time_unix_nanos: now(), samples, ..Profile::default() });
    Some(set.compacted())
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
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

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
        let set = of(&Target::new("a", std::process::id())).unwrap();
        let (dictionary, profile) = (&set.dictionary, &set.profiles[0]);
        let named = profile.samples.iter().filter(|sample| {
            dictionary.value_of(sample.attributes, "thread.name").and_then(|name| name.as_str()) == Some("counted")
        });
        assert_eq!(named.map(|sample| sample.value).sum::<i64>(), 3);
        assert!(profile.kind.is_state(dictionary) && profile.samples.iter().all(|sample| sample.value > 0));
        gate.wait();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(of(&Target::new("a", u32::MAX)), None);
    }
}
