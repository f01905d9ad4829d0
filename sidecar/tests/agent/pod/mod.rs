//! The agent in a pod, as `deploy/kubernetes/pod.yaml` has it: its containers, variables, capabilities, in namespaces of pids, mounts, network and cgroups.
//!
//! Beside the pod, in the machine's namespaces, runs a program that tells who looks at it. The test runs itself anew as the pod's first process (`inside`), and
//! from there once for each container (`container`).

mod container;
mod inside;
mod stranger;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use self::container::Container;
use self::stranger::{NAMES, Stranger, namespace};
use crate::early::build;
use crate::process::{Running, agent, quiet};
use crate::received::{Received, text};
use crate::{DEADLINE, folder, is_root, manifests, stats};

/// Says that this is in the pod, and what there is to do.
const INSIDE: &str = "PROFILER_TEST_POD";
const TEST: &str = "pod::a_pod_is_profiled_as_it_is_built_and_nothing_outside_of_it_is_looked_at";
/// What the kubelet knows of the pod, and its manifest does not say.
const UID: &str = "0f9a62ab-3c1e-4d57-9c7b-5b1d8e6f2a40";
const NODE: &str = "node-a";
/// One that gives programs a GNU build id.
const GO: &str = "go1.27.0";

/// What is to be in the pod.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    profiler: Container,
    shop: Container,
    /// Where the manifest's collector listens.
    collector: String,
    /// Attributes that the service must have.
    resource: BTreeMap<String, String>,
}

/// Check that in a pod, with the manifest's capabilities and no others, a Go service has samples for 0.98 to 1.02 of its CPU time, in true shares, with labels and
/// spans; that its resource says pod, container and program; that each tick is accounted for; and that a busy program outside of the pod stands in no profile, no
/// figure and no line of the log, its file is not opened and its memory not read.
#[test]
fn a_pod_is_profiled_as_it_is_built_and_nothing_outside_of_it_is_looked_at() {
    if !is_root() {
        return;
    }
    container::become_one();
    if let Ok(plan) = std::env::var(INSIDE) {
        return inside::run(&serde_json::from_str(&plan).unwrap());
    }
    let folder = folder("pod");
    let cgroups = Cgroups::make();
    let plan = plan(&folder, &cgroups);
    let mut stranger = Stranger::start(&folder);
    let mut pod = Command::new("unshare");
    pod.args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--cgroup", "--uts", "--ipc"]);
    pod.arg(std::env::current_exe().unwrap()).args([TEST, "--exact", "--nocapture"]);
    quiet(pod.env(INSIDE, serde_json::to_string(&plan).unwrap()));
    let mut pod = Running::program(&mut pod);
    pod.address_after("sampling");
    let within = std::fs::read_link(format!("/proc/{}/ns/pid_for_children", pod.pid())).unwrap();
    stranger.assert_untouched(&within);
    pod.address_after("checked");
    for opener in stranger.openers() {
        let process = Path::new("/proc").join(opener.to_string());
        let whose = std::fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        assert_ne!(
            namespace(&process),
            Some(within.clone()),
            "the stranger's file was opened by process {opener} of the pod: {whose}"
        );
    }
    pod.ask("over", "test result: ok. 1 passed");
    assert_eq!(pod.ended(), Some(0));
    drop((stranger, cgroups));
    std::fs::remove_dir_all(folder).unwrap();
}

/// Check that what tells of a look at the stranger tells of an agent that does look at it: its file is opened, its memory read, its names are exported.
#[test]
fn a_look_at_a_stranger_does_not_pass_unseen() {
    if !is_root() {
        return;
    }
    let folder = folder("stranger");
    let mut stranger = Stranger::start(&folder);
    stranger.forget();
    let received = Received::at("127.0.0.1:0");
    let mut run = agent(&["run", "--rate-hz", "997", "--interval", "1s", "--pid", &stranger.pid().to_string()]);
    run.env("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint()).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let run = Running::agent(&mut run);
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    let is_named = || received.of_program(NAMES[0]).values().flatten().any(|sample| sample.has(NAMES[1]));
    let is_told = || received.all(|sets| sets.iter().any(|(_, set)| text(set, "service.name") == NAMES[0]));
    let is_counted = || stats(&page).to_string().contains(NAMES[0]);
    while !(stranger.is_touched() && stranger.openers().contains(&run.pid()) && is_named() && is_told() && is_counted())
    {
        assert!(Instant::now() < until, "{} {:?} {}", stranger.is_touched(), stranger.openers(), run.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(run.end(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

/// Makes images, and reads the manifest as a node does.
fn plan(folder: &Path, cgroups: &Cgroups) -> Plan {
    let manifest = manifests::read("pod", "deploy/kubernetes/pod.yaml");
    let containers = manifest["spec"]["containers"].as_array().unwrap();
    let spec = |name: &str| containers.iter().find(|container| container["name"] == name).unwrap();
    let field = |path: &str| field(&manifest, path);
    let (entry, profiler_root) = profiler_image(folder);
    let shop_root = image(folder, "shop");
    build("shop", GO, &shop_root.join("shop"));
    // As the kubelet makes it, in the folder of the pod.
    let hosts = folder.join("pods").join(UID).join("etc-hosts");
    std::fs::create_dir_all(hosts.parent().unwrap()).unwrap();
    let mut profiler =
        Container::new(spec("profiler"), (&profiler_root, &entry), (&hosts, &cgroups.profiler()), &field);
    let shop = Container::new(spec("shop"), (&shop_root, "/shop"), (&hosts, &cgroups.shop()), &field);
    let endpoint = &profiler.variables["OTEL_EXPORTER_OTLP_ENDPOINT"];
    let (host, port) = endpoint.strip_prefix("http://").unwrap().split_once(':').unwrap();
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n127.0.0.1 {host}\n")).unwrap();
    let collector = format!("127.0.0.1:{port}");
    // A tick a millisecond, profiles each second; no bounds that a debug build on a busy machine goes beyond.
    for (name, value) in
        [("RATE_HZ", "997"), ("INTERVAL", "1s"), ("CPU_PERCENT", "1000"), ("MEMORY", "4GiB"), ("LOG", "debug")]
    {
        profiler.variables.insert(format!("PROFILER_{name}"), value.into());
    }
    // Whoever is at work in the pod all the while would keep its account from ever coming to rest: the sidecar, and this program.
    let own = std::env::current_exe().unwrap();
    let others = format!("profiler-sidecar,{}", own.file_name().unwrap().to_str().unwrap());
    profiler.variables.insert("PROFILER_EXCLUDE".into(), others);
    let program = shop_root.join("shop");
    let resource = [
        ("service.name", "shop"),
        ("k8s.pod.name", &field("metadata.name")),
        ("k8s.namespace.name", &field("metadata.namespace")),
        ("k8s.pod.uid", UID),
        ("k8s.node.name", NODE),
        ("container.id", SHOP),
        ("process.executable.name", "shop"),
        ("process.executable.path", "/shop"),
        ("process.command", "shop"),
        ("process.runtime.name", "go"),
        ("process.runtime.version", GO),
        ("process.executable.build_id.gnu", &build_id(&program)),
    ];
    let resource = resource.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Plan { profiler, shop, collector, resource }
}

/// A field of the pod, as the kubelet puts it into a variable.
fn field(manifest: &Json, path: &str) -> String {
    match path {
        "metadata.name" => manifest["metadata"]["name"].as_str().unwrap().to_owned(),
        "metadata.namespace" => manifest["metadata"]["namespace"].as_str().unwrap_or("default").to_owned(),
        "metadata.uid" => UID.to_owned(),
        "spec.nodeName" => NODE.to_owned(),
        _ => panic!("{path} is no field that a variable can have"),
    }
}

/// An empty image, with the places at which a runtime mounts.
fn image(folder: &Path, name: &str) -> PathBuf {
    let root = folder.join("images").join(name);
    for place in ["proc", "sys", "etc"] {
        std::fs::create_dir_all(root.join(place)).unwrap();
    }
    std::fs::write(root.join("etc/hosts"), "").unwrap();
    root
}

/// The sidecar's image, and its program: nothing but what the Dockerfile copies there, and the libraries that its base has.
fn profiler_image(folder: &Path) -> (String, PathBuf) {
    let root = image(folder, "profiler");
    let entry = manifests::entry_point();
    let binary = env!("CARGO_BIN_EXE_profiler-sidecar");
    let place = root.join(entry.trim_start_matches('/'));
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    assert!(Command::new("cp").arg(binary).arg(place).status().unwrap().success());
    let said = Command::new("ldd").arg(binary).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let libraries = said.split_whitespace().filter(|word| word.starts_with('/'));
    assert!(
        Command::new("cp").args(["--parents", "--dereference"]).args(libraries).arg(&root).status().unwrap().success()
    );
    (entry, root)
}

/// As `readelf` shows it.
fn build_id(program: &Path) -> String {
    let notes = Command::new("readelf").arg("--notes").arg(program).output().unwrap();
    let notes = String::from_utf8(notes.stdout).unwrap();
    notes.split_once("Build ID: ").unwrap().1.split_whitespace().next().unwrap().to_owned()
}

/// Containers' ids, as runtimes draw them.
const SHOP: &str = "5e6a1c0f6e5b4d27a3b1d9c8e7f60514233241506f7e8d9cabcdef0123456789";
const PROFILER: &str = "9d8c7b6a5f4e3d2c1b0a99887766554433221100ffeeddccbbaa998877665544";

/// Cgroups of the pod and its containers, named as containerd does under systemd; gone with this, once nobody is in them.
struct Cgroups(PathBuf);

impl Cgroups {
    /// In the one in which this process is.
    fn make() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts
            .lines()
            .find(|line| line.contains(" - cgroup2 "))
            .expect("cgroup2, mounted")
            .split(' ')
            .nth(4)
            .unwrap();
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
        let cgroups = Self(Path::new(mount).join(own).join(format!("profiler-test-{}", std::process::id())));
        for container in [cgroups.profiler(), cgroups.shop()] {
            std::fs::create_dir_all(&container).unwrap();
        }
        cgroups
    }

    fn profiler(&self) -> PathBuf {
        self.of(PROFILER)
    }

    fn shop(&self) -> PathBuf {
        self.of(SHOP)
    }

    fn pod(&self) -> PathBuf {
        self.0.join(format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_")))
    }

    fn of(&self, id: &str) -> PathBuf {
        self.pod().join(format!("cri-containerd-{id}.scope"))
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let until = Instant::now() + DEADLINE;
        for folder in [self.profiler(), self.shop(), self.pod(), self.0.clone()] {
            // Who was in it may not be quite gone.
            while std::fs::remove_dir(&folder).is_err() && Instant::now() < until {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}
