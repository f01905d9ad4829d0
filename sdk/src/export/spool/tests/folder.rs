//! The folder by itself: order, bounds, what a crash leaves, what somebody else puts there.

use std::fs;
use std::path::Path;

use super::super::files::name_of;
use super::super::folder::{Bounds, Folder};
use super::super::replay::{Found, Position};
use super::super::segment::preamble;
use super::{Place, SMALL, body, open, read, records};

fn fill(folder: &mut Folder, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert_eq!(folder.append(1, &[number as u8], &body(number)).unwrap(), number);
    }
}

fn expected(numbers: std::ops::Range<u64>) -> Vec<(u64, Vec<u8>)> {
    numbers.map(|number| (number, body(number))).collect()
}

fn segments(path: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
    paths.sort();
    paths
}

/// Check that records come back in order over many segments, also to who opens the folder after us, and that numbers go on.
#[test]
fn records_come_back_in_order() {
    let place = Place::new();
    let mut folder = open(&place.0, SMALL);
    fill(&mut folder, 1..30);
    assert_eq!(records(&folder), expected(1..30));
    assert!(segments(&place.0).len() > 3);
    assert!(segments(&place.0).iter().all(|path| fs::metadata(path).unwrap().len() <= SMALL.segment));
    assert_eq!(folder.sync().unwrap(), 30);
    drop(folder);
    let mut folder = open(&place.0, SMALL);
    fill(&mut folder, 30..40);
    assert_eq!(records(&folder), expected(1..40));
}

/// Check that the bound on bytes and its answer which segment must go agree with what is on the disk.
#[test]
fn the_oldest_must_go_where_there_is_no_room() {
    let place = Place::new();
    let mut folder = open(&place.0, SMALL);
    for number in 1..200 {
        while let Some((first, _)) = folder.too_much(body(number).len()) {
            assert_eq!(first, folder.oldest().unwrap().0);
            folder.remove(first).unwrap().unwrap();
        }
        fill(&mut folder, number..number + 1);
        let bytes: u64 = segments(&place.0).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert_eq!(folder.bytes(), bytes);
        assert!(bytes <= SMALL.folder, "{bytes}");
    }
    let left = records(&folder);
    assert_eq!(left.last(), Some(&(199, body(199))));
    assert_eq!(left, expected(left[0].0..200));
    assert!(folder.bytes() > SMALL.folder / 2, "more went than had to");
}

/// Check that after a cut of the newest segment anywhere, what stands before it comes back, with what is written next.
#[test]
fn a_cut_anywhere_is_survived() {
    let place = Place::new();
    let bounds = Bounds { segment: 1 << 20, ..SMALL };
    fill(&mut open(&place.0, bounds), 1..5);
    let path = segments(&place.0).remove(0);
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut folder = open(&place.0, bounds);
        let before = records(&folder);
        assert_eq!(before, expected(1..1 + before.len() as u64), "cut at {cut}");
        let number = folder.append(1, &[], b"next").unwrap();
        assert!(number > before.len() as u64, "cut at {cut}");
        assert_eq!(records(&folder), [before, vec![(number, b"next".to_vec())]].concat(), "cut at {cut}");
        drop(folder);
        segments(&place.0).iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}

/// Check that wherever one of several segments is cut, what does not come back is known by number.
#[test]
fn what_a_cut_takes_is_known() {
    let place = Place::new();
    let bounds = Bounds { segment: 256, ..SMALL };
    fill(&mut open(&place.0, bounds), 1..9);
    let paths = segments(&place.0);
    let whole: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(paths.len() >= 3);
    for (cut, bytes) in paths.iter().zip(&whole) {
        for length in 0..bytes.len() {
            paths.iter().zip(&whole).for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
            fs::write(cut, &bytes[..length]).unwrap();
            let folder = open(&place.0, bounds);
            let mut numbers: Vec<_> = records(&folder).into_iter().map(|(number, _)| number).collect();
            let gone: Vec<_> = folder.gaps(9).into_iter().flatten().collect();
            assert!(!gone.is_empty(), "{} cut at {length}", cut.display());
            numbers.extend(gone);
            numbers.sort_unstable();
            assert_eq!(numbers, (1..9).collect::<Vec<_>>(), "{} cut at {length}", cut.display());
        }
    }
}

/// Check that a damaged body is told with its counts, and that a file that is cut or taken away while it is in use is told by numbers.
#[test]
fn damage_is_told() {
    let place = Place::new();
    let mut folder = open(&place.0, SMALL);
    fill(&mut folder, 1..30);
    let mut bytes = fs::read(&segments(&place.0)[0]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&segments(&place.0)[0], bytes).unwrap();
    fs::remove_file(&segments(&place.0)[1]).unwrap();
    let found = read(&folder);
    let damaged = found.iter().find_map(|found| match found {
        Found::Damaged(header) => Some((header.number, header.counts[0])),
        _ => None,
    });
    let missing = found.iter().find_map(|found| match found {
        Found::Missing(numbers) => Some(numbers.clone()),
        _ => None,
    });
    let (number, counted) = damaged.unwrap();
    let missing = missing.unwrap();
    assert_eq!((u64::from(counted), missing.start), (number, number + 1));
    let whole: Vec<u64> = found
        .iter()
        .filter_map(|found| if let Found::Whole(header, _) = found { Some(header.number) } else { None })
        .collect();
    assert_eq!(whole, (1..number).chain(missing.end..30).collect::<Vec<_>>());
}

/// Check that a reader passes over what is not wanted, finds a record again as long as it is, and can be sent back.
#[test]
fn a_reader_keeps_its_place() {
    let place = Place::new();
    let mut folder = open(&place.0, SMALL);
    fill(&mut folder, 1..27);
    let mut position = Position::default();
    let mut next = |least: u64| {
        let found = folder.read(&mut position, |header| header.number % 5 == 0 && header.number >= least).unwrap();
        let number = found.map(|found| match found {
            Found::Whole(header, _) => header.number,
            other => panic!("{other:?}"),
        });
        position.rewind(if least == 99 { 7 } else { u64::MAX });
        number
    };
    let expected = [Some(5), Some(5), Some(10), Some(25), Some(25), None, Some(10)];
    assert_eq!([0, 0, 6, 24, 0, 99, 0].map(&mut next), expected);
}

/// Check that after a failure to confirm nothing is called confirmed while the segment is there: the next answer may be a wrong one.
#[test]
fn what_was_not_confirmed_stays_so() {
    let place = Place::new();
    let mut folder = open(&place.0, SMALL);
    fill(&mut folder, 1..3);
    assert_eq!(folder.sync().unwrap(), 3);
    fill(&mut folder, 3..4);
    let aside = place.0.join("aside");
    fs::rename(folder.segment(1), &aside).unwrap();
    assert!(folder.sync().is_err());
    fs::rename(&aside, folder.segment(1)).unwrap();
    fill(&mut folder, 4..30);
    assert_eq!(folder.sync().unwrap(), 3);
    folder.remove(1).unwrap();
    assert_eq!(folder.sync().unwrap(), 30);
}

/// Check that one process at a time has the folder, that the refusal says what to do, and that it is free again afterwards.
#[test]
fn a_second_owner_is_refused() {
    let place = Place::new();
    let folder = open(&place.0, SMALL);
    let refusal = Folder::open(&place.0, SMALL).unwrap_err().to_string();
    assert!(refusal.contains("another process") && refusal.contains(place.0.to_str().unwrap()), "{refusal}");
    assert!(folder.is_held());
    drop(folder);
    open(&place.0, SMALL);
}

/// Check that nothing is read, written or removed that is not ours: other names, folders, links and pipes with our names,
/// segments of a version to come. What a crash left of a segment is removed.
#[cfg(unix)]
#[test]
fn strange_files_are_left_alone() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    let target = place.0.join("target");
    fs::write(&target, preamble(3)).unwrap();
    for name in ["notes.txt", "1.segment", "00000000000000AB.segment", "ffffffffffffffff.segment", "settled.old"] {
        fs::write(place.0.join(name), "mine").unwrap();
    }
    fs::create_dir(place.0.join(name_of(1))).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(place.0.join(name_of(2))).status().unwrap().success());
    symlink(&target, place.0.join(name_of(3))).unwrap();
    symlink("/nowhere", place.0.join(name_of(4))).unwrap();
    let mut later = preamble(5);
    later[7] += 1;
    fs::write(place.0.join(name_of(5)), later).unwrap();
    fs::write(place.0.join(name_of(6)), "").unwrap();
    let seen = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before: Vec<_> = seen(&place.0).into_iter().filter(|name| **name != *name_of(6)).collect();
    let mut folder = open(&place.0, SMALL);
    assert_eq!(folder.append(1, &[], b"body").unwrap(), 6);
    assert_eq!(records(&folder), [(6, b"body".to_vec())]);
    folder.remove(6).unwrap();
    drop(folder);
    fs::remove_file(place.0.join("lock")).unwrap();
    assert_eq!(seen(&place.0), before);
    assert_eq!(fs::read(&target).unwrap(), preamble(3));
    assert_eq!(fs::read_to_string(place.0.join("notes.txt")).unwrap(), "mine");
}

/// Check that a link where the lock or the cursors should be is an error that names it, and that its target is not touched.
#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    for name in ["lock", "settled", "settled.new"] {
        let place = Place::new();
        let target = place.0.join("target");
        fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, place.0.join(name)).unwrap();
        let folder = Folder::open(&place.0, SMALL);
        let saved = folder.and_then(|folder| folder.cursors().and_then(|cursors| folder.save(&cursors)));
        let error = saved.unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{name}: {error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
        assert!(fs::symlink_metadata(place.0.join(name)).unwrap().is_symlink());
    }
}

/// Check that nobody else can read what is in the folder.
#[cfg(unix)]
#[test]
fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let path = place.0.join("a/b");
    let mut folder = open(&path, SMALL);
    fill(&mut folder, 1..2);
    folder.save(&folder.cursors().unwrap()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o077;
    let modes: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| mode(&entry.unwrap().path())).collect();
    assert_eq!((modes, mode(&path)), (vec![0; 3], 0));
}
