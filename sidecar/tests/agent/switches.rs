//! Stacks of a Go program that is busy where the runtime has left the goroutine's stack (`tests/go/switches`): it goes on in the goroutine's callers.

use crate::process::{agent, go_program_by};
use crate::received::{Taken, samples};
use crate::{decode, folder, is_root};

/// A way to another stack.
struct Switch {
    /// The function that goes it.
    by: &'static str,
    /// What is looked at: stacks with these.
    within: &'static [&'static str],
    /// Who called it, on the goroutine's stack: the first of these itself, the others one after the other.
    callers: &'static [&'static str],
    root: &'static str,
}

/// Who is called by `mcall` does not return, and another goroutine may have the place of the one that called it: there the stack begins.
const SWITCHES: [Switch; 5] = [
    Switch {
        by: "runtime.morestack",
        within: &["runtime.newstack", "main.grows.func1"],
        callers: &["main.deeper", "main.grows.func1"],
        root: "main.grows.func1",
    },
    // It has no caller yet that had a frame.
    Switch {
        by: "runtime.morestack",
        within: &["runtime.newstack", "main.wide"],
        callers: &["main.wide"],
        root: "main.wide",
    },
    Switch {
        by: "runtime.systemstack",
        within: &["runtime.Stack.func1"],
        callers: &["runtime.Stack", "main.told", "main.tells", "main.main"],
        root: "runtime.main",
    },
    Switch { by: "runtime.mcall", within: &["runtime.gosched_m"], callers: &[], root: "runtime.mcall" },
    // The kernel's library has no frame at its first and its last instruction.
    Switch {
        by: "clock_gettime",
        within: &["clock_gettime", "main.asks"],
        callers: &["time.now", "time.Now", "main.asks", "main.main"],
        root: "runtime.main",
    },
];
/// So many samples of each are enough.
const ENOUGH: i64 = 200;

impl Switch {
    /// Whether the stack goes on behind it: with its callers, up to the root.
    fn is_whole(&self, sample: &Taken) -> bool {
        let Some(at) = sample.names.iter().position(|name| name == self.by) else { return false };
        let mut behind = sample.names[at + 1..].iter();
        let is_called =
            self.callers.first().is_none_or(|caller| sample.names.get(at + 1).is_some_and(|name| name == caller));
        let is_there = self.callers.iter().all(|caller| behind.any(|name| name == caller));
        is_called && is_there && sample.names.last().is_some_and(|last| last == self.root)
    }
}

/// Check stacks through each of them, of the oldest version of Go, a middle one and the newest.
#[test]
fn stacks_go_on_below_a_switch_of_stacks() {
    if !is_root() {
        return;
    }
    let folder = folder("switches");
    for version in ["go1.21.13", "go1.24.13", "go1.27.0"] {
        let program = go_program_by(version, "switches", &[]);
        let output = folder.join("out.pb.gz");
        let (pid, mut all) = (program.pid().to_string(), [[0_i64; 2]; SWITCHES.len()]);
        for _ in 0..20 {
            let mut record = agent(&["record", "--rate-hz", "997", "-d", "2s", "-p", &pid, "-o"]);
            assert!(record.arg(&output).output().unwrap().status.success());
            for sample in samples(&decode(&std::fs::read(&output).unwrap())) {
                let is_meant = |switch: &Switch| switch.within.iter().all(|name| sample.has(name));
                for (switch, [counted, whole]) in SWITCHES.iter().zip(&mut all).filter(|(switch, _)| is_meant(switch)) {
                    *counted += sample.count;
                    *whole += sample.count * i64::from(switch.is_whole(&sample));
                }
            }
            if all.iter().all(|[counted, _]| *counted >= ENOUGH) {
                break;
            }
        }
        eprintln!("{version}: {all:?}");
        for (Switch { by, within, .. }, [counted, whole]) in SWITCHES.iter().zip(all) {
            assert!(
                counted >= ENOUGH && whole * 100 >= counted * 98,
                "{version} {by} {within:?}: {whole} of {counted}"
            );
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}
