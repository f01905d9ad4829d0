//! The container and the pod that a process runs in, by the names that container runtimes give to cgroups and mounts.
//!
//! In: the texts of `/proc/PID/cgroup` and `/proc/PID/mountinfo`. Out: container id and pod uid, where they can be seen. A guess from names, as
//! the kernel knows no containers: only forms that a runtime is known to make are taken, and no id is better than a wrong one.
//!
//! Source: cgroups(7), proc_pid_mountinfo(5). Docker with cgroupfs `/docker/ID`, with systemd `docker-ID.scope`; containerd
//! `cri-containerd-ID.scope`, `…:cri-containerd:ID`, `/kubepods/…/podUID/ID`; CRI-O `crio-ID`; Podman `libpod-ID`; ECS on Fargate
//! `/ecs/TASK/TASK-NUMBER`; Cloud Foundry `/garden/UUID`. Inside a cgroup namespace of its own a process sees `/`, and what remains are the
//! files that the runtime mounts into it.

use crate::target::Folder;

/// Most bytes of `cgroup`: a line for each controller.
const CGROUP_BYTES: usize = 64 << 10;
/// Most bytes of `mountinfo`. The kernel takes 100,000 mounts; those of a runtime come first.
const MOUNT_BYTES: usize = 512 << 10;

/// Where a process runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    /// `container.id`.
    pub id: Option<String>,
    /// `k8s.pod.uid`.
    pub pod_uid: Option<String>,
}

impl Container {
    /// That of the process that `folder` is of; what cannot be read says nothing.
    #[must_use]
    pub fn read(folder: &Folder) -> Self {
        let text = |name, most| folder.read(name, most).map(|(bytes, _)| bytes).unwrap_or_default();
        let cgroup = text("cgroup", CGROUP_BYTES);
        let cgroup = Self::of_cgroup(&String::from_utf8_lossy(&cgroup));
        if cgroup.id.is_some() {
            return cgroup;
        }
        let mounts = text("mountinfo", MOUNT_BYTES);
        let mounts = Self::of_mounts(&String::from_utf8_lossy(&mounts));
        Self { id: mounts.id, pod_uid: cgroup.pod_uid.or(mounts.pod_uid) }
    }

    /// By lines `NUMBER:CONTROLLERS:PATH`.
    #[must_use]
    pub fn of_cgroup(text: &str) -> Self {
        let paths = || text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        Self { id: paths().find_map(id_of_path), pod_uid: paths().find_map(pod_of_path) }
    }

    /// By the files that runtimes mount into a container; fields 4 and 5 of a line are the path in the mounted file system and the place.
    /// Those that a host sees of its containers are mounted elsewhere.
    #[must_use]
    pub fn of_mounts(text: &str) -> Self {
        const PLACES: [&str; 5] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/dev/shm", "/run/.containerenv"];
        let mut found = Self::default();
        for line in text.lines() {
            let mut fields = line.split(' ').skip(3);
            let (Some(root), Some(place)) = (fields.next(), fields.next()) else { continue };
            if !PLACES.contains(&place) {
                continue;
            }
            let parts: Vec<&str> = root.split('/').collect();
            for pair in parts.windows(2) {
                match *pair {
                    ["containers" | "overlay-containers", id] if is_id(id) => found.id = Some(id.to_owned()),
                    // kubelet: /var/lib/kubelet/pods/UID/etc-hosts
                    ["pods", uid] if is_uuid(uid) => found.pod_uid = Some(uid.to_owned()),
                    _ => {}
                }
            }
        }
        found
    }
}

/// The innermost part of a cgroup's path that is a container.
fn id_of_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    (0..parts.len())
        .rev()
        .find_map(|at| id_of_part(parts.get(at)?, at.checked_sub(1).and_then(|at| parts.get(at)).copied()))
}

fn id_of_part(part: &str, parent: Option<&str>) -> Option<String> {
    let bare = part.strip_suffix(".scope").unwrap_or(part);
    // systemd's slice, the runtime and the id in one, where the runtime makes cgroups by itself.
    let bare = bare.rsplit(':').next().unwrap_or(bare);
    let id = match bare.rsplit_once('-') {
        // The process beside a container that watches it.
        Some((runtime, _)) if runtime.ends_with("conmon") => return None,
        Some((task, number)) if is_hex(task, 32) && is_decimal(number) => return Some(bare.to_owned()),
        Some((_, id)) if is_id(id) => id,
        _ => bare,
    };
    let is_garden = parent == Some("garden") && is_uuid(bare);
    (is_id(id) || is_garden).then(|| if is_garden { bare.to_owned() } else { id.to_owned() })
}

/// `podUID`, and `…-podUID.slice` with `_` for `-`. A static pod's uid is a hash without them.
fn pod_of_path(path: &str) -> Option<String> {
    path.split([':', '/']).find_map(|part| {
        let bare = part.strip_suffix(".slice").unwrap_or(part);
        let bare = bare.rsplit_once("-pod").map_or(bare.strip_prefix("pod"), |(_, uid)| Some(uid))?;
        let uid = bare.replace('_', "-");
        (is_uuid(&uid) || is_hex(&uid, 32)).then_some(uid)
    })
}

fn is_id(text: &str) -> bool {
    is_hex(text, 64)
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uuid(text: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = text.split('-').collect();
    parts.len() == lengths.len() && parts.iter().zip(lengths).all(|(part, length)| is_hex(part, length))
}

#[cfg(test)]
mod tests;
