//! What stays in a folder, what goes, and what is left alone.

use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use super::*;

/// A folder of its own for a test, gone with it.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("profiler-files-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn folder(&self, most_files: usize, most_bytes: u64) -> Folder {
        Folder { path: self.0.clone(), most_files, most_bytes, written: Written::default() }
    }

    /// What is there, in order.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn name(kind: &str, second: usize) -> String {
    format!("shop-{kind}-20261122T1515{second:02}Z-0000abcd.pb.gz")
}

/// One file of `bytes` bytes.
fn batch(kind: &str, second: usize, bytes: usize) -> Batch {
    let file = PprofFile { name: name(kind, second), contents: vec![7; bytes].into() };
    Batch { service: "shop".into(), files: vec![file] }
}

/// Check that the oldest go when there are too many, of whatever kind, and that contents are whole.
#[test]
fn the_oldest_make_room_by_number() {
    let place = Place::new("number");
    for second in [2, 0, 1, 3, 4] {
        // Of several processes: of its own files, each knows in which order it wrote them.
        place.folder(3, 1 << 20).write(&batch(if second % 2 == 0 { "heap" } else { "cpu" }, second, 10)).unwrap();
    }
    assert_eq!(place.names(), [name("cpu", 3), name("heap", 2), name("heap", 4)]);
    assert_eq!(fs::read(place.0.join(name("heap", 4))).unwrap(), [7; 10]);
}

/// Check that the oldest go when they take too many bytes, before more are written.
#[test]
fn the_oldest_make_room_by_bytes() {
    let place = Place::new("bytes");
    let folder = place.folder(100, 1000);
    for (second, bytes) in [400, 300, 200, 700, 301].into_iter().enumerate() {
        folder.write(&batch("cpu", second, bytes)).unwrap();
        let kept: u64 = folder.kept("shop").unwrap().iter().map(|file| file.bytes).sum();
        assert!(kept <= 1000, "{kept}");
    }
    assert_eq!(place.names(), [name("cpu", 4)]);
}

/// Check that the oldest go, and not the newest, when the clock was set back meanwhile.
#[test]
fn a_clock_that_was_set_back_costs_no_new_files() {
    let place = Place::new("clock");
    let folder = place.folder(3, 1 << 20);
    for second in [50, 51, 10, 11, 12] {
        folder.write(&batch("cpu", second, 10)).unwrap();
    }
    assert_eq!(place.names(), [name("cpu", 10), name("cpu", 11), name("cpu", 12)]);
    let next = place.folder(3, 1 << 20);
    next.write(&batch("cpu", 5, 10)).unwrap();
    next.write(&batch("cpu", 6, 10)).unwrap();
    assert_eq!(place.names(), [name("cpu", 5), name("cpu", 6), name("cpu", 12)]);
}

/// Check that two destinations with one folder write the same file without each other's draft, and that drafts of both are known as such.
#[test]
fn one_folder_may_be_written_to_twice() {
    let place = Place::new("twice");
    let folders = [place.folder(10, 1 << 20), place.folder(10, 1 << 20)];
    let drafts = folders.each_ref().map(|folder| folder.draft(&name("cpu", 0)));
    assert_ne!(drafts[0], drafts[1]);
    let old = format!(".{}{DRAFT}", name("cpu", 0));
    assert!(drafts.iter().chain([&old]).all(|draft| draft_of(draft) == Some(name("cpu", 0).as_str())), "{drafts:?}");
    fs::write(place.0.join(&drafts[0]), "x").unwrap();
    assert_eq!(folders[1].write(&batch("cpu", 0, 10)), Ok(()));
    fs::remove_file(place.0.join(&drafts[0])).unwrap();
    assert_eq!(folders[0].write(&batch("cpu", 0, 10)), Ok(()));
    assert_eq!(place.names(), [name("cpu", 0)]);
}

/// Check that files of others stay: of other services, of users, links and folders with our names, and drafts of a moment ago; and
/// that old drafts go.
#[test]
fn what_is_not_ours_is_left_alone() {
    let place = Place::new("others");
    let (kept, old) = (name("cpu", 1), format!(".{}{DRAFT}", name("cpu", 3)));
    let others = [
        "notes.txt".to_owned(),
        "shop-cpu-latest.pb.gz".to_owned(),
        kept.replace("shop", "shop-web"),
        format!(".{}{DRAFT}", name("cpu", 2)),
        format!("{kept}.bak"),
    ];
    for other in others.iter().chain([&old]) {
        fs::write(place.0.join(other), "x").unwrap();
    }
    let left = SystemTime::now() - 2 * LONGEST_DRAFT;
    File::options().write(true).open(place.0.join(&old)).unwrap().set_modified(left).unwrap();
    symlink(place.0.join("notes.txt"), place.0.join(name("cpu", 5))).unwrap();
    fs::create_dir(place.0.join(name("cpu", 6))).unwrap();
    let folder = place.folder(1, 1000);
    folder.write(&batch("cpu", 0, 1)).unwrap();
    folder.write(&batch("cpu", 1, 1)).unwrap();
    let mut expected = Vec::from(others);
    expected.extend([kept, name("cpu", 5), name("cpu", 6)]);
    expected.sort();
    assert_eq!(place.names(), expected);
    assert_eq!(fs::read(place.0.join("notes.txt")).unwrap(), b"x");
}

/// Check that a draft is not written through a link, that the error names the file, and that nothing half-written stays.
#[test]
fn what_cannot_be_written_is_named() {
    let place = Place::new("link");
    let folder = place.folder(10, 1000);
    symlink("/nowhere", place.0.join(folder.draft(&name("cpu", 0)))).unwrap();
    let why = folder.write(&batch("cpu", 0, 1)).unwrap_err();
    assert!(why.contains(&name("cpu", 0)) && why.contains("File exists"), "{why}");
    assert_eq!(place.names(), Vec::<String>::new());
    assert_eq!(folder.write(&batch("cpu", 0, 1)), Ok(()));
    let why = Folder { path: "/nowhere".into(), ..folder }.write(&batch("cpu", 0, 1)).unwrap_err();
    assert!(why.starts_with("cannot read /nowhere: No such file"), "{why}");
}

/// Check that a descriptor that has come to mean another file is not closed, and what was done with it did not succeed; and that one of
/// ours is closed.
#[test]
fn descriptors_of_others_are_not_closed() {
    let place = Place::new("descriptors");
    let is_open =
        |number: i32, path: &Path| fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|opened| opened == path);
    let [ours, hosts] = ["ours", "hosts"].map(|name| place.0.join(name));
    let open = |path: &Path| Descriptor::of(File::create(path).unwrap()).unwrap();
    let (kept, mut taken) = (open(&ours), open(&hosts));
    let numbers = [&kept, &taken].map(|descriptor| descriptor.file.as_ref().unwrap().as_raw_fd());
    taken.identity = kept.identity;
    let why = taken.with(|_| Ok(())).unwrap_err().to_string();
    assert!(why.contains("closed the descriptor"), "{why}");
    assert!(kept.with(|_| Ok(())).is_ok());
    drop((kept, taken));
    assert_eq!([is_open(numbers[0], &ours), is_open(numbers[1], &hosts)], [false, true]);
}
