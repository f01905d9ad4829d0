//! What goroutines wait for, in Go's words, by version: `runtime.waitReasonStrings` (runtime2.go), in the order of `g.waitreason`. Compared with what is in programs
//! of each version in `sidecar/tests/runtime/layouts.rs`. Pure tables.

/// `waitReasonStrings` of 1.21 (runtime2.go).
pub(super) const WAIT_21: [&str; 32] = [
    "",
    "GC assist marking",
    "IO wait",
    "chan receive (nil chan)",
    "chan send (nil chan)",
    "dumping heap",
    "garbage collection",
    "garbage collection scan",
    "panicwait",
    "select",
    "select (no cases)",
    "GC assist wait",
    "GC sweep wait",
    "GC scavenge wait",
    "chan receive",
    "chan send",
    "finalizer wait",
    "force gc (idle)",
    "semacquire",
    "sleep",
    "sync.Cond.Wait",
    "sync.Mutex.Lock",
    "sync.RWMutex.RLock",
    "sync.RWMutex.Lock",
    "trace reader (blocked)",
    "wait for GC cycle",
    "GC worker (idle)",
    "GC worker (active)",
    "preempted",
    "debug call",
    "GC mark termination",
    "stopping the world",
];

/// `waitReasonStrings` of 1.22 (runtime2.go).
pub(super) const WAIT_22: [&str; 37] = with(
    &WAIT_21,
    32,
    &["flushing proc caches", "trace goroutine status", "trace proc status", "page trace flush", "coroutine"],
);

/// `waitReasonStrings` of 1.23 (runtime2.go).
pub(super) const WAIT_23: [&str; 38] = with(&WAIT_22, 37, &["GC weak to strong wait"]);

/// `waitReasonStrings` of 1.24 (runtime2.go).
pub(super) const WAIT_24: [&str; 44] = with(
    &with::<39>(&WAIT_23, 24, &["sync.WaitGroup.Wait"]),
    39,
    &["synctest.Run", "synctest.Wait", "chan receive (synctest)", "chan send (synctest)", "select (synctest)"],
);

/// `waitReasonStrings` of 1.25 (runtime2.go).
pub(super) const WAIT_25: [&str; 47] = [
    "",
    "GC assist marking",
    "IO wait",
    "chan receive (nil chan)",
    "chan send (nil chan)",
    "dumping heap",
    "garbage collection",
    "garbage collection scan",
    "panicwait",
    "select",
    "select (no cases)",
    "GC assist wait",
    "GC sweep wait",
    "GC scavenge wait",
    "chan receive",
    "chan send",
    "finalizer wait",
    "force gc (idle)",
    "GOMAXPROCS updater (idle)",
    "semacquire",
    "sleep",
    "sync.Cond.Wait",
    "sync.Mutex.Lock",
    "sync.RWMutex.RLock",
    "sync.RWMutex.Lock",
    "sync.WaitGroup.Wait",
    "trace reader (blocked)",
    "wait for GC cycle",
    "GC worker (idle)",
    "GC worker (active)",
    "preempted",
    "debug call",
    "GC mark termination",
    "stopping the world",
    "flushing proc caches",
    "trace goroutine status",
    "trace proc status",
    "page trace flush",
    "coroutine",
    "GC weak to strong wait",
    "synctest.Run",
    "synctest.Wait",
    "chan receive (durable)",
    "chan send (durable)",
    "select (durable)",
    "sync.WaitGroup.Wait (durable)",
    "cleanup wait",
];

/// `waitReasonStrings` of 1.26 and 1.27 (runtime2.go).
pub(super) const WAIT_26: [&str; 47] = [
    "",
    "GC assist marking",
    "IO wait",
    "dumping heap",
    "garbage collection",
    "garbage collection scan",
    "panicwait",
    "GC assist wait",
    "GC sweep wait",
    "GC scavenge wait",
    "finalizer wait",
    "force gc (idle)",
    "GOMAXPROCS updater (idle)",
    "semacquire",
    "sleep",
    "chan receive (nil chan)",
    "chan send (nil chan)",
    "select (no cases)",
    "select",
    "chan receive",
    "chan send",
    "sync.Cond.Wait",
    "sync.Mutex.Lock",
    "sync.RWMutex.RLock",
    "sync.RWMutex.Lock",
    "sync.WaitGroup.Wait",
    "trace reader (blocked)",
    "wait for GC cycle",
    "GC worker (idle)",
    "GC worker (active)",
    "preempted",
    "debug call",
    "GC mark termination",
    "stopping the world",
    "flushing proc caches",
    "trace goroutine status",
    "trace proc status",
    "page trace flush",
    "coroutine",
    "GC weak to strong wait",
    "synctest.Run",
    "synctest.Wait",
    "chan receive (durable)",
    "chan send (durable)",
    "select (durable)",
    "sync.WaitGroup.Wait (durable)",
    "cleanup wait",
];

/// A list with more in it from the place `at` on, as the next version has it.
const fn with<const N: usize>(list: &[&'static str], at: usize, more: &[&'static str]) -> [&'static str; N] {
    assert!(list.len() + more.len() == N, "the list has another length");
    let (mut all, mut place) = ([""; N], 0);
    while place < N {
        all[place] = match place {
            _ if place < at => list[place],
            _ if place < at + more.len() => more[place - at],
            _ => list[place - more.len()],
        };
        place += 1;
    }
    all
}
