//! Who was profiled: the attributes of the process (`service.name`, `process.pid`, …) that travel with every profile.
//!
//! In: settings and detection of the SDK or the sidecar, or a decoded request. Out: the OTLP `Resource`, pprof comments.
//! Plain data; nothing here detects anything.

use super::attribute::Value;

/// The attributes of one profiled process, in the order in which they were set; keys are unique.
///
/// Source: OpenTelemetry specification, "Resource SDK"; names as in its semantic conventions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    attributes: Vec<(String, Value)>,
}

impl Resource {
    /// A resource without attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key`, replacing an earlier value of the same key in its place.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.attributes.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((key, value)),
        }
    }

    /// The same, for building in one expression.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(key, value);
        self
    }

    /// The value of `key`, where it is set.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.attributes.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// `service.name`, where it is set and a string.
    #[must_use]
    pub fn service_name(&self) -> Option<&str> {
        match self.get("service.name") {
            Some(Value::String(name)) => Some(name),
            _ => None,
        }
    }

    /// All attributes in order.
    #[must_use]
    pub fn attributes(&self) -> &[(String, Value)] {
        &self.attributes
    }
}
