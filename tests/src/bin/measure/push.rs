//! The part of Pyroscope's server that its crate needs: takes pushes and counts what is in them.
//!
//! In: `POST /push.v1.PusherService/Push` on a loopback port. Out: how many sampling periods the pushed profiles add up
//! to. A thread and a runtime of its own.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use profiler_proto::{Limits, pprof};
use profiler_tests::{Error, Result};
use prost::Message;
use tokio::sync::oneshot;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    // Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

/// What is pushed (grafana/pyroscope: api/push/v1/push.proto); only the fields that are read here.
#[derive(Clone, PartialEq, Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
struct Series {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

impl Server {
    /// Starts one on a free port.
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&bodies);
        std::thread::Builder::new().name("pyroscope".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, bodies, _stop: stop })
    }

    /// Where to push to.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was pushed so far, in sampling periods: the crate counts stacks and multiplies by the period.
    pub(crate) fn periods(&self) -> Result<f64> {
        let bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.iter().map(|body| periods_of(body)).sum()
    }
}

async fn accept(listener: TcpListener, bodies: Arc<Mutex<Vec<Vec<u8>>>>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let bodies = Arc::clone(&bodies);
        tokio::spawn(async move {
            let service = service_fn(move |request| take(request, Arc::clone(&bodies)));
            // A connection that ends badly is the client's own business.
            let _outcome = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn take(request: Request<Incoming>, bodies: Arc<Mutex<Vec<Vec<u8>>>>) -> Result<Response<Full<Bytes>>, Error> {
    let body = request.into_body().collect().await?.to_bytes();
    bodies.lock().unwrap_or_else(PoisonError::into_inner).push(body.to_vec());
    Ok(Response::new(Full::new(Bytes::new())))
}

fn periods_of(body: &[u8]) -> Result<f64> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut bytes)?;
    let samples = PushRequest::decode(bytes.as_slice())?.series.into_iter().flat_map(|series| series.samples);
    let mut periods = 0.0;
    for sample in samples {
        for profile in pprof::decode(&sample.raw_profile, &Limits::default())?.profiles {
            let value: i64 = profile.samples.iter().map(|sample| sample.value).sum();
            periods += value as f64 / profile.kind.period as f64;
        }
    }
    Ok(periods)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use profiler_proto::model::{Kind, Profile, ProfileSet, Sample, ValueType};

    use super::*;

    /// Check that what is pushed is counted in periods, over all series and samples of a request.
    #[test]
    fn a_push_is_counted_in_periods() {
        let mut set = ProfileSet::default();
        let cpu = ValueType::new(&mut set.dictionary, "cpu", "nanoseconds");
        let kind = Kind { sample_type: cpu, period_type: cpu, period: 10_000_000 };
        let samples = vec![Sample { value: 30_000_000, ..Sample::default() }];
        set.profiles = vec![Profile { kind, samples, ..Profile::default() }];
        let sample = RawSample { raw_profile: pprof::encode(&set) };
        let request = PushRequest { series: vec![Series { samples: vec![sample.clone(), sample] }] };
        let mut body = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        body.write_all(&request.encode_to_vec()).unwrap();
        let periods = periods_of(&body.finish().unwrap()).unwrap();
        assert!((periods - 6.0).abs() < 1e-9, "{periods}");
    }
}
