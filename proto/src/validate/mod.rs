//! Whether an OTLP request is one that every receiver takes.
//!
//! In: a request that is about to be sent, or was received in a test. Out: all that is wrong with it, each [`Finding`] with
//! the field and the [`Rule`]. The rules are stricter than the specification: they also hold what real receivers were
//! seen to refuse, or to fail of. Encoders are held to this; decoders are not, they take what they can.

mod attributes;
mod profile;
mod references;
mod rule;
mod tables;

use std::fmt;

use prost::Message;

pub use rule::Rule;

use crate::otlp::ExportProfilesServiceRequest;
use crate::otlp::messages::{ResourceProfiles, ScopeProfiles};
use references::References;

/// One breach of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The field, as `dictionary.stack_table[7].location_indices[0]`.
    pub path: String,
    /// What does not hold there.
    pub rule: Rule,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.path, self.rule.what(), self.rule.source())
    }
}

/// All breaches in `request`, in the order of its fields; none if it is as it should be.
#[must_use]
pub fn validate(request: &ExportProfilesServiceRequest) -> Vec<Finding> {
    let mut report = Report::default();
    let Some(dictionary) = &request.dictionary else {
        report.add("dictionary", Rule::Dictionary);
        return report.findings;
    };
    let mut references = References::new(dictionary);
    tables::check(&mut references, &mut report);
    report.check(!request.resource_profiles.is_empty(), "resource_profiles", Rule::ResourceProfiles);
    for (i, of_resource) in request.resource_profiles.iter().enumerate() {
        check_resource(of_resource, &format!("resource_profiles[{i}]"), &mut references, &mut report);
    }
    references.report_orphans(&mut report);
    report.findings
}

/// [`validate`] for the body of a request, uncompressed.
#[must_use]
pub fn validate_bytes(bytes: &[u8]) -> Vec<Finding> {
    match ExportProfilesServiceRequest::decode(bytes) {
        Ok(request) => validate(&request),
        Err(error) => {
            // prost names the field and, as text only, that a string was not UTF-8.
            let rule = if error.to_string().contains("UTF-8") { Rule::Utf8 } else { Rule::Protobuf };
            vec![Finding { path: error.to_string(), rule }]
        }
    }
}

/// Findings as they come.
#[derive(Default)]
struct Report {
    findings: Vec<Finding>,
}

impl Report {
    fn add(&mut self, path: impl Into<String>, rule: Rule) {
        self.findings.push(Finding { path: path.into(), rule });
    }

    fn check(&mut self, holds: bool, path: impl Into<String>, rule: Rule) {
        if !holds {
            self.add(path, rule);
        }
    }
}

fn check_resource(of_resource: &ResourceProfiles, path: &str, references: &mut References<'_>, report: &mut Report) {
    match &of_resource.resource {
        None => report.add(format!("{path}.resource"), Rule::Resource),
        Some(resource) => {
            attributes::check_resource(&resource.attributes, &format!("{path}.resource"), references, report);
        }
    }
    report.check(!of_resource.scope_profiles.is_empty(), format!("{path}.scope_profiles"), Rule::ScopeProfiles);
    for (i, of_scope) in of_resource.scope_profiles.iter().enumerate() {
        check_scope(of_scope, &format!("{path}.scope_profiles[{i}]"), references, report);
    }
}

fn check_scope(of_scope: &ScopeProfiles, path: &str, references: &mut References<'_>, report: &mut Report) {
    match &of_scope.scope {
        None => report.add(format!("{path}.scope"), Rule::Scope),
        Some(scope) => {
            report.check(is_name(&scope.name), format!("{path}.scope.name"), Rule::Name);
            attributes::check_in_place(&scope.attributes, &format!("{path}.scope.attributes"), references, report);
        }
    }
    report.check(!of_scope.profiles.is_empty(), format!("{path}.profiles"), Rule::Profiles);
    for (i, profile) in of_scope.profiles.iter().enumerate() {
        profile::check(profile, &format!("{path}.profiles[{i}]"), references, report);
    }
}

/// Whether `text`, if it is not empty, holds letters, digits and `_` only.
fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
