//! CPU time that is known: in three functions under three tags, or in one function on many threads.
//!
//! In: how many threads, how long, at which rate. Out: what each function really used by the threads' own CPU clocks, which
//! is what the profile must say.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use profiler::{Config, Profiler};
use profiler_tests::clock::{process_cpu, thread_cpu};
use profiler_tests::subject::Options;
use profiler_tests::workload::{self, Part, Random};
use profiler_tests::{Error, Result, signal};
use serde_json::{Value, json};

use crate::{FLUSH, MORE, say, wait_for_word};
use profiler_tests::stats;

/// Burns CPU in the parts of [`workload`], each under its tag, until standard input says that it is enough.
pub(crate) fn shares(options: &Options) -> Result<Value> {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let config = Config::new("shares").rate_hz(options.value("rate")?).interval(Duration::from_secs(1));
    let profiler = profiler::start(config.serve("127.0.0.1:0"))?;
    let threads: Vec<_> = (0..options.value::<u64>("threads")?)
        .map(|seed| {
            std::thread::spawn(move || {
                let (mut used, mut random) = ([Duration::ZERO; 3], Random::new(seed));
                while !ENOUGH.load(Ordering::Relaxed) {
                    let more = workload::shared(Duration::from_millis(100), &mut random, tagged);
                    used = std::array::from_fn(|part| used[part] + more[part]);
                }
                used
            })
        })
        .collect();
    let address = profiler.serve_address().ok_or("the page is not served")?;
    say(&json!({ "serve": address.to_string() }));
    // Each word is answered with the figures as they stand.
    while wait_for_word()? == "stats" {
        say(&stats::to_json(&profiler.stats()));
    }
    ENOUGH.store(true, Ordering::Relaxed);
    let mut used = [0.0; 3];
    for thread in threads {
        let of_thread = joined(thread)?;
        used = std::array::from_fn(|part| used[part] + of_thread[part].as_secs_f64());
    }
    finished(profiler, json!({ "used": used }))
}

/// Burns a slice under the part's tag.
fn tagged(part: &Part, slice: Duration) -> Duration {
    let _scope = profiler::tag!("endpoint" => part.tag);
    (part.burn)(slice)
}

/// Burns CPU in one function on `threads` threads for `seconds`, with `kernel=1` nearly all of it in the kernel, with naps of `nap_micros` between and at
/// two rates in turn if there is an `other_rate`. Of the threads, every third was there before the start,
/// every third was made right behind it, and every third in the middle of the time. On a machine that is busy with other
/// things it takes longer: until there is enough CPU time to compare.
pub(crate) fn spinning(options: &Options) -> Result<Value> {
    let (threads, seconds) = (options.value::<u32>("threads")?, options.value::<f64>("seconds")?);
    let nap = Duration::from_micros(options.value_or("nap_micros", 0)?);
    let work = if options.value_or("kernel", 0)? != 0 { workload::spin_in_kernel } else { workload::spin };
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(seconds);
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let begun = std::sync::Arc::new(std::sync::Mutex::new(begun));
    let thread = |index: u32| {
        let begun = std::sync::Arc::clone(&begun);
        std::thread::Builder::new().name(format!("busy-{index}")).spawn(move || {
            // An error says that the other end was dropped: that is the beginning.
            drop(begun.lock().map(|begun| begun.recv()));
            let start = thread_cpu();
            while !ENOUGH.load(Ordering::Relaxed) {
                work(Duration::from_millis(1));
                if !nap.is_zero() {
                    std::thread::sleep(nap);
                }
            }
            thread_cpu() - start
        })
    };
    let mut running = (0..threads).step_by(3).map(thread).collect::<Result<Vec<_>, _>>()?;
    let config = Config::new("spin").rate_hz(options.value("rate")?).interval(Duration::from_secs(1));
    let profiler = profiler::start(config)?;
    let process = process_cpu();
    running.extend((1..threads).step_by(3).map(thread).collect::<Result<Vec<_>, _>>()?);
    drop(begin);
    change_rates(&profiler, options, Duration::from_secs_f64(seconds / 2.0))?;
    let engine = stats::to_json(&profiler.stats())["engine"].take();
    running.extend((2..threads).step_by(3).map(thread).collect::<Result<Vec<_>, _>>()?);
    change_rates(&profiler, options, end.saturating_duration_since(Instant::now()))?;
    let enough = Duration::from_secs_f64(0.6 * seconds * f64::from(threads.min(2)));
    while process_cpu() - process < enough && Instant::now() < end + MORE {
        change_rates(&profiler, options, Duration::from_millis(700))?;
    }
    ENOUGH.store(true, Ordering::Relaxed);
    let mut cpu = Duration::ZERO;
    for thread in running {
        cpu += joined(thread)?;
    }
    profiler.pause();
    let process_after = process_cpu();
    let seconds = json!({
        "cpu_seconds": cpu.as_secs_f64(), "process_cpu_seconds": (process_after - process).as_secs_f64(), "engine": engine,
        // For a failure that a clock of the machine would explain.
        "process_clock": [process.as_secs_f64(), process_after.as_secs_f64()], "wall_seconds": began.elapsed().as_secs_f64(),
    });
    finished(profiler, seconds)
}

/// Makes threads that burn `millis` of CPU time in one function and end, `threads` of them at once, for `seconds`; each
/// time, `blocking` of them block the signal. With the option `other_rate`, the rate changes all the time.
pub(crate) fn brief(options: &Options) -> Result<Value> {
    let (threads, blocking) = (options.value::<usize>("threads")?, options.value_or("blocking", 0_usize)?);
    let work = Duration::from_millis(options.value("millis")?);
    let config = Config::new("brief").rate_hz(options.value("rate")?).interval(Duration::from_secs(1));
    let profiler = profiler::start(config)?;
    let process = process_cpu();
    let seconds = Duration::from_secs_f64(options.value("seconds")?);
    let (start, enough) = (Instant::now(), process + seconds);
    let is_enough = || start.elapsed() >= seconds && (process_cpu() >= enough || start.elapsed() >= seconds + MORE);
    let one_after_another = |blocks: bool| {
        while !is_enough() {
            let brief = move || {
                if blocks {
                    signal::block_sigprof();
                }
                workload::spin(work);
            };
            drop(std::thread::spawn(brief).join());
        }
    };
    std::thread::scope(|scope| {
        for index in 0..threads {
            scope.spawn(move || one_after_another(index < blocking));
        }
        while !is_enough() {
            change_rates(&profiler, options, Duration::from_millis(500))?;
        }
        Ok::<_, Error>(())
    })?;
    profiler.pause();
    let seconds = json!({ "process_cpu_seconds": (process_cpu() - process).as_secs_f64() });
    finished(profiler, seconds)
}

/// Sends the process-wide alarm's own signal as it comes after it was held up for `overruns` periods.
pub(crate) fn held_up(options: &Options) -> Result<Value> {
    let profiler = profiler::start(Config::new("held_up").rate_hz(options.value("rate")?))?;
    let recorded = signal::record(|_| Ok(true))?;
    for overruns in options.value::<String>("overruns")?.split(',') {
        recorded.overrun(overruns.parse()?).replay()?;
    }
    profiler.pause();
    finished(profiler, json!({}))
}

/// Threads that burn CPU in one function for `seconds` while sampling is paused and resumed all the time, at `rate`: what the
/// process used while it was not paused, at least and at most, for that takes effect within the calls.
pub(crate) fn paused(options: &Options) -> Result<Value> {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let config = Config::new("paused").rate_hz(options.value("rate")?).interval(Duration::from_secs(1));
    let profiler = profiler::start(config)?;
    let mut resumed = [process_cpu(); 2];
    let burn = || {
        while !ENOUGH.load(Ordering::Relaxed) {
            workload::spin(Duration::from_millis(1));
        }
    };
    let threads: Vec<_> = (0..options.value::<u32>("threads")?).map(|_| std::thread::spawn(burn)).collect();
    // Threads that do nothing and end in the first pause: they have lost nothing.
    let (stays, ends) = std::sync::mpsc::channel::<()>();
    let (mut stays, ends) = (Some(stays), std::sync::Arc::new(std::sync::Mutex::new(ends)));
    let idle = || {
        let ends = std::sync::Arc::clone(&ends);
        // An error says that the other end was dropped.
        std::thread::spawn(move || drop(ends.lock().map(|ends| ends.recv())))
    };
    let mut idle: Vec<_> = (0..100).map(|_| idle()).collect();
    let (mut least, mut most, enough) =
        (Duration::ZERO, Duration::ZERO, Duration::from_secs_f64(options.value("seconds")?));
    while most < enough {
        std::thread::sleep(Duration::from_millis(100));
        least += process_cpu() - resumed[1];
        profiler.pause();
        most += process_cpu() - resumed[0];
        drop(stays.take());
        idle.drain(..).try_for_each(joined)?;
        std::thread::sleep(Duration::from_millis(20));
        resumed[0] = process_cpu();
        profiler.resume()?;
        resumed[1] = process_cpu();
    }
    ENOUGH.store(true, Ordering::Relaxed);
    threads.into_iter().try_for_each(joined)?;
    least += process_cpu() - resumed[1];
    profiler.pause();
    most += process_cpu() - resumed[0];
    let seconds = json!({ "least_cpu_seconds": least.as_secs_f64(), "most_cpu_seconds": most.as_secs_f64() });
    finished(profiler, seconds)
}

/// Lets `time` pass; with the option `other_rate`, at this rate and the first one in turn, for `change_millis` each.
fn change_rates(profiler: &Profiler, options: &Options, time: Duration) -> Result<()> {
    let rate = options.value::<u32>("rate")?;
    let other = options.value_or("other_rate", rate)?;
    let (each, end) = (Duration::from_millis(options.value_or("change_millis", 300)?), Instant::now() + time);
    while other != rate && Instant::now() + 2 * each < end {
        for rate in [other, rate] {
            profiler.set_rate_hz(rate)?;
            std::thread::sleep(each);
        }
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    Ok(())
}

fn joined<T>(thread: JoinHandle<T>) -> Result<T> {
    thread.join().map_err(|_| Error::from("a thread of the workload panicked"))
}

/// Stops sampling, sends everything, and adds the account to `value`.
fn finished(profiler: Profiler, mut value: Value) -> Result<Value> {
    profiler.pause();
    if !profiler.flush(FLUSH) {
        return Err("not everything was delivered".into());
    }
    value["stats"] = stats::to_json(&profiler.stats());
    if profiler.shutdown(FLUSH) { Ok(value) } else { Err("shutdown took too long".into()) }
}
