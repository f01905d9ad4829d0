//! Settings: where they come from, which wins, what is refused.

use std::os::unix::ffi::OsStringExt;

use super::*;

fn resolve(config: Config, variables: &[(&str, &str)]) -> Result<Settings, Error> {
    config.resolve(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
}

fn message(config: Config, variables: &[(&str, &str)]) -> String {
    resolve(config, variables).unwrap_err().to_string()
}

/// Check that durations have units, and fractions, and nothing else.
#[test]
fn durations_have_units() {
    let millis = |text| environment::parse_duration(text).map(|duration| duration.as_millis());
    assert_eq!(["10", "1.5s", "500ms", "2m", "1h"].map(millis), [10_000, 1500, 500, 120_000, 3_600_000].map(Some));
    assert_eq!(["", "s", "-1s", "1.5.1s", "1e3", "10 s", "9999999999999999999999h"].map(millis), [None; 7]);
}

/// Check that code wins over `PROFILER_*`, and that over the default.
#[test]
fn code_wins_over_the_environment() {
    let variables = [("PROFILER_RATE_HZ", "50"), ("PROFILER_INTERVAL", "500ms"), ("PROFILER_SERVE", "127.0.0.1:1")];
    let from_env = resolve(Config::new("a"), &variables).unwrap();
    assert_eq!((from_env.rate_hz, from_env.interval), (50, Duration::from_millis(500)));
    assert_eq!(from_env.serve, Some(("PROFILER_SERVE", "127.0.0.1:1".to_owned())));
    let config = Config::new("a").rate_hz(20).interval(Duration::from_secs(2)).serve("127.0.0.1:2");
    let from_code = resolve(config, &variables).unwrap();
    assert_eq!((from_code.rate_hz, from_code.interval), (20, Duration::from_secs(2)));
    assert_eq!(from_code.serve, Some(("Config::serve", "127.0.0.1:2".to_owned())));
    for (name, choice) in EngineChoice::NAMES {
        assert_eq!(resolve(Config::new("a"), &[("PROFILER_ENGINE", name)]).unwrap().engine, *choice);
    }
    let default = resolve(Config::new("a"), &[]).unwrap();
    assert_eq!((default.rate_hz, default.interval, default.serve), (100, Duration::from_secs(10), None));
    assert_eq!(default.destinations.len(), 0);
}

/// Check that the size of queues comes from code, else from the environment, and has bounds.
#[test]
fn queues_have_a_size() {
    let bytes =
        |config: Config, value: &str| resolve(config, &[("PROFILER_QUEUE_BYTES", value)]).unwrap().limits.queue_bytes;
    assert_eq!((bytes(Config::new("a"), ""), bytes(Config::new("a"), "4000000")), (16 << 20, 4_000_000));
    assert_eq!(bytes(Config::new("a").queue_bytes(2_000_000), "4000000"), 2_000_000);
    assert_eq!(*QUEUES.start(), Limits::default().request_bytes, "the largest request must fit");
    let refused = message(Config::new("a").queue_bytes(1_999_999), &[]);
    assert!(refused.contains("Config::queue_bytes=\"1999999\"") && refused.contains("2000000"), "{refused}");
}

/// Check that what code and environment both set is named, and nothing else.
#[test]
fn what_code_outweighs_is_named() {
    let outweighed = |config: Config, variables: &[(&str, &str)]| {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let environment = Environment::new(&lookup);
        environment.rate(config.rate_hz).unwrap();
        environment.interval(config.interval).unwrap();
        environment.resource(config.service, config.tags).unwrap();
        environment.variables.outweighed()
    };
    let variables = [
        ("PROFILER_RATE_HZ", "50"),
        ("PROFILER_INTERVAL", ""),
        ("OTEL_SERVICE_NAME", "b"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=c,team=x,region=y"),
    ];
    assert_eq!(outweighed(Config::from_env(), &variables), [""; 0]);
    let config = Config::new("a").rate_hz(20).interval(Duration::from_secs(2)).tag("team", "core").tag("tier", "1");
    let expected = [
        "Config::new over OTEL_RESOURCE_ATTRIBUTES",
        "Config::new over OTEL_SERVICE_NAME",
        "Config::rate_hz over PROFILER_RATE_HZ",
        "Config::tag(team) over OTEL_RESOURCE_ATTRIBUTES",
    ];
    assert_eq!(outweighed(config, &variables), expected);
}

/// Check that the name of the service comes from code, else from `OTEL_SERVICE_NAME`, else from the attributes.
#[test]
fn the_service_name_has_three_sources() {
    let all = [("OTEL_SERVICE_NAME", "b"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=c,team=x%20y")];
    assert_eq!(resolve(Config::new("a"), &all).unwrap().service, "a");
    let settings = resolve(Config::from_env(), &all).unwrap();
    assert_eq!((settings.service.as_str(), settings.resource.get("team")), ("b", Some(&"x y".into())));
    assert_eq!(resolve(Config::from_env(), &all[1..]).unwrap().service, "c");
    assert!(message(Config::from_env(), &[]).contains("OTEL_SERVICE_NAME"));
}

/// Check that every setting that cannot be is refused by name, with its value and what to do.
#[test]
fn impossible_settings_are_named() {
    for (name, value) in [
        ("PROFILER_RATE_HZ", "0"),
        ("PROFILER_RATE_HZ", "10001"),
        ("PROFILER_RATE_HZ", "fast"),
        ("PROFILER_INTERVAL", "1ms"),
        ("PROFILER_INTERVAL", "soon"),
        ("PROFILER_ENGINE", "diesel"),
        ("PROFILER_SPAN_LINK", "leaf"),
        ("PROFILER_LINK_UNSAMPLED_SPANS", "some"),
        ("PROFILER_SERVE", "6060x"),
        ("PROFILER_SERVE", "example.com:80"),
        ("PROFILER_QUEUE_BYTES", "16MiB"),
        ("PROFILER_QUEUE_BYTES", "100"),
        ("PROFILER_SPOOL_BYTES", "lots"),
        ("PROFILER_SPOOL_BYTES", "1000000"),
        ("OTEL_RESOURCE_ATTRIBUTES", "novalue"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=%ff"),
    ] {
        let message = message(Config::new("a"), &[(name, value)]);
        assert!(message.contains(name) && message.contains("; "), "{message}");
    }
    assert!(message(Config::from_env(), &[("OTEL_RESOURCE_ATTRIBUTES", "service.name=")]).contains("no name"));
    assert!(message(Config::new("a").rate_hz(0), &[]).contains("Config::rate_hz=\"0\""));
    assert!(message(Config::new(" "), &[]).contains("service.name"));
    assert!(message(Config::new("a").tag("", "b"), &[]).contains("Config::tag"));
}

/// Check that a spool is there if code or the environment names its folder, with the bound that either sets.
#[test]
fn a_spool_is_there_where_it_has_a_folder() {
    let spool = |config: Config, variables: &[(&str, &str)]| resolve(config, variables).unwrap().spool;
    let folder = |path: &str| Some(SpoolSettings::new(path));
    assert_eq!(spool(Config::new("a"), &[("PROFILER_SPOOL_BYTES", "20000000")]), None);
    assert_eq!(spool(Config::new("a"), &[("PROFILER_SPOOL_DIR", "/b")]), folder("/b"));
    let both = [("PROFILER_SPOOL_DIR", "/b"), ("PROFILER_SPOOL_BYTES", "20000000")];
    assert_eq!(spool(Config::new("a"), &both), folder("/b").map(|spool| spool.bytes(20_000_000)));
    let code = Config::new("a").spool("/c").spool_bytes(30_000_000);
    assert_eq!(spool(code, &both), folder("/c").map(|spool| spool.bytes(30_000_000)));
    assert_eq!(folder("/b").unwrap().bytes, 256 << 20);
    assert!(message(Config::new("a").spool(""), &[]).contains("Config::spool"));
}

/// Check that what code and environment both set of serving is named, and that code is in force.
#[test]
fn what_code_outweighs_of_serving_is_named() {
    let variables = [
        ("PROFILER_SERVE", "127.0.0.1:1"),
        ("PROFILER_SERVE_TOKEN", "of-the-environment"),
        ("PROFILER_SERVE_CERTIFICATE", "/c"),
        ("PROFILER_SERVE_KEY", "/k"),
    ];
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
    let environment = Environment::new(&lookup);
    let config = Config::new("a").serve("127.0.0.1:2").serve_token("of-the-code-itself").serve_tls("/own", "/key");
    environment.serve(config.serve).unwrap();
    let security = environment.security(config.security, true, false).unwrap();
    assert_eq!(security.settings(), [Some("Config::serve_token"), Some("Config::serve_tls")]);
    let expected = [
        "Config::serve over PROFILER_SERVE",
        "Config::serve_tls over PROFILER_SERVE_CERTIFICATE",
        "Config::serve_tls over PROFILER_SERVE_KEY",
        "Config::serve_token over PROFILER_SERVE_TOKEN",
    ];
    assert_eq!((environment.variables.outweighed(), environment.idle()), (expected.map(String::from).into(), vec![]));
}

/// Check that settings without effect are named: of a server that there is not, and a bound of no spool.
#[test]
fn settings_without_effect_are_named() {
    let idle = |config: Config, variables: &[(&str, &str)]| {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let environment = Environment::new(&lookup);
        environment.spool(config.spool, config.spool_bytes).unwrap();
        let serve = environment.serve(config.serve).unwrap();
        environment.security(config.security, serve.is_some(), config.serves_within).unwrap();
        let idle = environment.idle();
        idle.iter().map(|line| line.split(": ").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let secure = || Config::new("a").serve_token("0123456789abcdef").serve_tls("/c", "/k");
    assert_eq!(idle(secure().serve("127.0.0.1:0"), &[]), [""; 0]);
    assert_eq!(idle(secure(), &[("PROFILER_SERVE", "127.0.0.1:0")]), [""; 0]);
    assert_eq!(idle(secure(), &[]), ["Config::serve_token", "Config::serve_tls"]);
    assert_eq!(idle(secure().serve_within(), &[]).len(), 1, "the token is for both ways of serving");
    assert_eq!(idle(Config::new("a"), &[("PROFILER_SERVE_TOKEN", "x")]), ["PROFILER_SERVE_TOKEN"]);
    let bound = [("PROFILER_SPOOL_BYTES", "20000000")];
    assert_eq!(idle(Config::new("a"), &bound), ["PROFILER_SPOOL_BYTES"]);
    assert_eq!(idle(Config::new("a").spool("/s"), &bound), [""; 0]);
}

/// Check that an interval is refused of which Pyroscope would take no profile, by the names of setting and destination, and no other is.
#[test]
fn an_interval_that_is_too_long_for_pyroscope_is_refused() {
    let pyroscope = ("PYROSCOPE_SERVER_ADDRESS", "http://pyroscope:4040");
    let refused = message(Config::new("a"), &[pyroscope, ("PROFILER_INTERVAL", "1h")]);
    for part in ["PROFILER_INTERVAL=\"3600s\"", "pyroscope http://pyroscope:4040", "55 minutes"] {
        assert!(refused.contains(part), "{refused}");
    }
    let code = Config::new("a").interval(Duration::from_secs(55 * 60));
    assert!(message(code.clone(), &[pyroscope]).starts_with("Config::interval="));
    assert!(resolve(code.clone(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")]).is_ok());
    assert!(resolve(code.interval(Duration::from_secs(55 * 60 - 1)), &[pyroscope]).is_ok());
}

/// Check that a variable that is not UTF-8 is refused by name.
#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    let broken = |name: &str| (name == "OTEL_SERVICE_NAME").then(|| OsString::from_vec(vec![0xff, b'a']));
    let message = Config::from_env().resolve(&broken).unwrap_err().to_string();
    assert!(message.contains("OTEL_SERVICE_NAME") && message.contains("UTF-8"), "{message}");
}

/// Check that symbolizing is on unless code or the environment says no, code first.
#[test]
fn symbolizing_can_be_turned_off() {
    let on = |config: Config, value: &str| resolve(config, &[("PROFILER_SYMBOLIZE", value)]).unwrap().symbolize;
    assert!(on(Config::new("a"), "") && on(Config::new("a"), "1") && !on(Config::new("a"), "0"));
    assert!(on(Config::new("a").symbolize(true), "0") && !on(Config::new("a").symbolize(false), "1"));
    assert!(message(Config::new("a"), &[("PROFILER_SYMBOLIZE", "often")]).contains("PROFILER_SYMBOLIZE=\"often\""));
}

/// Check that samples link to current spans that are sampled, unless code or the environment says otherwise, code first.
#[test]
fn links_can_be_chosen() {
    let link = |config: Config, value: &str| resolve(config, &[("PROFILER_SPAN_LINK", value)]).unwrap().spans.link;
    let (unset, local_root) = (Config::new("a"), Config::new("a").span_link(SpanLink::LocalRoot));
    assert_eq!([link(unset.clone(), ""), link(unset, "local_root")], [SpanLink::Current, SpanLink::LocalRoot]);
    assert_eq!(link(local_root, "current"), SpanLink::LocalRoot);
    let unsampled = |config: Config, value: &str| {
        resolve(config, &[("PROFILER_LINK_UNSAMPLED_SPANS", value)]).unwrap().spans.unsampled
    };
    assert!(!unsampled(Config::new("a"), "") && unsampled(Config::new("a"), "1"));
    assert!(!unsampled(Config::new("a").link_unsampled_spans(false), "1"));
}

/// Check that the profiler can be turned off.
#[test]
fn the_profiler_can_be_turned_off() {
    for (value, expected) in [("0", false), ("off", false), ("1", true), ("", true)] {
        assert_eq!(enabled(&|name| (name == "PROFILER_ENABLED").then(|| value.into())).unwrap(), expected, "{value}");
    }
    let message = enabled(&|_| Some("maybe".into())).unwrap_err().to_string();
    assert!(message.contains("PROFILER_ENABLED=\"maybe\""), "{message}");
}
