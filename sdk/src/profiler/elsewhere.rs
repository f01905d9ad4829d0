//! A profiler on systems without a sampler: there is none.
//!
//! In: settings, checked like everywhere. Out: an error that says what is missing. So a service that is profiled on its
//! Linux servers builds, and its settings are tried, on the laptops of its team. The twin of `running`; its value cannot
//! exist, so nothing of it can be called.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use profiler_proto::ProfileSet;

use crate::config::Settings;
use crate::error::Error;
use crate::stats::Stats;

/// A profiler that runs: impossible here.
#[derive(Debug)]
pub(super) enum Running {}

impl Running {
    #[expect(clippy::needless_pass_by_value, reason = "as where there is a sampler")]
    pub(super) fn start(settings: Settings) -> Result<Self, Error> {
        let here =
            format!("profiler::start({:?}) on {} {}", settings.service, std::env::consts::OS, std::env::consts::ARCH);
        let why = io::Error::new(io::ErrorKind::Unsupported, "CPU sampling needs Linux on x86_64 or aarch64");
        Err(Error::environment(here, why, "go on without a profiler here, or set PROFILER_ENABLED=0"))
    }

    pub(super) fn is_inherited(&self) -> bool {
        match *self {}
    }

    pub(super) fn flush(&self, _timeout: Duration) -> bool {
        match *self {}
    }

    pub(super) fn pause(&self) {
        match *self {}
    }

    pub(super) fn resume(&self) -> Result<(), Error> {
        match *self {}
    }

    pub(super) fn set_rate_hz(&self, _rate_hz: u32) -> Result<(), Error> {
        match *self {}
    }

    pub(super) fn stats(&self) -> Stats {
        match *self {}
    }

    pub(super) fn serve_address(&self) -> Option<SocketAddr> {
        match *self {}
    }

    pub(super) fn set_heap_interval(&self, _lg_interval: u32) -> Result<(), Error> {
        match *self {}
    }

    pub(super) fn capture_heap(&self, _duration: Duration) -> Result<ProfileSet, Error> {
        match *self {}
    }

    pub(super) fn capture(&self, _duration: Duration) -> Result<ProfileSet, Error> {
        match *self {}
    }

    #[cfg(feature = "opentelemetry-metrics")]
    pub(super) fn watch(&self) -> crate::metrics::Watch {
        match *self {}
    }

    pub(super) fn stop(self, _timeout: Duration) -> bool {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::error::ErrorKind;

    /// Check that a start says what it needs, that it is not the caller's mistake, and what to do.
    #[test]
    fn a_start_says_what_is_missing() {
        let error = Running::start(Config::new("shop").resolve(&|_| None).unwrap()).unwrap_err();
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Environment, "{said}");
        for word in ["shop", std::env::consts::OS, "needs Linux on x86_64 or aarch64", "PROFILER_ENABLED=0"] {
            assert!(said.contains(word), "{word} is not said: {said}");
        }
    }
}
