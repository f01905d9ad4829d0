//! Processes of another user, as `doctor` sees them with the capabilities that the manifests grant and no others: by these, files that are their
//! owner's alone cannot be opened.

use std::path::Path;
use std::process::Command;

use crate::is_root;
use crate::process::{Running, quiet};

/// `nobody`: no process of it has a capability, and none of ours is its owner.
const OTHER: &str = "65534";
const GRANTED: &str = "-all,+bpf,+perfmon,+sys_ptrace,+syslog";

/// A shell of the other user, at work on nothing.
fn shell(path: &Path) -> Running {
    let mut shell = Command::new("setpriv");
    shell
        .args(["--reuid", OTHER, "--regid", OTHER, "--clear-groups"])
        .arg(path)
        .args(["-c", "echo started; read line"]);
    let running = Running::program(shell.env("OTEL_SERVICE_NAME", "of-another"));
    running.address_after("started");
    running
}

/// What `doctor` says of a process, run with these capabilities.
fn seen(pid: u32, capabilities: &str) -> serde_json::Value {
    let mut doctor = Command::new("setpriv");
    doctor.args(["--bounding-set", capabilities, "--inh-caps=-all", "--no-new-privs"]);
    quiet(doctor.arg(env!("CARGO_BIN_EXE_profiler-sidecar")).args(["doctor", "--json"]));
    let said: serde_json::Value = serde_json::from_slice(&doctor.output().unwrap().stdout).unwrap();
    said["processes"].as_array().unwrap().iter().find(|row| row["pid"] == pid).unwrap().clone()
}

/// Check that the variables of another user's process are read, though its `environ` cannot be opened.
#[test]
fn the_service_of_another_user_is_named() {
    if !is_root() {
        return;
    }
    let shell = shell(Path::new("/bin/sh"));
    let row = seen(shell.pid(), GRANTED);
    assert_eq!((&row["service"], &row["profiled"]), (&"of-another".into(), &true.into()), "{row}");
}

/// Check that a process that is refused says which capability is lacking: to look at it, or to open its program, which is its owner's alone.
#[test]
fn what_is_refused_names_the_capability_that_lacks() {
    if !is_root() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("profiler-others-{}", std::process::id()));
    let program = folder.join("sh");
    // By a process of its own: what this one has open for writing cannot be run.
    let mut install = Command::new("install");
    install.args(["-D", "-m", "700", "-o", OTHER, "-g", OTHER, "/bin/sh"]).arg(&program);
    assert!(install.status().unwrap().success());
    let shell = shell(&program);
    for (capabilities, needed) in [("-all,+bpf,+perfmon,+syslog", "CAP_SYS_PTRACE"), (GRANTED, "CAP_DAC_READ_SEARCH")] {
        let row = seen(shell.pid(), capabilities);
        let why = row["why_not"].as_str().unwrap_or_default();
        assert!(why.contains(&format!("exe of process {}: not permitted", shell.pid())), "{row}");
        assert!(why.contains(&format!("the same user, or {needed}, is needed")), "{row}");
    }
    let row = seen(shell.pid(), &format!("{GRANTED},+dac_read_search"));
    assert_eq!((&row["service"], &row["profiled"]), (&"of-another".into(), &true.into()), "{row}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Check that a process in a pid namespace below the sidecar's is not said to have CPU samples.
#[test]
fn who_is_in_a_namespace_below_has_no_cpu_samples() {
    if !is_root() {
        return;
    }
    // The namespace ends with its first process, the shell, and with it the one below.
    let inside = r#"unshare --pid --fork sleep 600 >/dev/null & until grep -qs '^sleep$' /proc/[0-9]*/comm; do :; done; "$0" doctor --json"#;
    let mut pod = Command::new("timeout");
    pod.args(["60", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", inside]);
    quiet(pod.arg(env!("CARGO_BIN_EXE_profiler-sidecar")));
    let said = pod.output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let rows = said["processes"].as_array().unwrap();
    let why = |row: &serde_json::Value| row["why_not"].as_str().unwrap_or_default().to_owned();
    let below: Vec<_> = rows.iter().filter(|row| why(row).contains("pid namespace below")).collect();
    assert!(!below.is_empty() && below.len() < rows.len(), "{said}");
    assert!(below.iter().all(|row| row["profiled"] == false), "{said}");
}
