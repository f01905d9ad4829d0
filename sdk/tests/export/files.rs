//! Profiles as files: what stands in them, and what becomes of them where they cannot be written.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use profiler::export::{Files, Otlp, Target, resolve};
use profiler_proto::folded::{self, Tags};
use profiler_proto::loss::Cause;
use profiler_proto::split::request_bytes;
use profiler_proto::{Limits, Profile, ProfileSet, pprof};

use super::http_peer::HttpPeer;
use super::profiles::{heap_profiles, set};
use super::rig::{Rig, limits};

/// A folder of its own for a test, gone with it.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn target(&self) -> Target {
        resolve(vec![Files::new(&self.0).into()], &|_| None).unwrap().remove(0)
    }

    /// What is there, in the order of names.
    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The stacks of a type with their values.
fn stacks(set: &ProfileSet, sample_type: &str) -> String {
    let of_type = |profile: &&Profile| set.dictionary.strings.text(profile.kind.sample_type.kind) == sample_type;
    folded::encode(set.profiles.iter().find(of_type).unwrap(), &set.dictionary, Tags::Left)
}

/// Check that each set is a file of its service and kind, that they say what was offered, and that bytes are counted.
#[tokio::test]
async fn sets_become_files() {
    let place = Place::new("sets");
    let rig = Rig::start(vec![place.target()], limits());
    let (cpu, heap) = (set(100), Arc::new(heap_profiles(30)));
    rig.offer(&cpu);
    rig.offer(&heap);
    rig.settle().await;
    rig.assert_settled(100, 0, Cause::Unreachable);
    let (files, stats) = (place.files(), rig.stats(0));
    let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert!(names[0].starts_with("shop-cpu-20261121T120000Z-") && names[1].starts_with("shop-heap-"), "{names:?}");
    for (file, set, sample_type) in [(&files[0], &cpu, "samples"), (&files[1], &heap, "alloc_space")] {
        let read = pprof::decode(&fs::read(file).unwrap(), &Limits::default()).unwrap();
        assert_eq!(stacks(&read, sample_type), stacks(set, sample_type));
    }
    let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert_eq!((stats.requests, stats.sent_bytes, stats.queued_bytes, stats.last_error), (2, bytes, 0, None));
    assert_eq!(stats.name, format!("files {}", place.0.display()));
}

/// Check that what fits into one file is one, though OTLP, which counts names once for each type, would divide it; and that more is divided.
#[tokio::test]
async fn all_types_of_the_heap_are_one_file() {
    let place = Place::new("types");
    let (set, mut limits) = (Arc::new(heap_profiles(2000)), limits());
    limits.request_bytes = request_bytes(&set) / 2;
    let rig = Rig::start(vec![place.target()], limits);
    rig.offer(&set);
    rig.settle().await;
    let read = |file: &PathBuf| pprof::decode(&fs::read(file).unwrap(), &Limits::default()).unwrap();
    let types: Vec<_> = place.files().iter().map(|file| read(file).profiles.len()).collect();
    assert_eq!(types, [4]);
    limits.request_bytes /= 8;
    let rig = Rig::start(vec![place.target()], limits);
    rig.offer(&set);
    rig.settle().await;
    assert!(place.files().len() > 2 && rig.stats(0).dropped.total() == 0, "{:?}", rig.stats(0));
}

/// Check that a folder that is away loses nothing while there is time, is named, and that all arrives once it is there.
#[tokio::test]
async fn a_folder_that_comes_later_gets_all() {
    let place = Place::new("later");
    fs::remove_dir(&place.0).unwrap();
    let rig = Rig::start(vec![place.target()], limits());
    rig.offer(&set(10));
    rig.offer(&set(20));
    let why = rig.failure().await;
    assert!(why.contains(place.0.to_str().unwrap()) && why.contains("No such file"), "{why}");
    fs::create_dir(&place.0).unwrap();
    rig.settle().await;
    rig.assert_settled(30, 0, Cause::Unreachable);
    assert_eq!(place.files().len(), 2);
}

/// Check that what cannot be written in its time is lost as too old, to this destination alone.
#[tokio::test]
async fn a_folder_that_is_none_is_given_up() {
    let mut limits = limits();
    limits.retry.max_age = Duration::from_millis(100);
    let otlp = HttpPeer::start([]).await;
    let destinations = vec![Files::new("/dev/null").into(), Otlp::http(otlp.url()).into()];
    let rig = Rig::start(resolve(destinations, &|_| None).unwrap(), limits);
    rig.offer(&set(10));
    rig.settle().await;
    rig.assert_settled(10, 0, Cause::Unreachable);
    let stats = rig.stats(0);
    assert_eq!((stats.delivered, stats.dropped.count(Cause::TooOld), rig.stats(1).delivered), (0, 10, 10));
    assert!(rig.last_error().contains("/dev/null: Not a directory"), "{stats:?}");
}

/// Check that the environment makes it a destination beside OTLP, and that code outweighs it.
#[tokio::test]
async fn the_environment_names_a_folder() {
    let lookup = |name: &str| match name {
        "PROFILER_FILES_DIR" => Some(OsString::from("/var/profiles")),
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://c:4318".into()),
        _ => None,
    };
    let names = |destinations| {
        let targets = resolve(destinations, &lookup).unwrap();
        targets.iter().map(Target::name).collect::<Vec<_>>()
    };
    assert_eq!(names(Vec::new()), ["otlp-http http://c:4318/v1development/profiles", "files /var/profiles"]);
    assert_eq!(names(vec![Otlp::grpc("http://d:4317").into()]), ["otlp-grpc http://d:4317"]);
}

/// Check that a disk without room, for which a limit of the process stands (the kernel cuts the write short alike), is said and
/// harms nobody, and that no half of a file stays. The limit needs a process of its own: this test, once more.
#[tokio::test]
async fn a_full_disk_is_said() {
    const LIMITED: &str = "WRITES_ARE_LIMITED";
    if std::env::var_os(LIMITED).is_none() {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 0; trap '' XFSZ; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
        let output = command.args(["files::a_full_disk_is_said", "--exact"]).env(LIMITED, "").output().unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        return;
    }
    let place = Place::new("full");
    let mut limits = limits();
    limits.retry.max_age = Duration::from_millis(100);
    let rig = Rig::start(vec![place.target()], limits);
    rig.offer(&set(10));
    rig.settle().await;
    rig.assert_settled(0, 10, Cause::TooOld);
    assert!(rig.last_error().contains("File too large"), "{}", rig.last_error());
    assert_eq!(place.files(), Vec::<PathBuf>::new());
}
