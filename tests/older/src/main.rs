//! A program on a jemalloc without hooks of samples, which allocates so much, function by function.
//!
//! In: the interval of samples as a power of two, and how many blocks each thread allocates. Out: a line of JSON on standard output that says
//! where it is served and what was allocated, with the standard error that sampling has there; after a word on standard input all is freed, after another
//! one it ends. After the word `interval` it takes another one first.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::io::{self, BufRead, Write};

profiler::jemalloc!();

/// A function that allocates, and how large the blocks are that it is asked for.
type Function = (&'static str, fn(usize) -> Vec<u8>, fn(u64) -> usize);

// A body of its own for each, for the linker folds equal functions.
macro_rules! functions {
    ($($name:ident: $size:expr;)*) => {
        const FUNCTIONS: &[Function] = &[$((stringify!($name), $name, $size)),*];
        $(
            #[inline(never)]
            fn $name(size: usize) -> Vec<u8> {
                let block = Vec::with_capacity(size);
                black_box(stringify!($name));
                block
            }
        )*
    };
}

functions! {
    small: |random| 64 + random as usize % 448;
    middle: |random| 1000 + random as usize % 7000;
    mixed: |random| 100 << (random % 9);
    large: |random| 16_384 + random as usize % 100_000;
}

/// Objects and bytes allocated, objects and bytes in use: what there was, what jemalloc counts of it on average, and the variance that samples of it
/// have.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    truth: [f64; 4],
    /// It counts how many objects a sample stands for in eighths. Source: jemalloc 5.3.0, src/prof_data.c, `prof_unbias_map_init`.
    counted: [f64; 4],
    variance: [f64; 4],
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        || arguments.next().ok_or("which interval, how many blocks?")?.parse().map_err(Box::<dyn Error>::from);
    let (lg, blocks) = (number()?, number()?);
    // Seen only by a jemalloc that takes samples before it is asked for them.
    let early: Vec<Vec<u8>> = (0..1000).map(early).collect();
    let config = profiler::Config::new("older").heap(true).heap_interval(1_u64 << lg).serve("127.0.0.1:0");
    let profiler = profiler::start(config)?;
    let address = profiler.serve_address().ok_or("not served")?;
    let threads: Vec<_> =
        (1..=4).map(|seed| std::thread::spawn(move || work(seed, blocks, (1_u64 << lg) as f64))).collect();
    let (mut kept, mut sums) = (Vec::new(), BTreeMap::new());
    for thread in threads {
        let (blocks, known) = thread.join().map_err(|_| "a thread panicked")?;
        kept.push(blocks);
        for (name, sum) in known {
            let all: &mut Sum = sums.entry(name).or_default();
            for place in 0..4 {
                all.truth[place] += sum.truth[place];
                all.counted[place] += sum.counted[place];
                all.variance[place] += sum.variance[place];
            }
        }
    }
    let row = |(name, sum): (&&str, &Sum)| {
        let Sum { truth, counted, variance } = sum;
        let errors = variance.map(f64::sqrt);
        format!("{name:?}: {{\"truth\": {truth:?}, \"counted\": {counted:?}, \"error\": {errors:?}}}")
    };
    let rows: Vec<String> = sums.iter().map(row).collect();
    let word = say(&format!("{{\"address\": \"{address}\", \"rows\": {{{}}}}}", rows.join(", ")))?;
    if word == "interval\n" {
        profiler.set_heap_interval(2_u64 << lg)?;
        say("{}")?;
    }
    drop((early, kept));
    say("{}")?;
    Ok(())
}

#[inline(never)]
fn early(number: usize) -> Vec<u8> {
    let block = Vec::with_capacity(10_000 + number);
    black_box("early");
    block
}

/// Allocates blocks of which every other one lives on.
fn work(seed: u64, blocks: u64, interval: f64) -> (Vec<Vec<u8>>, BTreeMap<&'static str, Sum>) {
    let (mut state, mut kept, mut known) = (seed, Vec::new(), BTreeMap::<_, Sum>::new());
    for round in 0..blocks {
        // Fewer of the large ones, so that all functions have a share in the bytes.
        let (name, function, size) = FUNCTIONS[[0, 0, 0, 0, 0, 0, 1, 1, 2, 3][random(&mut state) as usize % 10]];
        let block = function(size(random(&mut state)));
        let lives = round % 2 == 0;
        // SAFETY: a block of this allocator, which lives.
        let size = unsafe { tikv_jemallocator::usable_size(block.as_ptr()) } as f64;
        let chance = -(-size / interval).exp_m1();
        let sum = known.entry(name).or_default();
        let eighths = chance * (8.0 / chance).round() / 8.0;
        for (place, value) in [1.0, size, 1.0, size].into_iter().enumerate().take(if lives { 4 } else { 2 }) {
            sum.truth[place] += value;
            sum.counted[place] += if place % 2 == 0 { eighths } else { value };
            sum.variance[place] += value * value * (1.0 - chance) / chance;
        }
        if lives {
            kept.push(block);
        }
    }
    (kept, known)
}

/// splitmix64 (Steele, Lea, Flood 2014), its high bits.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) >> 16
}

/// Says a line, and waits for one.
fn say(line: &str) -> Result<String, Box<dyn Error>> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()?;
    let mut word = String::new();
    io::stdin().lock().read_line(&mut word)?;
    Ok(word)
}
