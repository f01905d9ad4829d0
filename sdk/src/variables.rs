//! The variables of the environment, and which of them code outweighs.
//!
//! In: a look-up of variables (in tests, a table). Out: their texts, or an error that names the one that cannot be read; which names are no
//! settings. Leaf module, for whatever reads settings; runs in `start`, on the caller's thread.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;

use crate::error::Error;

/// The settings of this crate and those of the sidecar: a pod's containers often share an environment.
const SETTINGS: [&str; 33] = [
    "PROFILER_CONFIG",
    "PROFILER_CPU_PERCENT",
    "PROFILER_ENABLED",
    "PROFILER_ENGINE",
    "PROFILER_EXCLUDE",
    "PROFILER_FILES_DIR",
    "PROFILER_HEAP",
    "PROFILER_HEAP_INTERVAL",
    "PROFILER_INCLUDE",
    "PROFILER_INTERVAL",
    "PROFILER_KERNEL",
    "PROFILER_LINK_UNSAMPLED_SPANS",
    "PROFILER_LOG",
    "PROFILER_MAX_BUCKETS",
    "PROFILER_MAX_GOROUTINES",
    "PROFILER_MEMORY",
    "PROFILER_METRICS",
    "PROFILER_PID",
    "PROFILER_PROFILE_SDK",
    "PROFILER_PULL",
    "PROFILER_PULL_TOKEN",
    "PROFILER_QUEUE_BYTES",
    "PROFILER_RATE_HZ",
    "PROFILER_RECEIVE",
    "PROFILER_RUNTIME_INTERVAL",
    "PROFILER_SERVE",
    "PROFILER_SERVE_CERTIFICATE",
    "PROFILER_SERVE_KEY",
    "PROFILER_SERVE_TOKEN",
    "PROFILER_SPAN_LINK",
    "PROFILER_SPOOL_BYTES",
    "PROFILER_SPOOL_DIR",
    "PROFILER_SYMBOLIZE",
];

/// Most unknown variables that are told, and most characters of each.
const MOST_UNKNOWN: usize = 20;
const MOST_TEXT: usize = 64;

/// Those of `names` that begin with `PROFILER_` and are no settings, of the SDK or of the sidecar: misspelt ones, most likely. In order, the first twenty, of each the
/// first 64 characters.
///
/// Kubernetes sets some that begin so where a service's name does (`PROFILER_SERVICE_HOST`, `PROFILER_PORT_6070_TCP`): these are not among them.
pub fn unknown_variables(names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let is_unknown =
        |name: &String| name.starts_with("PROFILER_") && !SETTINGS.contains(&name.as_str()) && !is_of_service(name);
    let names = names.into_iter().map(|name| name.to_string_lossy().into_owned());
    let unknown: BTreeSet<String> = names.filter(is_unknown).collect();
    unknown.into_iter().take(MOST_UNKNOWN).map(|name| name.chars().take(MOST_TEXT).collect()).collect()
}

/// Whether a pod finds a service by it. Source: Kubernetes, "Discovering services", and `FromServices` of pkg/kubelet/envvars/envvars.go.
fn is_of_service(name: &str) -> bool {
    ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|part| name.contains(part)) || name.ends_with("_PORT")
}

/// The environment of one start.
pub(crate) struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    /// `SETTING over VARIABLE`, each once.
    outweighed: RefCell<BTreeSet<String>>,
}

impl<'a> Variables<'a> {
    pub(crate) fn new(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { lookup, outweighed: RefCell::default() }
    }

    /// The text of a variable without the white space around it; unset and empty are the same, as OpenTelemetry says.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(value) = (self.lookup)(name) else { return Ok(None) };
        // Without the value, which may be a secret.
        let text = value
            .into_string()
            .map_err(|_| Error::setting(name, "…", "it is not UTF-8", "set it to UTF-8 text, or unset it"))?;
        Ok(Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned))
    }

    /// Notes that `setting`, which code made, is in force, if `variable` is set as well.
    pub(crate) fn outweigh(&self, setting: &str, variable: &str) {
        if (self.lookup)(variable).is_some_and(|value| !value.to_string_lossy().trim().is_empty()) {
            self.outweighed.borrow_mut().insert(format!("{setting} over {variable}"));
        }
    }

    /// Says in the log what code and environment both set, and which is in force: names only, for values may be secrets.
    pub(crate) fn log_outweighed(&self) {
        let outweighed = self.outweighed.borrow();
        if !outweighed.is_empty() {
            let settings = outweighed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            tracing::info!("code and environment both set something, in force is code: {settings}");
        }
    }

    #[cfg(test)]
    pub(crate) fn outweighed(&self) -> Vec<String> {
        self.outweighed.borrow().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    /// Check that white space does not count, and that what is not UTF-8 is refused by name.
    #[test]
    fn a_text_is_what_stands_between_white_space() {
        let lookup = |name: &str| match name {
            "A" => Some(" a b\n".into()),
            "B" => Some(" ".into()),
            "C" => Some(OsString::from_vec(b"caf\xe9".to_vec())),
            _ => None,
        };
        let variables = Variables::new(&lookup);
        assert_eq!(variables.text("A").unwrap().as_deref(), Some("a b"));
        assert_eq!(["B", "D"].map(|name| variables.text(name).unwrap()), [None, None]);
        let error = variables.text("C").unwrap_err().to_string();
        assert!(error.starts_with("C=") && error.contains("not UTF-8"), "{error}");
    }

    /// Check that what is misspelt is known as that, and nothing else is.
    #[test]
    fn what_is_no_setting_is_known() {
        let set = ["PROFILER_RATE", "PROFILER_RATE_HZ", "PROFILER_RECEIVE", "RATE", "PROFILERS_RATE", "PROFILER_RATE"];
        let of_services =
            ["PROFILER_SERVICE_HOST", "PROFILER_SERVICE_PORT_HTTP", "PROFILER_PORT", "PROFILER_PORT_1_TCP"];
        let unknown = unknown_variables(set.into_iter().chain(of_services).map(OsString::from));
        assert_eq!(unknown, ["PROFILER_RATE"]);
        let many = (0..1000).map(|n| OsString::from(format!("PROFILER_{n}{}", "A".repeat(1000))));
        let told = unknown_variables(many.chain([OsString::from_vec(b"PROFILER_\xff".to_vec())]));
        assert!(told.len() == MOST_UNKNOWN && told.iter().all(|name| name.len() == MOST_TEXT), "{told:?}");
        assert!(SETTINGS.is_sorted() && !SETTINGS.into_iter().any(is_of_service));
    }

    /// Check that only what is set twice is noted, once however often it is asked for.
    #[test]
    fn what_code_outweighs_is_noted_once() {
        let lookup = |name: &str| {
            [("A", "1"), ("C", " ")].iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        let variables = Variables::new(&lookup);
        for variable in ["A", "B", "A", "C"] {
            variables.outweigh("Config::a", variable);
        }
        assert_eq!(variables.outweighed(), ["Config::a over A"]);
    }
}
