//! No profiler at all: what the tasks cost by themselves, and how large a program without one is.
//!
//! Measured beside the others by `measure`; see [`profiler_tests::subject`].

#[expect(dead_code, reason = "the shop's own program uses more of it")]
mod shop;

use std::process::ExitCode;

use profiler_tests::Result;
use profiler_tests::subject::{Rounds, Subject, main as run};
use shop::{book, cache, catalogue, dice, orders, pricing, report, search, service, stock};

struct Nothing;

impl Subject for Nothing {
    fn start(_: u32, _: &str) -> Result<Self> {
        Ok(Self)
    }

    fn stacks(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn ways(&self) -> Vec<(&'static str, Rounds<'_>)> {
        vec![("request", shop::requests())]
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}

fn main() -> ExitCode {
    run::<Nothing>(shop::serve)
}
