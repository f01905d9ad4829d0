//! Figures of Go's runtimes as a collector of OTLP gets them: metrics, beside profiles.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric, ResourceMetrics};
use profiler_proto::Limits;
use profiler_proto::otlp::{decode_bytes, wire_resource};
use profiler_proto::validate::validate_bytes;
use prost::Message as _;
use serde_json::Value as Json;

use crate::process::{Running, agent, go_program};
use crate::{DEADLINE, is_root, stats};

const METRICS: &str = "/v1/metrics";
pub(crate) const PROFILES: &str = "/v1development/profiles";

/// A request: its path and its body.
pub(crate) type Request = (String, Vec<u8>);

/// Takes requests over HTTP/1.1, one for each connection, until nobody wants them; metrics are answered by `status`.
pub(crate) fn collector(status: &'static str) -> (SocketAddr, Receiver<Request>) {
    answering(move |_| status)
}

/// The same, where metrics are answered by what `status` says of the number of requests with metrics that there were before.
fn answering(status: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> (SocketAddr, Receiver<Request>) {
    let (status, count) = (Arc::new(status), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (sender, requests)) = (listener.local_addr().unwrap(), channel());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (sender, status, count) = (sender.clone(), Arc::clone(&status), Arc::clone(&count));
            let status = move || status(count.fetch_add(1, Ordering::Relaxed));
            std::thread::spawn(move || answer(&stream.unwrap(), &status, &sender));
        }
    });
    (address, requests)
}

fn answer(stream: &TcpStream, status: &dyn Fn() -> &'static str, sender: &Sender<Request>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    let head = head.to_ascii_lowercase();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    if head.contains("content-encoding: gzip") {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
        body = plain;
    }
    if path.ends_with("/profiles") {
        assert_eq!(validate_bytes(&body), [], "receivers refuse this");
    }
    let status = if path == METRICS { status() } else { "200 OK" };
    let mut writer = stream;
    write!(writer, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    // The test may be over.
    drop(sender.send((path, body)));
}

/// An agent that captures the process each second, and sends to `collector`.
fn run(pid: u32, collector: SocketAddr, variables: &[(&str, &str)]) -> Running {
    let mut run = agent(&["run", "--runtime-interval", "1s", "--pid", &pid.to_string()]);
    run.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}")).envs(variables.iter().copied());
    Running::agent(&mut run)
}

/// The next request to `path` that `read` makes something of.
pub(crate) fn next<T>(requests: &Receiver<Request>, path: &str, run: &Running, read: impl Fn(&[u8]) -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let (to, body) = requests.recv_timeout(left).unwrap_or_else(|_| panic!("nothing to {path}: {}", run.log()));
        if let Some(read) = Some(body).filter(|_| to == path).and_then(|body| read(&body)) {
            return read;
        }
    }
}

/// The figures of the only program, with its resource.
fn figures(body: &[u8]) -> Option<ResourceMetrics> {
    let mut resources = ExportMetricsServiceRequest::decode(body).unwrap().resource_metrics;
    assert_eq!(resources.len(), 1);
    resources.pop()
}

/// Name, unit, value, and how it counts: growing, up and down, or the last of its kind.
fn told(metric: &Metric) -> (&str, &str, f64, &'static str) {
    let (points, sort) = match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => (&gauge.data_points, "last"),
        Data::Sum(sum) => {
            assert_eq!(sum.aggregation_temporality(), AggregationTemporality::Cumulative, "{metric:?}");
            (&sum.data_points, if sum.is_monotonic { "counter" } else { "level" })
        }
        data => panic!("{data:?}"),
    };
    let [point] = &points[..] else { panic!("{points:?}") };
    if sort != "last" {
        assert!(0 < point.start_time_unix_nano && point.start_time_unix_nano <= point.time_unix_nano, "{point:?}");
    }
    let value = match point.value.unwrap() {
        Value::AsInt(value) => value as f64,
        Value::AsDouble(value) => value,
    };
    (&metric.name, &metric.unit, value, sort)
}

/// What `metrics` have otherwise than this section of `/stats`.
fn difference(metrics: &ResourceMetrics, section: &Json) -> Option<String> {
    let metrics: Vec<_> = metrics.scope_metrics[0].metrics.iter().map(told).collect();
    let mut names: Vec<&str> = metrics.iter().map(|metric| metric.0).chain(["service.name", "process.pid"]).collect();
    // There is none while the program cannot be read. Why a profile is empty is no figure.
    let shown = section.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let mut shown: Vec<&str> = shown.filter(|name| !["heap", "block", "mutex"].contains(name)).collect();
    names.sort_unstable();
    shown.sort_unstable();
    if names != shown {
        return Some(format!("{names:?}, {shown:?}"));
    }
    // What the program has no more of at one time than at another, for it waits.
    let still = [
        ("go.processor.limit", "{thread}", "level"),
        ("go.goroutine.count", "{goroutine}", "level"),
        ("go.memory.gc.live", "By", "level"),
        ("go.memory.gc.goal", "By", "level"),
        ("go.memory.gc.cycles", "{gc_cycle}", "counter"),
        ("go.memory.gc.pause.total", "s", "counter"),
        ("go.memory.gc.pause.last", "s", "last"),
        ("go.config.gogc", "%", "level"),
    ];
    still.into_iter().find_map(|(name, unit, sort)| {
        let Some((_, found_unit, value, found_sort)) = metrics.iter().copied().find(|metric| metric.0 == name) else {
            return Some(format!("there is no {name}"));
        };
        assert_eq!((found_unit, found_sort), (unit, sort), "{name}");
        (section[name].as_f64() != Some(value)).then(|| format!("{name}: {value}, {}", section[name]))
    })
}

/// Check that metrics have the resource of the process's profiles, the figures that `/stats` has, each in its unit and sort, again and again.
#[test]
fn figures_of_runtimes_arrive_as_metrics() {
    if !is_root() {
        return;
    }
    let program = go_program("parked");
    let (collector, requests) = collector("200 OK");
    let run = run(program.pid(), collector, &[]);
    let page = run.address_after("http://");
    let of_profiles = next(&requests, PROFILES, &run, |body| {
        let set = decode_bytes(body, &Limits::default()).unwrap().into_iter().next()?;
        set.resource.get("process.pid").map(|_| wire_resource(&set.resource))
    });
    let first = next(&requests, METRICS, &run, figures);
    assert_eq!(first.resource, Some(of_profiles));
    let until = Instant::now() + DEADLINE;
    // The runtime collects garbage every two minutes, by itself.
    let mut latest = first.clone();
    while let Some(difference) = difference(&latest, &stats(&page)[format!("go_{}", program.pid())]) {
        assert!(Instant::now() < until, "{difference}");
        latest = next(&requests, METRICS, &run, figures);
    }
    let time = |metrics: &ResourceMetrics| match metrics.scope_metrics[0].metrics[0].data.as_ref().unwrap() {
        Data::Sum(sum) => (sum.data_points[0].start_time_unix_nano, sum.data_points[0].time_unix_nano),
        data => panic!("{data:?}"),
    };
    let later = next(&requests, METRICS, &run, figures);
    assert!(time(&later).0 == time(&first).0 && time(&later).1 > time(&first).1);
    assert_eq!(run.end(), Some(0));
}

/// Check that a peer that takes no metrics is named once and counted, and gets profiles all the same.
#[test]
fn who_takes_no_metrics_gets_profiles() {
    if !is_root() {
        return;
    }
    let program = go_program("parked");
    let (collector, requests) = collector("404 Not Found");
    let run = run(program.pid(), collector, &[]);
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    while stats(&page)["captures"]["metrics_failed"].as_u64() < Some(3) {
        assert!(Instant::now() < until, "{} {}", stats(&page), run.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    next(&requests, PROFILES, &run, |_| Some(()));
    assert_eq!(stats(&page)["captures"]["metrics_sent"], 0);
    assert_eq!(run.log().matches("metrics are not taken by").count(), 1, "{}", run.log());
    assert_eq!(run.end(), Some(0));
}

/// Check that a peer that says "later" is asked once, is left alone although there are new figures, and that what is not sent is counted.
#[test]
fn who_wants_metrics_later_is_left_alone() {
    if !is_root() {
        return;
    }
    let program = go_program("parked");
    let (collector, requests) = collector("429 Too Many Requests\r\nRetry-After: 86400");
    let run = run(program.pid(), collector, &[]);
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    while stats(&page)["captures"]["metrics_postponed"].as_u64() < Some(3) {
        assert!(Instant::now() < until, "{} {}", stats(&page), run.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let captures = &stats(&page)["captures"];
    assert_eq!((&captures["metrics_failed"], &captures["metrics_sent"]), (&1.into(), &0.into()), "{captures}");
    assert_eq!(run.log().matches("metrics are not taken by").count(), 1, "{}", run.log());
    assert_eq!(run.end(), Some(0));
    assert_eq!(requests.try_iter().filter(|(path, _)| path == METRICS).count(), 1);
}

/// Check that the time that a peer names is over when it is asked the next time, and that it gets metrics then.
#[test]
fn who_wanted_metrics_later_gets_them_later() {
    if !is_root() {
        return;
    }
    let program = go_program("parked");
    let times = Arc::<Mutex<Vec<Instant>>>::default();
    let asked = Arc::clone(&times);
    // Between a request and its answer.
    let (collector, requests) = answering(move |before| {
        asked.lock().unwrap().push(Instant::now());
        if before == 0 { "503 Service Unavailable\r\nRetry-After: 3" } else { "200 OK" }
    });
    let run = run(program.pid(), collector, &[]);
    let page = run.address_after("http://");
    for _ in 0..2 {
        next(&requests, METRICS, &run, figures);
    }
    let between = {
        let times = times.lock().unwrap();
        times[1] - times[0]
    };
    assert!(between >= std::time::Duration::from_secs(3), "{between:?}");
    let until = Instant::now() + DEADLINE;
    while stats(&page)["captures"]["metrics_sent"].as_u64() < Some(2) {
        assert!(Instant::now() < until, "{} {}", stats(&page), run.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(stats(&page)["captures"]["metrics_failed"], 1);
    assert_eq!(run.end(), Some(0));
}

/// Check that none are sent where the settings say so.
#[test]
fn no_metrics_are_sent_where_nobody_wants_any() {
    if !is_root() {
        return;
    }
    let program = go_program("parked");
    let (collector, requests) = collector("200 OK");
    let run = run(program.pid(), collector, &[("OTEL_METRICS_EXPORTER", "none")]);
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    while stats(&page)["captures"]["sets"].as_u64() < Some(3) {
        assert!(Instant::now() < until, "{} {}", stats(&page), run.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    next(&requests, PROFILES, &run, |_| Some(()));
    assert_eq!(run.end(), Some(0));
    assert!(requests.try_iter().all(|(path, _)| path == PROFILES));
}
