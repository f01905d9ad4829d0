//! Stacks through Go's handler of signals, in a program that gets one after the other (`tests/go/signals`), and how `/stats` counts them.

use std::time::Instant;

use profiler_proto::ProfileSet;

use crate::http::get;
use crate::process::{Running, agent, go_program};
use crate::{DEADLINE, decode, is_root, stats};

/// What the handler interrupts, and who called it, the outermost first.
const INTERRUPTED: [&str; 4] = ["runtime.main", "main.main", "main.interrupted", "main.raise"];
/// So many samples in the handler are enough.
const ENOUGH: i64 = 200;

/// Samples in the handler.
#[derive(Debug, Default)]
struct Seen {
    all: i64,
    /// With all that called what was interrupted, and the mark between it and the handler.
    whole: i64,
}

impl Seen {
    fn add(&mut self, set: &ProfileSet) {
        let dictionary = &set.dictionary;
        for sample in set.profiles.iter().flat_map(|profile| &profile.samples) {
            let stack = dictionary.stacks.get(sample.stack).unwrap();
            let places = stack.locations.iter().rev().map(|location| dictionary.locations.get(*location).unwrap());
            let lines = places.flat_map(|place| place.lines.iter().rev());
            let name = |line: &profiler_proto::model::Line| dictionary.functions.get(line.function).unwrap().name;
            let names: Vec<&str> = lines.map(|line| dictionary.strings.text(name(line))).collect();
            let Some(handler) = names.iter().position(|name| *name == "runtime.sigtramp") else { continue };
            // Other threads get the runtime's own signals.
            if !names.contains(&"os/signal.loop") {
                self.all += sample.value;
                self.whole += sample.value * i64::from(is_whole(&names[..handler]));
            }
        }
    }
}

/// Whether these stand below the handler. The runtime's own signal comes wherever the program is.
fn is_whole(names: &[&str]) -> bool {
    let called = names.iter().zip(INTERRUPTED).take_while(|(name, expected)| *name == expected).count();
    called >= 2 && names.last() == Some(&"[signal handler]")
}

/// Check that stacks in the handler go on into the callers of what it interrupted, up to the goroutine's root, and that none of them is told as whole: what was
/// interrupted is missing.
#[test]
fn stacks_go_on_below_a_handler_of_signals() {
    if !is_root() {
        return;
    }
    let program = go_program("signals");
    let pid = program.pid();
    let run = Running::agent(&mut agent(&["run", "--rate-hz", "499", "--pid", &pid.to_string()]));
    let page = run.address_after("http://");
    let (until, mut seen) = (Instant::now() + DEADLINE, Seen::default());
    while seen.all < ENOUGH {
        assert!(Instant::now() < until, "{seen:?} {}", run.log());
        let answer = get(&page, &format!("/debug/pprof/profile?seconds=2&pid={pid}"));
        if answer.status == 200 {
            seen.add(&decode(&answer.body));
        }
    }
    // Of 549 by hand all were.
    assert!(seen.whole * 100 >= seen.all * 98, "{seen:?}");
    // Figures are published each second.
    let section = loop {
        let section = stats(&page)[format!("stacks_{pid}")].clone();
        if section["stacks"].as_i64().is_some_and(|stacks| stacks >= seen.all) {
            break section;
        }
        assert!(Instant::now() < until, "{seen:?} {section}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let [stacks, whole] = ["stacks", "whole"].map(|figure| section[figure].as_i64().unwrap());
    assert!(whole > 0 && stacks - whole >= seen.all, "{seen:?} {section}");
    assert_eq!(run.end(), Some(0));
}
