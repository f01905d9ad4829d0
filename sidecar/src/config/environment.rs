//! Settings of the environment: `PROFILER_*`, with the names that the SDK has where it has the setting too.
//!
//! In: a look-up of variables. Out: a layer, or an error that names the variable. Unset and empty are the same.

use std::ffi::OsString;
use std::str::FromStr;

use super::layer::{Layer, Said};
use super::pull::Pull;
use crate::error::Error;

/// The variables that are set.
pub(super) fn read(lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Layer, Error> {
    let variables = Variables { lookup };
    Ok(Layer {
        rate_hz: variables.number("PROFILER_RATE_HZ", "a whole number of Hz, such as 99")?,
        interval: variables.text("PROFILER_INTERVAL")?,
        pids: variables.pids()?,
        include: variables.list("PROFILER_INCLUDE")?,
        exclude: variables.list("PROFILER_EXCLUDE")?,
        serve: variables.text("PROFILER_SERVE")?,
        receive: variables.text("PROFILER_RECEIVE")?,
        profile_sdk: variables.flag("PROFILER_PROFILE_SDK")?,
        kernel: variables.flag("PROFILER_KERNEL")?,
        cpu_percent: variables.number("PROFILER_CPU_PERCENT", "a number of percent, such as 5")?,
        memory: variables.text("PROFILER_MEMORY")?,
        queue_bytes: variables.number("PROFILER_QUEUE_BYTES", "a whole number of bytes, such as 16777216")?,
        runtime_interval: variables.text("PROFILER_RUNTIME_INTERVAL")?,
        max_buckets: variables.number("PROFILER_MAX_BUCKETS", "a whole number, such as 100000")?,
        max_goroutines: variables.number("PROFILER_MAX_GOROUTINES", "a whole number, such as 100000")?,
        metrics: variables.flag("PROFILER_METRICS")?,
        pulls: variables
            .list("PROFILER_PULL")?
            .into_iter()
            .map(|said| Said::new(said.origin, Pull::at(said.value)))
            .collect(),
        spool_folder: variables.text("PROFILER_SPOOL_DIR")?,
        spool_bytes: variables.number("PROFILER_SPOOL_BYTES", "a whole number of bytes, such as 268435456")?,
    })
}

struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Variables<'_> {
    fn text(&self, name: &str) -> Result<Option<Said<String>>, Error> {
        let Some(value) = (self.lookup)(name) else { return Ok(None) };
        let text = value.into_string().map_err(|_| Error::new(name, "it is not UTF-8", "set it to UTF-8 text"))?;
        let text = text.trim();
        Ok((!text.is_empty()).then(|| Said::new(name, text.to_owned())))
    }

    fn number<T: FromStr>(&self, name: &str, wanted: &str) -> Result<Option<Said<T>>, Error> {
        let Some(said) = self.text(name)? else { return Ok(None) };
        let refused = |_| Error::new(named(&said), "it cannot be read", format!("set {wanted}"));
        Ok(Some(Said::new(name, said.value.parse().map_err(refused)?)))
    }

    fn flag(&self, name: &str) -> Result<Option<Said<bool>>, Error> {
        let Some(said) = self.text(name)? else { return Ok(None) };
        match said.value.to_ascii_lowercase().as_str() {
            "1" | "true" | "on" | "yes" => Ok(Some(Said::new(name, true))),
            "0" | "false" | "off" | "no" => Ok(Some(Said::new(name, false))),
            _ => Err(Error::new(named(&said), "it is neither yes nor no", "set it to 1 or 0")),
        }
    }

    /// Elements between commas.
    fn list(&self, name: &str) -> Result<Vec<Said<String>>, Error> {
        let Some(said) = self.text(name)? else { return Ok(Vec::new()) };
        let elements = said.value.split(',').map(str::trim).filter(|element| !element.is_empty());
        Ok(elements.map(|element| Said::new(name, element.to_owned())).collect())
    }

    fn pids(&self) -> Result<Vec<Said<u32>>, Error> {
        let read = |said: Said<String>| match said.value.parse() {
            Ok(pid) => Ok(Said::new(said.origin, pid)),
            Err(_) => Err(Error::new(named(&said), "it is not a process id", "set numbers between commas, as 1,27")),
        };
        self.list("PROFILER_PID")?.into_iter().map(read).collect()
    }
}

fn named(said: &Said<String>) -> String {
    format!("{}={:?}", said.origin, said.value.chars().take(80).collect::<String>())
}
