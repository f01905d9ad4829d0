//! Two libraries that take each other's place in memory, again and again, while a thread works in them.
//!
//! In: `libraries`, paths of the two with a comma between them, `alpha` first; whether to `capture` meanwhile, without
//! symbols. Out: how often one was loaded where the other one was, the weight of what was sampled around these moments, and
//! what the capture said. The tag `library` says what really ran.

use std::ffi::CString;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use profiler::{Config, ProfileKind, Profiler};
use profiler_tests::Result;
use profiler_tests::library::{Library, paths};
use profiler_tests::subject::Options;
use profiler_tests::truth::{Known, LIBRARIES, Verdict};
use profiler_tests::workload::Random;
use serde_json::{Value, json};

use crate::bench::torture_under;

/// How often samples come in while a library stays, and how often until none is left of the moment when it came.
const STAYS: u32 = 9;
const MOMENT: u32 = 3;
/// Most swaps in quick succession before a library stays: of some the sampler never hears.
const QUICK: u64 = 20;
/// Libraries that stay, at least.
const LEAST: usize = 4;
/// Samples per second: fewer than elsewhere, for a debug build is slow to find the names.
const RATE: u32 = 250;
/// Windows are longer than a library stays.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long the capture takes.
const CAPTURE: Duration = Duration::from_secs(4);

/// What was done.
struct Swaps<'a> {
    paths: &'a [CString],
    profiler: &'a Profiler,
    swaps: u64,
    /// The library that was there last, and where.
    last: (usize, usize),
    /// How often one was loaded where the other one was.
    in_place: u64,
    /// Weight of what was sampled around the swaps.
    around: u64,
}

/// Swaps them for the time, and until the capture is over.
pub(crate) fn swaps(options: &Options) -> Result<Value> {
    let paths = paths(options)?;
    let captures = options.value::<bool>("capture")?;
    let config = Config::new("torture").rate_hz(RATE).interval(INTERVAL);
    // A capture does not wait as long for names as a busy machine may take to find them.
    let profiler = profiler::start(config.symbolize(!captures))?;
    torture_under(profiler, options, |time, profiler| {
        std::thread::scope(|scope| {
            let capture = captures.then(|| scope.spawn(|| profiler.capture(ProfileKind::Cpu, CAPTURE)));
            let mut swaps = Swaps { paths: &paths, profiler, swaps: 0, last: (0, 0), in_place: 0, around: 0 };
            let (mut library, mut random) = (swaps.open(0)?, Random::new(1));
            for stayed in 1.. {
                let before = profiler.stats().weight;
                drop(library);
                for _ in 0..random.below(QUICK) {
                    let which = random.below(2) as usize;
                    let library = swaps.open(which)?;
                    swaps.stay(&library, which, 0)?;
                }
                // Each in turn, until both were seen.
                let which = if stayed < LEAST { stayed % 2 } else { random.below(2) as usize };
                library = swaps.open(which)?;
                swaps.around += swaps.stay(&library, which, MOMENT)? - before;
                swaps.stay(&library, which, STAYS - MOMENT)?;
                let is_captured = capture.as_ref().is_none_or(ScopedJoinHandle::is_finished);
                if stayed >= 2 * LEAST && is_captured && !time.is_left() {
                    break;
                }
            }
            let captured = capture.map(|capture| capture.join().map_err(|_| "the capture panicked")).transpose()?;
            let captured = serde_json::to_value(Verdict::of(&captured.transpose()?, Known::File))?;
            let Swaps { swaps, in_place, around, .. } = swaps;
            Ok(json!({ "swaps": swaps, "in_place": in_place, "around": around, "captured": captured }))
        })
    })
}

impl Swaps<'_> {
    fn open(&mut self, which: usize) -> Result<Library> {
        let library = Library::open(&self.paths[which])?;
        let (last, place) = self.last;
        self.last = (which, library.place()?);
        self.swaps += u64::from(which != last);
        self.in_place += u64::from(which != last && place == self.last.1);
        Ok(library)
    }

    /// Works in a library until samples have come in so many times; the weight of all samples then.
    fn stay(&self, library: &Library, which: usize, times: u32) -> Result<u64> {
        let _scope = profiler::tag!("library" => LIBRARIES[which]);
        let (mut weight, mut left) = (self.profiler.stats().weight, times);
        loop {
            library.work(3, 50_000)?;
            if left == 0 {
                return Ok(weight);
            }
            let now = self.profiler.stats().weight;
            left -= u32::from(now != weight);
            weight = now;
        }
    }
}
