//! Files as bytes: cut, changed, or anything at all.

#[path = "../../../../../tests/fuzz/corpus.rs"]
mod corpus;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::fuzz::{read, segment, spool};
use super::super::record::{Header, MAX_BODY};
use super::super::segment::{Kind, PREAMBLE, preamble, recognise};
use super::super::settled::{Cursors, Settled};

const BODIES: [&[u8]; 4] = [b"first", b"", b"the third body", b"last"];

/// Check that what stands before a cut comes back, wherever the cut is, and nothing else does.
#[test]
fn what_stands_before_a_cut_comes_back() {
    let (bytes, ends) = segment(&BODIES);
    for cut in 0..=bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let expected: Vec<_> = BODIES[..whole].iter().zip(1..).map(|(body, n)| (n, Some(body.to_vec()))).collect();
        assert_eq!(read(&bytes[..cut]), expected, "cut at {cut}");
    }
}

/// Check that a changed byte costs the body in which it is; in a header, what follows in that segment; and is never taken for
/// what was written.
#[test]
fn a_changed_byte_costs_little_and_is_seen() {
    let (bytes, ends) = segment(&BODIES);
    for (at, bit) in (PREAMBLE..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        let hit = ends.iter().filter(|end| **end <= at).count();
        let in_body = at >= ends[hit] - BODIES[hit].len();
        let mut expected: Vec<_> = BODIES.iter().zip(1..).map(|(body, n)| (n, Some(body.to_vec()))).collect();
        if in_body {
            expected[hit].1 = None;
        } else {
            expected.truncate(hit);
        }
        assert_eq!(read(&changed), expected, "bit {bit} of byte {at}");
    }
}

/// Check that a preamble is known by each of its bytes, and that only another version is left alone.
#[test]
fn a_segment_is_recognised() {
    let bytes = preamble(9);
    assert_eq!((recognise(&bytes, 9), recognise(&bytes, 8)), (Kind::Ours, Kind::Damaged));
    for at in 0..PREAMBLE {
        let mut changed = bytes;
        changed[at] ^= 0x10;
        assert_eq!(recognise(&changed, 9), if at == 7 { Kind::OtherVersion } else { Kind::Damaged }, "byte {at}");
        assert_eq!(recognise(&bytes[..at], 9), Kind::Damaged, "cut at {at}");
    }
}

/// Check that a header that claims more than there is, or numbers that go back, end the reading.
#[test]
fn claims_that_cannot_be_are_not_believed() {
    let header = Header::of(5, 1, b"", &vec![0; MAX_BODY]).unwrap();
    assert_eq!(read(&[&preamble(1)[..], &header.encode(), b"short"].concat()), []);
    let record = |number, body: &[u8]| [Header::of(number, 1, b"", body).unwrap().encode(), body.to_vec()].concat();
    let again = [&preamble(1)[..], &record(5, b"a"), &record(5, b"b")].concat();
    assert_eq!(read(&again), [(5, Some(b"a".to_vec()))]);
    assert_eq!(Header::of(1, 1, b"", &vec![0; MAX_BODY + 1]), None);
    assert_eq!(Header::of(1, 1, &[0; 256], b""), None);
}

fn sample() -> Vec<u8> {
    let mut cursors = Cursors { next: 40, ..Cursors::default() };
    for (name, numbers) in [("collector", [0..5, 7..9, 20..21]), ("pyroscope", [1..2, 3..4, 3..9])] {
        let mut settled = Settled::default();
        numbers.into_iter().for_each(|numbers| settled.add(numbers));
        cursors.settled.insert(name.into(), settled);
    }
    cursors.encode()
}

/// Check that cursors come back, and that a file that was cut or changed anywhere is none.
#[test]
fn cursors_come_back_or_do_not() {
    let bytes = sample();
    let cursors = Cursors::decode(&bytes).unwrap();
    assert_eq!((cursors.next, cursors.settled.len()), (40, 2));
    assert!(cursors.settled["collector"].contains(8) && !cursors.settled["collector"].contains(9));
    assert_eq!(cursors.encode(), bytes);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        assert_eq!(Cursors::decode(&changed), None, "byte {at}");
        assert_eq!(Cursors::decode(&bytes[..at]), None, "cut at {at}");
    }
}

/// Check that cursors which settle what has no number yet are none: nothing new would ever be sent.
#[test]
fn cursors_do_not_settle_the_future() {
    let mut cursors = Cursors::decode(&sample()).unwrap();
    cursors.settled.get_mut("collector").unwrap().add(30..41);
    assert_eq!(Cursors::decode(&cursors.encode()), None);
    cursors.next = u64::MAX;
    assert_eq!(Cursors::decode(&cursors.encode()), None);
}

/// Check that gaps without number take no memory without bound, and cost that something is sent twice, never that it is not.
#[test]
fn gaps_are_bounded() {
    let mut settled = Settled::default();
    (1..100_000).for_each(|n| settled.add(2 * n..2 * n + 1));
    assert!(settled.contains(2) && settled.contains(100_000) && !settled.contains(199_998));
    assert!((0..100_000).all(|n| !settled.contains(2 * n + 1)));
    let cursors = Cursors { next: 200_000, settled: [("collector".to_owned(), settled.clone())].into() };
    let saved = Cursors::decode(&cursors.encode()).unwrap();
    assert!(saved.settled["collector"].contains(2_000) && !saved.settled["collector"].contains(2_100));
    settled.add(0..300_000);
    assert_eq!(settled, {
        let mut all = Settled::default();
        all.add(0..300_000);
        all
    });
}

/// Check that what coverage-guided runs found is read, too.
#[test]
fn what_a_fuzzer_found_is_read() {
    for (name, bytes) in corpus::of("spool") {
        assert!(std::panic::catch_unwind(|| spool(&bytes)).is_ok(), "{name}");
    }
}

proptest! {
    /// Check that numbers are settled as a set of them says, in whatever order and overlap they come.
    #[test]
    fn settled_numbers_are_a_set(ranges in prop::collection::vec((0_u64..60, 0_u64..12), 0..40)) {
        let (mut settled, mut model) = (Settled::default(), BTreeSet::new());
        for (start, length) in ranges {
            settled.add(start..start + length);
            model.extend(start..start + length);
            for number in 0..80 {
                prop_assert_eq!(settled.contains(number), model.contains(&number), "{}", number);
                prop_assert_eq!(settled.is_past(number), (0..number).all(|n| model.contains(&n)), "{}", number);
            }
        }
    }

    /// Check that nothing at all leads a reader astray, nor any damage to a good segment.
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        spool(&bytes);
    }

    /// Check that the same holds for files that are nearly good.
    #[test]
    fn nearly_good_bytes_are_read(at in any::<prop::sample::Index>(), change in any::<u8>(), cut in any::<prop::sample::Index>()) {
        for mut bytes in [segment(&BODIES).0.split_off(PREAMBLE), sample()] {
            let at = at.index(bytes.len());
            bytes[at] = change;
            bytes.truncate(cut.index(bytes.len()) + 1);
            spool(&bytes);
        }
    }
}
