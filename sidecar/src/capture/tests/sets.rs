//! Sets of labels in either form: more of them than are read, and maps that say more than they have.

use super::{Forged, VARIABLES, goroutine, layout, program};
use crate::capture::Goroutines;
use crate::capture::goroutines::goroutines;
use crate::go::layouts::{Labels, Layout, status};

/// A goroutine whose labels are at 0x40000.
fn labelled() -> Forged {
    let mut words = goroutine(1, status::WAITING, (0x80000, 0x80100), (0x1f10, 0x80040));
    words[layout().g.labels / 8] = 0x40000;
    let memory = Forged::default().with(0x300, &[0x5000, 1, 1]).with(0x5000, &[0x10000]).with(0x10000, &words);
    memory.with(0x80000, &[0x1f20; 32]).with(0x50000, &[u64::from_le_bytes(*b"abcdefgh"); 200])
}

fn captured(memory: &Forged, labels: Labels) -> Goroutines {
    let layout = Layout { labels, ..layout() };
    goroutines(memory, &program(), &VARIABLES, &layout, 10).unwrap().unwrap()
}

/// A pair whose key has so many bytes, and whose value has one.
fn pair(length: u64) -> [u64; 4] {
    [0x50000, length, 0x50000, 1]
}

/// Check that of more labels than are read, or longer ones, there is what is read, and that it says so.
#[test]
fn sets_beyond_what_is_read_say_so() {
    let of = |pairs: &[[u64; 4]]| {
        let count = pairs.len() as u64;
        captured(&labelled().with(0x40000, &[0x60000, count]).with(0x60000, &pairs.concat()), Labels::Slice)
    };
    let many: Vec<[u64; 4]> = (1..=65).map(pair).collect();
    for (pairs, told, is_cut) in [
        (&many[..64], 64, false),
        (&many[..], 64, true),
        (&[pair(1), pair(1024)][..], 2, false),
        (&[pair(1), pair(1025)][..], 2, true),
    ] {
        let all = of(pairs);
        let labels = &all.list[0].labels;
        assert_eq!((labels.iter().count(), labels.is_cut(), all.labels_short), (told, is_cut, u64::from(is_cut)));
        assert!(labels.iter().all(|(key, _)| key.len() <= 1024));
        assert_eq!((all.labels_cut, all.labels_changed), (0, 0));
    }
}

/// A bucket of a map with pairs whose keys have these lengths, at most eight, that overflows to an address.
fn bucket(keys: &[u64], overflow: u64) -> Vec<u64> {
    let mut tops = [0; 8];
    tops[..keys.len()].fill(9);
    let mut words = vec![u64::from_le_bytes(tops)];
    let place =
        |text: fn(u64) -> [u64; 2]| (0..8).flat_map(move |place| keys.get(place).map_or([0; 2], |key| text(*key)));
    words.extend(place(|length| [0x50000, length]));
    words.extend(place(|_| [0x50000, 1]));
    words.push(overflow);
    words
}

/// A bucket whose pairs were moved: `evacuatedX`.
fn moved() -> Vec<u64> {
    let mut words = bucket(&[], 0);
    words[0] = u64::from_le_bytes([2; 8]);
    words
}

/// Check that a map has the pairs of its buckets, of those that they overflow into, and, while it grows, of those before; and that one with fewer than it says
/// is no set, which is counted.
#[test]
fn maps_have_all_pairs_or_are_none() {
    let of = |header: [u64; 4], places: &[(u64, Vec<u64>)]| {
        let memory = labelled().with(0x40000, &[0x60000]).with(0x60000, &header);
        captured(&places.iter().fold(memory, |memory, (at, words)| memory.with(*at, words)), Labels::Map)
    };
    let keys: Vec<u64> = (1..=12).collect();
    let whole = [(0x61000, bucket(&keys[..8], 0x62000)), (0x62000, bucket(&keys[8..], 0))];
    // A map of two buckets, B being 1, that had one or two before.
    let grown = [[bucket(&keys[..4], 0), bucket(&[], 0)].concat(), [moved(), bucket(&keys[4..], 0)].concat()];
    let doubled = [(0x61000, grown[0].clone()), (0x63000, bucket(&keys[4..], 0))];
    let as_many = [(0x61000, grown[0].clone()), (0x63000, grown[1].clone())];
    const ONE_BIT: u64 = 1 << 8;
    const SAME_SIZE: u64 = 8;
    for (header, places, count) in [
        ([12, 0, 0x61000, 0], &whole[..], 12),
        ([12, ONE_BIT, 0x61000, 0x63000], &doubled[..], 12),
        ([12, ONE_BIT | SAME_SIZE, 0x61000, 0x63000], &as_many[..], 12),
        ([13, 0, 0x61000, 0], &whole[..], 0),
        ([12, 0, 0x61000, 0], &whole[..1], 0),
        ([12, ONE_BIT, 0x61000, 0], &doubled[..], 0),
        ([0, 0, 0, 0], &[][..], 0),
    ] {
        let all = of(header, places);
        let labels = &all.list[0].labels;
        let lengths: Vec<u64> = labels.iter().map(|(key, _)| key.len() as u64).collect();
        assert_eq!((&lengths[..], labels.is_cut()), (&keys[..count], false), "{header:x?}");
        assert_eq!(all.labels_changed, u64::from(count == 0 && header[0] > 0), "{header:x?}");
    }
    let many: Vec<u64> = (1..=72).collect();
    let buckets: Vec<u64> =
        many.chunks(8).flat_map(|keys| bucket(keys, 0)).chain((0..7).flat_map(|_| bucket(&[], 0))).collect();
    let all = of([72, 4 << 8, 0x61000, 0], &[(0x61000, buckets)]);
    assert_eq!((all.list[0].labels.iter().count(), all.list[0].labels.is_cut(), all.labels_short), (64, true, 1));
}
