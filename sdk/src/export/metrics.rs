//! Metrics on their way: OTLP requests that somebody else made, to the peers that get profiles.
//!
//! In: where profiles go ([`Target`]), the environment; encoded requests. Out: whether the peer took them, and how long it is to be left alone where it said
//! "later". Nothing is queued, for the next request has newer figures. On the caller's runtime; a request is bounded in time by the settings of its peer.
//!
//! Source: OpenTelemetry specification, "OpenTelemetry Protocol Exporter": which endpoint a signal is sent to; OTLP specification, "OTLP/gRPC Throttling" and
//! "OTLP/HTTP Throttling": the time that a peer names is kept.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::answer::Answer;
use super::body::Body;
use super::destination::{Kind, Target};
use super::env::Environment;
use super::grpc::Grpc;
use super::otlp::Unsaid;
use super::otlp_http::OtlpHttp;
use super::protocol::{Compression, Protocol};
use super::retry::{Backoff, Retry, Setback};
use super::settings::Settings;
use crate::error::Error;

/// A peer that takes OTLP metrics.
#[derive(Debug)]
pub struct MetricsTarget {
    name: String,
    client: Client,
    compression: Compression,
    rest: Rest,
}

/// How long a peer is left alone.
#[derive(Debug)]
struct Rest {
    backoff: Backoff,
    until: Option<Instant>,
}

#[derive(Debug)]
enum Client {
    Http(Box<OtlpHttp>),
    Grpc(Box<Grpc>),
}

impl MetricsTarget {
    /// Where metrics go beside the profiles that go to `targets`: where `OTEL_EXPORTER_OTLP_METRICS_*` and `OTEL_EXPORTER_OTLP_*` say, as of any other
    /// metrics; where these name no endpoint, to those of `targets` that speak OTLP at its customary paths. `lookup` gives the value of a variable.
    ///
    /// # Errors
    /// If an endpoint, a header, a timeout or a certificate cannot be; the error names the variable.
    pub fn resolve(targets: &[Target], lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Vec<Self>, Error> {
        let environment = Environment::of_metrics(lookup);
        if let Some((protocol, endpoint)) = environment.endpoint()? {
            let settings = Unsaid::default().settings(protocol, endpoint, &environment)?;
            return Ok(vec![Self::new(of_metrics(&settings).unwrap_or(settings))]);
        }
        let settings = targets.iter().filter_map(|target| match &target.kind {
            Kind::Otlp(settings) => of_metrics(settings),
            _ => None,
        });
        Ok(settings.map(Self::new).collect())
    }

    fn new(settings: Settings) -> Self {
        let (name, compression) = (settings.name(), settings.compression);
        let client = match settings.protocol {
            Protocol::Http => Client::Http(Box::new(OtlpHttp::new(settings))),
            Protocol::Grpc => Client::Grpc(Box::new(Grpc::new(settings, Answer::of_success))),
        };
        Self { name, client, compression, rest: Rest { backoff: Backoff::new(Retry::default()), until: None } }
    }

    /// The protocol and the endpoint, as `otlp-http http://collector:4318/v1/metrics`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long from `now` on the peer is to be left alone: it said "later". At most ten minutes and a second. Zero: it may be asked.
    #[must_use]
    pub fn rest(&self, now: Instant) -> Duration {
        self.rest.left(now)
    }

    /// Sends `request`, an encoded `ExportMetricsServiceRequest`, once, whatever the [rest](Self::rest).
    ///
    /// # Errors
    /// Why not all of it was taken, for people.
    pub async fn send(&mut self, request: &[u8]) -> Result<(), String> {
        let body = Body::written(request.len(), |out| out.write_all(request), 0, self.compression);
        let body = body.map_err(|error| error.to_string())?;
        let answer = match &mut self.client {
            Client::Http(client) => client.send(&body).await,
            Client::Grpc(client) => client.send(&body).await,
        };
        self.rest.enter(&answer, Instant::now());
        match answer {
            Answer::Accepted { .. } => Ok(()),
            // `ExportMetricsPartialSuccess` has the fields of that of profiles, which is what the answer was read as.
            Answer::Partial { rejected, why } => {
                let said = why.split_once(": ").map_or("", |(_, said)| said);
                Err(format!("rejected {rejected} data points: {said}"))
            }
            Answer::Refused { why }
            | Answer::Later { why, .. }
            | Answer::Throttled { why }
            | Answer::Unanswered { why } => Err(why),
        }
    }
}

impl Rest {
    fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// What follows from an answer at `now`. All requests are one for the backoff: each has what the one before had, only newer.
    fn enter(&mut self, answer: &Answer, now: Instant) {
        let setback = match answer {
            Answer::Later { after, .. } => Setback::Later(*after),
            Answer::Throttled { .. } => Setback::Throttled,
            // Who gave no answer may give one to the next request, which is as far off as captures are.
            Answer::Accepted { .. } | Answer::Partial { .. } | Answer::Refused { .. } | Answer::Unanswered { .. } => {
                self.backoff.reset(0);
                self.until = None;
                return;
            }
        };
        self.until = Some(now + self.backoff.fail(0, setback, now).wait);
    }
}

/// The settings of a peer that gets profiles, for metrics.
fn of_metrics(settings: &Settings) -> Option<Settings> {
    let endpoint = settings.endpoint.of_metrics(settings.protocol)?;
    Some(Settings { endpoint, ..settings.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::destination::resolve;
    use super::super::{Files, Otlp};
    use super::*;

    /// Check that the time that a peer names is kept, up to ten minutes; that one which names none is left alone for a while, too; and that any other answer
    /// ends it.
    #[test]
    fn a_peer_that_says_later_is_left_alone() {
        let (now, why) = (Instant::now(), String::new);
        let mut rest = Rest { backoff: Backoff::new(Retry::default()), until: None };
        assert_eq!(rest.left(now), Duration::ZERO);
        let seconds = Duration::from_secs;
        for (asked, kept) in [(7, 7), (600, 600), (86_400, 600), (u64::MAX, 600)] {
            rest.enter(&Answer::Later { why: why(), after: Some(seconds(asked)) }, now);
            let left = rest.left(now);
            assert!(seconds(kept) <= left && left <= seconds(kept + 1), "{asked}: {left:?}");
            assert_eq!(rest.left(now + left), Duration::ZERO);
        }
        for answer in [Answer::Later { why: why(), after: None }, Answer::Throttled { why: why() }] {
            rest.enter(&answer, now);
            assert!(rest.until.is_some() && rest.left(now) <= Retry::default().max, "{answer:?}");
        }
        for answer in [
            Answer::Accepted { warning: None },
            Answer::Partial { rejected: 1, why: why() },
            Answer::Refused { why: why() },
            Answer::Unanswered { why: why() },
        ] {
            rest.enter(&Answer::Later { why: why(), after: Some(seconds(9)) }, now);
            rest.enter(&answer, now);
            assert_eq!(rest.until, None, "{answer:?}");
        }
    }

    /// Where metrics go by these destinations of code and these variables.
    fn names(otlp: Vec<Otlp>, variables: &[(&str, &str)]) -> Vec<String> {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let destinations = otlp.into_iter().map(Into::into).collect();
        let targets = resolve(destinations, &lookup).unwrap();
        MetricsTarget::resolve(&targets, &lookup).unwrap().iter().map(|target| target.name().to_owned()).collect()
    }

    /// Check that metrics go where the variables for all signals say, or their own, and else beside profiles.
    #[test]
    fn metrics_go_where_opentelemetry_says() {
        const ALL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318");
        const PROFILES: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://own:4318/exact");
        const METRICS: (&str, &str) = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:9090/api/v1/otlp");
        let grpc = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc");
        let of = |variables: &[_]| names(Vec::new(), variables);
        assert_eq!(of(&[ALL]), ["otlp-http http://all:4318/v1/metrics"]);
        assert_eq!(of(&[ALL, PROFILES]), ["otlp-http http://all:4318/v1/metrics"]);
        assert_eq!(of(&[ALL, METRICS]), ["otlp-http http://m:9090/api/v1/otlp"]);
        assert_eq!(of(&[ALL, grpc]), ["otlp-grpc http://all:4318"]);
        assert_eq!((of(&[PROFILES]).len(), of(&[]).len()), (0, 0));
        let code = vec![Otlp::grpc("http://c:4317"), Otlp::http("http://c:4318"), Otlp::http("http://c:4318/own")];
        assert_eq!(names(code, &[]), ["otlp-grpc http://c:4317", "otlp-http http://c:4318/v1/metrics"]);
        let files = resolve(vec![Files::new("/tmp").into()], &|_| None).unwrap();
        assert!(MetricsTarget::resolve(&files, &|_| None).unwrap().is_empty());
    }
}
