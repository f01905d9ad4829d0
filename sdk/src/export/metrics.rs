//! Metrics on their way: OTLP requests that somebody else made, to the peers that get profiles.
//!
//! In: where profiles go ([`Target`]), the environment; encoded requests. Out: whether the peer took them. Nothing is queued and nothing is sent again, for
//! the next request has newer figures. On the caller's runtime; a request is bounded in time by the settings of its peer.
//!
//! Source: OpenTelemetry specification, "OpenTelemetry Protocol Exporter": which endpoint a signal is sent to.

use std::ffi::OsString;

use super::answer::Answer;
use super::body::Body;
use super::destination::{Kind, Target};
use super::env::Environment;
use super::grpc::Grpc;
use super::otlp::Unsaid;
use super::otlp_http::OtlpHttp;
use super::protocol::{Compression, Protocol};
use super::settings::Settings;
use crate::error::Error;

/// A peer that takes OTLP metrics.
#[derive(Debug)]
pub struct MetricsTarget {
    name: String,
    client: Client,
    compression: Compression,
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
        Self { name, client, compression }
    }

    /// The protocol and the endpoint, as `otlp-http http://collector:4318/v1/metrics`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends `request`, an encoded `ExportMetricsServiceRequest`, once.
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
