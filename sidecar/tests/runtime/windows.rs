//! Windows one after the other: what a program allocated and waited for in each, beside the difference of what its own `runtime/pprof` wrote before and behind.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use profiler_proto::resource::Resource;
use profiler_proto::validate::validate_bytes;
use profiler_proto::{ProfileSet, otlp};
use profiler_sidecar::capture::profile::Window;
use profiler_sidecar::capture::{Bounds, Periodic, Room, Source};

use crate::capture::{stack, theirs};
use crate::programs;
use crate::running::Running;

/// What is told by these functions, of which the program does more when it is asked to.
const OURS: [&str; 2] = ["main.fill ", "main.contend "];
/// Nothing rounds more often: of a stack, one to three sizes of objects are allocated in the window, each told in it and in both profiles.
const ROUNDED: i64 = 8;

type Values = BTreeMap<Vec<String>, i64>;

/// Values of a sample type by stack, of all profiles that have it.
fn values(sets: &[ProfileSet], kind: &str) -> Values {
    let mut values = Values::new();
    for set in sets {
        let of_kind = set.profiles.iter().filter(|p| set.dictionary.strings.text(p.kind.sample_type.kind) == kind);
        for sample in of_kind.flat_map(|profile| &profile.samples) {
            let stack = stack(set, sample);
            if stack.iter().any(|frame| OURS.iter().any(|name| frame.starts_with(name))) && sample.value != 0 {
                *values.entry(stack).or_default() += sample.value;
            }
        }
    }
    values
}

/// Has the program collect its garbage and write its profiles, of which these are read.
fn written(running: &mut Running, folder: &Path) -> Vec<ProfileSet> {
    std::fs::create_dir_all(folder).unwrap();
    running.ask(&format!("write {}", folder.display()), "written");
    let sets = ["heap", "block", "mutex"].map(|name| theirs(folder, name)).into();
    std::fs::remove_dir_all(folder).unwrap();
    sets
}

fn captured(periodic: &mut Periodic) -> [ProfileSet; 1] {
    const WINDOW: Window = Window { start_unix_nanos: 1_700_000_000_000_000_000, duration_nanos: 1 };
    let captured = periodic.capture(Resource::new().with("service.name", "parked"), WINDOW, Bounds::default()).unwrap();
    assert!(captured.missing.is_empty() && captured.figures.is_ok(), "{captured:?}");
    assert_eq!(validate_bytes(&otlp::encode_to_vec(&captured.set)), []);
    [captured.set]
}

/// Check that the first window tells nothing of what counts from the start, the second one what came in it, and one in which nothing happened nothing; and
/// that all three tell what is in use.
#[test]
fn each_window_tells_what_came_in_it() {
    let program = programs::build("parked", "go1.27.0", &["-ldflags=-s -w"], "amd64");
    let mut running = Running::start(&program, &[]);
    let folder: PathBuf = program.with_extension(format!("{}.windows", running.pid()));
    let mut periodic = Periodic::new(Source::find(running.pid()).unwrap());
    let before = written(&mut running, &folder);
    let first = captured(&mut periodic);
    running.ask("more", "done");
    let behind = written(&mut running, &folder);
    let (second, third) = (captured(&mut periodic), captured(&mut periodic));
    for kind in ["alloc_objects", "alloc_space", "contentions", "delay"] {
        let (known, mut came, told) = (values(&before, kind), values(&behind, kind), values(&second, kind));
        assert!(!known.is_empty(), "{kind}");
        known.iter().for_each(|(stack, value)| *came.get_mut(stack).unwrap() -= value);
        // Events are counted one by one.
        let rounded = if kind == "contentions" { 0 } else { ROUNDED };
        assert!(came.values().any(|value| *value > rounded) && told.keys().all(|stack| came.contains_key(stack)));
        for (stack, value) in &came {
            let told = told.get(stack).copied().unwrap_or(0);
            assert!((told - value).abs() <= rounded, "{kind}: {told} of {value}: {stack:#?}");
        }
        for other in [&first, &third] {
            assert_eq!(values(other, kind), Values::new(), "{kind}");
        }
    }
    for kind in ["inuse_objects", "inuse_space"] {
        let shown = [&first, &second, &third].map(|sets| values(sets, kind));
        assert_eq!(shown, [values(&before, kind), values(&behind, kind), values(&behind, kind)], "{kind}");
        assert_ne!(shown[0], shown[1]);
    }
}

/// Check that what was counted is kept where there is room for it, and that the next window tells nothing, and no more than nothing, where there is none.
#[test]
fn counts_are_kept_where_there_is_room_for_them() {
    let running = &mut Running::start(&programs::build("parked", "go1.27.0", &["-ldflags=-s -w"], "amd64"), &[]);
    let mut periodic = Periodic::new(Source::find(running.pid()).unwrap());
    let mut told = |room: Option<usize>| {
        running.ask("more", "done");
        let told = values(&captured(&mut periodic), "contentions");
        (!told.is_empty(), room.is_none_or(|room| periodic.keep_totals(&Room::of(room))))
    };
    let rooms = [Some(1 << 20), Some(1 << 20), Some(16), None, None];
    assert_eq!(rooms.map(&mut told), [(false, true), (true, true), (true, false), (false, true), (true, true)]);
}

/// Check that a program in which nothing is in use that was sampled says so, and that one that has its heap profile off says nothing of it.
#[test]
fn that_nothing_is_in_use_is_told() {
    let program = programs::build("parked", "go1.27.0", &["-ldflags=-s -w"], "amd64");
    for (rate, states) in [("1073741824", 2), ("0", 0)] {
        let running = Running::start_with(&program, &["idle"], &[("GODEBUG", &format!("memprofilerate={rate}"))]);
        let [set] = captured(&mut Periodic::new(Source::find(running.pid()).unwrap()));
        let in_use = set
            .profiles
            .iter()
            .filter(|profile| set.dictionary.strings.text(profile.kind.sample_type.kind).starts_with("inuse_"));
        assert_eq!(in_use.count(), states, "memprofilerate={rate}");
    }
}

/// Check that processes keep names as long as there is room for those of all, that one for whose there is none tells the same without, and that one that ends
/// gives its room to others.
#[test]
fn names_are_kept_where_there_is_room_for_all() {
    let running = Running::start(&programs::build("parked", "go1.27.0", &["-ldflags=-s -w"], "amd64"), &[]);
    let periodic = || Periodic::new(Source::find(running.pid()).unwrap());
    let (mut first, mut second) = (periodic(), periodic());
    let (told, _) = (captured(&mut first), captured(&mut second));
    let kept = first.kept();
    assert!(kept > 10_000 && second.kept() > kept / 2, "{kept}, {}", second.kept());
    let room = Room::of(kept + kept / 4);
    first.keep_names(&room);
    second.keep_names(&room);
    assert_eq!((first.kept(), second.kept()), (kept, 0));
    assert_eq!(values(&captured(&mut second), "inuse_space"), values(&told, "inuse_space"));
    // Its own is no more than before.
    first.keep_names(&room);
    assert_eq!(first.kept(), kept);
    drop(first);
    second.keep_names(&room);
    assert!(second.kept() > kept / 2);
}
