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
    assert_eq!(of(&[Bpf, Perfmon]).tier(), Tier::SameUser);
    assert_eq!(of(&[SysAdmin, SysPtrace]).tier(), Tier::Full);
    assert_eq!(of(&[Bpf, SysPtrace]).tier(), Tier::NoEbpf);
    assert_eq!(of(&[SysPtrace]).tier(), Tier::NoEbpf);
    assert_eq!(of(&[Bpf, Syslog]).tier(), Tier::None);
    assert_eq!(of(&[SysAdmin]).missing(), [Missing(SysPtrace), Missing(Syslog)]);
    let text = Missing(Syslog).to_string();
    assert!(text.starts_with("CAP_SYSLOG is missing") && text.contains("kernel frames have no names"), "{text}");
    let text = Missing(SysPtrace).to_string();
    assert!(text.contains("they are not profiled"), "{text}");
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
        drop_in_this_thread(&ONLY_FOR_SETUP, |_| None).unwrap();
        let later = std::thread::spawn(|| shown(&this_task())).join().unwrap();
        [shown(&this_task()), later]
    });
    let expected = before.map(|set| set & !gone);
    assert_eq!(dropped.join().unwrap(), [expected, expected]);
}

/// Check that the clock can be opened again for a moment, and no more once that is given up, too.
#[test]
fn the_clock_is_taken_back_for_a_moment() {
    let clock = 1 << Capability::Perfmon as u8;
    if shown(&this_task())[1] & clock == 0 {
        return println!("NOT RUN: this process does not have CAP_PERFMON");
    }
    let has = move || shown(&this_task()).map(|set| set & clock != 0);
    let test = move || {
        drop_in_this_thread(&ONLY_FOR_SETUP, clock_of).unwrap();
        let states = [has(), with_clock(has).unwrap(), has()];
        drop_clock().unwrap();
        (states, with_clock(has).unwrap())
    };
    let (states, after) = std::thread::spawn(test).join().unwrap();
    assert_eq!(states, [[false, true], [true, true], [false, true]]);
    assert_eq!(after, [false, false]);
}

/// Check that threads that do not end stop nothing: the calling thread gives up, the others keep theirs.
#[test]
fn threads_that_hang_do_not_stop_it() {
    let before = shown(&this_task());
    // Given up on every kernel, whatever changes of maps ask for.
    let gone = 1 << Capability::Syslog as u8;
    if before[1] & gone == 0 {
        println!("NOT RUN: this process does not have CAP_SYSLOG");
    }
    // This thread is one that does not end.
    let dropped = thread::spawn(|| {
        drop_setup().unwrap();
        let later = thread::spawn(|| shown(&this_task())).join().unwrap();
        [shown(&this_task()), later]
    });
    assert!(dropped.join().unwrap().as_flattened().iter().all(|set| set & gone == 0));
    assert_eq!(shown(&this_task()), before);
}

/// Check that BPF stays where every change of a map asks for it.
#[test]
fn old_kernels_ask_for_bpf_with_every_change_of_a_map() {
    assert!(!needed_for_maps("6.18.5-generic", "2"));
    assert!(!needed_for_maps("5.19.0", "1"));
    assert!(!needed_for_maps("5.15.0-91", "0\n"));
    assert!(needed_for_maps("5.15.0-91", "2\n"));
    assert!(needed_for_maps("", ""));
}

/// A file of `deploy/`.
fn manifest(path: &str) -> String {
    fs::read_to_string(format!("{}/../deploy/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The elements of the one list, `key: [A, B]` or `key=A B`, of a manifest.
fn list(text: &str, key: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix(key)).collect();
    let [line] = lines[..] else { panic!("{key} stands {} times", lines.len()) };
    let elements = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|element| !element.is_empty());
    elements.map(|element| element.trim_start_matches("CAP_").to_owned()).collect()
}

/// Check that every manifest grants what is wanted, nothing else, and takes all the rest.
#[test]
fn manifests_grant_what_is_wanted_and_nothing_else() {
    let mut wanted: Vec<String> =
        WANTED.iter().map(|capability| capability.name().trim_start_matches("CAP_").to_owned()).collect();
    wanted.sort();
    let pod = manifest("kubernetes/pod.yaml");
    let compose = manifest("docker-compose/compose.yaml");
    let unit = manifest("systemd/profiler-sidecar.service");
    for (text, granted, dropped) in [
        (&pod, "add:", Some("drop:")),
        (&compose, "cap_add:", Some("cap_drop:")),
        (&unit, "AmbientCapabilities=", None),
        (&unit, "CapabilityBoundingSet=", None),
    ] {
        let mut listed = list(text, granted);
        listed.sort();
        assert_eq!(listed, wanted, "{granted}");
        assert!(dropped.is_none_or(|dropped| list(text, dropped) == ["ALL"]), "{granted}");
    }
    // It hides /proc/kallsyms (systemd.exec(5)), and with it the names that CAP_SYSLOG is for.
    assert!(!unit.lines().any(|line| line.starts_with("ProtectKernelTunables=")));
    for said in ["shareProcessNamespace: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false"] {
        assert!(pod.lines().any(|line| line.trim() == said), "{said}");
    }
}
