//! How honest the bound of a queue is: what waits for destinations that are away, compared with what the allocator gave out. And what it takes to
//! make a request ready.
//!
//! A binary of its own, for it counts every allocation of the process.

#![cfg(feature = "export")]
#![expect(clippy::expect_used, reason = "what a set of profiles cannot be fails the test")]

#[expect(dead_code, reason = "other tests ask for the rest")]
mod counting;
#[expect(dead_code, reason = "the other tests of export use the rest")]
#[path = "export/profiles.rs"]
mod profiles;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use profiler::Ledger;
use profiler::export::{Compression, Exporter, Limits, Otlp, resolve};
use profiler_proto::model::{Function, Kind, Line, Location, Stack};
use profiler_proto::{Profile, ProfileSet, Sample, otlp};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Mutex;

/// Taken by a test as long as it counts.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Takes every request in and keeps none.
async fn swallow(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut body = request.into_body();
    while body.frame().await.is_some() {}
    Ok(Response::new(Empty::new()))
}

/// Serves whoever comes.
async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(swallow));
        tokio::spawn(async { drop(connection.await) });
    }
}

/// Check that two destinations that are away hold one compressed body for each set between them, within a quarter of what they say, and
/// nothing of what a third one, which is well, is sent without compression.
#[tokio::test]
async fn what_waits_is_what_is_counted() {
    const SETS: u64 = 80;
    let _alone = ALONE.lock().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let well = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(serve(listener));
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let away = format!("http://{}", socket.local_addr().unwrap());
    let endpoints = [Otlp::http(&away), Otlp::grpc(&away), Otlp::http(well).compression(Compression::None)];
    let targets = resolve(endpoints.map(Into::into).into(), &|_| None).unwrap();
    let exporter = Exporter::start(targets, Arc::new(Ledger::default()), Limits::default()).unwrap();

    let (set, before) = (profiles::set(1000), counting::live());
    for _ in 0..SETS {
        exporter.offer(Arc::clone(&set));
    }
    let start = Instant::now();
    while exporter.destinations()[2].delivered < SETS * 1000 {
        assert!(start.elapsed() < Duration::from_secs(60), "{exporter:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (taken, stats) = (counting::live() - before, exporter.destinations());
    let (counted, plain) = (stats[0].queued_bytes as usize, stats[2].sent_bytes as usize);
    assert_eq!((stats[1].queued_bytes as usize, stats[0].queued), (counted, SETS * 1000));
    // Half a megabyte: what connections and tasks take.
    let most = counted * 5 / 4 + (512 << 10);
    assert!(plain > most, "nothing can be told apart: {plain} sent, {most} allowed");
    assert!(taken >= counted && taken <= most, "counted {counted}, taken {taken}, sent without compression {plain}");
}

/// A profile of 4,000 stacks of 40 frames each, of 3,000 functions: leaves that differ below callers that many share.
fn deep_profile() -> ProfileSet {
    let mut set = ProfileSet::default();
    let dictionary = &mut set.dictionary;
    let mut location = |number: u64| {
        let name =
            dictionary.strings.intern_str(&format!("<shop::orders::Order<{number}> as core::ops::Fn<()>>::call"));
        let function = dictionary.functions.intern(Function { name, ..Function::default() });
        let lines = Box::from([Line { function, line: 1, column: 0 }]);
        dictionary.locations.intern(Location { address: 16 * number, lines, ..Location::default() })
    };
    let locations: Vec<_> = (1..=3000).map(&mut location).collect();
    let stack = |number: usize| {
        let leaves = (0..6).map(|frame| locations[number * (frame * 2 + 7) % 3000]);
        let callers = (0..34).map(|frame| locations[(number % 40 * 60 + frame) % 3000]);
        Stack { locations: leaves.chain(callers).collect() }
    };
    let stacks: Vec<_> = (0..4000).map(stack).collect();
    let sample = |stack| Sample { stack: set.dictionary.stacks.intern(stack), value: 2, ..Sample::default() };
    let samples = stacks.into_iter().map(sample).collect();
    let kind = Kind::cpu(&mut set.dictionary, 10_000_000);
    set.profiles = vec![Profile { kind, samples, duration_nanos: 10_000_000_000, ..Profile::default() }];
    set
}

/// Check that making a request ready takes at most four times the memory that it has before compression.
#[tokio::test]
async fn a_request_takes_little_memory_to_be_made() {
    let _alone = ALONE.lock().await;
    let set = Arc::new(deep_profile());
    let request = otlp::encode_to_vec(&set).len();
    let targets = resolve(vec![Otlp::http("http://127.0.0.1:9").into()], &|_| None).unwrap();
    let exporter = Exporter::start(targets, Arc::new(Ledger::default()), Limits::default()).unwrap();
    let (taken, _) = counting::most_during(|| exporter.offer(Arc::clone(&set)));
    assert!(exporter.destinations()[0].queued_bytes > 0);
    assert!(request > 400_000 && taken <= 4 * request, "{taken} bytes for a request of {request}");
}
