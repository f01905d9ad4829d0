//! The files of `deploy/`, read by what reads them where they are used: Kubernetes' own types, Compose's loader with its schema, BuildKit's parser (`tests/go/manifests`),
//! and `systemd-analyze verify`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value as Json;

use crate::folder;
use crate::process::agent;

/// The top of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The program that reads manifests, built once.
fn reader() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = folder("manifests").join("manifests");
        let mut go = Command::new("go");
        go.current_dir(root().join("tests/go/manifests")).env("GOTOOLCHAIN", "auto").env("CGO_ENABLED", "0");
        let built = go.args(["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(&program).arg(".").output();
        let built = built.expect("go: run `make setup`");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}

fn say(kind: &str, file: &Path) -> Output {
    Command::new(reader()).arg(kind).arg(file).output().unwrap()
}

/// A manifest of a `kind`, as it was understood.
pub(crate) fn read(kind: &str, file: &str) -> Json {
    let said = say(kind, &root().join(file));
    assert!(said.status.success(), "{file}: {}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

/// The image's program.
pub(crate) fn entry_point() -> String {
    let image = read("dockerfile", "deploy/Dockerfile");
    let last = image.as_array().unwrap().last().unwrap();
    command(last, "ENTRYPOINT").unwrap()
}

/// What the last such instruction of a stage says, in JSON's form, as one word.
fn command(stage: &Json, name: &str) -> Option<String> {
    let commands = stage["commands"].as_array().unwrap();
    let of_name = commands.iter().rev().find(|command| command["name"] == name)?;
    let words: Vec<&str> = of_name["words"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    Some(words.join(" "))
}

/// Checks that with one word in the place of another the manifest is refused, for this reason.
fn assert_refused(kind: &str, file: &str, (word, wrong): (&str, &str), why: &str) {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    assert!(text.contains(word), "{file} has no {word}");
    let broken = folder(&format!("broken-{kind}")).join(Path::new(file).file_name().unwrap());
    std::fs::write(&broken, text.replacen(word, wrong, 1)).unwrap();
    let said = say(kind, &broken);
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && told.contains(why), "{kind}: {told}");
}

/// Checks that the sidecar takes these variables and arguments.
fn assert_taken(variables: impl Iterator<Item = (String, String)>, arguments: &[&str]) {
    let mut command = agent(arguments);
    let ran = command.envs(variables).arg("--check-config").output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

fn texts(list: &Json) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

/// Check that Kubernetes' types have each field of the pod, that a wrong one is noticed, and that the sidecar takes what the pod sets.
#[test]
fn the_pod_is_what_kubernetes_takes() {
    let file = "deploy/kubernetes/pod.yaml";
    let pod = read("pod", file);
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let profiler = containers.iter().find(|container| container["name"] == "profiler").unwrap();
    let variables =
        profiler["env"].as_array().unwrap().iter().filter_map(|variable| {
            Some((variable["name"].as_str()?.to_owned(), variable["value"].as_str()?.to_owned()))
        });
    assert_taken(variables, &texts(&profiler["args"]));
    assert_refused("pod", file, ("allowPrivilegeEscalation", "allowPrivilegesEscalation"), "allowPrivilegesEscalation");
    assert_refused(
        "pod",
        file,
        ("shareProcessNamespace: true", "shareProcessNamespace: sometimes"),
        "shareProcessNamespace of type bool",
    );
    assert_refused("pod", file, ("memory: 64Mi", "memory: 64Mib"), "quantities");
}

/// Check that Compose loads the project by its schema, that a wrong key is noticed, and that the sidecar takes what the service sets.
#[test]
fn the_project_is_what_compose_takes() {
    let file = "deploy/docker-compose/compose.yaml";
    let profiler = &read("compose", file)["services"]["profiler"];
    let variables = profiler["environment"].as_object().unwrap().iter();
    let variables = variables.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
    assert_taken(variables, &texts(&profiler["command"]));
    // Paths of the build are found from where the file is.
    let build = &profiler["build"];
    let context = Path::new(build["context"].as_str().unwrap());
    assert_eq!(context.canonicalize().unwrap(), root());
    assert!(context.join(build["dockerfile"].as_str().unwrap()).exists(), "{build}");
    assert_refused("compose", file, ("mem_limit:", "mem_limits:"), "mem_limits");
    assert_refused("compose", file, ("pid: service:shop", "pid: service:shops"), "shops");
}

/// Check that BuildKit's parser takes the Dockerfile, that a wrong instruction is noticed, that what is copied from a stage is built there, and that it builds with
/// the Rust that this needs, or a newer one.
#[test]
fn the_image_is_what_docker_builds() {
    let file = "deploy/Dockerfile";
    let stages = read("dockerfile", file);
    let [build, image] = &stages.as_array().unwrap()[..] else { panic!("{stages}") };
    let version = |text: &str| text.split('.').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<_>>();
    let base = build["from"].as_str().unwrap().strip_prefix("rust:").unwrap();
    let (rust, needed) = (base.split('-').next().unwrap(), env!("CARGO_PKG_RUST_VERSION"));
    assert!(version(rust) >= version(needed), "{rust}, and {needed} is needed");
    let copied = command(image, "COPY").unwrap();
    let [from, to] = copied.split(' ').collect::<Vec<_>>()[..] else { panic!("{copied}") };
    assert_eq!(
        (command(image, "ENTRYPOINT").as_deref(), image["copies"].as_array().unwrap().first()),
        (Some(to), Some(&build["name"]))
    );
    let built = format!("{}/target/dist/profiler-sidecar", command(build, "WORKDIR").unwrap());
    assert_eq!(from, built);
    assert_eq!(command(image, "USER").as_deref(), Some("0:0"));
    assert_taken(std::iter::empty(), &[&command(image, "CMD").unwrap()]);
    assert_refused("dockerfile", file, ("ENTRYPOINT", "ENTRYPIONT"), "ENTRYPIONT");
}

/// Check that no source is kept from the image's build: a folder of it is called `target`. Git, whose patterns match more than Docker's do, is asked.
#[test]
fn the_image_is_built_of_all_sources() {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--ignored", "--exclude-from=.dockerignore"]).current_dir(root());
    match git.output() {
        Ok(said) if said.status.success() => assert_eq!(String::from_utf8_lossy(&said.stdout), ""),
        _ => println!("NOT RUN: what the image's build is kept from is not checked: this is no checkout of git"),
    }
}

/// Check that systemd takes the unit without a word, and says which line it does not know; where there is no `systemd-analyze` this is said. The program is one that is there.
#[test]
fn the_unit_is_what_systemd_takes() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("NOT RUN: the unit is not checked: there is no systemd-analyze here (Debian's package systemd)");
        return;
    }
    let unit = std::fs::read_to_string(root().join("deploy/systemd/profiler-sidecar.service")).unwrap();
    let there = unit.replace("/usr/bin/profiler-sidecar", env!("CARGO_BIN_EXE_profiler-sidecar"));
    assert_ne!(there, unit);
    let verify = |text: &str| {
        let file = folder("unit").join("profiler-sidecar.service");
        std::fs::write(&file, text).unwrap();
        let said =
            Command::new("systemd-analyze").args(["verify", "--recursive-errors=no"]).arg(&file).output().unwrap();
        (said.status.success(), String::from_utf8(said.stderr).unwrap())
    };
    assert_eq!(verify(&there), (true, String::new()));
    let (_, why) = verify(&there.replace("RestrictRealtime=", "RestrictRealTime="));
    assert!(why.contains("RestrictRealTime"), "{why}");
    let (_, why) = verify(&there.replace("perf_event_open", "perf_events_open"));
    assert!(why.contains("perf_events_open"), "{why}");
}
