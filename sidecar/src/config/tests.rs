//! What may stand where, which source outweighs which, and what is said of that which cannot be.

use super::*;
use crate::pull::Tls;

fn no_variables(_: &str) -> Option<OsString> {
    None
}

fn with_file(text: &str) -> CommandLine {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("profiler-sidecar-config-{}-{count}.toml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    CommandLine { config: Some(path), ..CommandLine::default() }
}

/// What is said of a file with this text: without its path.
fn refusal(text: &str) -> String {
    let command_line = with_file(text);
    let path = command_line.config.clone().unwrap();
    let error = Config::new(command_line, &no_variables).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    error.replace(path.to_str().unwrap(), "FILE")
}

/// Check the defaults.
#[test]
fn what_nobody_says_is_as_documented() {
    let config = Config::new(CommandLine::default(), &no_variables).unwrap();
    assert_eq!((config.rate_hz, config.interval), (99, Duration::from_secs(10)));
    let serve = config.serve.map(|said| (said.origin, said.value));
    assert_eq!((serve, config.receive), (Some(("--serve".into(), "127.0.0.1:6070".into())), None));
    assert!(config.kernel && !config.profile_sdk && config.destinations.is_empty());
    assert_eq!(config.runtime_interval, Some(Duration::from_secs(60)));
    assert_eq!((config.runtime_bounds, config.spool, config.security.has_token()), (Bounds::default(), None, false));
}

/// Check that the command line outweighs variables, and these the file, each setting by itself.
#[test]
fn the_command_line_outweighs_variables_and_these_the_file() {
    let file = "rate_hz = 10\ninterval = \"30s\"\nserve = \"off\"\n[targets]\ninclude = [\"a\"]\n[budget]\nmemory = \"64MiB\"\n";
    let command_line = CommandLine { rate_hz: Some(12), ..with_file(file) };
    let lookup = |name: &str| {
        let known = [("PROFILER_RATE_HZ", "11"), ("PROFILER_INTERVAL", "20"), ("PROFILER_EXCLUDE", "b, service=c")];
        known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
    };
    let config = Config::new(command_line, &lookup).unwrap();
    assert_eq!((config.rate_hz, config.interval, config.serve.is_none()), (12, Duration::from_secs(20), true));
    assert_eq!((config.filter.include.len(), config.filter.exclude.len(), config.memory), (1, 2, 64 << 20));
}

/// Check that destinations come from the variables that the SDK reads, and from the file where these say nothing.
#[test]
fn destinations_are_those_of_the_environment_else_of_the_file() {
    let file = "[[export]]\nto = \"otlp-grpc\"\nendpoint = \"http://f:4317\"\nheaders = { a = \"b\" }\n[[export]]\nto = \"files\"\nfolder = \"/tmp\"\n";
    let names = |config: &Config| config.destinations.iter().map(Target::name).collect::<Vec<_>>();
    let config = Config::new(with_file(file), &no_variables).unwrap();
    assert_eq!(names(&config), ["otlp-grpc http://f:4317", "files /tmp"]);
    let lookup = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://e:4318".into());
    let config = Config::new(with_file(file), &lookup).unwrap();
    assert_eq!(names(&config), ["otlp-http http://e:4318/v1development/profiles"]);
}

/// Check that figures of runtimes go where profiles do, unless the settings, or those of all exporters of OpenTelemetry, say that none go.
#[test]
fn metrics_are_sent_unless_somebody_says_no() {
    let names = |file: &str, variables: &[(&str, &str)]| {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        let config = Config::new(with_file(file), &lookup).unwrap();
        config.metrics.iter().map(|target| target.name().to_owned()).collect::<Vec<_>>()
    };
    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://e:4318");
    assert_eq!(names("", &[ENDPOINT]), ["otlp-http http://e:4318/v1/metrics"]);
    assert_eq!(
        names("[[export]]\nto = \"otlp-grpc\"\nendpoint = \"http://f:4317\"\n", &[]),
        ["otlp-grpc http://f:4317"]
    );
    assert!(names("metrics = false\n", &[ENDPOINT]).is_empty());
    assert!(names("", &[ENDPOINT, ("PROFILER_METRICS", "0")]).is_empty());
    assert!(names("", &[ENDPOINT, ("OTEL_METRICS_EXPORTER", "none")]).is_empty());
    // What is said of us outweighs what is said of all.
    assert_eq!(names("", &[ENDPOINT, ("OTEL_METRICS_EXPORTER", "none"), ("PROFILER_METRICS", "1")]).len(), 1);
    assert!(names("", &[]).is_empty());
}

/// Check that what cannot be is refused with the line it stands in, and what to do.
#[test]
fn errors_of_the_file_name_the_line() {
    let unknown = refusal("rate_hz = 99\n\n[budget]\ncpu = 3\n");
    assert!(unknown.starts_with("FILE:4: unknown field `cpu`") && unknown.contains("cpu_percent"), "{unknown}");
    let other = refusal("targets:\n  include: [a]\n");
    assert!(other.starts_with("FILE:1: ") && other.contains("settings files are TOML"), "{other}");
    let rate = refusal("# rate\nrate_hz = 0\n");
    assert_eq!(rate, "FILE:2: rate_hz=0: a rate is 1 to 10000 Hz; set a rate such as 99");
    let glob = refusal("[targets]\ninclude = [\n  \"ok\",\n  \"[a\",\n]\n");
    assert!(glob.starts_with("FILE:4: include=\"[a\": a [ has no ]"), "{glob}");
    let kind = refusal("interval = true\n");
    assert!(kind.starts_with("FILE:1: interval: invalid type: boolean, expected a text with a unit"), "{kind}");
    for headers in ["[\"secret\"]", "\"authorization=secret, \\\"expected secret\"", "{ authorization = [\"secret\"] }"]
    {
        let secret = refusal(&format!("[[export]]\nto = \"otlp-http\"\nheaders = {headers}\n"));
        assert!(
            secret.starts_with("FILE:3: ") && secret.contains("expected") && !secret.contains("secret"),
            "{secret}"
        );
    }
    let date = refusal("interval = 1979-05-27T07:32:00Z\n");
    assert!(
        date.starts_with("FILE:1: interval: invalid type: map, expected a text with a unit, such as \"10s\""),
        "{date}"
    );
    let within = refusal("budget = { cpu_percent = \"1\", memory = 5 }\n");
    assert!(within.starts_with("FILE:1: cpu_percent: invalid type"), "{within}");
    let small = refusal("budget = { cpu_percent = 1, memory = 5 }\n");
    assert!(small.starts_with("FILE:1: memory=5: memory is 32MiB to 64GiB"), "{small}");
    for (to, key, told) in [
        ("otlp-grpc", "endpoint = \"collector:4317\"", ":2: export: endpoint="),
        ("pyroscope", "endpoint = \"ftp://p\"", ":2: export: endpoint="),
        ("otlp-http", "endpoint = \"http://c\"\nheaders = { \"a b\" = \"c\" }", ":2: export: headers="),
    ] {
        let error = refusal(&format!("\n[[export]]\nto = \"{to}\"\n{key}\n"));
        assert!(error.contains(told) && !error.contains("::"), "{error}");
    }
    let export = refusal("\n[[export]]\nto = \"otlp-http\"\n");
    assert!(export.starts_with("FILE:2: export: there is no endpoint"), "{export}");
    let syntax = refusal("rate_hz = \n");
    assert!(syntax.starts_with("FILE:1: "), "{syntax}");
}

/// Check that a number without a unit is one of seconds, or of bytes, as in variables.
#[test]
fn amounts_may_be_numbers() {
    let file = "interval = 2.5\nruntime_interval = 30\nbudget.memory = 67108864\n";
    let config = Config::new(with_file(file), &no_variables).unwrap();
    assert_eq!((config.interval, config.memory), (Duration::from_millis(2500), 64 << 20));
    assert_eq!(config.runtime_interval, Some(Duration::from_secs(30)));
}

/// Check that a variable that is no setting is said to have no effect.
#[test]
fn variables_that_are_no_settings_are_said_to_have_no_effect() {
    let names = ["PROFILER_RATE", "PROFILER_RATE_HZ", "PATH"].map(OsString::from);
    let config = Config::new(CommandLine::default(), &no_variables).unwrap().among(names);
    assert_eq!(config.idle(), [("PROFILER_RATE", "no setting has this name")]);
}

/// Check that a name with lines of its own adds none to what `--check-config` says.
#[test]
fn a_name_stands_in_its_line() {
    let lookup = |name: &str| (name == "PROFILER_FILES_DIR").then(|| "/tmp/a\nsent to: me".into());
    let command_line = CommandLine { include: vec!["*/b\n\u{1b}c".to_owned()], ..CommandLine::default() };
    let text = Config::new(command_line, &lookup).unwrap().to_string();
    assert_eq!(text.lines().filter(|line| line.starts_with("sent to: ")).count(), 1, "{text}");
    assert!(text.contains("/tmp/a\u{fffd}sent to: me") && text.contains("b\u{fffd}\u{fffd}c"), "{text}");
}

/// Check that a token is said to have no effect where nothing is served, and only there.
#[test]
fn a_token_without_a_server_is_said_to_have_no_effect() {
    let lookup = |name: &str| (name == "PROFILER_SERVE_TOKEN").then(|| "0123456789abcdef".into());
    let of = |serve: &str| Config::new(with_file(&format!("serve = \"{serve}\"\n")), &lookup).unwrap();
    let (off, on) = (of("off"), of("127.0.0.1:0"));
    assert_eq!((off.idle(), on.idle()), (vec![("PROFILER_SERVE_TOKEN", "nothing is served")], vec![]));
    assert!(
        off.to_string().contains("without effect: PROFILER_SERVE_TOKEN") && !on.to_string().contains("without effect")
    );
}

/// Check that intervals are refused of which Pyroscope would take no profile, with the line they stand in.
#[test]
fn intervals_too_long_for_pyroscope_are_refused() {
    for setting in ["interval", "runtime_interval"] {
        let refused =
            refusal(&format!("{setting} = \"1h\"\n[[export]]\nto = \"pyroscope\"\nendpoint = \"http://p:4040\"\n"));
        assert!(
            refused.starts_with(&format!("FILE:1: {setting}=")) && refused.contains("pyroscope http://p:4040"),
            "{refused}"
        );
    }
}

/// Check that a file that is not there, or is none, is named.
#[test]
fn a_file_that_cannot_be_read_is_named() {
    for path in ["/nowhere/at/all.toml", "/dev/zero", "/"] {
        let command_line = CommandLine { config: Some(path.into()), ..CommandLine::default() };
        let error = Config::new(command_line, &no_variables).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path}: ")) && error.contains("--config"), "{error}");
    }
}

/// Check what is said of runtimes and the spool, each from its own source, and that a token may be asked for.
#[test]
fn runtimes_spool_and_token_are_set() {
    let file = "runtime_interval = \"5m\"\nmax_goroutines = 7\nspool_bytes = 20000000\n";
    let command_line = CommandLine { max_buckets: Some(8), ..with_file(file) };
    let lookup = |name: &str| {
        let known = [("PROFILER_RUNTIME_INTERVAL", "off"), ("PROFILER_SPOOL_DIR", "/s"), ("PROFILER_SERVE_TOKEN", "t")];
        known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
    };
    let config = Config::new(command_line, &lookup).unwrap();
    assert_eq!(config.runtime_interval, None);
    assert_eq!(config.runtime_bounds, Bounds { buckets: 8, goroutines: 7 });
    assert_eq!(config.spool, Some(SpoolSettings::new("/s").bytes(20_000_000)));
    assert!(config.security.has_token() && config.idle().is_empty());
    let config = Config::new(with_file(file), &no_variables).unwrap();
    assert_eq!((config.runtime_interval, &config.spool), (Some(Duration::from_secs(300)), &None));
    let [(bound, why)] = config.idle()[..] else { panic!("{:?}", config.idle()) };
    assert!(bound.contains("spool_bytes") && why.contains("folder"), "{bound}: {why}");
    assert!(config.to_string().contains("spool_bytes, for there is no folder"), "{config}");
}

/// Check that endpoints of the file have all that stands there, that flags outweigh them, and that what is wrong is named, but for what is secret.
#[test]
fn pulls_are_set() {
    let file = "[[pull]]\nurl = \"https://shop:6060/debug/pprof/\"\nservice = \"shop\"\nheaders = { x-key = \"hidden\" }\n\n[[pull]]\nurl = \"discover\"\n";
    let config = Config::new(with_file(file), &no_variables).unwrap();
    assert_eq!((config.pulls.len(), config.pull_found.len()), (1, 1));
    assert_eq!(
        (config.pulls[0].name().as_str(), config.pulls[0].service.as_deref()),
        ("https://shop:6060", Some("shop"))
    );
    assert!(!format!("{config:?} {config}").contains("hidden"));
    assert!(
        config.to_string().contains("pulled where it cannot be read from outside: https://shop:6060, what is found")
    );
    let line = CommandLine { pulls: vec!["http://localhost:1".into()], ..with_file(file) };
    let config = Config::new(line, &no_variables).unwrap();
    assert_eq!((config.pulls[0].local()[0].port(), config.pull_found.len()), (1, 0));
    assert!(refusal("\n[[pull]]\nurl = \"http://me:secret@shop\"").contains(":2"));
    let long = "secret".repeat(20);
    let hidden =
        ["me:secret@shop", &format!("me:{long}@shop"), "me:a?secret@shop", "shop?token=secret ", "shop?a=b@secret "];
    for url in hidden {
        let refusal = refusal(&format!("[[pull]]\nurl = \"http://{url}\""));
        assert!(refusal.contains("FILE:1: pull=") && !refusal.contains("secret"), "{url}: {refusal}");
    }
    let variables = |name: &str| (name == "PROFILER_PULL").then(|| "127.0.0.1:6060".into());
    let told = Config::new(CommandLine::default(), &variables).unwrap_err().to_string();
    assert!(told.starts_with("PROFILER_PULL=127.0.0.1:6060: it begins with neither"), "{told}");
}

/// Check what is said of TLS, of addresses and of what is found: those that are found are asked in each way that is said, without the token; and that what has no
/// meaning is refused.
#[test]
fn pulls_over_tls_are_set() {
    let tls = "ca = \"ca.pem\"\ncert = \"us.pem\"\nkey = \"us.key\"\nserver_name = \"shop\"\n";
    let file = format!(
        "[[pull]]\nurl = \"https://10.0.0.1:6060\"\n{tls}[[pull]]\nurl = \"discover\"\n[[pull]]\nurl = \"discover\"\nscheme = \"https\"\ninsecure = true\n"
    );
    let token = |name: &str| (name == "PROFILER_PULL_TOKEN").then(|| "hidden".into());
    let config = Config::new(with_file(&file), &token).unwrap();
    let over = |tls: Tls, address: &str| Endpoint::new(address).unwrap().over(tls).unwrap();
    let whole = Tls {
        authorities: Some("ca.pem".into()),
        identity: Some(("us.pem".into(), "us.key".into())),
        server_name: Some("shop".into()),
        is_unverified: false,
    };
    let named = over(whole, "https://10.0.0.1:6060").header("authorization", "Bearer hidden").unwrap();
    assert_eq!(config.pulls, [named]);
    let at = "127.0.0.1:7".parse().unwrap();
    let found: Vec<Endpoint> = config.pull_found.iter().map(|endpoint| endpoint.at(at)).collect();
    let unverified = Tls { is_unverified: true, ..Tls::default() };
    assert_eq!(found, [over(Tls::default(), "http://127.0.0.1:7"), over(unverified, "https://127.0.0.1:7")]);
    for (wrong, told) in [
        ("url = \"http://a\"\nca = \"ca.pem\"", "are for https"),
        ("url = \"http://a\"\ninsecure = true", "are for https"),
        ("url = \"https://a\"\ncert = \"us.pem\"", "`cert` and `key`"),
        ("url = \"https://a\"\nca = \"ca.pem\"\ninsecure = true", "`insecure` looks at no certificate"),
        ("url = \"https://a\"\nscheme = \"https\"", "`scheme` is for"),
        ("url = \"discover\"\nscheme = \"ftp\"", "neither http nor https"),
        ("url = \"discover\"\ncert = \"us.pem\"\nkey = \"us.key\"", "are for https"),
        ("url = \"discover\"\nservice = \"shop\"", "`service` is for an address"),
    ] {
        let refused = refusal(&format!("[[pull]]\n{wrong}"));
        assert!(refused.contains(told), "{refused}");
    }
}

/// Check that tokens, files and folders that cannot be used are named with the setting, without what is secret, and that those that can be used
/// are taken.
#[test]
fn what_cannot_be_used_is_named() {
    let at_hand = |file: &str, variables: &[(&str, &str)]| {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        let config = Config::new(with_file(file), &lookup).unwrap();
        let refused = config.at_hand().and_then(|config| config.check_folders()).err();
        refused.map_or_else(String::new, |error| error.to_string())
    };
    const CERTIFICATE: [(&str, &str); 2] =
        [("PROFILER_SERVE_CERTIFICATE", "/no/us.pem"), ("PROFILER_SERVE_KEY", "/no/us.key")];
    const FILES: &str = "[[export]]\nto = \"files\"\nfolder = \"/no/profiles\"\n";
    let pull = |rest: &str| format!("[[pull]]\nurl = \"https://shop\"\n{rest}\n");
    let file = std::env::current_exe().unwrap();
    let (below, there) = (file.join("spool"), std::env::temp_dir());
    let (new, there) = (there.join("never/made"), there.to_str().unwrap());
    for (file, variables, told) in [
        ("", &[("PROFILER_SERVE_TOKEN", "hidden")][..], "PROFILER_SERVE_TOKEN"),
        ("", &CERTIFICATE, "PROFILER_SERVE_CERTIFICATE: read /no/us.pem"),
        ("", &[("PROFILER_FILES_DIR", "/no/profiles")], "PROFILER_FILES_DIR=/no/profiles: "),
        ("", &[("PROFILER_FILES_DIR", file.to_str().unwrap())], "it is not a folder; make it"),
        ("", &[("PROFILER_SPOOL_DIR", below.to_str().unwrap())], "is not a folder; name a folder"),
        ("", &[("PROFILER_SPOOL_DIR", "/proc/1/spool")], "/proc/1 cannot be written to; name a folder"),
        (FILES, &[], ":1: folder=/no/profiles: "),
        (&pull("ca = \"/no/ca.pem\""), &[], "pull https://shop:443: /no/ca.pem: "),
        ("[[pull]]\nurl = \"discover\"\nscheme = \"https\"\nca = \"/no/ca.pem\"\n", &[], "pull discover: /no/ca.pem: "),
        (&pull("cert = \"/no/us.pem\"\nkey = \"/no/us.key\""), &[], "pull https://shop:443: /no/us.pem: "),
    ] {
        let refused = at_hand(file, variables);
        assert!(refused.contains(told) && !refused.contains("hidden"), "{told}: {refused}");
    }
    let usable = [("PROFILER_FILES_DIR", there), ("PROFILER_SPOOL_DIR", new.to_str().unwrap())];
    let quiet = [("PROFILER_SERVE_TOKEN", "short"), ("PROFILER_SERVE", "off")];
    // What the file says has no effect beside the environment.
    assert_eq!([at_hand(FILES, &usable), at_hand("", &quiet)], ["", ""]);
    assert!(!new.exists());
}

/// Check that page and receiver are not meant for one address, however it is written.
#[test]
fn page_and_receiver_have_an_address_each() {
    let refused = |serve: &str, receive: &str| {
        let line = CommandLine { serve: Some(serve.into()), receive: Some(receive.into()), ..CommandLine::default() };
        Config::new(line, &no_variables).err().map(|error| error.to_string())
    };
    for (serve, receive) in [("127.0.0.1:7", "localhost:7"), ("0.0.0.0:7", "127.0.0.1:7"), ("127.0.0.1:7", "[::]:7")] {
        assert!(refused(serve, receive).unwrap().contains("one address can have one of the two"), "{serve} {receive}");
    }
    for (serve, receive) in [
        ("127.0.0.1:7", "127.0.0.1:8"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("off", "127.0.0.1:7"),
        ("0.0.0.0:7", "[::1]:7"),
    ] {
        assert_eq!(refused(serve, receive), None);
    }
}

/// Check that `--check-config` shows all that is in force, but for secrets.
#[test]
fn what_is_in_force_is_shown() {
    let shown = |variables: &[(&str, &str)]| {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        Config::new(CommandLine::default(), &lookup).unwrap().to_string()
    };
    let bare = shown(&[]);
    let waiting = "waiting for each destination: at most 16777216 bytes\n";
    let nobody = "runtimes sent to: nobody\n";
    for line in ["the SDK: not\n", "page: off, TLS: off\n", "kept on disk until sent: off\n", waiting, nobody] {
        assert!(bare.contains(line), "{line}: {bare}");
    }
    let set = shown(&[
        ("PROFILER_PROFILE_SDK", "1"),
        ("PROFILER_SERVE_TOKEN", "hidden"),
        ("PROFILER_SERVE_CERTIFICATE", "us.pem"),
        ("PROFILER_SERVE_KEY", "us.key"),
        ("PROFILER_SPOOL_DIR", "/s"),
        ("PROFILER_QUEUE_BYTES", "2000000"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://e:4318"),
    ]);
    let security = "token for the page: PROFILER_SERVE_TOKEN, TLS: PROFILER_SERVE_CERTIFICATE\n";
    let (waiting, metrics) = ("at most 2000000 bytes\n", "runtimes sent to: otlp-http http://e:4318/v1/metrics\n");
    for line in ["the SDK: also\n", security, "kept on disk until sent: /s, 256 MiB\n", waiting, metrics] {
        assert!(set.contains(line) && !set.contains("hidden"), "{line}: {set}");
    }
}

/// Check that variables that cannot be are named.
#[test]
fn variables_that_cannot_be_are_named() {
    let refused = |name: &'static str, value: &'static str| {
        let lookup = move |asked: &str| (asked == name).then(|| value.into());
        Config::new(CommandLine::default(), &lookup).unwrap_err().to_string()
    };
    for (name, value) in [
        ("PROFILER_RATE_HZ", "fast"),
        ("PROFILER_INTERVAL", "1y"),
        ("PROFILER_PID", "1,x"),
        ("PROFILER_KERNEL", "maybe"),
        ("PROFILER_SERVE", "6070"),
        ("PROFILER_CPU_PERCENT", "0"),
        ("PROFILER_CPU_PERCENT", "NaN"),
        ("PROFILER_MEMORY", "1GiB and more"),
        ("PROFILER_QUEUE_BYTES", "1"),
        ("PROFILER_INCLUDE", "port=3"),
        ("PROFILER_INCLUDE", "pid=1*"),
        ("PROFILER_EXCLUDE", "pid=0"),
        ("PROFILER_EXCLUDE", "pid=007"),
        ("PROFILER_RUNTIME_INTERVAL", "often"),
        ("PROFILER_RUNTIME_INTERVAL", "500ms"),
        ("PROFILER_MAX_BUCKETS", "0"),
        ("PROFILER_MAX_GOROUTINES", "many"),
        ("PROFILER_SPOOL_BYTES", "1000000"),
    ] {
        let error = refused(name, value);
        assert!(error.starts_with(&format!("{name}=")), "{error}");
    }
    for (value, told) in [("10ms", "each 1s to 1h"), ("2h", "each 1s to 1h"), ("often", "not a duration")] {
        let error = refused("PROFILER_RUNTIME_INTERVAL", value);
        assert!(error.contains(told) && error.ends_with(", or off"), "{error}");
    }
    assert!(refused("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense").contains("OTEL_EXPORTER_OTLP_ENDPOINT"));
}

/// Check that filters that contradict themselves are refused, with the names of both.
#[test]
fn filters_that_contradict_themselves_are_refused() {
    let refused = |command_line| Config::new(command_line, &no_variables).unwrap_err().to_string();
    let both = CommandLine { include: vec!["a*".into()], exclude: vec!["exe=a*".into()], ..Default::default() };
    assert!(refused(both).starts_with("--include=a* and --exclude=exe=a*: "));
    let all = CommandLine { exclude: vec!["**".into()], ..Default::default() };
    assert!(refused(all).contains("leaves no process"));
    let mixed = CommandLine { pids: vec![7], include: vec!["a".into()], ..Default::default() };
    assert!(refused(mixed).starts_with("--pid and --include: "));
    let one = CommandLine { pids: vec![7, 8], exclude: vec!["pid=8".into()], ..Default::default() };
    assert!(refused(one).starts_with("--pid=8 and --exclude=pid=8: "));
    let zero = CommandLine { pids: vec![0], ..Default::default() };
    assert!(refused(zero).starts_with("--pid=0: "));
}

/// Check which processes pass: by path or last part of it, by service, by container.
#[test]
fn a_filter_takes_what_is_meant() {
    let filter = |include: &[&str], exclude: &[&str]| {
        let owned = |patterns: &[&str]| patterns.iter().map(|text| (*text).to_owned()).collect();
        let line = CommandLine { include: owned(include), exclude: owned(exclude), ..Default::default() };
        Config::new(line, &no_variables).unwrap().filter
    };
    let takes = |filter: &Filter| filter.takes(7, "/app/bin/server", "shop", "3f2a77").is_ok();
    for (include, expected) in [
        ("server", true),
        ("serv?r", true),
        ("*", true),
        ("[a-s]erver", true),
        ("[!s]erver", false),
        ("/app/*", true),
        ("app", false),
        ("*/server", true),
        ("/app/bin", false),
        ("service=sh*", true),
        ("service=server", false),
        ("container=3f*7", true),
        ("pid=7", true),
        ("pid=77", false),
        (r"serve\r", true),
        ("s*v*r*r", false),
        ("s*v*r", true),
    ] {
        assert_eq!(takes(&filter(&[include], &[])), expected, "{include}");
    }
    assert!(!takes(&filter(&["server"], &["service=shop"])));
    assert!(!takes(&filter(&[], &["pid=7"])) && takes(&filter(&[], &["pid=8"])));
    let why = filter(&[], &["container=3f*"]).takes(7, "", "", "3f2a77").unwrap_err();
    assert_eq!(why.to_string(), "--exclude container=3f* matches it");
}

/// Check that a pattern made to take long does not.
#[test]
fn a_hostile_pattern_is_matched_in_bounded_steps() {
    let pattern = Pattern::parse(&"a*".repeat(500)).unwrap();
    let filter = Filter { include: vec![pattern], ..Filter::default() };
    assert!(filter.takes(1, &"a".repeat(400), "", "").is_err());
}

/// Check that an agent that would send to itself is refused, however the address is written.
#[test]
fn an_agent_does_not_send_to_itself() {
    let refused = |receive: &str, endpoint: &'static str| {
        let lookup = move |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| endpoint.into());
        let line = CommandLine { receive: Some(receive.into()), ..CommandLine::default() };
        Config::new(line, &lookup).err().is_some_and(|error| error.to_string().contains("go round for ever"))
    };
    assert!(refused("127.0.0.1:4317", "http://127.0.0.1:4317"));
    assert!(refused("0.0.0.0:4317", "http://localhost:4317"));
    assert!(
        refused("127.0.0.1:4317", "http://[::ffff:127.0.0.1]:4317") && refused("127.0.0.1:4317", "http://0.0.0.0:4317")
    );
    assert!(refused("[::]:4317", "http://[::1]:4317") && refused("0.0.0.0:4317", "http://127.0.0.2:4317"));
    assert!(!refused("0.0.0.0:4317", "http://[::1]:4317"), "nobody hears IPv6 there");
    // Addresses that this machine does not have: for documentation (RFC 5737, RFC 3849).
    assert!(!refused("0.0.0.0:4317", "http://192.0.2.1:4317") && !refused("[::]:4317", "http://[2001:db8::1]:4317"));
    assert!(!refused("127.0.0.1:4317", "http://127.0.0.1:4318") && !refused("127.0.0.1:4317", "http://127.0.0.2:4317"));
    assert!(!refused("127.0.0.1:4317", "http://collector:4317"));
}
