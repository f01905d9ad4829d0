//! Who a process is: whose word counts, what is left out.

use std::path::PathBuf;
use std::sync::Arc;

use profiler_proto::otlp::ProcessContext;

use super::super::program::Program;
use super::*;

fn environment(text: &str) -> Environment {
    Environment::parse(text.replace(' ', "\0").into_bytes(), false)
}

/// The resource of a process with these variables, that publishes this.
fn resource(variables: &str, published: Option<Resource>) -> Resource {
    let own = environment("K8S_POD_NAME=pod-of-ours POD_NAMESPACE=shop K8S_CONTAINER_NAME=sidecar");
    of(variables, published, &Pod::new(&own, Some("node-1\n".into())), Some("u1"))
}

/// The same of one in this pod, of which its cgroup says this.
fn of(variables: &str, published: Option<Resource>, pod: &Pod, uid: Option<&str>) -> Resource {
    let program = Program { foreign: None, go: Some("go1.26.1".into()), build_id: Some("ab12".into()) };
    let exe = Exe { path: PathBuf::from("/srv/inventory"), program: Some(Arc::new(program)), ..Exe::default() };
    let container = Container { id: Some("c1".into()), pod_uid: uid.map(str::to_owned) };
    let context = published.map(|resource| Published {
        header: 0,
        time: 1,
        context: ProcessContext { resource, attributes: Resource::new() },
    });
    let known = Known {
        process: Process::new(7, 1),
        comm: "invent",
        exe: &exe,
        container: &container,
        environment: &environment(variables),
        context: context.as_ref(),
        pod,
    };
    let (service, resource) = known.resource();
    assert_eq!(resource.service_name(), Some(service.as_str()));
    resource
}

fn texts<'a>(resource: &'a Resource, keys: &[&str]) -> Vec<&'a str> {
    keys.iter().map(|key| resource.get(key).and_then(Value::as_str).unwrap_or("-")).collect()
}

/// Check that what a process publishes counts before its variables, and these before its program.
#[test]
fn the_name_is_the_first_that_is_said() {
    let published = || Some(Resource::new().with(SERVICE, "published"));
    assert_eq!(resource("OTEL_SERVICE_NAME=variable", published()).service_name(), Some("published"));
    let both = "OTEL_SERVICE_NAME=variable OTEL_RESOURCE_ATTRIBUTES=service.name=attribute";
    assert_eq!(resource(both, None).service_name(), Some("variable"));
    assert_eq!(resource("OTEL_RESOURCE_ATTRIBUTES=service.name=attribute", None).service_name(), Some("attribute"));
    assert_eq!(resource("", None).service_name(), Some("inventory"));
    assert_eq!(resource("", Some(Resource::new().with(SERVICE, " "))).service_name(), Some("inventory"));
}

/// Check what is found out, and that the pod's variables are the process's own before those of the sidecar.
#[test]
fn what_is_found_out_is_there() {
    let resource = resource("POD_NAME=its-own K8S_CONTAINER_NAME=app", None);
    let keys = ["k8s.pod.name", "k8s.namespace.name", "k8s.pod.uid", "k8s.container.name", "container.id", "host.name"];
    assert_eq!(texts(&resource, &keys), ["its-own", "shop", "u1", "app", "c1", "node-1"]);
    let keys = ["process.executable.name", "process.executable.path", "process.command", "process.runtime.name"];
    assert_eq!(texts(&resource, &keys), ["inventory", "/srv/inventory", "invent", "go"]);
    let keys = ["process.runtime.version", "process.executable.build_id.gnu", "k8s.node.name"];
    assert_eq!(texts(&resource, &keys), ["go1.26.1", "ab12", "-"]);
    assert_eq!(resource.get("process.pid"), Some(&Value::Int(7)));
    assert_eq!(texts(&self::resource("", None), &["k8s.pod.name", "k8s.container.name"]), ["pod-of-ours", "-"]);
}

/// Check that the name of a container counts as that of one of a pod's only where there is a pod, but where it is called so.
#[test]
fn containers_of_no_pod_have_no_name_of_one() {
    let name = |own: &str, variables: &str, uid: Option<&str>| {
        let pod = Pod::new(&environment(own), None);
        texts(&of(variables, None, &pod, uid), &["k8s.container.name"])[0].to_owned()
    };
    assert_eq!(name("", "CONTAINER_NAME=sandbox", None), "-");
    assert_eq!(name("", "K8S_CONTAINER_NAME=app", None), "app");
    assert_eq!(name("", "POD_NAME=shop-1 CONTAINER_NAME=app", None), "app");
    assert_eq!(name("K8S_POD_NAME=shop-1", "CONTAINER_NAME=app", None), "app");
    assert_eq!(name("", "CONTAINER_NAME=app", Some("u1")), "app");
}

/// Check that with more attributes than backends take those stay by which processes are told apart, and that the pid is the one that we see.
#[test]
fn the_attributes_that_matter_most_are_kept() {
    let many: Vec<_> = (0..40).map(|n| format!("k{n}={n}")).collect();
    let variables = format!(
        "OTEL_RESOURCE_ATTRIBUTES={},service.version=2,process.pid=99,deployment.environment=prod",
        many.join(",")
    );
    let resource = resource(&variables, None);
    assert_eq!(resource.attributes().len(), MOST_ATTRIBUTES);
    let keys = ["service.name", "service.version", ENVIRONMENT, "container.id", "k8s.pod.name", "k0"];
    assert_eq!(texts(&resource, &keys), ["inventory", "2", "prod", "c1", "pod-of-ours", "0"]);
    assert_eq!(resource.get("process.pid"), Some(&Value::Int(7)));
    let long = self::resource(&format!("OTEL_SERVICE_NAME={}", "é".repeat(2000)), None);
    assert_eq!(long.service_name().map(str::len), Some(LONGEST));
}

/// Check that what a process says takes no more memory than has a bound, whatever it says, and that who it is stays.
#[test]
fn what_is_said_has_a_bound() {
    let list = Value::List(vec![Value::Empty; 24_000].into());
    let published = Resource::new().with("list", list.clone()).with("bytes", Value::Bytes(vec![0; 60_000].into()));
    let published = published.with("map", Value::Map([("k".into(), list)].into())).with("short", 7);
    let long = (0..MOST_ATTRIBUTES).map(|number| (format!("text.{number}"), "x".repeat(3000)));
    let published = long.fold(published, |resource, (key, text)| resource.with(key, text));
    let resource = resource("OTEL_SERVICE_NAME=shop", Some(published));
    assert_eq!(texts(&resource, &[SERVICE, "container.id"]), ["shop", "c1"]);
    assert!(["list", "bytes", "map"].iter().all(|key| resource.get(key).is_none()), "{resource:?}");
    assert_eq!(resource.get("short"), Some(&Value::from(7)));
    let bytes: usize = resource.attributes().iter().map(|(key, value)| key.len() + room_of(value)).sum();
    assert!((6000..=MOST_BYTES).contains(&bytes), "{bytes}");
}
