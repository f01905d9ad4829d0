//! A real OpenTelemetry Collector in a process of its own, between whoever sends profiles and whoever receives them.
//!
//! In: where it passes them, and metrics, on to, and how. Out: where it listens, over gRPC and over HTTP. The program is `go/collector`, built once of
//! published Go modules by `.ci/tools.sh`. But for [`Hop::Batched`] it has no queue and tries nothing again, so that what it answers is what
//! the next hop said. Waits on the caller's thread until it listens.

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;
use crate::process::{Running, run};
use crate::receiver::Protocol;

/// How it passes profiles on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// As OTLP over gRPC.
    Grpc,
    /// As OTLP over HTTP.
    Http,
    /// As OTLP over gRPC, many requests in one, acknowledged before that.
    Batched,
}

/// A Collector that runs, unless it was killed; dropping it kills it.
#[derive(Debug)]
pub struct Collector {
    address: Ipv4Addr,
    configuration: Value,
    process: Option<Running>,
}

/// Its ports of gRPC and of HTTP. Not the customary ones, at which somebody's own may listen on all addresses.
const PORTS: [u16; 2] = [24_317, 24_318];

/// How long it may take to listen: many times what it needs.
const LIMIT: Duration = Duration::from_secs(120);

impl Collector {
    /// Starts one that passes profiles on to the receiver at `endpoint`.
    ///
    /// # Errors
    /// When the program cannot be built, or does not listen.
    pub fn start(hop: Hop, endpoint: &str) -> Result<Self> {
        let address = own_address();
        let mut collector = Self { address, configuration: configuration(address, hop, endpoint), process: None };
        collector.restart()?;
        Ok(collector)
    }

    /// Where it listens, as an OTLP endpoint.
    #[must_use]
    pub fn endpoint(&self, protocol: Protocol) -> String {
        let [grpc, http] = PORTS;
        format!("http://{}:{}", self.address, if protocol == Protocol::Grpc { grpc } else { http })
    }

    /// Kills it, with whatever it was about to do.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again where it was, having killed it.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut command = Command::new(program()?);
        command.arg(format!("--config=yaml:{}", self.configuration)).arg("--feature-gates=service.profilesSupport");
        // Nothing that the tests set is meant for it.
        let process = Running::start(command.env_clear(), LIMIT)?;
        let end = Instant::now() + LIMIT;
        while !PORTS.iter().all(|port| TcpStream::connect((self.address, *port)).is_ok()) {
            if process.has_ended()? || Instant::now() >= end {
                let finished = process.finish()?;
                return Err(format!("the Collector ended, {}: {}", finished.status, finished.stderr).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
        Ok(())
    }
}

/// An address of loopback that no other Collector has, for it cannot be told to take a free port and say which.
fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    // 127.0.x.y is everybody's, and 127.255.255.255 is none.
    Ipv4Addr::new(127, 1 + NEXT.fetch_add(1, Ordering::Relaxed) % 254, high, low)
}

/// Its configuration: JSON is YAML too.
fn configuration(address: Ipv4Addr, hop: Hop, endpoint: &str) -> Value {
    let [grpc, http] = PORTS.map(|port| json!({ "endpoint": format!("{address}:{port}") }));
    let (exporter, queue) = match hop {
        Hop::Grpc => ("otlp_grpc", json!({ "enabled": false })),
        Hop::Http => ("otlp_http", json!({ "enabled": false })),
        Hop::Batched => ("otlp_grpc", json!({ "batch": { "flush_timeout": "3s", "min_size": 1_000_000 } })),
    };
    let settings = json!({
        "endpoint": endpoint,
        "tls": { "insecure": true },
        "timeout": "60s",
        "sending_queue": queue,
        "retry_on_failure": { "enabled": false },
    });
    json!({
        "receivers": { "otlp": { "protocols": { "grpc": grpc, "http": http } } },
        "processors": { "memory_limiter": { "check_interval": "1s", "limit_mib": 512 } },
        "exporters": { exporter: settings },
        "service": {
            "telemetry": { "metrics": { "level": "none" } },
            "pipelines": {
                "profiles": { "receivers": ["otlp"], "processors": ["memory_limiter"], "exporters": [exporter] },
                "metrics": { "receivers": ["otlp"], "processors": ["memory_limiter"], "exporters": [exporter] },
            },
        },
    })
}

/// Where the program is, which is built if it is not there.
fn program() -> Result<&'static str> {
    static PROGRAM: OnceLock<Result<String, String>> = OnceLock::new();
    let built = PROGRAM.get_or_init(|| build().map_err(|error| format!("{error} (run `make setup`)")));
    built.as_deref().map_err(|error| error.as_str().into())
}

fn build() -> Result<String> {
    let mut shell = Command::new("bash");
    shell.args(["-c", r#". .ci/tools.sh && find_go && build_collector && printf '%s\n' "$collector""#]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
    let finished = run(shell.current_dir(root), Duration::from_secs(1800))?;
    let built = finished.lines.last().filter(|_| finished.status.success()).cloned();
    built.ok_or_else(|| format!("the Collector cannot be built, for which Go is needed: {}", finished.stderr).into())
}
