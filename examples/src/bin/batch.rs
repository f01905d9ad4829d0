//! `batch`: a job without any async runtime under the profiler: threads that take pictures from a queue.
//!
//! In: how many seconds to work (default 15), pictures that it paints itself. Out: on standard output how many were done;
//! on 127.0.0.1:6061 the profile by `stage`. Each picture is blurred, compressed and given a digest; most of the time
//! goes into the blur.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Pixels of a picture's side; one byte a pixel.
const SIDE: usize = 512;
/// Pixels around each one that the blur takes the mean of.
const RADIUS: usize = 3;
const PROFILES: &str = "127.0.0.1:6061";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(15), |text| text.parse());
    let seconds = seconds.map_err(|error| format!("usage: batch [SECONDS]: {error}"))?;
    let _profiler = profiler::start(profiler::Config::new("batch").serve(PROFILES))?;
    writeln!(io::stdout(), "working for {seconds} s; the profile is at http://{PROFILES}/")?;

    let end = Instant::now() + Duration::from_secs(seconds);
    let next = AtomicUsize::new(0);
    let bytes: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from))
            .map(|_| scope.spawn(|| work(&next, end)))
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0))).sum::<io::Result<usize>>()
    })?;
    let pictures = next.load(Ordering::Relaxed);
    Ok(writeln!(io::stdout(), "{pictures} pictures, {bytes} bytes")?)
}

/// Takes pictures until the time is over; bytes written.
fn work(next: &AtomicUsize, end: Instant) -> io::Result<usize> {
    let mut bytes = 0;
    while Instant::now() < end {
        let picture = paint(next.fetch_add(1, Ordering::Relaxed));
        let blurred = profiler::with_tags(profiler::tags!("stage" => "blur"), || blur(&picture));
        let packed = profiler::with_tags(profiler::tags!("stage" => "compress"), || compress(&blurred))?;
        let digest = profiler::with_tags(profiler::tags!("stage" => "digest"), || digest(&blurred));
        bytes += packed.len() + digest.len();
    }
    Ok(bytes)
}

/// A pattern of its own for each number.
fn paint(number: usize) -> Vec<u8> {
    (0..SIDE * SIDE).map(|at| (((at % SIDE) * (at / SIDE)) >> (number % 8)).to_le_bytes()[0]).collect()
}

/// Each pixel becomes the mean of those around it, first along the rows, then along the columns.
fn blur(picture: &[u8]) -> Vec<u8> {
    let rows = smooth(picture, 1, SIDE);
    smooth(&rows, SIDE, 1)
}

/// The running mean along lines of pixels that are `step` apart; lines begin `line` apart.
fn smooth(picture: &[u8], step: usize, line: usize) -> Vec<u8> {
    let mut smoothed = vec![0; picture.len()];
    for start in (0..SIDE).map(|number| number * line) {
        for at in 0..SIDE {
            let (first, last) = (at.saturating_sub(RADIUS), (at + RADIUS).min(SIDE - 1));
            let sum: usize = (first..=last).map(|near| usize::from(picture[start + near * step])).sum();
            smoothed[start + at * step] = (sum / (last - first + 1)).to_le_bytes()[0];
        }
    }
    smoothed
}

fn compress(picture: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(picture)?;
    gzip.finish()
}

fn digest(picture: &[u8]) -> Vec<u8> {
    Sha256::digest(picture).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the blur keeps an even picture as it is and spreads a single bright pixel.
    #[test]
    fn the_blur_spreads_a_bright_pixel() {
        assert!(blur(&vec![9; SIDE * SIDE]).iter().all(|&pixel| pixel == 9));
        let mut dot = vec![0; SIDE * SIDE];
        dot[100 * SIDE + 100] = 245;
        let blurred = blur(&dot);
        assert_eq!((blurred[100 * SIDE + 100], blurred[97 * SIDE + 103], blurred[96 * SIDE + 100]), (5, 5, 0));
    }
}
