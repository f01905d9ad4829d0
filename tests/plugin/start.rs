//! A program that starts the profiler with settings from the environment, and ends: what becomes of it without the feature `tls`.
//!
//! In: variables. Out: exit status 0, or what `start` says on stderr. The test builds it as it builds the plugins.

use profiler::Config;

fn main() -> Result<(), String> {
    let started = profiler::start(Config::new("start").serve("127.0.0.1:0"));
    started.map(drop).map_err(|error| error.to_string())
}
