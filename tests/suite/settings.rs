//! Settings that cannot be: `start` says which, with its value and what to do, and the program goes on.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;

use profiler_tests::receiver::Receiver;
use serde_json::Value;

use crate::scenario::{assert_lawful, command, number, result};

/// What a start with `options` under `variables` answers.
fn outcome(options: &[&str], variables: &[(&str, &OsStr)]) -> Value {
    result(command("settings", options).envs(variables.iter().copied()))
}

/// Checks that the start is refused as the caller's doing, with all of `words` in the message.
#[track_caller]
fn assert_refused(options: &[&str], variables: &[(&str, &str)], words: &[&str]) {
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, OsStr::new(*value))).collect();
    let outcome = outcome(options, &variables);
    assert_eq!((&outcome["started"], &outcome["kind"]), (&Value::from(false), &Value::from("Misuse")), "{outcome}");
    let message = outcome["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

/// Check that a service without a name is refused.
#[test]
fn an_empty_service_name_is_refused() {
    assert_refused(&["service=empty"], &[], &["service.name", "OTEL_SERVICE_NAME"]);
    assert_refused(&[], &[], &["service.name", "OTEL_SERVICE_NAME"]);
}

/// Check that a name that is not UTF-8 is refused by the name of its variable.
#[test]
fn a_service_name_that_is_not_utf8_is_refused() {
    let outcome = outcome(&[], &[("OTEL_SERVICE_NAME", OsStr::from_bytes(b"caf\xe9"))]);
    let message = outcome["message"].as_str().unwrap();
    assert!(message.contains("OTEL_SERVICE_NAME") && message.contains("UTF-8"), "{message}");
}

/// Check that a rate of nothing, or of more than 10 kHz, is refused, from code and from the environment.
#[test]
fn rates_out_of_range_are_refused() {
    assert_refused(&["service=a", "rate=0"], &[], &["rate_hz", "\"0\"", "1 to 10000"]);
    assert_refused(&["service=a", "rate=10001"], &[], &["rate_hz", "10001", "1 to 10000"]);
    assert_refused(&["service=a"], &[("PROFILER_RATE_HZ", "0")], &["PROFILER_RATE_HZ", "\"0\""]);
    assert_refused(&["service=a"], &[("PROFILER_RATE_HZ", "1e3")], &["PROFILER_RATE_HZ", "1e3"]);
}

/// Check that an endpoint that is none is refused, from code and from the environment.
#[test]
fn endpoints_that_are_none_are_refused() {
    assert_refused(&["service=a", "grpc=collector four"], &[], &["collector four"]);
    let endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
    assert_refused(&["service=a"], &[(endpoint, "ftp://collector")], &[endpoint, "ftp://collector"]);
    let endpoint = "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT";
    assert_refused(&["service=a"], &[(endpoint, "http://")], &[endpoint]);
}

/// Check that every other `OTEL_*` value that cannot be read is refused by name.
#[test]
fn otel_values_that_mean_nothing_are_refused() {
    // With TLS, without which nobody looks at certificates.
    let at = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:4317");
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "crush"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/does/not/exist.pem"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team"),
    ] {
        let outcome = outcome(&["service=a"], &[(at.0, OsStr::new(at.1)), (name, OsStr::new(value))]);
        let message = outcome["message"].as_str().unwrap_or_else(|| panic!("{name}={value} is taken: {outcome}"));
        assert!(message.contains(name) && message.contains(value), "{message:?} does not say {name} and {value}");
    }
}

/// Check that headers that cannot be read are refused by name, without their values: those are often secrets.
#[test]
fn headers_are_refused_without_their_values() {
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317"), ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")];
    let outcome = outcome(&["service=a"], &variables.map(|(name, value)| (name, OsStr::new(value))));
    let message = outcome["message"].as_str().unwrap();
    assert!(message.contains("OTEL_EXPORTER_OTLP_HEADERS") && !message.contains("s3cret"), "{message}");
}

/// Check that code wins over the environment, setting by setting, and that what both set, and what is no setting, is named in the log, once and
/// without values.
#[test]
fn what_code_and_environment_both_set_is_said() {
    let receiver = Receiver::start().unwrap();
    let variables = [
        ("OTEL_SERVICE_NAME", "b"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret"),
        ("PROFILER_RATE_HZ", "50"),
        ("PROFILER_QUEUE_BYTES", "4000000"),
        ("PROFILER_RATE", "30"),
    ];
    let options = ["service=a", "rate=20", &format!("grpc={}", receiver.endpoint()), "token=s3cret"];
    let outcome = outcome(&options, &variables.map(|(name, value)| (name, OsStr::new(value))));
    assert_eq!((number(&outcome, "/stats/rate_hz"), number(&outcome, "/stats/lost_total")), (20, 0), "{outcome}");
    assert_lawful(&receiver);
    let log = outcome["log"].to_string();
    for both in [
        "Config::new over OTEL_SERVICE_NAME",
        "Config::export over OTEL_EXPORTER_OTLP_ENDPOINT",
        "Otlp::header(authorization) over OTEL_EXPORTER_OTLP_HEADERS",
        "Config::rate_hz over PROFILER_RATE_HZ",
        r#"variables have no effect, for no setting has such a name: [\"PROFILER_RATE\"]"#,
    ] {
        assert_eq!(log.matches(both).count(), 1, "{log} does not say {both:?} once");
    }
    assert!(!log.contains("QUEUE_BYTES") && !log.contains("s3cret"), "{log}");
}

/// Check that of more attributes than backends take those are sent that matter most, that long ones are cut, and that both is said.
#[test]
fn too_many_attributes_are_left_out_by_name() {
    let receiver = Receiver::start().unwrap();
    let pairs: Vec<_> =
        (0..40).map(|n| format!("attribute.{n}={}", "x".repeat(if n == 7 { 3000 } else { 1 }))).collect();
    let grpc = format!("grpc={}", receiver.endpoint());
    let outcome = outcome(&["service=a", &grpc], &[("OTEL_RESOURCE_ATTRIBUTES", OsStr::new(&pairs.join(",")))]);
    assert_lawful(&receiver);
    let bodies = receiver.bodies();
    let resource = &bodies[0].profiles[0].resource;
    assert_eq!((resource.attributes().len(), resource.service_name()), (18, Some("a")));
    let (kept, left_out) = ("attribute.16", "attribute.17");
    assert!(resource.get(kept).is_some() && resource.get(left_out).is_none(), "{resource:?}");
    assert!(resource.get("attribute.7").is_some_and(|value| value.as_str().is_some_and(|text| text.len() == 2048)));
    let log = outcome["log"].to_string();
    assert!(
        log.contains(&format!("without {left_out}, ")) && log.contains("process.pid") && !log.contains(kept),
        "{log}"
    );
    assert!(log.contains("values: attribute.7\""), "{log}");
}

/// Check that an endpoint of code does not keep variables for endpoints from being read.
#[test]
fn variables_are_read_for_endpoints_of_code_too() {
    let certificate = ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/does/not/exist.pem");
    let outcome = outcome(&["service=a", "grpc=https://127.0.0.1:1"], &[(certificate.0, OsStr::new(certificate.1))]);
    let message = outcome["message"].as_str().unwrap();
    assert!(message.contains(certificate.0) && message.contains(certificate.1), "{message}");
}

/// Check that an address that somebody else has is an error that names it, and that one that is free is bound.
#[test]
fn an_address_in_use_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = outcome(&["service=a", &format!("serve={address}")], &[]);
    assert_eq!(refused["kind"], "Environment", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains(&address), "{refused}");
    assert_eq!(outcome(&["service=a", "serve=127.0.0.1:0"], &[])["started"], true);
}

/// Check that a second start is an error while the first one runs, and none when it has ended.
#[test]
fn a_second_start_is_refused_while_the_first_runs() {
    let outcome = result(&mut command("second", &[]));
    assert_eq!(outcome["second"]["kind"], "Misuse", "{outcome}");
    assert!(outcome["second"]["message"].as_str().unwrap().contains("already"), "{outcome}");
    assert_eq!(outcome["third"]["started"], true, "{outcome}");
}

/// Check that the profiler can be turned off from outside, and then takes nothing.
#[test]
fn a_profiler_that_is_turned_off_takes_nothing() {
    let outcome = outcome(&["service=a"], &[("PROFILER_ENABLED", OsStr::new("0"))]);
    assert_eq!((&outcome["started"], number(&outcome, "/stats/taken")), (&Value::from(true), 0));
}
