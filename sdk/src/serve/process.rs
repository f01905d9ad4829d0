//! Which process a profile is of.
//!
//! In: the resource of a set. Out: what tells it from other processes, and what people call it. A pid alone does not: containers have
//! their own, and each is given again.

use std::fmt::Display;

use profiler_proto::ProfileSet;
use profiler_proto::model::resource::Resource;
use profiler_proto::model::{Labels, Value};

use super::source::Target;

/// More of a name does not tell processes apart: what others sent may be of any length.
const MOST_TEXT: usize = 256;

/// A process, by its resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process {
    /// `service.name`; empty where there is none.
    pub(super) service: Box<str>,
    /// `process.pid`.
    pub(super) pid: Option<u32>,
    /// `service.instance.id`, else `container.id`: two pods have processes of the same service and pid.
    instance: Box<str>,
}

/// Which processes a request is for: all that have what is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) service: Option<String>,
    pub(super) pid: Option<u32>,
}

impl Process {
    /// The process that `set` is of.
    pub(super) fn of(set: &ProfileSet) -> Self {
        let resource = &set.resource;
        let instance = ["service.instance.id", "container.id"].iter().find_map(|key| resource.get(key));
        Self {
            service: cut(resource.service_name().unwrap_or("")).into(),
            pid: pid_of(resource),
            instance: cut(&instance.map(ToString::to_string).unwrap_or_default()).into(),
        }
    }

    /// The labels by which its samples are told from those of others.
    pub(super) fn labels(&self) -> Labels {
        let mut labels = vec![("service", Value::from(&*self.service))];
        labels.extend(self.pid.map(|pid| ("pid", Value::from(i64::from(pid)))));
        labels
    }

    /// As a target, with what the set says of its language.
    pub(super) fn target(&self, resource: &Resource) -> Target {
        let target = Target::new(&*self.service, self.pid.unwrap_or(0));
        match language_of(resource) {
            Some(language) => target.in_language(language),
            None => target,
        }
    }
}

impl Chosen {
    /// Whether a process is wanted.
    pub(super) fn has(&self, process: &Process) -> bool {
        self.service.as_deref().is_none_or(|service| cut(service) == &*process.service)
            && self.pid.is_none_or(|pid| process.pid == Some(pid))
    }

    /// The same, of what may be asked for.
    pub(super) fn takes(&self, target: &Target) -> bool {
        self.service.as_deref().is_none_or(|service| cut(service) == cut(&target.service))
            && self.pid.is_none_or(|pid| target.pid == pid)
    }
}

/// What a process is written in, as far as its resource tells (OpenTelemetry semantic conventions, `process.runtime.name`,
/// `telemetry.sdk.language`).
pub(super) fn language_of(resource: &Resource) -> Option<&str> {
    let told = ["process.runtime.name", "telemetry.sdk.language"].iter().find_map(|key| resource.get(key)?.as_str());
    match told {
        Some("rustc") => Some("rust"),
        told => told.map(cut),
    }
}

fn pid_of(resource: &Resource) -> Option<u32> {
    let value = resource.get("process.pid")?;
    value.as_int().and_then(|pid| u32::try_from(pid).ok()).or_else(|| parsed(value))
}

/// Some send numbers as text.
fn parsed(value: &dyn Display) -> Option<u32> {
    value.to_string().parse().ok()
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(attributes: &[(&str, Value)]) -> Process {
        let mut set = ProfileSet::default();
        attributes.iter().for_each(|(key, value)| set.resource.set(*key, value.clone()));
        Process::of(&set)
    }

    /// Check that service, pid and instance each tell processes apart, and that a long name is cut between characters.
    #[test]
    fn processes_are_told_apart() {
        let base = [("service.name", Value::from("shop")), ("process.pid", Value::from(7))];
        let shop = process(&base);
        assert_eq!((&*shop.service, shop.pid), ("shop", Some(7)));
        assert_eq!(shop.pid, process(&[("process.pid", "7".into())]).pid);
        for other in [("service.name", Value::from("x")), ("process.pid", Value::from(8)), ("container.id", "c".into())]
        {
            assert_ne!(shop, process(&[base.as_slice(), &[other]].concat()));
        }
        assert_eq!(process(&[("process.pid", Value::from(-1))]).pid, None);
        let long = "é".repeat(1000);
        assert_eq!(process(&[("service.name", Value::from(&*long))]).service.len(), MOST_TEXT);
    }

    /// Check that a choice holds for all that have what it says.
    #[test]
    fn a_choice_holds_for_all_that_have_it() {
        let shop = process(&[("service.name", "shop".into()), ("process.pid", Value::from(7))]);
        let chosen = |service: Option<&str>, pid| Chosen { service: service.map(str::to_owned), pid }.has(&shop);
        assert!(
            chosen(None, None) && chosen(Some("shop"), None) && chosen(None, Some(7)) && chosen(Some("shop"), Some(7))
        );
        assert!(!chosen(Some("sho"), None) && !chosen(None, Some(8)) && !chosen(Some("shop"), Some(8)));
    }
}
