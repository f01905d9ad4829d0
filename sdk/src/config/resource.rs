//! Who is profiled: the attributes of the process, within what backends take.
//!
//! In: name and tags of code, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, what the process knows of itself. Out: the
//! resource of every profile. Runs in `start`, on the caller's thread.

use percent_encoding::percent_decode_str;
use profiler_proto::model::Value;
use profiler_proto::resource::Resource;

use super::environment::{Environment, Names};
use crate::error::Error;

/// Most attributes. Source: Pyroscope refuses a profile of which a sample has more than 30 labels
/// (`validation.max-label-names-per-series`): four are its own, two say the thread, and six are left for tags.
const MOST: usize = 18;
/// Longest value in bytes. Source: Pyroscope refuses a profile with a longer one (`validation.max-length-label-value`).
const LONGEST: usize = 2048;

const SERVICE: &str = "service.name";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

impl Environment<'_> {
    /// The name of the service and the attributes of the process: what code says over what the environment says over
    /// what can be detected.
    pub(super) fn resource(
        &self,
        service: Option<String>,
        tags: Vec<(String, String)>,
    ) -> Result<(String, Resource), Error> {
        const NAMES: Names = Names::new("Config::new", "OTEL_SERVICE_NAME");
        let (mut code, mut environment) = (Resource::new(), self.resource_attributes()?);
        match self.chosen(NAMES, service, |text| Ok(text.to_owned()))? {
            Some((_, name)) if name.trim().is_empty() => return Err(no_service_name(&name)),
            Some((setting, name)) if setting == NAMES.method => {
                self.outweigh_attribute(setting, SERVICE, &environment);
                code.set(SERVICE, name);
            }
            Some((_, name)) => environment.set(SERVICE, name),
            None => {}
        }
        for (key, value) in tags {
            if key.trim().is_empty() {
                return Err(Error::setting("Config::tag", key, "the key is empty", "name the attribute"));
            }
            self.outweigh_attribute(&format!("Config::tag({key})"), &key, &environment);
            code.set(key, value);
        }
        let name = code.service_name().or(environment.service_name()).filter(|name| !name.trim().is_empty());
        let name = name.ok_or_else(|| no_service_name(""))?;
        // The first of a key stands, and the first ones are kept where there are too many.
        let resource = within_bounds([&Resource::new().with(SERVICE, name), &code, &environment, &detected()]);
        Ok((name.to_owned(), resource))
    }

    fn outweigh_attribute(&self, setting: &str, key: &str, environment: &Resource) {
        if environment.get(key).is_some() {
            self.variables.outweigh(setting, ATTRIBUTES);
        }
    }

    /// Source: OpenTelemetry specification, "Resource SDK", `OTEL_RESOURCE_ATTRIBUTES`: `key=value` pairs, separated by
    /// commas, percent-encoded where needed.
    fn resource_attributes(&self) -> Result<Resource, Error> {
        let mut attributes = Resource::new();
        let text = self.variables.text(ATTRIBUTES)?.unwrap_or_default();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair.split_once('=').filter(|(key, _)| !key.trim().is_empty()).ok_or_else(|| {
                Error::setting(ATTRIBUTES, pair, "it is not key=value", "write pairs such as region=eu-1,team=core")
            })?;
            let decoded = percent_decode_str(value.trim()).decode_utf8().map_err(|_| {
                Error::setting(ATTRIBUTES, pair, "it is not UTF-8 once decoded", "encode UTF-8 text, a space as %20")
            })?;
            attributes.set(key.trim(), decoded.into_owned());
        }
        Ok(attributes)
    }
}

fn no_service_name(name: &str) -> Error {
    let remedy = "name the service: profiler::start(\"checkout\"), or OTEL_SERVICE_NAME=checkout";
    Error::setting(SERVICE, name, "the service has no name", remedy)
}

/// Attributes that this process knows of itself, those first that are missed most. Source of the names: OpenTelemetry semantic
/// conventions, resource.
fn detected() -> Resource {
    let mut resource = Resource::new();
    if let Ok(host) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
        resource.set("host.name", host.trim());
    }
    resource.set("process.pid", i64::from(std::process::id()));
    if let Some(name) =
        std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
    {
        resource.set("process.executable.name", name);
    }
    resource
        .with("telemetry.sdk.name", "profiler")
        .with("telemetry.sdk.version", env!("CARGO_PKG_VERSION"))
        .with("telemetry.sdk.language", "rust")
        .with("process.runtime.name", "rustc")
}

/// These attributes, the first of each key; what some backend would refuse the whole profile for is left out or cut, and said.
fn within_bounds(sources: [&Resource; 4]) -> Resource {
    let (mut resource, mut cut, mut left_out) = (Resource::new(), Vec::new(), Vec::new());
    for (key, value) in sources.into_iter().flat_map(Resource::attributes) {
        if resource.get(key).is_some() {
            continue;
        }
        match value {
            _ if resource.attributes().len() >= MOST => left_out.push(key.as_str()),
            Value::String(text) if text.len() > LONGEST => {
                cut.push(key.as_str());
                resource.set(key.as_str(), &text[..text.floor_char_boundary(LONGEST)]);
            }
            value => resource.set(key.as_str(), value.clone()),
        }
    }
    if !left_out.is_empty() {
        let left_out = left_out.join(", ");
        tracing::warn!("more attributes of the process than the {MOST} that every backend takes: without {left_out}");
    }
    if !cut.is_empty() {
        tracing::warn!("cut to {LONGEST} bytes, for some backends refuse longer values: {}", cut.join(", "));
    }
    resource
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(tags: &[(&str, &str)], attributes: &str) -> Resource {
        let lookup = |name: &str| (name == ATTRIBUTES).then(|| attributes.into());
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Environment::new(&lookup).resource(Some("a".into()), tags).unwrap().1
    }

    fn keys(resource: &Resource) -> Vec<&str> {
        resource.attributes().iter().map(|(key, _)| key.as_str()).collect()
    }

    /// Check that of too many attributes those go that were only detected, then the last of the environment, then the last of
    /// code, and never the name.
    #[test]
    fn the_attributes_that_matter_most_are_kept() {
        let numbered = |prefix: &str, n: usize| (0..n).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
        let pairs = |keys: &[String]| keys.iter().map(|key| format!("{key}=1")).collect::<Vec<_>>().join(",");
        let few = resource(&[("team", "core")], "region=eu");
        assert_eq!((keys(&few)[..3].to_vec(), keys(&few).len()), (vec![SERVICE, "team", "region"], 10));
        let (tags, attributes) = (numbered("t", 2), numbered("e", 30));
        let tags: Vec<_> = tags.iter().map(|key| (key.as_str(), "1")).collect();
        let many = resource(&tags, &pairs(&attributes));
        let expected: Vec<_> = [SERVICE, "t0", "t1"].into_iter().chain(attributes.iter().map(String::as_str)).collect();
        assert_eq!(keys(&many), expected[..MOST]);
        let detected = resource(&tags, &pairs(&attributes[..13]));
        assert_eq!(keys(&detected)[16..], ["host.name", "process.pid"]);
        let named_late = format!("{},service.name=late", pairs(&attributes));
        let lookup = |name: &str| (name == ATTRIBUTES).then(|| named_late.as_str().into());
        let (name, late) = Environment::new(&lookup).resource(None, Vec::new()).unwrap();
        assert_eq!((name.as_str(), late.service_name(), keys(&late).len()), ("late", Some("late"), MOST));
    }

    /// Check that what is set twice is there once, code before environment before what is detected, and later before earlier.
    #[test]
    fn an_attribute_is_there_once() {
        let twice = resource(&[("team", "a"), ("team", "b")], "team=c,host.name=d,host.name=e");
        assert_eq!((twice.get("team"), twice.get("host.name")), (Some(&"b".into()), Some(&"e".into())));
        assert_eq!(keys(&twice).iter().filter(|key| ["team", "host.name"].contains(key)).count(), 2);
        assert_eq!(resource(&[(SERVICE, "b")], "").service_name(), Some("b"));
    }

    /// Check that a value is cut between characters.
    #[test]
    fn long_values_are_cut() {
        let long = "é".repeat(1024);
        let (fits, too_long) = (long.clone(), format!("x{long}"));
        let cut = resource(&[("fits", &fits), ("long", &too_long)], "");
        assert_eq!(cut.get("fits"), Some(&fits.as_str().into()));
        assert_eq!(cut.get("long"), Some(&too_long[..2047].into()));
    }
}
