//! The whole way of a sample on the machine at hand: threads burn CPU time under tags, a capture says which.
//!
//! In: three threads with work of their own, and a signal handler of the host. Out: the capture as folded stacks: names,
//! tags, roots; and an account that balances. Nothing here knows the processor or the C library: the same program runs on
//! every platform that `.ci/test` calls supported.

#![cfg(all(
    feature = "cpu",
    feature = "serve",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use profiler::proto::folded::{self, Tags};
use profiler::proto::{Limits, pprof};
use profiler::{Config, Profiler};

/// Emulated machines are slow, and those that build beside them make them slower; nothing here waits that long for anything but its own success.
const LIMIT: Duration = Duration::from_secs(1200);
/// Stacks of each kind that are enough. Where a machine is emulated, it takes half a minute to name those of a second.
const ENOUGH: usize = 3;

/// How deep the recursion goes.
const DEPTH: usize = 20;

static STOP: AtomicBool = AtomicBool::new(false);

/// A process has one profiler: tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fold_tagged() {
    let _scope = profiler::tag!("work" => "fold");
    fold_numbers();
}

#[inline(never)]
fn fold_numbers() {
    let mut number = 1_u64;
    while !STOP.load(Ordering::Relaxed) {
        number = black_box(number).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
}

fn sort_tagged() {
    let _scope = profiler::tag!("work" => "sort");
    sort_deeper(DEPTH);
}

#[inline(never)]
fn sort_deeper(depth: usize) {
    match depth {
        0 => sort_numbers(),
        _ => sort_deeper(depth - 1),
    }
    // Not a tail call.
    black_box(depth);
}

#[inline(never)]
fn sort_numbers() {
    let mut numbers: Vec<u32> = (0..64).collect();
    while !STOP.load(Ordering::Relaxed) {
        numbers.rotate_left(7);
        black_box(&mut numbers).sort_by_key(|number| number.wrapping_mul(2_654_435_761));
    }
}

#[inline(never)]
fn wander_untagged() {
    let mut steps = 0_u64;
    while !STOP.load(Ordering::Relaxed) {
        steps = black_box(steps) ^ (steps << 1 | 1);
    }
}

fn start() -> Profiler {
    profiler::start(Config::new("capture").rate_hz(100).serve("127.0.0.1:0")).unwrap()
}

/// Captures these works, each on a thread of its own, until `enough` says so of the folded lines so far.
fn capture<const N: usize>(profiler: &Profiler, works: [fn(); N], enough: impl Fn(&[String]) -> bool) -> Vec<String> {
    let end = Instant::now() + LIMIT;
    let mut lines = Vec::new();
    while !enough(&lines) {
        assert!(Instant::now() < end, "not enough after {LIMIT:?}: {lines:#?}");
        STOP.store(false, Ordering::Relaxed);
        let threads = works.map(std::thread::spawn);
        // The work ends when all is sampled, so as not to be in the way of reading the symbols.
        let stop = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(1100));
            STOP.store(true, Ordering::Relaxed);
        });
        let profile = fetch(profiler, "/debug/pprof/profile?seconds=1");
        threads.into_iter().chain([stop]).for_each(|thread| thread.join().unwrap());
        let set = pprof::decode(&profile, &Limits::default()).unwrap();
        lines.extend(folded::encode(&set.profiles[0], &set.dictionary, Tags::Kept).lines().map(str::to_owned));
    }
    lines
}

/// The body of the answer to a request, however long that takes.
fn fetch(profiler: &Profiler, path: &str) -> Vec<u8> {
    let address = profiler.serve_address().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let body = answer.split_off(head + 4);
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    body
}

/// The lines that hold a function of this name.
fn with<'a>(lines: &'a [String], name: &'a str) -> impl Iterator<Item = &'a String> {
    lines.iter().filter(move |line| line.contains(&format!("capture::{name}")))
}

/// Ends the sampling and checks that every stack is accounted for.
fn settle(profiler: Profiler) {
    profiler.pause();
    assert!(profiler.flush(LIMIT));
    let stats = profiler.stats();
    assert!(stats.account.balances() && stats.account.taken > 0 && stats.account.pending == 0, "{stats:?}");
    assert!(profiler.shutdown(LIMIT));
}

/// Check that work is found under its own name and its own tags only, on stacks that reach the start of their thread.
#[test]
fn work_is_found_by_name_and_tag() {
    let _turn = turn();
    let profiler = start();
    let works: [(&str, fn(), &str); 3] = [
        ("fold_numbers", fold_tagged, "work=fold"),
        ("sort_numbers", sort_tagged, "work=sort"),
        ("wander_untagged", wander_untagged, ""),
    ];
    let lines = capture(&profiler, works.map(|(_, work, _)| work), |lines| {
        works.iter().all(|(name, ..)| with(lines, name).count() >= ENOUGH)
    });
    println!("{:?}", profiler.stats().engine);
    for (name, _, tag) in works {
        for line in with(&lines, name) {
            let tagged = line.split_once('}').map_or("", |(tagged, _)| tagged);
            assert!(tagged.ends_with(tag) && tagged.contains("work=") != tag.is_empty(), "{line}");
            assert!(line.contains("thread_start") && !line.contains("[stack incomplete]"), "{line}");
        }
    }
    for line in with(&lines, "sort_numbers") {
        let depth = line.split([';', ' ']).filter(|frame| *frame == "capture::sort_deeper").count();
        assert_eq!(depth, DEPTH + 1, "{line}");
    }
    settle(profiler);
}

extern "C" fn on_usr2(_: i32) {
    spin_in_handler();
    // Not a tail call.
    black_box(());
}

#[inline(never)]
fn spin_in_handler() {
    wander_untagged();
    black_box(());
}

/// The thread to interrupt; 0 once it is, and before there is one.
static THREAD: AtomicU64 = AtomicU64::new(0);

/// Works until it was interrupted and the work is over.
#[inline(never)]
fn interrupted() {
    // SAFETY: pthread_self(3) has no argument and cannot fail.
    THREAD.store(unsafe { libc::pthread_self() } as u64, Ordering::Release);
    let mut steps = 0_u64;
    while THREAD.load(Ordering::Acquire) != 0 || !STOP.load(Ordering::Relaxed) {
        steps = black_box(steps) ^ (steps << 1 | 1);
    }
}

fn interrupt() {
    let thread = loop {
        match THREAD.load(Ordering::Acquire) {
            0 => std::thread::yield_now(),
            thread => break thread,
        }
    };
    // SAFETY: the thread waits for this before it ends; the handler was installed below.
    assert_eq!(unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR2) }, 0);
    THREAD.store(0, Ordering::Release);
}

/// Check that a stack is walked through a signal handler of the host's to the function that it interrupted, and on.
#[test]
fn a_stack_goes_through_a_signal_handler() {
    let _turn = turn();
    let handler = on_usr2 as extern "C" fn(i32);
    // SAFETY: signal(2) installs a handler of the right type, which calls nothing but code that any thread may run.
    assert_ne!(unsafe { libc::signal(libc::SIGUSR2, handler as *const () as libc::sighandler_t) }, libc::SIG_ERR);
    let profiler = start();
    let lines = capture(&profiler, [interrupted, interrupt], |lines| with(lines, "spin_in_handler").count() >= ENOUGH);
    for line in with(&lines, "spin_in_handler") {
        let [outer, handler, inner] = ["capture::interrupted", "capture::on_usr2", "capture::spin_in_handler"]
            .map(|name| line.find(name).unwrap_or(usize::MAX));
        assert!(outer < handler && handler < inner && inner < usize::MAX, "{line}");
        assert!(line.contains("thread_start") && !line.contains("[stack incomplete]"), "{line}");
    }
    settle(profiler);
}
