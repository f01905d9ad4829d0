//! Settings of a Pyroscope: what code and environment make of them, and what is refused.

use super::*;

/// The settings of a server under these variables, and what code outweighed.
fn settings(pyroscope: Pyroscope, variables: &[(&str, &str)]) -> Result<(PyroscopeSettings, Vec<String>), String> {
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
    let variables = Variables::new(&lookup);
    let settings = pyroscope.settings(&variables).map_err(|error| error.to_string())?;
    Ok((settings, variables.outweighed()))
}

fn header(settings: &PyroscopeSettings, name: &str) -> Option<String> {
    settings.http.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

const VARIABLES: [(&str, &str); 4] =
    [(SERVER_ADDRESS, "http://p:4040"), (USER, "1234"), (PASSWORD, "token"), (TENANT_ID, "shop")];

/// Check what is asked for, and by what name, at an address with and without a path.
#[test]
fn the_method_is_below_the_address() {
    for (address, path) in [("http://p:4040", PATH.to_owned()), ("https://p/base/", format!("/base{PATH}"))] {
        let found = settings(Pyroscope::new(address), &[]).unwrap().0;
        assert_eq!(found.http.endpoint.uri, path.as_str());
        assert_eq!(found.name(), format!("pyroscope {}", address.trim_end_matches('/')));
        assert_eq!(header(&found, "user-agent"), Some(concat!("profiler-sdk/", env!("CARGO_PKG_VERSION")).into()));
    }
}

/// Check that the environment describes a server by itself, and completes one of code.
#[test]
fn the_environment_says_what_code_leaves_open() {
    let lookup = |name: &str| VARIABLES.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
    let described = Pyroscope::described(&Variables::new(&lookup)).unwrap().unwrap();
    let (completed, outweighed) = settings(Pyroscope::new("http://p:4040"), &VARIABLES).unwrap();
    for found in [described, completed] {
        assert_eq!(header(&found, "authorization"), Some("Basic MTIzNDp0b2tlbg==".into()));
        assert_eq!(header(&found, "x-scope-orgid"), Some("shop".into()));
        assert_eq!(found.http.timeout, Duration::from_secs(10));
    }
    assert_eq!(outweighed, [""; 0]);
    assert!(Pyroscope::described(&Variables::new(&|_| None)).unwrap().is_none());
}

/// Check that code wins one by one, and that what it outweighs is named.
#[test]
fn code_wins_one_by_one() {
    let authorization = "Pyroscope::header(authorization) over PYROSCOPE_BASIC_AUTH_";
    let (found, outweighed) = settings(Pyroscope::new("http://p").bearer_token("code"), &VARIABLES).unwrap();
    assert_eq!(header(&found, "authorization"), Some("Bearer code".into()));
    assert_eq!(header(&found, "x-scope-orgid"), Some("shop".into()));
    assert_eq!(outweighed, ["PASSWORD", "USER"].map(|end| format!("{authorization}{end}")));
    let (found, outweighed) = settings(Pyroscope::new("http://p").tenant_id("code"), &VARIABLES).unwrap();
    assert_eq!(header(&found, "x-scope-orgid"), Some("code".into()));
    assert_eq!(outweighed, ["Pyroscope::tenant_id over PYROSCOPE_TENANT_ID"]);
}

/// Check that each setting of code that cannot be is refused by its name, and that no secret is repeated.
#[test]
fn bad_settings_are_refused_by_name() {
    let good = || Pyroscope::new("http://p:4040");
    let many = (0..=MOST_LABELS).fold(good(), |server, number| server.label(format!("label_{number}"), "x"));
    let cases = [
        (Pyroscope::new("p:4040"), "Pyroscope::new=\"p:4040\""),
        (Pyroscope::new("http://u:hunter2@p"), "by `basic_auth`"),
        (good().basic_auth("a:b", "hunter2"), "Pyroscope::basic_auth=\"authorization\""),
        (good().bearer_token("hunter2\n"), "Pyroscope::bearer_token=\"authorization\""),
        (good().tenant_id("hunter2 "), "Pyroscope::tenant_id=\"x-scope-orgid\""),
        (good().header("content-type", "hunter2"), "Pyroscope::header=\"content-type\""),
        (good().label("host.name", "x"), "Pyroscope::label=\"host.name\": it is not the name"),
        (good().label("1st", "x"), "Pyroscope::label=\"1st\""),
        (good().label("", "x"), "Pyroscope::label=\"\""),
        (good().label("__name__", "x"), "no digit and no __ first"),
        (good().label("team", ""), "its value has 0 bytes"),
        (good().label("team", "x".repeat(LONGEST_VALUE + 1)), "its value has 2049 bytes"),
        (many, "Pyroscope::label=\"21\""),
        (good().timeout(Duration::ZERO), "Pyroscope::timeout=\"0ns\""),
        (good().ca_certificate("hunter2"), "Pyroscope::ca_certificate"),
        (good().client_certificate("hunter2", "hunter2"), "Pyroscope::client_certificate"),
    ];
    for (pyroscope, expected) in cases {
        let error = settings(pyroscope, &[]).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let twice = good().label("team", "a").label("team", "x".repeat(LONGEST_VALUE));
    assert_eq!(settings(twice, &[]).unwrap().0.labels.len(), 1);
}

/// Check that variables that cannot be are refused by their names, and that no secret is repeated.
#[test]
fn bad_variables_are_refused_by_name() {
    let cases = [
        (&[(SERVER_ADDRESS, "p:4040")][..], "PYROSCOPE_SERVER_ADDRESS=\"p:4040\": it has no scheme"),
        (&[VARIABLES[0], (USER, "1234")], "set PYROSCOPE_BASIC_AUTH_PASSWORD beside it"),
        (&[VARIABLES[0], (PASSWORD, "hunter2")], "set PYROSCOPE_BASIC_AUTH_USER beside it"),
        (&[VARIABLES[0], (USER, "a:b"), (PASSWORD, "hunter2")], "PYROSCOPE_BASIC_AUTH_USER=\"authorization\""),
        (&[VARIABLES[0], (TENANT_ID, "hunter2 x")], "PYROSCOPE_TENANT_ID=\"x-scope-orgid\""),
    ];
    for (variables, expected) in cases {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let error = Pyroscope::described(&Variables::new(&lookup)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

/// Check that secrets are not in what `Debug` prints, of builder and settings.
#[test]
fn debug_hides_secrets() {
    let server = Pyroscope::new("http://p").basic_auth("hunter2", "hunter2").tenant_id("hunter2").label("team", "a");
    let shown = format!("{server:?} {:?}", settings(server.clone(), &[]).unwrap().0);
    assert!(shown.contains("x-scope-orgid") && shown.contains("team"), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("aHVudGVyMjpodW50ZXIy"), "{shown}");
}
