//! What profilers that were started and ended leave behind in a process at work: by the allocator's count, not by resident memory, which an allocator
//! keeps as it likes.
//!
//! A binary of its own, for it counts every allocation of the process.

#![cfg(all(feature = "opentelemetry-sdk", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[expect(dead_code, reason = "other tests ask for the rest")]
mod counting;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use opentelemetry::Context;
use opentelemetry::trace::{TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use profiler::{Config, Error, ProfiledSpans, SpanLink, Tags};

/// Threads at work.
const THREADS: usize = 4;
const STARTS: usize = 30;

/// What profilers may leave, by chance, where the first ones left nothing of it: each takes over room for the records of two epochs, of half a megabyte at
/// most; and something for whatever is done once in a process.
const MOST: usize = 2 * (512 << 10) + (128 << 10);

/// The threads' work goes on, and where it rests, they meet.
struct Work {
    ends: AtomicBool,
    /// Tags were others than those that were entered: said at the end, for whoever panics meets nobody.
    is_wrong: AtomicBool,
    rests: AtomicBool,
    meeting: Barrier,
}

impl Work {
    /// Spans in spans, tags in tags, until it ends.
    fn run(&self, tracer: &SdkTracer) {
        while !self.ends.load(Ordering::Relaxed) {
            if self.rests.load(Ordering::Relaxed) {
                self.meeting.wait();
                self.meeting.wait();
            }
            let _span = Context::current_with_span(tracer.start("outer")).attach();
            let _tag = profiler::tag!("outer" => 1);
            for number in 0..20 {
                let _span = Context::current_with_span(tracer.start("inner")).attach();
                let _tag = profiler::tag!("number" => number);
                if Tags::current().iter().count() != 2 {
                    self.is_wrong.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Bytes in use while no thread has a span or a scope.
    fn bytes_at_rest(&self) -> usize {
        self.rests.store(true, Ordering::Relaxed);
        self.meeting.wait();
        let bytes = counting::live();
        self.rests.store(false, Ordering::Relaxed);
        self.meeting.wait();
        bytes
    }
}

/// Ends the threads' work, also when what they work for fails.
struct End<'a>(&'a Work);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }
}

/// A profiler's life.
fn start_and_end(number: usize) -> Result<(), Error> {
    let links = [SpanLink::Current, SpanLink::LocalRoot][number % 2];
    let profiler = profiler::start(Config::new("test").rate_hz(1000).span_link(links))?;
    let until = Instant::now() + Duration::from_secs(60);
    while profiler.stats().account.taken == 0 {
        assert!(Instant::now() < until, "no sample of busy threads: {:?}", profiler.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    profiler.pause();
    profiler.set_rate_hz(777)?;
    profiler.resume()?;
    let stats = profiler.stats();
    assert!(profiler.shutdown(Duration::from_secs(60)), "{stats:?}");
    Ok(())
}

/// Check that it is no more after many profilers than after two.
#[test]
fn what_profilers_leave_does_not_grow() {
    let [ends, is_wrong, rests] = [const { AtomicBool::new(false) }; 3];
    let work = Work { ends, is_wrong, rests, meeting: Barrier::new(THREADS + 1) };
    let provider = SdkTracerProvider::builder().with_span_processor(ProfiledSpans::new()).build();
    let tracer = provider.tracer("test");
    let bytes: Vec<usize> = std::thread::scope(|scope| {
        let _end = End(&work);
        for _ in 0..THREADS {
            scope.spawn(|| work.run(&tracer));
        }
        let bytes = (0..STARTS).map(|number| {
            start_and_end(number).unwrap();
            work.bytes_at_rest()
        });
        bytes.collect()
    });
    assert!(!work.is_wrong.into_inner());
    let [early, late] = [&bytes[1..4], &bytes[STARTS - 4..]].map(|bytes| bytes.iter().max().copied());
    let grown = late.zip(early).map(|(late, early)| late.saturating_sub(early));
    assert!(grown.is_some_and(|grown| grown < MOST), "{grown:?} bytes more: {bytes:?}");
}
