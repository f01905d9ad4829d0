//! Who a process is, as its profiles say it: at most as many attributes as every backend takes, those first that are missed most.
//!
//! In: what it publishes, its variables, its program, its container, the pod that we are in. Out: `service.name` and the resource. What the
//! process published comes before its variables, these before what was found out.
//!
//! Variables that are read, of the process: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`; of the process, else of the sidecar where that
//! is in a pod: the downward API's, by the names in [`POD`]. Nothing else of an environment is read, and no argument of a command line:
//! either may be secret.
//!
//! Source of the names: OpenTelemetry semantic conventions, resource.

use percent_encoding::percent_decode_str;
use profiler_proto::model::Value;
use profiler_proto::resource::Resource;

use super::container::Container;
use super::context::Published;
use super::environment::Environment;
use super::target::Exe;
use crate::target::Process;
use crate::target::numbers::leads_to_initial;

/// Most attributes, as of the SDK. Source: Pyroscope refuses a profile of which a sample has more than 30 labels
/// (`validation.max-label-names-per-series`): four are its own, two say the thread, and six are left for tags.
pub const MOST_ATTRIBUTES: usize = 18;
/// Longest value in bytes. Source: Pyroscope refuses longer ones (`validation.max-length-label-value`).
const LONGEST: usize = 2048;
/// Most bytes of all of them: of thousands of processes each may have as many.
const MOST_BYTES: usize = 8 << 10;

const SERVICE: &str = "service.name";
const ENVIRONMENT: &str = "deployment.environment.name";

/// Attributes of the pod, and the variables in which manifests put them, first those of `deploy/kubernetes`.
pub const POD: [(&str, &[&str]); 4] = [
    ("k8s.pod.name", &["K8S_POD_NAME", "POD_NAME"]),
    ("k8s.namespace.name", &["K8S_NAMESPACE_NAME", "K8S_POD_NAMESPACE", "POD_NAMESPACE"]),
    ("k8s.node.name", &["K8S_NODE_NAME", "NODE_NAME"]),
    ("k8s.pod.uid", &["K8S_POD_UID", "POD_UID"]),
];
/// Of the process only: the sidecar's is another container. The second variable is one of others, too, where there is no pod.
const CONTAINER: (&str, &[&str]) = ("k8s.container.name", &["K8S_CONTAINER_NAME", "CONTAINER_NAME"]);

/// The pod and the host that the sidecar is in.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pod {
    attributes: Resource,
    host: Option<String>,
}

impl Pod {
    /// That of this process. Its own variables say something about others only where all of them are in one pod: below the initial pid
    /// namespace.
    #[must_use]
    pub fn detect() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let own = if in_initial_namespace() { Environment::default() } else { Environment::own() };
        Self::new(&own, host)
    }

    /// That of a sidecar with these variables on this host.
    #[must_use]
    pub fn new(own: &Environment, host: Option<String>) -> Self {
        let mut attributes = Resource::new();
        for (key, names) in POD {
            if let Some(value) = own.first(names) {
                attributes.set(key, value);
            }
        }
        Self { attributes, host: host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty()) }
    }
}

fn in_initial_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| leads_to_initial(link.as_os_str().as_encoded_bytes()))
}

/// What is known of a process when its resource is made.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) process: Process,
    pub(super) comm: &'a str,
    pub(super) exe: &'a Exe,
    pub(super) container: &'a Container,
    pub(super) environment: &'a Environment,
    pub(super) context: Option<&'a Published>,
    pub(super) pod: &'a Pod,
}

impl Known<'_> {
    /// `service.name` and the resource, which has it too.
    pub(super) fn resource(&self) -> (String, Resource) {
        let stated = self.stated();
        let found = self.found();
        let name = stated.service_name().map(str::trim).filter(|name| !name.is_empty());
        let service = name.map_or_else(|| self.program_name(), str::to_owned);
        let mut resource = Resource::new();
        set(&mut resource, SERVICE, &Value::from(service.as_str()));
        // Without these, processes of one service are one, and versions and stages cannot be told apart.
        for key in ["service.version", ENVIRONMENT, "process.pid", "process.executable.name", "container.id"] {
            if let Some(value) = stated.get(key).filter(|_| key != "process.pid").or_else(|| found.get(key)) {
                set(&mut resource, key, value);
            }
        }
        for (key, value) in found.attributes().iter().filter(|(key, _)| is_of_pod(key)) {
            set(&mut resource, key, stated.get(key).unwrap_or(value));
        }
        for (key, value) in stated.attributes().iter().chain(found.attributes()) {
            set(&mut resource, key, value);
        }
        (text(resource.get(SERVICE)), resource)
    }

    /// What the process says: published, then by variables.
    fn stated(&self) -> Resource {
        let mut stated = self.context.map(|context| context.context.resource.clone()).unwrap_or_default();
        let mut variables = attributes_of(self.environment.value("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        if let Some(name) = self.environment.value("OTEL_SERVICE_NAME") {
            variables.set(SERVICE, name);
        }
        for (key, value) in variables.attributes() {
            if stated.get(key).is_none() {
                stated.set(key.as_str(), value.clone());
            }
        }
        // The name before version 1.27 of the conventions.
        if let Some(old) = stated.get("deployment.environment").cloned().filter(|_| stated.get(ENVIRONMENT).is_none()) {
            stated.set(ENVIRONMENT, old);
        }
        stated
    }

    /// What is found out without the process's say, those first that are missed most.
    fn found(&self) -> Resource {
        let mut found = Resource::new().with("process.pid", i64::from(self.process.pid()));
        let (pod, names) = POD[0];
        let is_named = self.pod.attributes.get(pod).is_some() || self.environment.first(names).is_some();
        let is_in_pod = is_named || self.container.pod_uid.is_some();
        let mut put = |key: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                found.set(key, value);
            }
        };
        put("process.executable.name", Some(&self.program_name()));
        put("container.id", self.container.id.as_deref());
        for (key, names) in POD {
            let of_pod = self.pod.attributes.get(key).and_then(Value::as_str);
            put(key, self.environment.first(names).or(of_pod));
        }
        put("k8s.pod.uid", self.container.pod_uid.as_deref());
        put(CONTAINER.0, self.environment.first(&CONTAINER.1[..if is_in_pod { 2 } else { 1 }]));
        put("host.name", self.pod.host.as_deref());
        let program = self.exe.program.as_deref();
        if let Some(version) = program.and_then(|program| program.go.as_deref()) {
            put("process.runtime.name", Some("go"));
            put("process.runtime.version", Some(version));
        }
        put("process.executable.path", self.exe.path.to_str());
        put("process.command", Some(self.comm));
        put("process.executable.build_id.gnu", program.and_then(|program| program.build_id.as_deref()));
        found
    }

    fn program_name(&self) -> String {
        let name = self.exe.name();
        if name.is_empty() { self.comm.to_owned() } else { name }
    }
}

fn is_of_pod(key: &str) -> bool {
    key == CONTAINER.0 || POD.iter().any(|(name, _)| *name == key)
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Sets what is not set yet and has room, cut to what backends take. Of values that are no scalars none is missed that has room for nobody else.
fn set(resource: &mut Resource, key: &str, value: &Value) {
    let taken: usize = resource.attributes().iter().map(|(key, value)| key.len() + room_of(value)).sum();
    let room = MOST_BYTES.saturating_sub(taken + key.len());
    let is_full = resource.attributes().len() >= MOST_ATTRIBUTES || room_of(value).min(LONGEST) > room;
    if resource.get(key).is_some() || is_full || key.len() > LONGEST {
        return;
    }
    match value {
        Value::Bytes(_) | Value::List(_) | Value::Map(_) if room_of(value) > LONGEST => {}
        Value::String(text) if text.len() > LONGEST => {
            resource.set(key, text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default());
        }
        value => resource.set(key, value.clone()),
    }
}

/// Bytes of memory that a value takes, about.
fn room_of(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(values) => values.iter().map(room_of).sum(),
            Value::Map(pairs) => pairs.iter().map(|(key, value)| size_of_val(key) + key.len() + room_of(value)).sum(),
            Value::Empty | Value::Bool(_) | Value::Int(_) | Value::Double(_) => 0,
        }
}

/// `key=value` pairs between commas, percent-encoded; what is none is left out, for it is another's mistake.
///
/// Source: OpenTelemetry specification, "Resource SDK", `OTEL_RESOURCE_ATTRIBUTES`.
fn attributes_of(text: &str) -> Resource {
    let mut attributes = Resource::new();
    for pair in text.split(',').take(4 * MOST_ATTRIBUTES) {
        let Some((key, value)) = pair.split_once('=') else { continue };
        let Ok(value) = percent_decode_str(value.trim()).decode_utf8() else { continue };
        if !key.trim().is_empty() {
            attributes.set(key.trim(), value.into_owned());
        }
    }
    attributes
}

#[cfg(test)]
mod tests;
