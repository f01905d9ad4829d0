//! Texts of `cgroup` and `mountinfo` as runtimes make them.

use super::*;

const ID: &str = "4fa6e0f0c6786287e131c3852c58a2e01cc697a68231826813597e4994f1d6e2";
const OTHER: &str = "0c6786287e131c3852c58a2e01cc697a68231826813597e4994f1d6e24fa6e0f";
const UID: &str = "b6f1ba1a-6a24-4c1c-9f3b-5a2a8c0d7e11";

fn by_cgroup(text: &str) -> (Option<String>, Option<String>) {
    let text = text.replace("UNDER", &UID.replace('-', "_")).replace("UUID", UID).replace("ID", ID);
    let Container { id, pod_uid } = Container::of_cgroup(&text);
    (id, pod_uid)
}

/// Check the form of each runtime, old hierarchy and new.
#[test]
fn every_runtime_names_its_containers() {
    let texts = [
        ("12:pids:/docker/ID\n1:name=systemd:/docker/ID\n", false),
        ("0::/system.slice/docker-ID.scope\n", false),
        ("0::/../docker-ID.scope\n", false),
        ("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container\n", false),
        ("0::/machine.slice/libpod-ID.scope\n", false),
        ("11:memory:/libpod_parent/libpod-ID\n", false),
        ("0::/machine.slice/libpod-payload-ID\n", false),
        ("11:memory:/kubepods/besteffort/podUUID/ID\n", true),
        (
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUNDER.slice/cri-containerd-ID.scope\n",
            true,
        ),
        ("0::/kubepods.slice/kubepods-podUNDER.slice/crio-ID.scope/container\n", true),
        ("0::/system.slice/containerd.service/kubepods-burstable-podUNDER.slice:cri-containerd:ID\n", true),
        ("0::/../../kubepods-podUNDER.slice/cri-containerd-ID.scope\n", true),
        ("4:cpu:/ecs/1d5f1a1e8f3c4b0aa1/ID\n", false),
    ];
    for (text, has_pod) in texts {
        let expected = (Some(ID.to_owned()), has_pod.then(|| UID.to_owned()));
        assert_eq!(by_cgroup(text), expected, "{text}");
    }
    let fargate = "1e2ee1c5c8f74c7f8b2b1b3b4b5b6b7b-1234567890";
    assert_eq!(by_cgroup(&format!("1:cpu:/ecs/task/{fargate}\n")).0.as_deref(), Some(fargate));
    assert_eq!(by_cgroup("1:cpu:/garden/UUID\n").0.as_deref(), Some(UID));
}

/// Check that what only looks like a container is none.
#[test]
fn what_is_no_container_has_no_id() {
    let upper = ID.to_uppercase();
    let texts = [
        "0::/\n".to_owned(),
        "0::/init.scope\n".to_owned(),
        "0::/user.slice/user-1000.slice/session-3.scope\n".to_owned(),
        "0::/machine.slice/libpod-conmon-ID.scope\n".to_owned(),
        "0::/crio-conmon-ID.scope\n".to_owned(),
        format!("0::/docker/{upper}\n"),
        format!("0::/docker/{ID}0\n"),
        "garbage\n0:\n::\n".to_owned(),
        String::new(),
    ];
    for text in texts {
        assert_eq!(by_cgroup(&text).0, None, "{text}");
    }
}

/// Check that of containers within containers the innermost counts.
#[test]
fn the_innermost_container_counts() {
    assert_eq!(by_cgroup(&format!("0::/docker/{OTHER}/docker/ID/system.slice\n")).0.as_deref(), Some(ID));
}

/// Check the mounts inside a container of each runtime, and that layers, sandboxes and a host's view of its containers are no ids.
#[test]
fn mounts_tell_where_cgroups_do_not() {
    let with = |root: &str, place: &str| format!("700 690 254:1 {root} {place} rw,relatime - ext4 /dev/vda1 rw\n");
    let id = |text: &str| Container::of_mounts(&text.replace("ID", ID)).id;
    for root in [
        "/var/lib/docker/containers/ID/hostname",
        "/containers/ID/hostname",
        "/var/lib/containers/storage/overlay-containers/ID/userdata/hostname",
    ] {
        assert_eq!(id(&with(root, "/etc/hostname")).as_deref(), Some(ID), "{root}");
    }
    assert_eq!(id(&with("/var/lib/docker/containers/ID/mounts/shm", "/var/lib/docker/containers/ID/mounts/shm")), None);
    assert_eq!(id(&with("/sandboxes/ID/resolv.conf", "/etc/resolv.conf")), None);
    let layer = "600 599 0:50 / / rw - overlay overlay rw,upperdir=/var/lib/docker/overlay2/containers/ID/diff\n";
    assert_eq!(id(layer), None);
    let pod = Container::of_mounts(&with(&format!("/var/lib/kubelet/pods/{UID}/etc-hosts"), "/etc/hosts"));
    assert_eq!(pod, Container { id: None, pod_uid: Some(UID.to_owned()) });
    assert_eq!(Container::of_mounts("x\n\n1 2 3\n"), Container::default());
}
