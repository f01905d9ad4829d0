//! What a profiler is measured at: a spin loop, a service, the cost of one sample, rest, and its start.
//!
//! In: the task's numbers. Out: JSON of what was seen from inside: CPU seconds, nanoseconds, stacks. What the profiler sent
//! is counted by whoever received it.

use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::tags::tags;
use super::{Options, Service, Subject, say};
use crate::Result;
use crate::clock::{process_cpu, thread_cpu};
use crate::signal::{Recorded, record, with_empty_handler};
use crate::usage::{own_cpu, status_bytes};
use crate::workload::{Random, at_depth, on_path, spin, spin_until};

/// Does the task that `options` name.
pub(super) fn run<S: Subject>(options: &Options, service: Service) -> Result<Value> {
    match options.value::<String>("task")?.as_str() {
        "spin" => busy::<S>(options),
        "short" => short::<S>(options),
        "bursts" => bursts::<S>(options),
        "memory" => memory::<S>(options),
        "serve" => serve::<S>(options, service),
        "cost" => cost::<S>(options),
        "tags" => tags::<S>(options),
        "rest" => rest::<S>(options),
        "start" => start::<S>(options),
        other => {
            Err(format!("task={other:?} is none of spin, short, bursts, memory, serve, cost, tags, rest, start").into())
        }
    }
}

fn started<S: Subject>(options: &Options) -> Result<S> {
    S::start(options.value_or("rate", 100)?, &options.value_or("url", String::new())?)
}

/// Burns CPU on `threads` threads for `seconds`, every other one of which was there before the profiler was: in the
/// program's own code, with naps of `nap_micros` after each millisecond; with `calls=1`, in and out of the kernel.
fn busy<S: Subject>(options: &Options) -> Result<Value> {
    let (threads, seconds) = (options.value::<u32>("threads")?, options.value::<f64>("seconds")?);
    let nap = Duration::from_micros(options.value_or("nap_micros", 0)?);
    let calls = options.value_or("calls", 0)? != 0;
    let thread = |index: u32| -> Result<_> {
        let (begin, begun) = channel::<()>();
        let name = format!("busy-{index}");
        let thread = Builder::new().name(name).spawn(move || {
            // Burns when the other end is dropped, whatever it is dropped for.
            let _nothing = begun.recv();
            let end = Instant::now() + Duration::from_secs_f64(seconds);
            while Instant::now() < end {
                match calls {
                    true => drop(spin(Duration::from_millis(1))),
                    false => spin_until(Instant::now() + Duration::from_millis(1)),
                }
                if !nap.is_zero() {
                    std::thread::sleep(nap);
                }
            }
        })?;
        Ok((begin, thread))
    };
    let old = (0..threads).step_by(2).map(thread).collect::<Result<Vec<_>>>()?;
    let mut subject = started::<S>(options)?;
    let cpu = process_cpu();
    let new = (0..threads).skip(1).step_by(2).map(thread).collect::<Result<Vec<_>>>()?;
    let (begins, running): (Vec<_>, Vec<JoinHandle<()>>) = old.into_iter().chain(new).unzip();
    drop(begins);
    for thread in running {
        thread.join().map_err(|_| "a busy thread panicked")?;
    }
    let cpu_seconds = (process_cpu() - cpu).as_secs_f64();
    let stacks = subject.stacks()?;
    subject.finish()?;
    Ok(json!({ "cpu_seconds": cpu_seconds, "stacks": stacks }))
}

/// Makes threads that burn 5 ms of CPU each and end, four at a time, for `seconds`.
fn short<S: Subject>(options: &Options) -> Result<Value> {
    under::<S>(options, |end| {
        while Instant::now() < end {
            let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(|| spin(Duration::from_millis(5)))).collect();
            for thread in threads {
                thread.join().map_err(|_| "a short thread panicked")?;
            }
        }
        Ok(())
    })
}

/// Two threads that burn 3 ms of CPU and rest until 10 ms are over, for `seconds`.
fn bursts<S: Subject>(options: &Options) -> Result<Value> {
    under::<S>(options, |end| {
        let burst = move || {
            while Instant::now() < end {
                let next = Instant::now() + Duration::from_millis(10);
                spin(Duration::from_millis(3));
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        };
        for thread in [std::thread::spawn(burst), std::thread::spawn(burst)] {
            thread.join().map_err(|_| "a bursty thread panicked")?;
        }
        Ok(())
    })
}

/// Does `work`, which is told when to end, under the profiler; says the CPU time of the process.
fn under<S: Subject>(options: &Options, work: impl FnOnce(Instant) -> Result<()>) -> Result<Value> {
    let mut subject = started::<S>(options)?;
    let cpu = process_cpu();
    work(Instant::now() + Duration::from_secs_f64(options.value("seconds")?))?;
    let cpu_seconds = (process_cpu() - cpu).as_secs_f64();
    let stacks = subject.stacks()?;
    subject.finish()?;
    Ok(json!({ "cpu_seconds": cpu_seconds, "stacks": stacks }))
}

/// The spin loop, and how much memory the process holds at its end.
fn memory<S: Subject>(options: &Options) -> Result<Value> {
    let mut said = busy::<S>(options)?;
    said["resident"] = json!(status_bytes("VmRSS")?);
    said["peak"] = json!(status_bytes("VmHWM")?);
    Ok(said)
}

/// Serves until standard input ends; with `spans=true`, with a span and tags for each request.
fn serve<S: Subject>(options: &Options, service: Service) -> Result<Value> {
    let mut subject = started::<S>(options)?;
    let cpu = process_cpu();
    let mut ready = |address: std::net::SocketAddr| say(&json!({ "ready": address.to_string() }));
    let polls = service(options.value_or("spans", false)?, &mut ready)?;
    let (cpu_seconds, own) = ((process_cpu() - cpu).as_secs_f64(), own_cpu()?.as_secs_f64());
    let stacks = subject.stacks()?;
    subject.finish()?;
    Ok(json!({ "cpu_seconds": cpu_seconds, "stacks": stacks, "own_cpu_seconds": own, "polls": polls }))
}

/// Replays the profiler's own signal at a stack `depth` frames deep, and the same with a handler that does nothing, batch
/// by batch in turn; says what each batch cost per signal.
fn cost<S: Subject>(options: &Options) -> Result<Value> {
    let (depth, batches) = (options.value::<u32>("depth")?, options.value::<u32>("batches")?);
    let size = options.value::<u32>("size")?;
    let batch: fn(_, _, _) -> _ = match options.value::<String>("stack")?.as_str() {
        "same" => same_stack,
        "new" => new_stacks,
        other => return Err(format!("stack={other:?} is neither same nor new").into()),
    };
    let mut subject = started::<S>(options)?;
    // A process-wide timer's signals may be taken until the thread's own timer has gone off, and no longer.
    let signal = record(|signal| {
        let early = takes(&mut subject, signal)?;
        spin(Duration::from_millis(500));
        Ok(early && takes(&mut subject, signal)?)
    })?;
    let before = subject.stacks()?;
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for _ in 0..batches {
        full.push(batch(signal, depth, size)?);
        empty.push(with_empty_handler(|| batch(signal, depth, size))??);
        // Whoever takes the samples away gets the time to do so: a full buffer would make the handler look cheap.
        std::thread::sleep(Duration::from_millis(30));
    }
    let stacks = subject.stacks()?.zip(before).map(|(after, before)| after - before);
    subject.finish()?;
    Ok(json!({ "sent": u64::from(batches) * u64::from(size), "stacks": stacks, "full_ns": full, "empty_ns": empty }))
}

/// Whether the profiler takes a sample each time this signal comes; one that cannot say takes all.
fn takes<S: Subject>(subject: &mut S, signal: &Recorded) -> Result<bool> {
    const COPIES: u32 = 100;
    let before = subject.stacks()?;
    (0..COPIES).try_for_each(|_| signal.replay())?;
    Ok(subject.stacks()?.zip(before).is_none_or(|(after, before)| after >= before + u64::from(COPIES) * 9 / 10))
}

/// The CPU time of one signal in a batch of `size` at one stack, in nanoseconds.
fn same_stack(signal: Recorded, depth: u32, size: u32) -> Result<f64> {
    at_depth(depth, &mut || {
        let start = thread_cpu();
        for _ in 0..size {
            signal.replay()?;
        }
        Ok(nanos_each(start, size))
    })
}

/// The CPU time of one signal, and of going `depth` frames down on a way of its own before it, in nanoseconds.
fn new_stacks(signal: Recorded, depth: u32, size: u32) -> Result<f64> {
    let mut random = Random::new(u64::from(depth));
    let start = thread_cpu();
    for _ in 0..size {
        on_path(random.draw(), depth, &mut || signal.replay())?;
    }
    Ok(nanos_each(start, size))
}

fn nanos_each(start: Duration, size: u32) -> f64 {
    (thread_cpu() - start).as_secs_f64() * 1e9 / f64::from(size)
}

/// Does nothing for `seconds`, with threads that do nothing either.
fn rest<S: Subject>(options: &Options) -> Result<Value> {
    let seconds = options.value::<f64>("seconds")?;
    let (wake, asleep) = channel::<()>();
    let asleep = std::sync::Arc::new(std::sync::Mutex::new(asleep));
    let threads: Vec<_> = (0..options.value::<u32>("threads")?)
        .map(|_| {
            let asleep = std::sync::Arc::clone(&asleep);
            std::thread::spawn(move || drop(asleep.lock().map(|asleep| asleep.recv())))
        })
        .collect();
    let subject = started::<S>(options)?;
    // The first second is not rest: symbols of the start, connections.
    std::thread::sleep(Duration::from_secs(1));
    let (cpu, time) = (process_cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (cpu, time) = (process_cpu() - cpu, time.elapsed());
    drop(wake);
    for thread in threads {
        thread.join().map_err(|_| "a sleeping thread panicked")?;
    }
    subject.finish()?;
    Ok(json!({ "cpu_seconds": cpu.as_secs_f64(), "seconds": time.as_secs_f64() }))
}

/// Starts the profiler, which was never started before in this process.
fn start<S: Subject>(options: &Options) -> Result<Value> {
    let time = Instant::now();
    let subject = started::<S>(options)?;
    let time = time.elapsed();
    subject.finish()?;
    Ok(json!({ "milliseconds": time.as_secs_f64() * 1e3 }))
}
