//! `docs/settings.md`: every setting in one table, made from this crate's own source.
//!
//! In: the builders' methods with what is written above them, and the names of variables wherever they are read. Out: the page, which
//! must be the one that is there: `UPDATE_DOCS=1` writes it. What no row knows, or what a row knows and no source does, fails the test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::export::unknown_variables;

/// The builders, in the order of the table.
const BUILDERS: [(&str, &str); 5] = [
    ("Config", "config.rs"),
    ("Otlp", "export/otlp.rs"),
    ("Pyroscope", "export/pyroscope.rs"),
    ("Parca", "export/parca.rs"),
    ("Files", "export/files.rs"),
];

/// The variables that say the same as a method of code.
const SAME: [(&str, &[&str]); 24] = [
    ("Config::new", &["OTEL_SERVICE_NAME"]),
    ("Config::tag", &["OTEL_RESOURCE_ATTRIBUTES"]),
    ("Config::rate_hz", &["PROFILER_RATE_HZ"]),
    ("Config::interval", &["PROFILER_INTERVAL"]),
    ("Config::engine", &["PROFILER_ENGINE"]),
    ("Config::queue_bytes", &["PROFILER_QUEUE_BYTES"]),
    ("Config::spool", &["PROFILER_SPOOL_DIR"]),
    ("Config::spool_bytes", &["PROFILER_SPOOL_BYTES"]),
    ("Config::serve", &["PROFILER_SERVE"]),
    ("Config::serve_tls", &["PROFILER_SERVE_CERTIFICATE", "PROFILER_SERVE_KEY"]),
    ("Config::serve_token", &["PROFILER_SERVE_TOKEN"]),
    ("Config::symbolize", &["PROFILER_SYMBOLIZE"]),
    ("Config::span_link", &["PROFILER_SPAN_LINK"]),
    ("Config::link_unsampled_spans", &["PROFILER_LINK_UNSAMPLED_SPANS"]),
    ("Config::heap", &["PROFILER_HEAP"]),
    ("Config::heap_interval", &["PROFILER_HEAP_INTERVAL"]),
    ("Otlp::header", &["OTEL_EXPORTER_OTLP_[PROFILES_]HEADERS"]),
    ("Otlp::timeout", &["OTEL_EXPORTER_OTLP_[PROFILES_]TIMEOUT"]),
    ("Otlp::compression", &["OTEL_EXPORTER_OTLP_[PROFILES_]COMPRESSION"]),
    ("Otlp::ca_certificate", &["OTEL_EXPORTER_OTLP_[PROFILES_]CERTIFICATE"]),
    (
        "Otlp::client_certificate",
        &["OTEL_EXPORTER_OTLP_[PROFILES_]CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_[PROFILES_]CLIENT_KEY"],
    ),
    ("Pyroscope::basic_auth", &["PYROSCOPE_BASIC_AUTH_USER", "PYROSCOPE_BASIC_AUTH_PASSWORD"]),
    ("Pyroscope::tenant_id", &["PYROSCOPE_TENANT_ID"]),
    ("Parca::bearer_token", &["PARCA_BEARER_TOKEN"]),
];

/// The variables that no method of code is the same as.
const ALONE: [(&str, &str); 6] = [
    ("PROFILER_ENABLED", "With `0`, `start` returns a guard that does nothing; `1` if not set."),
    (
        "OTEL_EXPORTER_OTLP_[PROFILES_]ENDPOINT",
        "Where code adds no destination: the URL of one. `…_PROFILES_ENDPOINT` is used as it is; to the other one \
         `/v1development/profiles` is appended.",
    ),
    ("OTEL_EXPORTER_OTLP_[PROFILES_]PROTOCOL", "Of that destination: `http/protobuf`, as if not set, or `grpc`."),
    (
        "OTEL_EXPORTER_OTLP_[PROFILES_]INSECURE",
        "`true`: a gRPC endpoint without a scheme is spoken to in the clear; `false` if not set.",
    ),
    (
        "PYROSCOPE_SERVER_ADDRESS",
        "Where code adds no destination: the address of a Pyroscope, as `Pyroscope::new` has it.",
    ),
    ("PROFILER_FILES_DIR", "Where code adds no destination: a folder, as `Files::new` has it."),
];

const HEAD: &str = "# Settings of the SDK

Every setting of the SDK (the sidecar's are [here](sidecar.md#settings-of-run)): made from the source by a test of the crate (`config::table`), which fails where this page says something else;
`UPDATE_DOCS=1` writes it anew. Code outweighs variables, each setting by itself; what both set is named in the log at the start.
`[PROFILES_]`: the variable with it goes before the one without. An empty value counts as not set. What is not valid is refused at the start, with
the name of the setting and what to write.

| code | variable | what |
|---|---|---|
";

/// A method of a builder.
struct Method {
    name: String,
    what: String,
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// What is compiled into the crate: without the tests at the end.
fn product(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned()
}

/// The public methods of `builder` that give it back, in order.
fn methods(builder: &str, file: &str) -> Vec<Method> {
    let (mut methods, mut said, mut hidden) = (Vec::new(), Vec::new(), false);
    let text = product(&source().join(file));
    let start = text.find(&format!("impl {builder} {{")).unwrap();
    for line in text[start..].lines().skip(1).map(str::trim).take_while(|line| !line.starts_with("impl ")) {
        if let Some(words) = line.strip_prefix("///") {
            said.push(words.trim());
        } else if line == "#[doc(hidden)]" {
            hidden = true;
        } else if !line.starts_with("#[") {
            let name = line
                .strip_prefix("pub fn ")
                .filter(|line| line.contains("-> Self"))
                .and_then(|line| line.split('(').next());
            let what = plain(&said.join(" "));
            methods.extend(name.filter(|_| !hidden).map(|name| Method { name: format!("{builder}::{name}"), what }));
            (said, hidden) = (Vec::new(), false);
        }
    }
    methods
}

/// Without what only rustdoc can follow.
fn plain(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, link)) = rest.split_once("[`") {
        let (name, behind) = link.split_once("`]").unwrap();
        plain.extend([before, "`", name, "`"]);
        let target = behind.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(behind, |(_, behind)| behind);
    }
    (plain + rest).replace('|', "\\|")
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (builder, file) in BUILDERS {
        for Method { name, what } in methods(builder, file) {
            let same = SAME.iter().find(|(method, _)| *method == name).map_or(&[][..], |(_, variables)| variables);
            let variables: Vec<String> = same.iter().map(|variable| format!("`{variable}`")).collect();
            page += &format!("| `{name}` | {} | {what} |\n", variables.join(", "));
        }
    }
    for (variable, what) in ALONE {
        page += &format!("| | `{variable}` | {what} |\n");
    }
    page
}

/// The names of variables between quotes in the crate's source, and the ends of those of OTLP.
fn read_variables() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let folders = ["config", "export", "serve"].map(|folder| source().join(folder));
    for path in files_below(&folders).into_iter().chain([source().join("config.rs")]) {
        if path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"))
            || path.ends_with("table.rs")
        {
            continue;
        }
        let text = product(&path);
        let is_name = |text: &&str| {
            text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') && text.contains(|c: char| c != '_')
        };
        for line in text.lines().filter(|line| !line.trim().starts_with("//")) {
            for quoted in line.split('"').skip(1).step_by(2).filter(is_name) {
                let is_whole =
                    ["PROFILER_", "PYROSCOPE_", "PARCA_", "OTEL_"].iter().any(|start| quoted.starts_with(start));
                if is_whole && !quoted.ends_with('_') {
                    names.insert(quoted.to_owned());
                } else if line.contains(&format!("self.find(\"{quoted}\")")) {
                    names.insert(format!("OTEL_EXPORTER_OTLP_[PROFILES_]{quoted}"));
                }
            }
        }
    }
    names
}

fn files_below(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => files.extend(files_below(&[entry])),
                false => files.push(entry),
            }
        }
    }
    files
}

/// Check that whatever is read is known as a setting.
#[test]
fn settings_are_known_as_such() {
    let unknown = unknown_variables(read_variables().into_iter().map(Into::into));
    assert!(unknown.is_empty(), "crate::unknown::SETTINGS has not {unknown:?}");
}

/// Check that the page is what the source says.
#[test]
fn the_table_of_settings_is_made_from_the_source() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/settings.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    let differing = page.lines().zip(there.lines()).find(|(made, there)| made != there);
    assert!(page == there, "docs/settings.md is not what the source says (UPDATE_DOCS=1 writes it): {differing:?}");
}

/// Check that each variable that is read stands in the table, and none that is not.
#[test]
fn every_variable_is_in_the_table() {
    let same = SAME.iter().flat_map(|(_, variables)| variables.iter().copied());
    let known: BTreeSet<String> = same.chain(ALONE.map(|(variable, _)| variable)).map(str::to_owned).collect();
    assert_eq!(read_variables(), known);
}

/// Check that each row of the list of variables has its method.
#[test]
fn every_row_has_its_method() {
    let methods: BTreeSet<String> =
        BUILDERS.iter().flat_map(|(builder, file)| methods(builder, file)).map(|method| method.name).collect();
    let unknown: Vec<&str> =
        SAME.map(|(method, _)| method).into_iter().filter(|method| !methods.contains(*method)).collect();
    assert_eq!(unknown, [""; 0]);
    assert!(methods.len() > 40, "{methods:?}");
}
