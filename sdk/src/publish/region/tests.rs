//! A reader at any moment, by the rules of the specification, while payloads change as fast as they can.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::*;

/// Whole payloads that the reader wants to see.
const READS: u64 = 2000;

/// A process has one context: tests of it take turns.
static TURN: Mutex<()> = Mutex::new(());

pub(in super::super) fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The payload with this number: its length and all of its bytes follow from that.
fn payload(number: u64) -> Vec<u8> {
    let length = 8 + (number.wrapping_mul(7919) % 60_000) as usize;
    let mut bytes = vec![number as u8; length];
    bytes[..8].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// One try to read: `None` where the header was changed meanwhile.
fn read(memory: &File, header: u64) -> Option<Vec<u8>> {
    let read = |address, length| {
        let mut bytes = vec![0; length];
        memory.read_exact_at(&mut bytes, address).map(|()| bytes)
    };
    let word = |address| read(address, 8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).unwrap();
    let before = word(header + 16);
    // The size is the second half of its word.
    let (size, at) = ((word(header + 8) >> 32) as usize, word(header + 24));
    if before == 0 || size > AREA {
        return None;
    }
    let bytes = read(at, size).unwrap();
    (word(header + 16) == before).then_some(bytes)
}

/// Check that a reader has a payload whole or knows that it has none, at whatever moment it looks, and sees new ones.
#[test]
fn a_reader_has_a_payload_whole_or_none() {
    let _turn = turn();
    let mut region = Region::map(true).unwrap();
    let header = region.start as u64;
    let done = AtomicBool::new(false);
    let limit = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let memory = File::open("/proc/self/mem").unwrap();
            let (mut whole, mut refused, mut last) = (0, 0_u64, 0);
            while (whole < READS || refused == 0) && Instant::now() < limit {
                let Some(bytes) = read(&memory, header) else {
                    refused += u64::from(whole > 0);
                    continue;
                };
                let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes == payload(number), "a mix, at payload {number}");
                assert!(number >= last, "payload {number} behind {last}");
                (whole, last) = (whole + 1, number);
            }
            done.store(true, Ordering::Relaxed);
            (whole, refused, last)
        });
        let mut number = 0;
        // Also where the reader has panicked.
        while !done.load(Ordering::Relaxed) && !reader.is_finished() {
            region.put(&payload(number)).unwrap();
            number += 1;
        }
        let (whole, refused, last) = reader.join().unwrap();
        println!("{number} payloads, {whole} reads, {refused} refused");
        assert!(whole >= READS && refused > 0 && last > 100, "{whole} of {number}, {refused} refused");
    });
}
