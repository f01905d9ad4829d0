//! The settings that have a variable: what code says, else what the environment says, else the default.
//!
//! In: what code set, and a look-up of variables. Out: values, checked, or an error that names method or variable, what stands in it
//! and what may. Runs in `start`, on the caller's thread.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::{
    DEFAULT_INTERVAL, DEFAULT_RATE_HZ, checked_heap_interval, checked_interval, checked_queue_bytes, checked_rate,
    checked_spool_bytes,
};
use crate::context::spans::SpanLink;
use crate::engine::EngineChoice;
use crate::error::Error;
use crate::export::{Limits, SpoolSettings};
#[cfg(feature = "serve")]
use crate::serve::Security;
use crate::variables::Variables;

/// Whether a setting is made by code or by the environment, it is known by these names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) method: &'static str,
    variable: &'static str,
}

impl Names {
    pub(super) const fn new(method: &'static str, variable: &'static str) -> Self {
        Self { method, variable }
    }
}

/// The variables that settings come from where code says nothing.
pub(super) struct Environment<'a> {
    pub(super) variables: Variables<'a>,
    /// Settings that have no effect beside the others, and why.
    idle: RefCell<Vec<String>>,
}

impl<'a> Environment<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { variables: Variables::new(lookup), idle: RefCell::default() }
    }
}

impl Environment<'_> {
    /// Whether the profiler is to run; no method says so.
    pub(super) fn enabled(&self) -> Result<bool, Error> {
        const NAME: &str = "PROFILER_ENABLED";
        self.variables.text(NAME)?.map_or(Ok(true), |text| yes_or_no(NAME, &text))
    }

    pub(super) fn rate(&self, code: Option<u32>) -> Result<u32, Error> {
        const NAMES: Names = Names::new("Config::rate_hz", "PROFILER_RATE_HZ");
        let (why, remedy) = ("it is not a whole number of Hz from 1 to 10000", "set a rate such as 100");
        let read = |text: &str| text.parse().map_err(|_| Error::setting(NAMES.variable, text, why, remedy));
        self.chosen(NAMES, code, read)?.map_or(Ok(DEFAULT_RATE_HZ), |(name, rate)| checked_rate(name, rate))
    }

    /// The interval, with the name of what set it: the destinations may refuse it, too.
    pub(super) fn interval(&self, code: Option<Duration>) -> Result<(&'static str, Duration), Error> {
        const NAMES: Names = Names::new("Config::interval", "PROFILER_INTERVAL");
        let (why, remedy) = ("it is not a duration", "set seconds, or a number with ms, s, m or h, as 10s");
        let read = |text: &str| parse_duration(text).ok_or_else(|| Error::setting(NAMES.variable, text, why, remedy));
        let found = self.chosen(NAMES, code, read)?;
        let (name, interval) = found.unwrap_or((NAMES.method, DEFAULT_INTERVAL));
        Ok((name, checked_interval(name, interval)?))
    }

    pub(super) fn engine(&self, code: Option<EngineChoice>) -> Result<EngineChoice, Error> {
        const NAMES: Names = Names::new("Config::engine", "PROFILER_ENGINE");
        let (why, remedy) = ("there is no such engine", "set auto, perf, timer, process_timer or setitimer");
        let read = |text: &str| {
            let known = EngineChoice::NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
            known.map(|(_, choice)| *choice).ok_or_else(|| Error::setting(NAMES.variable, text, why, remedy))
        };
        Ok(self.chosen(NAMES, code, read)?.map(|(_, engine)| engine).unwrap_or_default())
    }

    pub(super) fn queue_bytes(&self, code: Option<usize>) -> Result<usize, Error> {
        const NAMES: Names = Names::new("Config::queue_bytes", "PROFILER_QUEUE_BYTES");
        let (why, remedy) = ("it is not a whole number of bytes", "set a size such as 16777216");
        let read = |text: &str| text.parse().map_err(|_| Error::setting(NAMES.variable, text, why, remedy));
        let found = self.chosen(NAMES, code, read)?;
        found.map_or_else(|| Ok(Limits::default().queue_bytes), |(name, bytes)| checked_queue_bytes(name, bytes))
    }

    pub(super) fn spool(&self, folder: Option<PathBuf>, bytes: Option<u64>) -> Result<Option<SpoolSettings>, Error> {
        const FOLDER: Names = Names::new("Config::spool", "PROFILER_SPOOL_DIR");
        const BYTES: Names = Names::new("Config::spool_bytes", "PROFILER_SPOOL_BYTES");
        let (why, remedy) = ("it is not a whole number of bytes", "set a size such as 268435456");
        let read = |text: &str| text.parse().map_err(|_| Error::setting(BYTES.variable, text, why, remedy));
        let bytes = self.chosen(BYTES, bytes, read)?;
        let bound = bytes.map(|(name, bytes)| checked_spool_bytes(name, bytes)).transpose()?;
        let Some((name, folder)) = self.chosen(FOLDER, folder, |text| Ok(PathBuf::from(text)))? else {
            bytes.iter().for_each(|(name, _)| self.note_idle(name, "there is no spool; set PROFILER_SPOOL_DIR"));
            return Ok(None);
        };
        if folder.as_os_str().is_empty() {
            return Err(Error::setting(name, "", "it names no folder", "set a folder such as /var/lib/checkout/spool"));
        }
        let settings = SpoolSettings::new(folder);
        Ok(Some(bound.map_or(settings.clone(), |bytes| settings.bytes(bytes))))
    }

    /// The address to serve at, with the name of what set it; whether it can be had is seen when it is taken.
    pub(super) fn serve(&self, code: Option<String>) -> Result<Option<(&'static str, String)>, Error> {
        let found = self.chosen(Names::new("Config::serve", "PROFILER_SERVE"), code, |text| Ok(text.to_owned()))?;
        #[cfg(feature = "serve")]
        found.iter().try_for_each(|(name, address)| crate::serve::parse(name, address).map(drop))?;
        Ok(found)
    }

    /// Who may ask, and over what; `served` is whether there is a server of ours, `within` whether the host's own serves the pages.
    #[cfg(feature = "serve")]
    pub(super) fn security(&self, code: Security, served: bool, within: bool) -> Result<Security, Error> {
        let security = code.completed(&self.variables)?;
        let [token, certificate] = security.settings();
        for setting in [token.filter(|_| !within), certificate].into_iter().flatten().filter(|_| !served) {
            self.note_idle(setting, "there is no server of the profiler's own; set PROFILER_SERVE");
        }
        Ok(security)
    }

    pub(super) fn symbolize(&self, code: Option<bool>) -> Result<bool, Error> {
        Ok(self.flag(Names::new("Config::symbolize", "PROFILER_SYMBOLIZE"), code)?.unwrap_or(true))
    }

    pub(super) fn span_link(&self, code: Option<SpanLink>) -> Result<SpanLink, Error> {
        const NAMES: Names = Names::new("Config::span_link", "PROFILER_SPAN_LINK");
        let (why, remedy) = ("there is no such link", "set current or local_root");
        let read = |text: &str| {
            let known = SpanLink::NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
            known.map(|(_, link)| *link).ok_or_else(|| Error::setting(NAMES.variable, text, why, remedy))
        };
        Ok(self.chosen(NAMES, code, read)?.map(|(_, link)| link).unwrap_or_default())
    }

    pub(super) fn link_unsampled_spans(&self, code: Option<bool>) -> Result<bool, Error> {
        let names = Names::new("Config::link_unsampled_spans", "PROFILER_LINK_UNSAMPLED_SPANS");
        Ok(self.flag(names, code)?.unwrap_or(false))
    }

    pub(super) fn heap(&self, code: Option<bool>) -> Result<Option<bool>, Error> {
        self.flag(Names::new("Config::heap", "PROFILER_HEAP"), code)
    }

    pub(super) fn heap_interval(&self, code: Option<u64>) -> Result<Option<u32>, Error> {
        const NAMES: Names = Names::new("Config::heap_interval", "PROFILER_HEAP_INTERVAL");
        let (why, remedy) = ("it is not a whole number of bytes", "set a power of two such as 524288");
        let read = |text: &str| text.parse().map_err(|_| Error::setting(NAMES.variable, text, why, remedy));
        self.chosen(NAMES, code, read)?.map(|(name, bytes)| checked_heap_interval(name, bytes)).transpose()
    }

    fn note_idle(&self, setting: &str, why: &str) {
        self.idle.borrow_mut().push(format!("{setting}: {why}"));
    }

    /// Says in the log what was set twice, and what has no effect: a service that runs is worth more than one that a setting too many keeps
    /// from its start.
    pub(super) fn log(&self) {
        self.variables.log_outweighed();
        for setting in self.idle.borrow().iter() {
            tracing::warn!("a setting has no effect: {setting}");
        }
    }

    #[cfg(test)]
    pub(super) fn idle(&self) -> Vec<String> {
        self.idle.borrow().clone()
    }

    fn flag(&self, names: Names, code: Option<bool>) -> Result<Option<bool>, Error> {
        let found = self.chosen(names, code, |text| yes_or_no(names.variable, text))?;
        Ok(found.map(|(_, flag)| flag))
    }

    /// What code set, else what `read` makes of the variable, with the name of that which set it; `None` where neither did.
    pub(super) fn chosen<T>(
        &self,
        names: Names,
        code: Option<T>,
        read: impl FnOnce(&str) -> Result<T, Error>,
    ) -> Result<Option<(&'static str, T)>, Error> {
        if let Some(value) = code {
            self.variables.outweigh(names.method, names.variable);
            return Ok(Some((names.method, value)));
        }
        let Some(text) = self.variables.text(names.variable)? else { return Ok(None) };
        Ok(Some((names.variable, read(&text)?)))
    }
}

fn yes_or_no(name: &str, text: &str) -> Result<bool, Error> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" => Ok(true),
        "0" | "false" | "off" | "no" => Ok(false),
        _ => Err(Error::setting(name, text, "it is neither yes nor no", "set it to 1 or 0")),
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
