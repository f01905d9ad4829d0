//! Process contexts of processes that publish one: found, whole, and taken for what they say and no more.

use std::process::Command;
use std::time::{Duration, Instant};

use profiler_proto::model::Value;
use profiler_proto::otlp::ProcessContext;
use profiler_proto::resource::Resource;
use profiler_sidecar::discover::{Kind, Options, Published, Table, WhyNot};
use profiler_sidecar::target::Process;

use crate::subject::{Subject, go_program};

fn context(service: &str, cpu: &str) -> ProcessContext {
    let resource = Resource::new().with("service.name", service).with("service.version", "7");
    let keys = Value::List(["profiler.tags".into(), "endpoint".into()].into());
    let attributes = Resource::new()
        .with("profiler.cpu", cpu)
        .with("threadlocal.schema_version", "tlsdesc_v1_dev")
        .with("threadlocal.attribute_key_map", keys)
        .with("profiler.thread_context.tls_offset", -88_i64);
    ProcessContext { resource, attributes }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(subject: &Subject) -> Option<Published> {
    let process = Process::find(subject.pid()).unwrap();
    Published::read(&process.folder().unwrap(), process.memory()).unwrap()
}

/// Check that a process without one has none, however many mappings it has.
#[test]
fn who_publishes_nothing_has_no_context() {
    assert_eq!(read(&Subject::go(&["maps", "20000"])), None);
}

/// Check that what is read is what was published, and what it means.
#[test]
fn what_is_published_is_read() {
    let mut subject = Subject::go(&["publish"]);
    assert_eq!(read(&subject), None, "there is a header without a time");
    let expected = context("checkout", "on");
    subject.ask(&hex(&expected.encode_to_vec()));
    let published = read(&subject).unwrap();
    assert_eq!((&published.context, published.time), (&expected, 1));
    assert_eq!((published.profiles_cpu(), published.thread_offset()), (Some(true), Some(-88)));
    assert_eq!(published.keys(), ["profiler.tags", "endpoint"]);
}

/// Check that of two contexts that take turns as fast as can be, what is read is always one of them, whole.
#[test]
fn what_changes_all_the_time_is_read_whole() {
    let [a, b] = ["a", "b"].map(|letter| context(&letter.repeat(30_000), "on"));
    let subject = Subject::go(&["alternate", &hex(&a.encode_to_vec()), &hex(&b.encode_to_vec())]);
    let process = Process::find(subject.pid()).unwrap();
    let header = crate::subject::until("a context", || read(&subject)).header;
    for _ in 0..20_000 {
        if let Some(published) = Published::at(header, process.memory()) {
            assert!(published.context == a || published.context == b, "neither of the two");
        }
    }
}

/// Check that a header which leads astray is no context, and costs nothing.
#[test]
fn a_header_that_leads_astray_is_none() {
    let mut subject = Subject::go(&["publish"]);
    subject.ask(&hex(&context("a", "on").encode_to_vec()));
    let header = |signature: &[u8; 8], version: u32, size: u32, time: u64, payload: u64| {
        let mut bytes = signature.to_vec();
        bytes.extend(version.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(time.to_ne_bytes());
        bytes.extend(payload.to_ne_bytes());
        format!("header {}", hex(&bytes))
    };
    let at = read(&subject).unwrap().header;
    for bad in [
        header(b"OTEL_CTX", 2, u32::MAX, 9, at),
        header(b"OTEL_CTX", 2, 65_537, 9, at),
        header(b"OTEL_CTX", 2, 100, 9, 0),
        header(b"OTEL_CTX", 2, 100, 9, u64::MAX - 50),
        header(b"OTEL_CTX", 2, 32, 9, at),
        header(b"OTEL_CTX", 2, 100, 0, at),
        header(b"OTEL_CTX", 3, 100, 9, at),
        header(b"NOTHINGS", 2, 100, 9, at),
    ] {
        subject.ask(&bad);
        assert_eq!(read(&subject), None, "{bad}");
    }
}

/// Check that a process that profiles itself is left alone as long as it does, that a sweep finds that out, and that its own name counts.
#[test]
fn who_profiles_itself_is_left_alone() {
    let mut subject = Subject::start(Command::new(go_program()).arg("publish").env("OTEL_SERVICE_NAME", "by variable"));
    let [mut table, mut all] = [false, true]
        .map(|sdk_too| Table::new(Options { sdk_too, patience: Duration::from_secs(60), ..Options::default() }));
    let begin = Instant::now();
    let before = table.visit(subject.pid(), begin).unwrap();
    assert_eq!((before.service.as_str(), &before.profiled, &before.context), ("by variable", &Ok(()), &None));
    let mut targets = Vec::new();
    // It publishes after it was looked at, as one does that was just started.
    for (cpu, second) in [("on", 3), ("off", 4), ("on", 5)] {
        subject.ask(&hex(&context("checkout", cpu).encode_to_vec()));
        while !table.sweep(64, begin + Duration::from_secs(second)).is_whole {}
        targets.push(table.visit(subject.pid(), begin).unwrap());
    }
    let profiled: Vec<_> = targets.iter().map(|target| target.profiled.clone()).collect();
    assert_eq!(profiled, [Err(WhyNot::ProfilesItself), Ok(()), Err(WhyNot::ProfilesItself)]);
    let target = &targets[0];
    assert_eq!((target.service.as_str(), target.resource.service_name()), ("checkout", Some("checkout")));
    assert_eq!(target.resource.get("service.version"), Some(&"7".into()));
    assert!(matches!(target.kind, Kind::Go(_)), "it is Go for all that");
    let known = all.visit(subject.pid(), begin).unwrap();
    assert_eq!((&known.profiled, known.context.is_some()), (&Ok(()), true));
}

/// Check that its samples are reason enough to see that it profiles itself: until then it is sampled by both.
#[test]
fn who_begins_to_profile_itself_is_found_by_its_samples() {
    let mut subject = Subject::start(Command::new(go_program()).arg("publish"));
    let mut table = Table::new(Options { patience: Duration::from_secs(60), ..Options::default() });
    let begin = Instant::now();
    assert_eq!(table.visit(subject.pid(), begin).unwrap().profiled, Ok(()));
    subject.ask(&hex(&context("checkout", "on").encode_to_vec()));
    assert_eq!(table.visit(subject.pid(), begin).unwrap().profiled, Ok(()), "nobody looks at once");
    let sampled = table.visit(subject.pid(), begin + Duration::from_secs(60)).unwrap();
    assert_eq!(sampled.profiled, Err(WhyNot::ProfilesItself));
}
