//! A program that is built without the feature `tls`: what would need it is refused by name, and the rest is there.
//!
//! In: `plugin/start.rs`, built without default features, and variables. Out: how it ends, and what it says. The plugins are built like it,
//! and send in the clear.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use profiler_tests::process::{Finished, build, run};

use crate::scenario::clean;

/// How the program ends under `variables`.
fn start(program: &Path, variables: &[(&str, &str)]) -> Finished {
    let mut command = Command::new(program);
    clean(&mut command);
    run(command.envs(variables.iter().copied()), Duration::from_secs(120)).unwrap()
}

/// Check that whatever needs TLS is an error that names its setting and the feature, and that an endpoint in the clear is none.
#[test]
fn what_needs_tls_is_refused_by_name() {
    let options = ["--package=profiler-tests", "--no-default-features", "--example=start"];
    let built = build(Path::new(env!("CARGO_MANIFEST_DIR")), &options).unwrap();
    let program = built.into_iter().find(|path| path.ends_with("start")).expect("cargo built no program");
    // What other signals, in programs with TLS, are told of it is no wish for it.
    let clear = start(
        &program,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/hostname"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/etc/hostname"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/etc/hostname"),
            ("PROFILER_ENGINE", "timer"),
        ],
    );
    assert!(clear.status.success(), "{}", clear.stderr);
    let refused: [&[(&str, &str)]; 4] = [
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:9")],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:9"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
        &[("PYROSCOPE_SERVER_ADDRESS", "https://127.0.0.1:9")],
        &[("PROFILER_SERVE_CERTIFICATE", "/etc/hostname"), ("PROFILER_SERVE_KEY", "/etc/hostname")],
    ];
    for variables in refused {
        let finished = start(&program, variables);
        let said = &finished.stderr;
        assert!(!finished.status.success(), "{variables:?} was accepted");
        assert!(said.contains(variables[0].0), "{variables:?}: {said}");
        assert!(said.contains("built without TLS") && said.contains("feature `tls`"), "{variables:?}: {said}");
    }
}
