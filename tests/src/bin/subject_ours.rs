//! This profiler under measurement, with its defaults.
//!
//! In: a task of [`profiler_tests::subject`]. Out: OTLP over gRPC to the URL that it is given, as a user would configure it;
//! `measure` counts what arrives.

#[expect(dead_code, reason = "the shop's own program uses more of it")]
mod shop;

use std::process::ExitCode;
use std::time::Duration;

use profiler::{Config, Profiler, export::Otlp};
use profiler_tests::Result;
use profiler_tests::subject::{Subject, main as run};
use shop::{book, catalogue, dice, orders, pricing, report, search, service};

struct Ours(Profiler);

impl Subject for Ours {
    fn start(rate_hz: u32, url: &str) -> Result<Self> {
        Ok(Self(profiler::start(Config::new("subject").rate_hz(rate_hz).export(Otlp::grpc(url)))?))
    }

    fn stacks(&mut self) -> Result<Option<u64>> {
        if !self.0.flush(Duration::from_secs(5)) {
            return Err("not everything was delivered in 5 s".into());
        }
        let account = self.0.stats().account;
        Ok(Some(account.taken - account.lost.total()))
    }

    fn finish(self) -> Result<()> {
        match self.0.shutdown(Duration::from_secs(10)) {
            true => Ok(()),
            false => Err("not everything was delivered in 10 s".into()),
        }
    }
}

fn main() -> ExitCode {
    run::<Ours>(shop::serve)
}
