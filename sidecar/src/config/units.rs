//! Values with a unit or a range: rates, durations, sizes, addresses.
//!
//! In: what a source says. Out: a value that can be, or an error that names the source and what may stand there.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use super::layer::Said;
use crate::bpf::MAX_RATE_HZ;
use crate::error::Error;

/// Shorter profiles cost more than they tell; longer ones are late.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// The same of reads of runtimes, each of which takes longer.
const RUNTIME_INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// Less than this cannot hold the tables of one large program.
const LEAST_MEMORY: u64 = 32 << 20;
const MOST_MEMORY: u64 = 64 << 30;

fn refused<T: Display>(said: &Said<T>, why: &str, remedy: &str) -> Error {
    let value: String = said.value.to_string().chars().take(80).collect();
    Error::new(format!("{}={value}", said.origin), why, remedy)
}

pub(super) fn rate(said: &Said<u32>) -> Result<u32, Error> {
    match said.value {
        1..=MAX_RATE_HZ => Ok(said.value),
        _ => Err(refused(said, "a rate is 1 to 10000 Hz", "set a rate such as 99")),
    }
}

pub(super) fn interval(said: &Said<String>) -> Result<Duration, Error> {
    match parse_duration(&said.value) {
        Some(interval) if INTERVALS.contains(&interval) => Ok(interval),
        Some(_) => Err(refused(said, "an interval is 100ms to 1h", "set an interval such as 10s")),
        None => Err(refused(said, "it is not a duration", "set seconds, or a number with ms, s, m or h, as 10s")),
    }
}

/// How often runtimes are captured; `off` for never.
pub(super) fn runtime_interval(said: &Said<String>) -> Result<Option<Duration>, Error> {
    if ["off", "none"].contains(&said.value.as_str()) {
        return Ok(None);
    }
    let remedy = "set seconds, or a number with ms, s, m or h, as 60s, or off";
    match parse_duration(&said.value) {
        Some(often) if RUNTIME_INTERVALS.contains(&often) => Ok(Some(often)),
        Some(_) => Err(refused(said, "runtimes are read each 1s to 1h", "set an interval such as 60s, or off")),
        None => Err(refused(said, "it is not a duration", remedy)),
    }
}

/// How much of a runtime is read.
pub(super) fn most(said: &Said<usize>) -> Result<usize, Error> {
    match said.value {
        1..=10_000_000 => Ok(said.value),
        _ => Err(refused(said, "a bound is 1 to 10000000", "set a number such as 100000")),
    }
}

/// As the SDK has it.
pub(super) fn spool_bytes(said: &Said<u64>) -> Result<u64, Error> {
    match said.value {
        16_777_216..=1_099_511_627_776 => Ok(said.value),
        _ => Err(refused(said, "a spool is 16777216 to 1099511627776 bytes", "set bytes such as 268435456")),
    }
}

/// An address to serve on; `off` for none.
pub(super) fn served(said: Said<String>) -> Result<Option<Said<String>>, Error> {
    let address = address(&said, "127.0.0.1:6070")?;
    Ok(address.map(|address| Said::new(said.origin, address.to_string())))
}

/// An address to receive at; `off` for none.
pub(super) fn received(said: &Said<String>) -> Result<Option<SocketAddr>, Error> {
    address(said, "127.0.0.1:6071")
}

/// `IP:port` or `localhost:port`, other names would need a resolver; `off` for none.
fn address(said: &Said<String>, example: &str) -> Result<Option<SocketAddr>, Error> {
    if ["off", "none"].contains(&said.value.as_str()) {
        return Ok(None);
    }
    let numeric = match said.value.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => said.value.clone(),
    };
    let remedy = format!("set an address such as {example}, or off");
    numeric.parse().map(Some).map_err(|_| refused(said, "it is not an address with a port", &remedy))
}

pub(super) fn percent(said: &Said<f64>) -> Result<f64, Error> {
    match said.value {
        value if (0.1..=1000.0).contains(&value) => Ok(value),
        _ => Err(refused(said, "a share of one processor is 0.1 to 1000 percent", "set percent such as 5")),
    }
}

pub(super) fn memory(said: &Said<String>) -> Result<u64, Error> {
    match parse_bytes(&said.value) {
        Some(bytes) if (LEAST_MEMORY..=MOST_MEMORY).contains(&bytes) => Ok(bytes),
        Some(_) => Err(refused(said, "memory is 32MiB to 64GiB", "set a size such as 160MiB")),
        None => Err(refused(said, "it is not a size", "set bytes, or a number with KiB, MiB or GiB, as 160MiB")),
    }
}

/// As the SDK has it: a queue holds one request at least.
pub(super) fn queue_bytes(said: &Said<usize>) -> Result<usize, Error> {
    match said.value {
        2_000_000..=1_073_741_824 => Ok(said.value),
        _ => Err(refused(said, "a queue is 2000000 to 1073741824 bytes", "set bytes such as 16777216")),
    }
}

/// `10`, `1.5s`, `500ms`, `2m`, `1h`: seconds where there is no unit.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = divided(text);
    let seconds = match unit.trim() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

/// `1048576`, `512KiB`, `160MiB`, `1GiB`; `K`, `M` and `G` are the same powers of two, as in manifests of Kubernetes `Ki`, `Mi`, `Gi` are.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = divided(text);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "K" | "Ki" | "KiB" => 10,
        "M" | "Mi" | "MiB" => 20,
        "G" | "Gi" | "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn divided(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}
