//! What a terminal is shown.

use super::goroutines::{is_shown, short, waited};
use crate::capture::Walk;
use crate::text::{bytes, nanos, percent};

#[test]
fn amounts_are_short() {
    assert_eq!([0, 1023, 1024, 1_572_864, 5 << 30].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "5.0 GiB"]);
    assert_eq!([999, 1_500, 2_500_000, 3_210_000_000].map(nanos), ["999 ns", "1.5 µs", "2.5 ms", "3.21 s"]);
    assert_eq!((percent(1, 4), percent(1, 0)), (25.0, 0.0));
}

/// Check that one is not told as several.
#[test]
fn what_is_missing_is_counted() {
    let text = |broken| Walk { broken, ..Walk::default() }.lacking("stacks");
    let why = "could not be read; what stood behind is missing";
    assert_eq!([0, 1, 2].map(text), [String::new(), format!("1 stack {why}\n"), format!("2 stacks {why}\n")]);
}

#[test]
fn who_waits_for_long_is_told_how_long() {
    const MINUTE: u64 = 60_000_000_000;
    assert_eq!(waited(Some(5 * MINUTE), 8 * MINUTE + 1), ", 3 minutes");
    assert_eq!([waited(Some(5), MINUTE), waited(None, MINUTE), waited(Some(2 * MINUTE), 1)], ["", "", ""]);
}

/// Check which functions a panic shows in the stack of a goroutine, and by which names.
#[test]
fn what_the_runtime_does_is_left_out() {
    for shown in [
        "main.main",
        "sync.runtime_SemacquireMutex",
        "runtime.Gosched",
        "runtime.(*Func).Entry",
        "main.(*box[go.shape.int]).wait",
        "runtime.runFinalizers",
    ] {
        assert!(is_shown(shown, true), "{shown}");
    }
    for hidden in
        ["runtime.gopark", "runtime.main", "runtime.(*timer).run", "runtime.Kind.of", "start_thread", "runtime."]
    {
        assert!(!is_shown(hidden, false), "{hidden}");
    }
    assert!(is_shown("runtime.gopanic", false) && !is_shown("runtime.gopanic", true));
    let names = ["main.(*box[go.shape.int]).wait", "runtime.gopanic", "main.f", "main.f]["].map(short);
    assert_eq!(names, ["main.(*box[...]).wait", "panic", "main.f", "main.f]["]);
}
