//! A container as a runtime makes one of a pod's manifest: a root of its own, cgroup, capabilities.
//!
//! In: one of `spec.containers`, its image, unpacked. Out: a command that becomes it. Two processes take part: [`Container::command`] is for the one that plays the
//! runtime; what it starts is this test program, which by [`become_one`] makes of itself what the manifest says, and then runs the image's program. What a runtime
//! does besides is left out: its filter of system calls, what it hides below `/proc`, a user namespace.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use rustix::process::{chdir, pivot_root};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set, set_no_new_privs};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// What this test program is told to become.
const TO_BECOME: &str = "PROFILER_TEST_CONTAINER";
/// Source: containerd, `pkg/oci/spec.go`, `defaultUnixCaps`: what a container has whose manifest says nothing.
const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// A container.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Container {
    /// Its image, unpacked; the kubelet's hosts file for it; the folder of its cgroup.
    pub(super) root: PathBuf,
    pub(super) hosts: PathBuf,
    pub(super) cgroup: PathBuf,
    /// The image's program.
    pub(super) entry: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) capabilities: Vec<String>,
    pub(super) is_read_only: bool,
    pub(super) no_new_privileges: bool,
}

impl Container {
    /// As `spec` says it, where `field` knows the pod's fields.
    pub(super) fn new(
        spec: &Json,
        image: (&Path, &str),
        (hosts, cgroup): (&Path, &Path),
        field: &dyn Fn(&str) -> String,
    ) -> Self {
        let list = |list: &Json| {
            list.as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let variable = |variable: &Json| {
            let path = variable.pointer("/valueFrom/fieldRef/fieldPath").and_then(Json::as_str);
            let value = path.map_or_else(|| variable["value"].as_str().unwrap_or_default().to_owned(), field);
            (variable["name"].as_str().unwrap().to_owned(), value)
        };
        let security = &spec["securityContext"];
        let (dropped, added) = (list(&security["capabilities"]["drop"]), list(&security["capabilities"]["add"]));
        let usual = DEFAULT
            .iter()
            .map(|name| (*name).to_owned())
            .filter(|name| !dropped.iter().any(|drop| drop == "ALL" || drop == name));
        assert!(matches!(security["runAsUser"].as_u64(), None | Some(0)), "another user is not made here: {security}");
        Self {
            root: image.0.to_owned(),
            hosts: hosts.to_owned(),
            cgroup: cgroup.to_owned(),
            entry: image.1.into(),
            arguments: list(&spec["args"]),
            variables: spec["env"].as_array().into_iter().flatten().map(variable).collect(),
            capabilities: usual.chain(added).collect(),
            is_read_only: security["readOnlyRootFilesystem"] == true,
            no_new_privileges: security["allowPrivilegeEscalation"] == false,
        }
    }

    /// Starts it, by way of the test that is called so.
    pub(super) fn command(&self, test: &str) -> Command {
        // It enters its cgroup first, which is the root of its cgroup namespace then.
        let script = r#"echo $$ > "$0/cgroup.procs" && exec unshare --mount --cgroup "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&self.cgroup).arg(std::env::current_exe().unwrap()).args([
            test,
            "--exact",
            "--nocapture",
        ]);
        command.env(TO_BECOME, serde_json::to_string(self).unwrap());
        command
    }
}

/// Becomes the container that this process is started for; returns if it is started for none.
pub(super) fn become_one() {
    let Ok(container) = std::env::var(TO_BECOME) else { return };
    let container: Container = serde_json::from_str(&container).unwrap();
    let root = &container.root;
    mount_bind(root, root).unwrap();
    let quiet = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", root.join("proc"), "proc", quiet, None).unwrap();
    mount("sysfs", root.join("sys"), "sysfs", quiet | MountFlags::RDONLY, None).unwrap();
    mount_bind(&container.hosts, root.join("etc/hosts")).unwrap();
    if container.is_read_only {
        mount_remount(root, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    }
    // The old root lies on the new one, and is taken away. Source: pivot_root(2), "pivot_root(".", ".")".
    chdir(root).unwrap();
    pivot_root(".", ".").unwrap();
    unmount(".", UnmountFlags::DETACH).unwrap();
    chdir("/").unwrap();
    let kept: CapabilitySet =
        container.capabilities.iter().map(|name| CapabilitySet::from_name(name).unwrap()).collect();
    let last: u32 = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap().trim().parse().unwrap();
    for capability in
        (0..=last).map(|number| CapabilitySet::from_bits_retain(1 << number)).filter(|one| !kept.contains(*one))
    {
        remove_capability_from_bounding_set(capability).unwrap();
    }
    if container.no_new_privileges {
        set_no_new_privs(true).unwrap();
    }
    // What the image's program prints begins a line, not the one that tells which test runs.
    println!();
    let error = Command::new(&container.entry).args(&container.arguments).env_clear().envs(&container.variables).exec();
    panic!("{}: {error}", container.entry.display());
}
