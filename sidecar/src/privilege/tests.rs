//! What is told of capabilities, and that they go.

use std::fs;

use super::*;

/// The sets that procfs shows of a thread: effective and permitted.
fn shown(task: &str) -> [u64; 2] {
    let status = fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap();
    ["CapEff:\t", "CapPrm:\t"].map(|field| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        u64::from_str_radix(line, 16).unwrap()
    })
}

/// The number of the calling thread.
fn this_task() -> String {
    let link = fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().to_owned()
}

fn of(capabilities: &[Capability]) -> Privilege {
    Privilege { effective: capabilities.iter().fold(Set::default(), |set, capability| set.with(*capability)) }
}

/// Check that what is read is what procfs shows.
#[test]
fn capabilities_are_read_as_procfs_shows_them() {
    let state = caps::read().unwrap();
    let [effective, _] = shown(&this_task());
    for capability in WANTED {
        assert_eq!(state.effective.has(capability), effective & (1 << capability as u8) != 0, "{}", capability.name());
    }
}

/// Check the tiers, and that `CAP_SYS_ADMIN` counts for those that were a part of it.
#[test]
fn the_tier_says_how_much_can_be_done() {
    use Capability::{Bpf, Perfmon, SysAdmin, SysPtrace, Syslog};
    assert_eq!(of(&WANTED).tier(), Tier::Full);
    assert_eq!(of(&[Bpf, Perfmon]).tier(), Tier::Full);
    assert_eq!(of(&[SysAdmin, SysPtrace]).tier(), Tier::Full);
    assert_eq!(of(&[Bpf, SysPtrace]).tier(), Tier::NoEbpf);
    assert_eq!(of(&[SysPtrace]).tier(), Tier::NoEbpf);
    assert_eq!(of(&[Bpf, Syslog]).tier(), Tier::None);
    assert_eq!(of(&[SysAdmin]).missing(), [Missing(SysPtrace)]);
    let text = Missing(Syslog).to_string();
    assert!(text.starts_with("CAP_SYSLOG is missing") && text.contains("kernel frames have no names"), "{text}");
}

/// Check that after set-up they are gone from effective and permitted, that others stay, and that a thread made later has them neither.
/// On a thread of its own: other tests keep theirs.
#[test]
fn what_set_up_needs_is_given_up() {
    let before = shown(&this_task());
    let gone: u64 = ONLY_FOR_SETUP.iter().map(|capability| 1 << *capability as u8).sum();
    if before[0] & gone == 0 {
        println!("NOT RUN: this process has none of the capabilities that are given up");
    }
    let dropped = std::thread::spawn(|| {
        drop_in_this_thread().unwrap();
        let later = std::thread::spawn(|| shown(&this_task())).join().unwrap();
        [shown(&this_task()), later]
    });
    let expected = before.map(|set| set & !gone);
    assert_eq!(dropped.join().unwrap(), [expected, expected]);
}

/// Check that it is refused where other threads would keep theirs.
#[test]
fn nothing_is_given_up_by_halves() {
    let before = shown(&this_task());
    let error = drop_setup().unwrap_err().to_string();
    assert!(error.contains("threads"), "{error}");
    assert_eq!(shown(&this_task()), before);
}
