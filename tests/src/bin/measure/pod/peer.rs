//! The OpenTelemetry eBPF profiler (`tests/go/otel_agent`), to be compared with: started as its users do, at the sidecar's rate and interval.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::Running;

use super::watched::Watched;
use super::{LIMIT, without_settings};

/// It asks for tracefs, which not every machine has mounted: in a namespace of its own it has.
const WITH_TRACEFS: &str =
    r#"mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing; exec "$0" "$@""#;

/// The profiler at work.
#[derive(Debug)]
pub(crate) struct Peer {
    running: Running,
}

impl Peer {
    pub(super) fn start(program: &Path, endpoint: &str) -> Result<Self> {
        let mut command = Command::new("unshare");
        without_settings(&mut command);
        command.args(["--mount", "sh", "-c", WITH_TRACEFS]).arg(program);
        command.args(["-collection-agent", endpoint.trim_start_matches("http://"), "-disable-tls"]);
        command.args(["-samples-per-second=99", "-reporter-interval=10s"]);
        let peer = Self { running: Running::start(&mut command, LIMIT)? };
        for _ in 0..300 {
            if peer.running.has_ended()? {
                return Err(format!("it ended: {}", peer.running.finish()?.stderr).into());
            }
            if peer.watched().runs().is_ok_and(|runs| runs.count > 0.0) {
                return Ok(peer);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("the OpenTelemetry profiler takes no samples".into())
    }

    /// What the kernel says of it.
    pub(crate) fn watched(&self) -> Watched {
        Watched { id: self.running.id() }
    }
}
