//! The top of the stack at every instruction of a real Go program, against the calls that it made.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use profiler_sidecar::naming::{Kernel, Kind, Namer, Stack};
use profiler_sidecar::sample::{End, Registers, Sample};
use profiler_sidecar::target::Process;

use super::build::{Running, c, go, versions};

/// Instructions that are run; the program's function ends before.
const STEPS: &str = "3000000";

/// Functions that leave one stack for another, the scheduler's for a goroutine's.
const SWITCHES: [&str; 2] = ["gogo", "runtime.gogo"];

/// What is known of one instruction.
struct Step {
    sample: Sample,
    /// Where each call returns to, the nearest first, behind the instruction itself.
    truth: Vec<u64>,
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{text:?}"))
}

fn addresses(text: &str) -> Vec<u64> {
    text.split(',').filter(|text| !text.is_empty()).map(hex).collect()
}

fn step(line: &str) -> Step {
    let parts: Vec<&str> = line.split('|').collect();
    let head: Vec<&str> = parts[0].split(' ').collect();
    let end = match head[4] {
        "R" => End::Root,
        "C" => End::Cut,
        _ => End::Lost,
    };
    let top = parts[3].as_bytes().chunks(2).map(|pair| hex(std::str::from_utf8(pair).unwrap()) as u8).collect();
    let registers = Registers { ip: hex(head[1]), sp: hex(head[2]), fp: hex(head[3]), lr: 0 };
    let sample = Sample { user: addresses(parts[1]), end, registers, top, ..Sample::default() };
    Step { sample, truth: addresses(parts[2]) }
}

/// A stack as its addresses and physical functions.
fn shown(stack: &Stack) -> Vec<(u64, String)> {
    let frames = stack.frames.iter().filter(|location| location.kind != Kind::Remark);
    frames.map(|location| (location.address, location.function().to_owned())).collect()
}

/// What was seen of a program.
#[derive(Debug, Default)]
struct Seen {
    steps: u64,
    /// Those of which the walk alone would have been wrong.
    wrong_before: u64,
    /// Those that are as they really were.
    right: u64,
    /// Those of which it is not known, by function.
    unmended: BTreeMap<String, u64>,
}

/// Check at every instruction that the named stack is what was called, or, where it cannot be told, shows nothing that was not.
fn compare(namer: &mut Namer, process: Process, steps: &[Step]) -> Seen {
    let mut seen = Seen::default();
    let now = Instant::now();
    for Step { sample, truth } in steps {
        // Without registers that fit, nothing is put in or left out.
        let called = Sample { user: truth.clone(), ..Sample::default() };
        let walked = Sample { user: sample.user.clone(), end: sample.end, ..Sample::default() };
        let truth = shown(&namer.name(process, &called, now));
        // Between two stacks: the one is left, the other not reached.
        if truth.first().is_some_and(|(_, leaf)| SWITCHES.contains(&leaf.as_str())) {
            continue;
        }
        seen.wrong_before += u64::from(shown(&namer.name(process, &walked, now)) != truth);
        let before = namer.stats();
        let stack = shown(&namer.name(process, sample, now));
        let after = namer.stats();
        seen.steps += 1;
        seen.right += u64::from(stack == truth);
        if after.unmended == before.unmended {
            assert_eq!(stack, truth, "at {:#x}, which is not said to be incomplete", sample.registers.ip);
        } else {
            let mut rest = truth.iter();
            *seen.unmended.entry(stack[0].1.clone()).or_default() += 1;
            assert!(stack.iter().all(|frame| rest.any(|called| called == frame)), "{stack:x?} is not of {truth:x?}");
        }
    }
    seen
}

#[test]
fn the_top_of_a_go_stack_is_what_was_called_at_every_instruction() {
    let stepper = c("stepper.c", &["-O1"]);
    for version in versions() {
        let program = go(version, &["-ldflags=-s -w"]);
        let entry = profiler_sidecar::elf::File::open(std::fs::File::open(&program).unwrap()).unwrap();
        let entry = profiler_sidecar::go::Program::open(entry.into()).unwrap().unwrap().find("main.subject").unwrap();
        let mut command = Command::new(&stepper);
        command.arg(&program).arg(format!("{entry:x}")).arg(STEPS);
        let mut running = Running::start(command.env("GODEBUG", "asyncpreemptoff=1").env("GOGC", "off"));
        let mut steps = Vec::new();
        let pid = loop {
            let line = running.line().unwrap();
            match line.split_once(' ') {
                Some(("S", _)) => steps.push(step(&line)),
                Some(("P", pid)) => break pid.parse().unwrap(),
                _ => {}
            }
        };
        let mut namer = Namer::new(Kernel::default());
        let seen = compare(&mut namer, Process::find(pid).unwrap(), &steps);
        println!("{version}: {seen:?}");
        assert!(seen.steps > 5000, "{version}: {seen:?}");
        assert!(seen.wrong_before * 20 > seen.steps, "there was little to mend in {version}: {seen:?}");
        assert!((seen.steps - seen.right) * 100 < seen.steps, "{version}: {seen:?}");
    }
}
