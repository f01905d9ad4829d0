//! How a capability is granted where we run.
//!
//! In: its name, whether this is Kubernetes. Out: what to do. Pure, but for that.

/// What to do to have the capability of this name, `CAP_…`.
#[must_use]
pub fn granted_by(name: &str) -> String {
    // Each container of a pod has it. Source: Kubernetes, "Discovering services".
    of(name, std::env::var_os("KUBERNETES_SERVICE_HOST").is_some())
}

fn of(name: &str, is_kubernetes: bool) -> String {
    let short = name.trim_start_matches("CAP_");
    match is_kubernetes {
        true => format!("add {short} to securityContext.capabilities.add of the container"),
        false => format!(
            "run as root, or with {name}: `--cap-add {short}` of a container, AmbientCapabilities= of a systemd unit"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_is_what_can_be_done_there() {
        assert_eq!(of("CAP_BPF", true), "add BPF to securityContext.capabilities.add of the container");
        assert!(of("CAP_BPF", false).contains("`--cap-add BPF` of a container"));
    }
}
