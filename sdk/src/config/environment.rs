//! The variables that settings come from where code says nothing.
//!
//! In: a look-up of variables. Out: values, checked, or an error that names the variable, what stands in it and what may. Runs in
//! `start`, on the caller's thread.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use profiler_proto::resource::Resource;

use super::{checked_heap_interval, checked_interval, checked_rate, detected, no_service_name};
use crate::context::spans::SpanLink;
use crate::engine::EngineChoice;
use crate::error::Error;

/// The variables that this module reads.
pub(super) struct Environment<'a> {
    pub(super) lookup: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Environment<'_> {
    /// The text of a variable; unset and empty are the same, as OpenTelemetry says.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(value) = (self.lookup)(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        value.into_string().map(Some).map_err(|value| {
            Error::setting(name, value.to_string_lossy(), "it is not UTF-8", "set it to UTF-8 text, or unset it")
        })
    }

    /// Yes or no; `unset` where it says nothing.
    pub(super) fn flag(&self, name: &str, unset: bool) -> Result<bool, Error> {
        let Some(text) = self.text(name)? else { return Ok(unset) };
        match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "on" | "yes" => Ok(true),
            "0" | "false" | "off" | "no" => Ok(false),
            _ => Err(Error::setting(name, text, "it is neither yes nor no", "set it to 1 or 0")),
        }
    }

    pub(super) fn heap(&self) -> Result<Option<bool>, Error> {
        const NAME: &str = "PROFILER_HEAP";
        let is_set = self.text(NAME)?.is_some();
        is_set.then(|| self.flag(NAME, true)).transpose()
    }

    pub(super) fn heap_interval(&self) -> Result<Option<u32>, Error> {
        const NAME: &str = "PROFILER_HEAP_INTERVAL";
        let Some(text) = self.text(NAME)? else { return Ok(None) };
        let bytes = text.trim().parse().map_err(|_| {
            Error::setting(NAME, &text, "it is not a whole number of bytes", "set a power of two such as 524288")
        })?;
        checked_heap_interval(NAME, bytes).map(Some)
    }

    pub(super) fn rate(&self) -> Result<Option<u32>, Error> {
        const NAME: &str = "PROFILER_RATE_HZ";
        let Some(text) = self.text(NAME)? else { return Ok(None) };
        let rate = text.trim().parse().map_err(|_| {
            Error::setting(NAME, &text, "it is not a whole number of Hz from 1 to 10000", "set a rate such as 100")
        })?;
        checked_rate(NAME, rate).map(Some)
    }

    pub(super) fn interval(&self) -> Result<Option<Duration>, Error> {
        const NAME: &str = "PROFILER_INTERVAL";
        let Some(text) = self.text(NAME)? else { return Ok(None) };
        let interval = parse_duration(text.trim()).ok_or_else(|| {
            Error::setting(NAME, &text, "it is not a duration", "set seconds, or a number with ms, s, m or h, as 10s")
        })?;
        checked_interval(NAME, interval).map(Some)
    }

    pub(super) fn engine(&self) -> Result<EngineChoice, Error> {
        const NAME: &str = "PROFILER_ENGINE";
        let Some(text) = self.text(NAME)? else { return Ok(EngineChoice::default()) };
        let known = EngineChoice::NAMES.iter().find(|(name, _)| text.trim().eq_ignore_ascii_case(name));
        known.map(|(_, choice)| *choice).ok_or_else(|| {
            let why = "there is no such engine";
            Error::setting(NAME, text, why, "set auto, perf, timer, process_timer or setitimer")
        })
    }

    pub(super) fn span_link(&self) -> Result<SpanLink, Error> {
        const NAME: &str = "PROFILER_SPAN_LINK";
        let Some(text) = self.text(NAME)? else { return Ok(SpanLink::default()) };
        let known = SpanLink::NAMES.iter().find(|(name, _)| text.trim().eq_ignore_ascii_case(name));
        let unknown = || Error::setting(NAME, &text, "there is no such link", "set current or local_root");
        known.map(|(_, link)| *link).ok_or_else(unknown)
    }

    pub(super) fn serve(&self) -> Result<Option<String>, Error> {
        let Some(text) = self.text("PROFILER_SERVE")? else { return Ok(None) };
        match text.parse::<SocketAddr>() {
            Ok(_) => Ok(Some(text)),
            // `localhost`; any other name is refused when it is bound.
            Err(_) if text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => Ok(Some(text)),
            Err(_) => {
                let why = "it is not an address with a port";
                Err(Error::setting("PROFILER_SERVE", text, why, "set an address such as 127.0.0.1:6060"))
            }
        }
    }

    /// The name of the service and the attributes of the process: what code says over what the environment says over
    /// what can be detected.
    pub(super) fn resource(
        &self,
        service: Option<String>,
        tags: Vec<(String, String)>,
    ) -> Result<(String, Resource), Error> {
        let mut resource = detected();
        for (key, value) in self.resource_attributes()? {
            resource.set(key, value);
        }
        if let Some(name) = self.text("OTEL_SERVICE_NAME")? {
            resource.set("service.name", name);
        }
        if let Some(name) = service {
            if name.trim().is_empty() {
                return Err(no_service_name(&name));
            }
            resource.set("service.name", name);
        }
        for (key, value) in tags {
            if key.trim().is_empty() {
                return Err(Error::setting("Config::tag", key, "the key is empty", "name the attribute"));
            }
            resource.set(key, value);
        }
        let name = resource.service_name().map(str::to_owned).ok_or_else(|| no_service_name(""))?;
        Ok((name, resource))
    }

    /// Source: OpenTelemetry specification, "Resource SDK", `OTEL_RESOURCE_ATTRIBUTES`: `key=value` pairs, separated by
    /// commas, percent-encoded where needed.
    pub(super) fn resource_attributes(&self) -> Result<Vec<(String, String)>, Error> {
        const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let Some(text) = self.text(NAME)? else { return Ok(Vec::new()) };
        let pairs = text.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').filter(|(key, _)| !key.trim().is_empty()).ok_or_else(|| {
                Error::setting(NAME, pair, "it is not key=value", "write pairs such as region=eu-1,team=core")
            })?;
            let decoded = percent_decode_str(value.trim()).decode_utf8().map_err(|_| {
                Error::setting(NAME, pair, "it is not UTF-8 once decoded", "encode UTF-8 text, a space as %20")
            })?;
            Ok((key.trim().to_owned(), decoded.into_owned()))
        });
        pairs.collect()
    }
}

/// `10`, `1.5s`, `500ms`, `2m`, `1h`: a number of seconds if no unit is given.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}
