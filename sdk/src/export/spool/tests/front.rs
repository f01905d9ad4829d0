//! The whole spool: what comes back to whom, what is lost and told, disks that hang.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use super::super::backlog::{Receipt, Taker};
use super::super::folder::Bounds;
use super::super::{Pace, Spool, Why};
use super::{Place, SMALL, body, until};

const PACE: Pace =
    Pace { sync: Duration::from_millis(5), reopen: Duration::from_millis(5), patience: Duration::from_secs(60) };
const CLOSE: Duration = Duration::from_secs(60);
const NONE: [u64; 0] = [];

/// What was lost: destination, counts, why.
type Lost = Arc<Mutex<Vec<(usize, Vec<u8>, Why)>>>;

/// A spool for two destinations: `a` takes forms 1 and 2, `b` takes form 1.
fn spool(path: &Path, bounds: Bounds) -> (Spool, Lost) {
    let takers =
        [("a", vec![1, 2]), ("b", vec![1])].map(|(name, forms)| Taker { name: name.into(), forms, reads: |_| true });
    let lost = Lost::default();
    let told = Arc::clone(&lost);
    let lose = Box::new(move |gone: super::super::Gone<'_>| {
        told.lock().unwrap().push((gone.destination, gone.counts.unwrap_or_default().to_vec(), gone.why));
    });
    (Spool::start(&Handle::current(), path.to_owned(), (bounds, PACE), takers.into(), lose), lost)
}

fn append(spool: &Spool, form: u8, number: u64) -> Arc<Receipt> {
    spool.append(form, Box::from(number.to_le_bytes()), Bytes::from(body(number))).unwrap()
}

/// What a destination gets to read until there is no more, settling each.
async fn replayed(spool: &Spool, destination: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(replayed) = spool.read(destination).await.unwrap() {
        let counts = replayed.receipt.counts.as_ref().try_into().unwrap();
        numbers.push(u64::from_le_bytes(counts));
        assert_eq!(replayed.body, body(*numbers.last().unwrap()));
        spool.settle(destination, replayed.receipt);
    }
    numbers
}

/// What a destination was told to have lost for room.
fn full(lost: &Lost, destination: usize) -> Vec<u64> {
    let lost = lost.lock().unwrap();
    let of_it = lost.iter().filter(|(of, _, why)| *of == destination && *why == Why::Full);
    of_it.map(|(_, counts, _)| u64::from_le_bytes(counts.as_slice().try_into().unwrap())).collect()
}

/// Check that the next process gets what was not settled, each destination its own, in order and once; and that nothing is left
/// on disk that all have settled.
#[tokio::test]
async fn what_is_not_settled_comes_back_to_the_next_process() {
    let place = Place::new();
    let (first, lost) = spool(&place.0, SMALL);
    let receipts: Vec<_> = (1..=20).map(|number| append(&first, if number % 4 == 0 { 2 } else { 1 }, number)).collect();
    for index in [0, 1, 2, 3, 4, 9, 19] {
        first.settle(0, Arc::clone(&receipts[index]));
    }
    first.settle(1, Arc::clone(&receipts[4]));
    assert_eq!(replayed(&first, 0).await, NONE, "it is all in memory");
    assert!(first.close(CLOSE).await);

    let (second, more) = spool(&place.0, SMALL);
    assert_eq!(replayed(&second, 0).await, [6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    for _ in 0..3 {
        let first = second.read(1).await.unwrap().unwrap();
        assert_eq!((first.receipt.number(), first.body), (1, Bytes::from(body(1))), "it was not settled");
    }
    assert!(second.close(CLOSE).await);

    let (third, none) = spool(&place.0, SMALL);
    assert_eq!(replayed(&third, 0).await, NONE);
    assert_eq!(replayed(&third, 1).await, [1, 2, 3, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19]);
    until(|| third.figures().segments == 0).await;
    assert!(third.close(CLOSE).await);

    let (fourth, _) = spool(&place.0, SMALL);
    drop(append(&fourth, 1, 21));
    assert!(fourth.close(CLOSE).await);
    let (fifth, _) = spool(&place.0, SMALL);
    assert_eq!(replayed(&fifth, 0).await, [21], "its number was settled before it had one");
    for lost in [lost, more, none] {
        assert_eq!(*lost.lock().unwrap(), []);
    }
}

/// Check that what memory has forgotten comes back in the same process, in order, also if it was passed over before.
#[tokio::test]
async fn what_memory_forgets_comes_back() {
    let place = Place::new();
    let (spool, _) = spool(&place.0, SMALL);
    let receipts: Vec<_> = (1..=6).map(|number| append(&spool, 1, number)).collect();
    until(|| receipts.iter().all(|receipt| receipt.is_kept())).await;
    spool.release(0, Arc::clone(&receipts[4]));
    assert_eq!(replayed(&spool, 0).await, [5]);
    spool.release(0, Arc::clone(&receipts[1]));
    spool.release(0, Arc::clone(&receipts[2]));
    assert_eq!(replayed(&spool, 0).await, [2, 3]);
    assert_eq!(replayed(&spool, 1).await, NONE);
}

/// Check that the bound holds, that each record that goes for room is told to each destination that had neither settled it nor has
/// it in memory, and that its receipt knows.
#[tokio::test]
async fn what_goes_for_room_is_told() {
    let place = Place::new();
    let (first, _) = spool(&place.0, SMALL);
    let receipts: Vec<_> = (1..=10).map(|number| append(&first, 1, number)).collect();
    first.settle(0, Arc::clone(&receipts[0]));
    assert!(first.close(CLOSE).await);

    let (second, lost) = spool(&place.0, SMALL);
    let receipts: Vec<_> = (11..=200).map(|number| append(&second, 1, number)).collect();
    until(|| receipts[189].is_kept()).await;
    assert!(second.figures().bytes <= SMALL.folder);
    let gone = |destination| full(&lost, destination);
    assert_eq!((gone(0), gone(1)), ((2..=10).collect(), (1..=10).collect()));
    assert!(!receipts[0].is_kept());
    second.release(0, Arc::clone(&receipts[0]));
    assert_eq!(replayed(&second, 0).await, NONE);
    assert_eq!((gone(0).last().copied(), gone(1).len()), (Some(11), 10), "memory had it and forgot it too late");
}

/// Check that a bound that was lowered holds from the start, and that a folder without destinations is left as it is.
#[tokio::test]
async fn a_lower_bound_holds_at_once() {
    let place = Place::new();
    let (first, _) = spool(&place.0, Bounds { folder: 1 << 20, ..SMALL });
    (1..=200).for_each(|number| drop(append(&first, 1, number)));
    assert!(first.close(CLOSE).await);
    let none = Spool::start(&Handle::current(), place.0.clone(), (Bounds::default(), PACE), vec![], Box::new(|_| {}));
    assert!(none.close(CLOSE).await);
    let (second, lost) = spool(&place.0, SMALL);
    let left = replayed(&second, 0).await;
    let gone = 200 - left.len();
    assert_eq!(left, (gone as u64 + 1..=200).collect::<Vec<_>>());
    assert!(second.figures().bytes <= SMALL.folder && gone > 0);
    assert_eq!(lost.lock().unwrap().len(), 2 * gone);
}

/// Check that a damaged body is told once to each destination, that the others come, and that damage is no reason to stop.
#[tokio::test]
async fn damage_is_told_once() {
    let place = Place::new();
    let (first, _) = spool(&place.0, Bounds { segment: 4 << 10, ..SMALL });
    (1..=3).for_each(|number| drop(append(&first, 1, number)));
    assert!(first.close(CLOSE).await);
    let path = place.0.join(super::super::files::name_of(1));
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    bytes.extend([7; 100]);
    std::fs::write(&path, bytes).unwrap();
    let (second, lost) = spool(&place.0, SMALL);
    assert_eq!((replayed(&second, 0).await, replayed(&second, 1).await), (vec![1, 2], vec![1, 2]));
    assert_eq!(second.figures().unreadable_bytes, 100);
    assert!(second.close(CLOSE).await);
    let counts = 3_u64.to_le_bytes().to_vec();
    assert_eq!(*lost.lock().unwrap(), [(0, counts.clone(), Why::Damaged), (1, counts, Why::Damaged)]);
    let (third, lost) = spool(&place.0, SMALL);
    assert_eq!(replayed(&third, 0).await, NONE);
    assert_eq!(*lost.lock().unwrap(), []);
}

/// Check that of segments that were cut, below their preamble too, each record comes back or is counted, for each destination that had not settled
/// it; that it is told once; and that a new destination, which could have had none of it, is told nothing. At every byte: `folder`.
#[tokio::test]
async fn what_a_cut_takes_is_counted() {
    const RECORDS: u64 = 8;
    let bounds = Bounds { segment: 256, ..SMALL };
    let place = Place::new();
    let (first, _) = spool(&place.0, bounds);
    let receipts: Vec<_> = (1..=RECORDS).map(|number| append(&first, 1, number)).collect();
    [1, 5].iter().for_each(|index| first.settle(1, Arc::clone(&receipts[*index])));
    assert!(first.close(CLOSE).await);
    let files: Vec<_> = std::fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    let files: Vec<_> = files.iter().map(|path| (path, std::fs::read(path).unwrap())).collect();
    let segments = || files.iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "segment"));
    assert!(segments().count() >= 3);
    for (cut, whole) in segments() {
        for length in [0, 1, 19, 20, 21, 41, 42, 60, whole.len() / 2, whole.len() - 1] {
            let restore = |(path, bytes): &(_, Vec<u8>)| std::fs::write(path, bytes).unwrap();
            files.iter().filter(|(path, _)| !path.ends_with("lock")).for_each(restore);
            std::fs::write(cut, &whole[..length]).unwrap();
            let (second, lost) = spool(&place.0, bounds);
            let back = [replayed(&second, 0).await, replayed(&second, 1).await];
            let row = format!("{} cut at {length}: {back:?}", cut.display());
            let missing = second.figures().missing;
            assert_eq!(back.iter().map(|back| back.len() as u64).sum::<u64>() + missing, 2 * RECORDS - 2, "{row}");
            assert!(missing > 0, "{row}");
            assert!(lost.lock().unwrap().iter().all(|(_, counts, why)| counts.is_empty() && *why == Why::Damaged));
            assert!(second.close(CLOSE).await);
            if length <= 20 {
                assert_eq!(new_to(&place.0, bounds).await, 0, "{row}");
                let (third, lost) = spool(&place.0, bounds);
                assert_eq!(replayed(&third, 0).await, NONE);
                assert_eq!((third.figures().missing, lost.lock().unwrap().len()), (0, 0), "{row}");
                assert!(third.close(CLOSE).await);
            }
        }
    }
}

/// How many bodies a destination misses that nobody knew before.
async fn new_to(path: &Path, bounds: Bounds) -> u64 {
    let taker = Taker { name: "new".into(), forms: vec![1], reads: |_| true };
    let lose = Box::new(|gone: super::super::Gone<'_>| panic!("{gone:?}"));
    let spool = Spool::start(&Handle::current(), path.to_owned(), (bounds, PACE), vec![taker], lose);
    let read = spool.read(0).await.unwrap();
    let missing = spool.figures().missing;
    drop(read);
    assert!(spool.close(CLOSE).await);
    missing
}

/// Check that what memory has, too, is taken for kept by nobody once its file is found to be gone, whoever finds it.
#[tokio::test]
async fn what_is_gone_is_not_taken_for_kept() {
    let place = Place::new();
    let (spool, lost) = spool(&place.0, SMALL);
    let receipts: Vec<_> = (1..=3).map(|number| append(&spool, 1, number)).collect();
    until(|| receipts.iter().all(|receipt| receipt.is_kept())).await;
    std::fs::remove_file(place.0.join(super::super::files::name_of(1))).unwrap();
    spool.release(0, Arc::clone(&receipts[1]));
    assert_eq!(replayed(&spool, 0).await, NONE);
    assert!(!receipts.iter().any(|receipt| receipt.is_kept()));
    // One of one destination: all else was in memory, and is.
    assert_eq!((spool.figures().missing, lost.lock().unwrap().len()), (1, 1));
    spool.release(1, Arc::clone(&receipts[0]));
    assert_eq!(replayed(&spool, 1).await, NONE);
    assert_eq!(full(&lost, 1), [1], "memory let go of what nobody else had");
}

/// Check that the bytes of files that do not even begin as a segment are counted.
#[tokio::test]
async fn what_is_no_segment_is_counted() {
    let place = Place::new();
    std::fs::write(place.0.join(super::super::files::name_of(1)), [7; 19]).unwrap();
    std::fs::write(place.0.join(super::super::files::name_of(2)), [7; 300]).unwrap();
    let (spool, lost) = spool(&place.0, SMALL);
    assert_eq!(replayed(&spool, 0).await, NONE);
    assert_eq!((spool.figures().unreadable_bytes, spool.figures().missing), (319, 0));
    assert_eq!(*lost.lock().unwrap(), []);
}

/// Check that a folder that is removed is said, and that a new one is used once it can be had: old receipts know that theirs is gone.
#[tokio::test]
async fn a_folder_that_is_removed_is_made_again() {
    let place = Place::new();
    let path = place.0.join("spool");
    let (spool, _) = spool(&path, SMALL);
    let old = append(&spool, 1, 1);
    until(|| old.is_kept() && spool.figures().synced_below == 2).await;
    // Its thread may write there in between, or have made a new one already.
    until(|| {
        let _removed = std::fs::remove_dir_all(&path);
        std::fs::write(&path, "in the way").is_ok()
    })
    .await;
    drop(append(&spool, 1, 2));
    let name = path.to_str().unwrap();
    until(|| !old.is_kept() && spool.figures().trouble.is_some_and(|trouble| trouble.contains(name))).await;
    std::fs::remove_file(&path).unwrap();
    until(|| spool.figures().trouble.is_none()).await;
    let new = append(&spool, 1, 3);
    until(|| new.is_kept()).await;
    assert!(new.number() > 1, "a number is used twice");
    spool.release(0, new);
    assert_eq!(replayed(&spool, 0).await, [3]);
}

/// Check that a second spool in the folder says why it is none, goes on without, and takes over once the first has ended.
#[tokio::test]
async fn a_second_spool_waits_for_the_first() {
    let place = Place::new();
    let (first, _) = spool(&place.0, SMALL);
    let receipt = append(&first, 1, 1);
    until(|| receipt.is_kept()).await;
    let (second, _) = spool(&place.0, SMALL);
    until(|| second.figures().trouble.is_some_and(|trouble| trouble.contains("another process"))).await;
    assert!(!append(&second, 1, 2).is_kept());
    assert!(second.read(0).await.unwrap().is_none());
    assert!(first.close(CLOSE).await);
    until(|| second.figures().trouble.is_none()).await;
    assert_eq!(replayed(&second, 0).await, [1]);
}

/// A spool whose thread, once it makes room, waits until it is let go, as it would for a disk that hangs.
fn hanging(path: &Path) -> (Spool, Receiver<()>, std::sync::mpsc::Sender<()>) {
    let (hung, hangs) = channel();
    let (go, gone) = channel();
    let lose = Box::new(move |_: super::super::Gone<'_>| {
        let _told = hung.send(());
        let _let_go = gone.recv();
    });
    let takers = vec![Taker { name: "a".into(), forms: vec![1], reads: |_| true }];
    let pace = Pace { patience: Duration::from_secs(2), ..PACE };
    (Spool::start(&Handle::current(), path.to_owned(), (SMALL, pace), takers, lose), hangs, go)
}

/// Check that a disk that hangs makes nobody wait, is said, takes no memory without bound, and that all goes on afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_makes_nobody_wait() {
    let place = Place::new();
    let (first, _, _) = hanging(&place.0);
    for number in 1..=10 {
        drop(appended(&first, number).await);
    }
    assert!(first.close(CLOSE).await);

    let (spool, hangs, go) = hanging(&place.0);
    until(|| spool.figures().segments > 0).await;
    let big = Bytes::from(vec![0; SMALL.folder as usize / 2]);
    let receipts: Vec<_> = (0..3).filter_map(|_| spool.append(1, Box::from([]), big.clone()).ok()).collect();
    hangs.recv_timeout(CLOSE).unwrap();
    until(|| spool.figures().trouble.is_some_and(|trouble| trouble.contains("has not answered"))).await;
    let refused = spool.append(1, Box::from([]), Bytes::from_static(b"body")).unwrap_err().to_string();
    assert!(refused.contains("has not answered") && refused.contains(place.0.to_str().unwrap()), "{refused}");
    assert!(spool.read(0).await.unwrap_err().to_string().contains("has not answered"));
    assert!(receipts[1..].iter().all(|receipt| !receipt.is_kept()));
    drop(go);
    until(|| receipts[2].is_kept() && spool.figures().trouble.is_none()).await;
    let more = appended(&spool, 1).await;
    until(|| more.is_kept()).await;
    assert!(spool.close(CLOSE).await);
}

/// Appends to a spool whose patience is short, as soon as the disk is not too slow for it.
async fn appended(spool: &Spool, number: u64) -> Arc<Receipt> {
    let mut receipt = None;
    until(|| {
        receipt = spool.append(1, Box::from(number.to_le_bytes()), Bytes::from(body(number))).ok();
        receipt.is_some()
    })
    .await;
    receipt.unwrap()
}

/// Check that bodies that wait for the disk are bounded, and that what no record can hold is refused at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_the_disk_is_bounded() {
    let place = Place::new();
    let (spool, _) = spool(&place.0, Bounds::default());
    let long = Bytes::from(vec![0; super::super::MAX_BODY + 1]);
    assert!(spool.append(1, Box::from([]), long).unwrap_err().to_string().contains("too long"));
    assert!(spool.append(1, Box::from([0; 256]), Bytes::new()).unwrap_err().to_string().contains("too long"));
    let body = Bytes::from(vec![0; 1 << 20]);
    let refused = (0..10_000).find_map(|_| spool.append(1, Box::from([]), body.clone()).err());
    assert!(refused.unwrap().to_string().contains("wait for the disk"));
    until(|| spool.append(1, Box::from([]), body.clone()).is_ok()).await;
}

/// Leaves the records 1 to 10 in the folder, of which `a` has settled the first.
async fn leave_ten(path: &Path) {
    let (first, _) = spool(path, SMALL);
    let receipts: Vec<_> = (1..=10).map(|number| append(&first, 1, number)).collect();
    first.settle(0, Arc::clone(&receipts[0]));
    assert!(first.close(CLOSE).await);
}

/// Gives the spool more than it has room for, so that all that was there before is evicted.
async fn evict(spool: &Spool) {
    let receipts: Vec<_> = (11..=200).map(|number| append(spool, 1, number)).collect();
    until(|| receipts[189].is_kept()).await;
}

/// Check that a read that is given up, as for something live that comes, has nothing in hand: what goes for room then is told as lost.
#[tokio::test]
async fn a_read_that_is_given_up_has_nothing_in_hand() {
    let place = Place::new();
    leave_ten(&place.0).await;
    let (second, lost) = spool(&place.0, SMALL);
    let mut reading = Box::pin(second.read(0));
    assert!(reading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(reading);
    evict(&second).await;
    assert_eq!((full(&lost, 0), full(&lost, 1)), ((2..=10).collect(), (1..=10).collect()));
}

/// Check that what was read is in hand from when it is taken, and not lost with its record then; that it can be taken as often as it is sent;
/// and that what was told as lost before is not to be had any more.
#[tokio::test]
async fn what_was_read_is_in_hand_once_it_is_taken() {
    for taken in [true, false] {
        let place = Place::new();
        leave_ten(&place.0).await;
        let (second, lost) = spool(&place.0, SMALL);
        let read = second.read(0).await.unwrap().unwrap();
        assert!(!taken || (read.receipt.take() && read.receipt.take()));
        evict(&second).await;
        let told: Vec<_> = if taken { (3..=10).collect() } else { (2..=10).collect() };
        assert_eq!((full(&lost, 0), read.receipt.take(), read.receipt.is_kept()), (told, taken, false));
    }
}

/// Check that what went with files that somebody took away is counted when their segment goes for room, for each destination that had
/// not settled it and does not have it in memory.
#[tokio::test]
async fn what_is_taken_away_is_counted_when_it_would_go_for_room() {
    let place = Place::new();
    leave_ten(&place.0).await;
    let (second, _) = spool(&place.0, SMALL);
    until(|| second.figures().segments > 0).await;
    for path in std::fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "segment") {
            std::fs::remove_file(path).unwrap();
        }
    }
    evict(&second).await;
    assert_eq!(second.figures().missing, 19);
}

/// Check the same of a folder that is taken away as a whole.
#[tokio::test]
async fn what_goes_with_the_folder_is_counted() {
    let place = Place::new();
    let path = place.0.join("spool");
    leave_ten(&path).await;
    let (second, _) = spool(&path, SMALL);
    let in_memory = append(&second, 1, 11);
    until(|| in_memory.is_kept()).await;
    // Its thread may write there in between.
    until(|| {
        let _removed = std::fs::remove_dir_all(&path);
        std::fs::write(&path, "in the way").is_ok()
    })
    .await;
    drop(append(&second, 1, 12));
    until(|| !in_memory.is_kept() && second.figures().missing > 0).await;
    assert!(second.close(CLOSE).await);
    assert_eq!(second.figures().missing, 19);
}
