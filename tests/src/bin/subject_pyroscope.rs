//! The crate `pyroscope` under measurement, with its sampling backend and its defaults.
//!
//! In: a task of [`profiler_tests::subject`]. Out: pushes to the URL that it is given, which `measure` counts; it cannot
//! say itself how many stacks it took.

#[expect(dead_code, reason = "the shop's own program uses more of it")]
mod shop;

use std::process::ExitCode;

use profiler_tests::Result;
use profiler_tests::subject::{Rounds, Subject, main as run};
use pyroscope::PyroscopeAgent;
use pyroscope::backend::{BackendConfig, PprofConfig, pprof_backend};
use pyroscope::pyroscope::{PyroscopeAgentBuilder, PyroscopeAgentRunning};
use shop::{book, cache, catalogue, dice, orders, pricing, report, search, service, stock};

struct Pyroscope(PyroscopeAgent<PyroscopeAgentRunning>);

impl Subject for Pyroscope {
    fn start(rate_hz: u32, url: &str) -> Result<Self> {
        // Its client wants a TLS implementation before it is made, also where nothing is encrypted.
        let _earlier = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let backend = pprof_backend(PprofConfig { sample_rate: rate_hz }, BackendConfig::default());
        let agent = PyroscopeAgentBuilder::new(url, "subject", rate_hz, "pyroscope-rs", "2", backend).build()?;
        Ok(Self(agent.start()?))
    }

    fn stacks(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn ways(&self) -> Vec<(&'static str, Rounds<'_>)> {
        let (add, remove) = self.0.tag_wrapper();
        let built = move |rounds: u32| {
            for round in 0..rounds {
                let tags = || [("endpoint", "/orders".to_owned()), ("tenant", (round % 64).to_string())];
                tags().into_iter().for_each(|(key, value)| drop(add(key.to_owned(), value)));
                tags().into_iter().for_each(|(key, value)| drop(remove(key.to_owned(), value)));
            }
        };
        vec![("built", Box::new(built))]
    }

    fn finish(self) -> Result<()> {
        self.0.stop()?.shutdown();
        Ok(())
    }
}

fn main() -> ExitCode {
    run::<Pyroscope>(shop::serve)
}
