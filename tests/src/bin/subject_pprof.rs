//! The crate `pprof` under measurement, with its defaults.
//!
//! In: a task of [`profiler_tests::subject`]. It sends nothing: its report is counted here, in the process.

#[expect(dead_code, reason = "the shop's own program uses more of it")]
mod shop;

use std::process::ExitCode;

use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use profiler_tests::Result;
use profiler_tests::subject::{Subject, main as run};
use shop::{book, cache, catalogue, dice, orders, pricing, report, search, service, stock};

struct Pprof(ProfilerGuard<'static>);

impl Subject for Pprof {
    fn start(rate_hz: u32, _: &str) -> Result<Self> {
        Ok(Self(ProfilerGuardBuilder::default().frequency(i32::try_from(rate_hz)?).build()?))
    }

    fn stacks(&mut self) -> Result<Option<u64>> {
        let report = self.0.report().build_unresolved()?;
        Ok(Some(u64::try_from(report.data.values().sum::<isize>())?))
    }

    fn finish(self) -> Result<()> {
        // Dropping it restores SIGPROF's default action, by which a signal that is still pending ends the process.
        std::mem::forget(self.0);
        Ok(())
    }
}

fn main() -> ExitCode {
    run::<Pprof>(shop::serve)
}
