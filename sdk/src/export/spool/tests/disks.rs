//! Disks that are full, read-only, or gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use super::super::backlog::Taker;
use super::super::folder::{Bounds, Folder};
use super::super::record::MAX_HEADER;
use super::super::replay::{Found, Position};
use super::super::settled::Cursors;
use super::super::{Gone, Pace, Spool};
use super::{Place, SMALL, again, open, records, run, until};

const BODY: usize = 10_000;
const LARGE: Bounds = Bounds { folder: 64 << 20, segment: 4 << 20 };

/// Appends until it cannot; how many times it could, and what was said then.
fn fill(folder: &mut Folder) -> (u64, String) {
    let refused = (0..).find_map(|n| folder.append(1, &[], &[n as u8; BODY]).err().map(|error| (n, error.to_string())));
    refused.unwrap()
}

fn bodies(count: u64) -> Vec<(u64, Vec<u8>)> {
    (0..count).map(|n| (n + 1, vec![n as u8; BODY])).collect()
}

/// Whether this process may mount something where nobody else sees it.
fn may_mount() -> bool {
    let script = "mount -t tmpfs none /mnt";
    let tried = std::process::Command::new("unshare").args(["-m", "sh", "-c", script]).output();
    let may = tried.is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("NOT RUN: on a file system of its own: needs `unshare -m` and the right to mount");
    }
    may
}

/// The test `name` again, in a mount namespace in which the folder is a tmpfs with `options`.
fn on_tmpfs(options: &str, name: &str, path: &Path) {
    let mount = format!("mount -t tmpfs -o {options} none \"$0\" && exec \"$@\"");
    let script = format!("exec unshare -m sh -c '{mount}' \"$0\" \"$@\";");
    run(&mut again(&script, name, path));
}

/// A shell's words that run the rest on a disk of its own at `$0`, which can be frozen, and thaw it whatever the rest does.
const ON_A_DISK: &str = r#"truncate -s 32M "$0.img" && mkfs.ext4 -q "$0.img" && mkdir "$0" && exec unshare -m sh -c '
    mount -o loop "$0.img" "$0" && fsfreeze -f "$0" && fsfreeze -u "$0" && "$@"
    status=$?; fsfreeze -u "$0" 2>/dev/null; exit $status' "$0" "$@";"#;

/// Check that a disk that hangs makes nobody wait and is said, and that what waited for it is written when it comes back.
#[cfg(target_os = "linux")]
#[test]
fn a_frozen_disk_makes_nobody_wait() {
    if let Some(path) = Place::of_child() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(freeze(path));
    }
    let place = Place::new();
    let tried =
        std::process::Command::new("sh").args(["-c", ON_A_DISK]).arg(place.0.join("tried")).arg("true").output();
    if tried.is_ok_and(|output| output.status.success()) {
        run(&mut again(ON_A_DISK, "disks::a_frozen_disk_makes_nobody_wait", &place.0.join("disk")));
    } else {
        eprintln!("NOT RUN: on a disk that is frozen: needs `unshare -m`, a loop device, ext4 and the right to mount");
    }
}

async fn freeze(path: PathBuf) {
    let frozen = |option| {
        let mut command = std::process::Command::new("fsfreeze");
        assert!(command.arg(option).arg(&path).status().unwrap().success());
    };
    let pace = Pace { sync: Duration::from_millis(5), patience: Duration::from_secs(2), ..Pace::default() };
    let taker = Taker { name: "collector".into(), forms: vec![1], reads: |_| true };
    let lose = Box::new(|gone: Gone<'_>| panic!("{gone:?}"));
    let spool = Spool::start(&Handle::current(), path.join("spool"), (LARGE, pace), vec![taker], lose);
    let append = || spool.append(1, Box::from([]), Bytes::from_static(b"body"));
    let mut before = None;
    until(|| {
        before = append().ok();
        before.is_some()
    })
    .await;
    let before = before.unwrap();
    until(|| before.is_kept() && spool.figures().synced_below == 2).await;
    frozen("-f");
    let amid = append().unwrap();
    until(|| spool.figures().trouble.is_some_and(|trouble| trouble.contains("has not answered"))).await;
    assert!(append().unwrap_err().to_string().contains("has not answered"));
    assert!(spool.read(0).await.unwrap_err().to_string().contains("has not answered"));
    assert!(!amid.is_kept());
    frozen("-u");
    until(|| amid.is_kept() && spool.figures().trouble.is_none() && spool.figures().synced_below == 3).await;
    spool.release(0, before);
    assert_eq!(spool.read(0).await.unwrap().unwrap().body, b"body"[..]);
    assert!(spool.close(Duration::from_secs(60)).await);
}

/// Check that a full disk is an error that says so, that all from before comes back, and that it goes on once there is room.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_and_survived() {
    let Some(path) = Place::of_child() else {
        if may_mount() {
            on_tmpfs("size=256k", "disks::a_full_disk_is_said_and_survived", &Place::new().0);
        }
        return;
    };
    let mut folder = open(&path, Bounds { segment: 64 << 10, ..LARGE });
    folder.save(&Cursors { next: 7, ..Cursors::default() }).unwrap();
    let (count, error) = fill(&mut folder);
    assert!(error.contains("No space left") && error.contains("make room") && error.contains("segment"), "{error}");
    assert!((10..26).contains(&count), "{count}");
    assert_eq!(records(&folder), bodies(count));
    let (more, error) = fill(&mut folder);
    assert!(more == 0 && error.contains("No space left"), "{more}: {error}");
    assert!(fs::write(path.join("filler"), [0; 300_000]).is_err());
    assert!(folder.save(&Cursors { next: 8, ..Cursors::default() }).is_err());
    assert_eq!(folder.cursors().unwrap().next, 7, "what was saved before is gone");
    fs::remove_file(path.join("filler")).unwrap();
    let (first, segment) = folder.oldest().unwrap();
    folder.remove(first).unwrap();
    let number = folder.append(1, &[], b"again").unwrap();
    assert_eq!(
        records(&folder),
        [bodies(count).split_off(segment.end as usize - 1), vec![(number, b"again".to_vec())]].concat()
    );
    folder.sync().unwrap();
    drop(folder);
    assert_eq!(records(&open(&path, LARGE)).last(), Some(&(number, b"again".to_vec())));
}

/// Check the same where the system limits the size of files: the record that was refused leaves nothing, the next one goes elsewhere.
#[cfg(unix)]
#[test]
fn a_limit_of_file_size_is_said_and_survived() {
    let Some(path) = Place::of_child() else {
        let script = "ulimit -f 100; trap '' XFSZ;";
        return run(&mut again(script, "disks::a_limit_of_file_size_is_said_and_survived", &Place::new().0));
    };
    let mut folder = open(&path, LARGE);
    let (count, error) = fill(&mut folder);
    assert!(error.contains("too large") && error.contains("make room"), "{error}");
    assert!((3..12).contains(&count), "{count}");
    let (_, segment) = folder.oldest().unwrap();
    assert_eq!(fs::metadata(folder.segment(1)).unwrap().len(), segment.bytes, "half a record is left");
    assert_eq!(folder.append(1, &[], &[count as u8; BODY]).unwrap(), count + 1);
    assert_eq!(records(&folder), bodies(count + 1));
    assert!(folder.bytes() < 2 * (BODY + MAX_HEADER) as u64 * count);
}

/// Check that a folder that cannot be written to is refused with its name and what to do.
#[cfg(target_os = "linux")]
#[test]
fn a_read_only_folder_is_refused() {
    let refused = |path: &Path, why: &str| {
        let error = Folder::open(path, LARGE).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(path.to_str().unwrap()), "{error}");
        assert!(error.contains("a folder that the process may write to"), "{error}");
    };
    if let Some(path) = Place::of_child() {
        return refused(&path, "Read-only file system");
    }
    let place = Place::new();
    fs::write(place.0.join("file"), "mine").unwrap();
    refused(&place.0.join("file"), "File exists");
    refused(&place.0.join("file/spool"), "Not a directory");
    if may_mount() {
        on_tmpfs("ro", "disks::a_read_only_folder_is_refused", &place.0);
    }
}

/// Check that a folder that was removed, or put aside for another one, is told from ours, and that nothing goes into the other one.
#[test]
fn a_folder_that_is_gone_is_noticed() {
    for put_aside in [false, true] {
        let place = Place::new();
        let path = place.0.join("spool");
        let mut folder = open(&path, LARGE);
        folder.append(1, &[], b"body").unwrap();
        assert!(folder.is_held());
        if put_aside {
            fs::rename(&path, place.0.join("aside")).unwrap();
            fs::create_dir(&path).unwrap();
        } else {
            fs::remove_dir_all(&path).unwrap();
        }
        assert!(!folder.is_held());
        let error = folder.sync().unwrap_err().to_string();
        assert!(error.contains("leave the folder to the profiler"), "{error}");
        (0..3).for_each(|_| assert!(folder.append(1, &[], b"body").is_err()));
        assert!(folder.save(&Cursors::default()).is_err());
        assert_eq!(fs::read_dir(&path).map_or(0, Iterator::count), 0);
    }
}

/// Check that a segment that the disk cannot read any more costs what is in it, and no other one: not at a start, and not while it runs.
#[cfg(target_os = "linux")]
#[test]
fn a_segment_that_cannot_be_read_costs_itself() {
    let whole = |folder: &Folder| {
        let (mut position, mut next, mut all, mut refused) = (Position::default(), 0, Vec::new(), 0);
        loop {
            let found = match folder.read(&mut position, |header| header.number >= next) {
                Ok(Some(Found::Whole(header, _))) => Ok(header.number),
                Ok(Some(Found::Missing(numbers))) => Err(numbers),
                Ok(Some(Found::Damaged(header))) => panic!("{header:?}"),
                Ok(None) => return (all, refused),
                Err(_) => {
                    refused += 1;
                    continue;
                }
            };
            next = found.as_ref().map_or_else(|numbers| numbers.end, |number| number + 1);
            all.push(found);
        }
    };
    if let Some(path) = Place::of_child() {
        let mut folder = open(&path, SMALL);
        (0..30).for_each(|n| _ = folder.append(1, &[], &[n; 200]).unwrap());
        let mut firsts = folder.segments.keys().copied();
        let (_, second, third) = (firsts.next(), firsts.next().unwrap(), firsts.next().unwrap());
        // Read from its beginning, it gives EIO, as a disk does.
        let mut mount = std::process::Command::new("mount");
        let memory = format!("/proc/{}/mem", std::process::id());
        assert!(mount.args(["--bind", &memory]).arg(folder.segment(second)).status().unwrap().success());
        let rest: Vec<_> = (1..second).map(Ok).chain([Err(second..third)]).chain((third..31).map(Ok)).collect();
        // It is tried again some times, for it may be a network that cannot.
        assert_eq!(whole(&folder), (rest.clone(), 10));
        drop(folder);
        let (again, others) = (open(&path, SMALL), rest.into_iter().filter(Result::is_ok).collect::<Vec<_>>());
        assert_eq!(whole(&again), (others, 0));
        assert!(again.gaps(31).into_iter().eq(std::iter::once(second..third)));
        assert!(again.segment(second).exists());
        return;
    }
    if !may_mount() {
        return;
    }
    let place = Place::new();
    let script = "exec unshare -m sh -c 'exec \"$@\"' \"$0\" \"$@\";";
    run(&mut again(script, "disks::a_segment_that_cannot_be_read_costs_itself", &place.0));
}

/// Check that a segment of which it cannot be known what is lost with it, for there are too many open files, does not go: nothing is
/// appended instead, and all goes on when there are fewer.
#[cfg(unix)]
#[test]
fn nothing_goes_uncounted_where_files_cannot_be_opened() {
    if let Some(path) = Place::of_child() {
        let mut folder = Folder::open(&path, LARGE).unwrap();
        folder.append(1, &[1], b"one").unwrap();
        let mut files = Vec::new();
        let why = loop {
            match fs::File::open("/dev/null") {
                Ok(file) => files.push(file),
                Err(why) => break why,
            }
        };
        let refused = folder.remove(1).map(drop).unwrap_err().to_string();
        assert!(refused.contains(&why.to_string()), "{refused}");
        assert!(folder.segment(1).exists() && folder.oldest().is_some());
        drop(files);
        assert!(folder.remove(1).unwrap().is_some());
        assert!(!folder.segment(1).exists() && folder.oldest().is_none());
        return;
    }
    let place = Place::new();
    let name = "disks::nothing_goes_uncounted_where_files_cannot_be_opened";
    run(&mut again("ulimit -n 64;", name, &place.0));
}
