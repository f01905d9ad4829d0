//! Machines that lack something, by their files; this machine as it is; and how the report reads.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::*;

/// A machine on which everything works, below a folder of its own.
fn machine(name: &str) -> PathBuf {
    let root = std::env::temp_dir().join(format!("profiler-doctor-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    for folder in ["proc/sys/kernel/yama", "sys/kernel/btf", "sys/kernel/security", "proc/42/ns", "proc/42/attr"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    symlink("42", root.join("proc/self")).unwrap();
    symlink("pid:[4026532100]", root.join("proc/42/ns/pid")).unwrap();
    for (path, text) in [
        ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
        ("proc/sys/kernel/perf_event_paranoid", "4\n"),
        ("proc/sys/kernel/perf_event_max_sample_rate", "100000\n"),
        ("proc/sys/kernel/kptr_restrict", "1\n"),
        ("proc/sys/kernel/yama/ptrace_scope", "1\n"),
        ("proc/kallsyms", "0000000000000000 A fixed_percpu_data\nffffffff81000000 T _text\n"),
        ("sys/kernel/btf/vmlinux", "btf"),
        ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
        ("proc/42/status", "Name:\tx\nCapEff:\t000001c400080000\nSeccomp:\t2\n"),
        ("proc/42/attr/current", "unconfined\n"),
        ("proc/42/cgroup", "0::/../cri-containerd-1.scope\n"),
        ("proc/42/mountinfo", "1 2 0:5 / /proc rw,nosuid - proc proc rw\n"),
    ] {
        fs::write(root.join(path), text).unwrap();
    }
    root
}

fn troubles(root: &Path) -> Vec<(&'static str, Verdict)> {
    let checks = System::at(root, 42).checks();
    assert!(checks.iter().all(|check| (check.verdict == Verdict::Works) == check.remedy.is_empty()), "{checks:?}");
    checks.iter().filter(|check| check.verdict != Verdict::Works).map(|check| (check.name, check.verdict)).collect()
}

/// Check that where everything is there nothing is missed, and that each thing that is not is found, with what it costs.
#[test]
fn what_is_missing_is_found() {
    use Verdict::{Fails, Lacks};
    let root = machine("whole");
    assert_eq!(troubles(&root), []);
    let lacks = |path: &str, text: &str, expected: &[(&str, Verdict)]| {
        let path = root.join(path);
        let before = fs::read(&path).unwrap();
        fs::write(&path, text).unwrap();
        assert_eq!(troubles(&root), expected, "{path:?}: {text}");
        fs::write(&path, before).unwrap();
    };
    lacks("proc/sys/kernel/osrelease", "5.10.0-1", &[("kernel", Lacks)]);
    lacks("proc/sys/kernel/osrelease", "nonsense", &[("kernel", Lacks)]);
    lacks("sys/kernel/security/lockdown", "none integrity [confidentiality]", &[("lockdown", Fails)]);
    lacks("proc/sys/kernel/kptr_restrict", "2", &[("kptr_restrict", Lacks)]);
    lacks("proc/kallsyms", "0000000000000000 A fixed_percpu_data\n0000000000000000 T _text\n", &[("kallsyms", Lacks)]);
    lacks("proc/kallsyms", "", &[("kallsyms", Lacks)]);
    lacks("proc/sys/kernel/yama/ptrace_scope", "3", &[("ptrace_scope", Lacks)]);
    for label in ["cri-containerd.apparmor.d (enforce)", "system_u:system_r:container_t:s0:c1,c2"] {
        lacks("proc/42/attr/current", label, &[]);
    }
    let hidden = "1 2 0:5 / /proc rw - proc proc rw,hidepid=invisible";
    lacks("proc/42/mountinfo", hidden, &[]);
    let none = [
        ("CAP_BPF", Fails),
        ("CAP_PERFMON", Fails),
        ("CAP_SYS_PTRACE", Lacks),
        ("CAP_SYSLOG", Lacks),
        ("perf_event_paranoid", Fails),
        ("kptr_restrict", Lacks),
        ("ptrace_scope", Lacks),
    ];
    lacks("proc/42/status", "CapEff:\t0000000000000000", &none);
    // CAP_SYS_ADMIN alone.
    lacks(
        "proc/42/status",
        "CapEff:\t0000000000200000",
        &[("CAP_SYS_PTRACE", Lacks), ("CAP_SYSLOG", Lacks), ("kptr_restrict", Lacks), ("ptrace_scope", Lacks)],
    );
    lacks("proc/sys/kernel/perf_event_max_sample_rate", "1000", &[("perf_event_max_sample_rate", Lacks)]);
    fs::remove_file(root.join("sys/kernel/btf/vmlinux")).unwrap();
    fs::remove_file(root.join("proc/kallsyms")).unwrap();
    fs::remove_file(root.join("proc/self")).unwrap();
    symlink("7", root.join("proc/self")).unwrap();
    symlink("42", root.join("proc/7")).unwrap();
    assert_eq!(troubles(&root), [("BTF", Lacks), ("kallsyms", Lacks), ("/proc", Fails)]);
    fs::remove_dir_all(&root).unwrap();
}

/// Check that nothing is wanted that is not looked at.
#[test]
fn every_capability_that_is_wanted_is_looked_at() {
    let names: Vec<_> = System::here().checks().iter().map(|check| check.name).collect();
    assert!(crate::privilege::WANTED.iter().all(|wanted| names.contains(&wanted.name())), "{names:?}");
}

fn report() -> Report {
    let row = Row {
        pid: 7,
        kind: "Go 1.26.1".into(),
        service: "inventory".into(),
        exe: "/srv/in\u{1b}[31mventory".into(),
        container: Some("0123456789abcdef".into()),
        why_not: None,
        but: None,
        is_own: false,
    };
    let own =
        Row { pid: 9, why_not: Some("it is the sidecar itself".into()), container: None, is_own: true, ..row.clone() };
    let checks = vec![Check::works("kernel", "6.1"), Check::fails("CAP_BPF", "no eBPF", "add BPF")];
    Report { checks, processes: vec![row, own] }
}

/// Check that the table has what a person needs, each remedy below its trouble, and nothing that a terminal would obey.
#[test]
fn a_person_reads_what_to_do() {
    let text = show::table(&report());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..4], ["ok     kernel   6.1", "FAILS  CAP_BPF  no eBPF", "                -> add BPF", ""]);
    assert!(lines[5].starts_with("7    Go 1.26.1  inventory  /srv/in\u{fffd}[31mventory  0123456789ab  yes"), "{text}");
    assert!(lines[6].ends_with("-             no: it is the sidecar itself"), "{text}");
    assert!(!text.contains('\u{1b}'));
}

/// Check that what is profiled only in part says so, to both.
#[test]
fn a_part_is_shown_as_one() {
    let mut report = report();
    report.processes[0].but = Some("heap: no CPU time".into());
    assert!(show::table(&report).contains("heap: no CPU time"));
    let value: serde_json::Value = serde_json::from_str(&show::json(&report)).unwrap();
    assert_eq!(
        (&value["processes"][0]["profiled"], &value["processes"][0]["but"]),
        (&true.into(), &"heap: no CPU time".into())
    );
}

/// Check that where CPU time is not sampled, Go programs are said to be profiled without it, where their memory is read, and others not at all.
#[test]
fn where_nothing_is_sampled_no_native_program_is_profiled() {
    let process = crate::target::Process::new(7, 1);
    let target = |kind| discover::Target::bare(process, kind);
    let targets = [target(discover::Kind::Go("go1.26.1".into())), target(discover::Kind::Native)];
    let rows = |sampling, reading| {
        let rows = targets.each_ref().map(|target| processes::row(target, Works { sampling, reading }));
        (rows.each_ref().map(|row| (row.why_not.is_none(), row.but.is_some())), processes::sight(&rows).unwrap().found)
    };
    let (parts, found) = rows(false, true);
    assert_eq!(parts, [(true, true), (false, false)]);
    assert_eq!(found, "2 seen beside the sidecar, 1 of them profiled, 1 of them only in part");
    assert_eq!(rows(false, false).0, [(false, false); 2]);
    let (parts, found) = rows(true, false);
    assert_eq!(parts, [(true, true), (true, false)]);
    assert_eq!(found, "2 seen beside the sidecar, 2 of them profiled, 1 of them only in part");
}

/// Check that what could not be read is not taken for a native program.
#[test]
fn what_is_unreadable_is_of_an_unknown_kind() {
    let mut target = discover::Target::bare(crate::target::Process::new(7, 1), discover::Kind::Native);
    let kind = |target: &discover::Target| processes::row(target, Works { sampling: true, reading: true }).kind;
    assert_eq!(kind(&target), "unknown");
    target.exe.program = Some(std::sync::Arc::default());
    assert_eq!(kind(&target), "native");
}

/// Check that a Go program of a version of which less is known than of others is said to be profiled in part.
#[test]
fn of_some_versions_a_part_is_profiled() {
    let row = |version: &str, sampling| {
        let target = discover::Target::bare(crate::target::Process::new(7, 1), discover::Kind::Go(version.into()));
        processes::row(&target, Works { sampling, reading: true })
    };
    let told = |version: &str| row(version, true).but.unwrap_or_default();
    assert_eq!([told("go1.21.13"), told("go1.27.0")], ["", ""]);
    assert!(told("go1.20.14").starts_with("CPU time: no heap"), "{}", told("go1.20.14"));
    assert!(told("go1.26.1 X:staticlockranking").contains("GOEXPERIMENT=staticlockranking"));
    for unknown in ["go1.99.1", "go1.17", "devel go1.27-1a2b3c", "go1.27rc1", "unknown"] {
        assert!(told(unknown).starts_with("CPU time without labels and spans: no heap"), "{unknown}");
        // Without samples nothing is left of it.
        assert!(row(unknown, false).why_not.is_some_and(|why| why.contains("not sampled here")), "{unknown}");
    }
}

/// Check that our own memory can be read where nothing forbids it.
#[test]
fn memory_is_read_here() {
    assert_eq!(reading::attempt().verdict, Verdict::Works);
}

/// Check that a program reads the same.
#[test]
fn a_program_reads_the_same() {
    let value: serde_json::Value = serde_json::from_str(&show::json(&report())).unwrap();
    assert_eq!((&value["samples_cpu"], &value["checks"][1]["remedy"]), (&false.into(), &"add BPF".into()));
    assert_eq!(value["processes"][0]["profiled"], true);
    assert_eq!(value["processes"][1]["why_not"], "it is the sidecar itself");
}

/// Check that this very process is seen on this very machine, as what it is.
#[test]
fn we_see_ourselves() {
    let rows = processes::rows(discover::Options::default(), Works { sampling: true, reading: true });
    let own = rows.iter().find(|row| row.pid == std::process::id()).unwrap();
    assert!(own.is_own && own.why_not.is_some() && own.exe.contains("profiler_sidecar"), "{own:?}");
    let proc = System::here().checks().into_iter().find(|check| check.name == "/proc").unwrap();
    assert_eq!(proc.verdict, Verdict::Works, "{proc:?}");
}
