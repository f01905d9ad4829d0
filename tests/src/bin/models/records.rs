//! Models of the ring: records come out whole, in the order of each writer, and what is refused is reported.
//!
//! In: the checker's schedule. Out: assertions that hold in every one.

use loom::sync::Arc;
use loom::thread;

use crate::ring::Ring;

/// Words of a writer's record: who it is, which one, and the sum, so that a torn one is seen.
fn record(writer: u64, number: u64) -> [u64; 3] {
    [writer, number, writer * 100 + number]
}

/// Writes `count` records; how many were refused.
fn write(ring: &Ring, writer: u64, count: u64) -> u64 {
    (0..count).filter(|number| ring.write(&[&record(writer, *number)]).is_err()).count() as u64
}

/// Reads what there is, checks it, and counts it by writer; `next` is the least number that each writer may be at.
fn read(ring: &Ring, next: &mut [u64; 2]) -> u64 {
    let mut buffer = Vec::new();
    let mut count = 0;
    while ring
        .read(&mut buffer, |words| {
            let [writer, number, _] = words else { unreachable!("a record of {} words", words.len()) };
            assert_eq!(words, record(*writer, *number), "a torn record");
            let next = &mut next[*writer as usize];
            assert!(*number >= *next, "out of order");
            *next = *number + 1;
        })
        .is_some()
    {
        count += 1;
    }
    count
}

/// Writers on threads beside a reader, on a ring of so many words.
fn writers(words: usize, records: u64) {
    #[expect(clippy::unwrap_used, reason = "a model without its ring shows nothing")]
    let ring = Arc::new(Ring::new(words).unwrap());
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || write(&ring, writer, records))
        })
        .collect();
    let mut next = [0; 2];
    let mut kept = read(&ring, &mut next);
    let refused = writers.into_iter().map(|writer| writer.join().unwrap_or(u64::MAX)).sum::<u64>();
    kept += read(&ring, &mut next);
    assert_eq!(kept + refused, 2 * records, "a record is neither kept nor refused");
    assert_eq!(ring.head(), ring.tail(), "records are left behind");
}

/// Room for all.
pub(crate) fn two_writers() {
    writers(16, 2);
}

/// Room for one: a writer that loaded the head before another one wrote, and the reader read, finds the tail beyond it.
pub(crate) fn a_full_ring() {
    writers(4, 2);
}
