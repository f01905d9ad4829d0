//! Threads that come and go, 2,000 a second: nothing may be left of them.
//!
//! In: the bench. Out: how many threads there were; descriptors, timers and memory early on and at the end; whether a
//! thread that comes after all of them still gets a timer of its own, if the kernel tells of timers.

use std::time::{Duration, Instant};

use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use serde_json::{Value, json};

use crate::bench::torture;
use crate::leaks::{Held, timers};

/// Threads a second.
const RATE: u32 = 2000;
/// As many there are at least, however slow the machine is.
const LEAST: u32 = 400;
/// CPU time of each.
const LIFE: Duration = Duration::from_micros(150);
/// How long the sampler may take to see what came and went, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Makes threads at their rate, each of which works a little and ends.
pub(crate) fn threads(options: &Options) -> Result<Value> {
    torture(options, |time, profiler| {
        let (mut made, mut early) = (0, None);
        let start = Instant::now();
        while time.is_left() || made < LEAST {
            let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(|| spin(LIFE))).collect();
            made += threads.len() as u32;
            threads.into_iter().try_for_each(|thread| thread.join().map(drop)).map_err(|_| "a thread panicked")?;
            if early.is_none() && time.is_beyond(0.3) {
                // Symbols are read and connections made with the first profile that leaves: not a matter of threads.
                profiler.flush(LIMIT);
                early = Some(Held::now()?);
            }
            std::thread::sleep((Duration::from_secs(1) * made / RATE).saturating_sub(start.elapsed()));
        }
        let early = early.ok_or("there was no time")?;
        let (late, is_clear) = settled()?;
        let is_covered = newcomer_is_covered()?;
        let name = profiler.stats().engine.name;
        Ok(json!({
            "made": made, "early": early.to_json(), "late": late.to_json(), "clear": is_clear, "covered": is_covered,
            "engine": name,
        }))
    })
}

/// What is held once no timer is left of a thread that has ended, and whether it came to that; `None` where nobody can tell.
fn settled() -> Result<(Held, Option<bool>)> {
    let end = Instant::now() + LIMIT;
    loop {
        let held = Held::now()?;
        // One for each thread, and the one of the process.
        let is_clear = held.timers.map(|timers| timers <= held.threads + 1);
        if is_clear != Some(false) || Instant::now() > end {
            return Ok((held, is_clear));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a busy thread gets a timer of its own; `None` where nobody can tell.
fn newcomer_is_covered() -> Result<Option<bool>> {
    let newcomer = std::thread::spawn(|| {
        let own = format!("tid.{}", rustix::thread::gettid().as_raw_nonzero());
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            spin(Duration::from_millis(5));
            match timers()? {
                None => return Ok(None),
                Some(timers) if timers.iter().any(|whom| whom.ends_with(&own)) => return Ok(Some(true)),
                Some(_) => {}
            }
        }
        Ok(Some(false))
    });
    newcomer.join().map_err(|_| "a thread panicked")?
}
