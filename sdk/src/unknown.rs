//! Variables with the profiler's prefix that are no settings.
//!
//! In: the names of the variables that are set. Out: those that nobody reads. Leaf module; runs in `start`, on the caller's thread, and where the sidecar
//! reads its settings.

use std::collections::BTreeSet;
use std::ffi::OsString;

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

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

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
}
