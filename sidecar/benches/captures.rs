//! How fast, and in how much memory, Go's runtime is captured: what the row `sidecar-runtime` of `make measure` runs.
//!
//! In: `heap` or `goroutines`, and a pid. Out: a line of JSON: after the capture, and after its profile, the time since its begin and the most memory
//! that this process had. What is found once for a process (its tables, its variables) is not in the time. One thread.

#![expect(clippy::print_stdout, reason = "it is what this program is for")]

use std::error::Error;
use std::time::Instant;

use profiler_proto::ProfileSet;
use profiler_proto::resource::Resource;
use profiler_sidecar::capture::profile::{Builder, Window};
use profiler_sidecar::capture::{Bounds, Source};

const WINDOW: Window = Window { start_unix_nanos: 1, duration_nanos: 1 };

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    // Tools that run all benches of a package name no process.
    let (Some(kind), Some(Ok(pid))) = (arguments.next(), arguments.next().map(|pid| pid.parse())) else {
        println!("usage: captures heap|goroutines PID");
        return Ok(());
    };
    let source = Source::find(pid)?;
    let began = Instant::now();
    let mut builder = Builder::new(&source, Resource::new());
    let (count, captured_ms, captured_bytes);
    if kind == "heap" {
        let mut heap = source.heap(Bounds::default())?;
        (count, captured_ms, captured_bytes) = (heap.walk.taken, millis(began), most_resident()?);
        builder.heap(&mut heap, WINDOW);
    } else {
        let all = source.goroutines(Bounds::default())?;
        (count, captured_ms, captured_bytes) = (all.list.len() as u64, millis(began), most_resident()?);
        builder.goroutines(&all, WINDOW);
    }
    let set: ProfileSet = builder.finish();
    let (built_ms, samples) = (millis(began), set.profiles.iter().map(|profile| profile.samples.len()).sum::<usize>());
    println!(
        "{{\"count\": {count}, \"samples\": {samples}, \"captured_ms\": {captured_ms}, \"captured_bytes\": {captured_bytes}, \
         \"built_ms\": {built_ms}, \"built_bytes\": {}}}",
        most_resident()?
    );
    Ok(())
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// `VmHWM` (proc_pid_status(5)).
fn most_resident() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the status has no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
