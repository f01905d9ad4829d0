//! This profiler under measurement, with its defaults.
//!
//! In: a task of [`profiler_tests::subject`]. Out: OTLP over gRPC to the URL that it is given, as a user would configure it;
//! `measure` counts what arrives.

#[expect(dead_code, reason = "the shop's own program uses more of it")]
mod shop;

use std::future::pending;
use std::hint::black_box;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Waker};
use std::time::Duration;

use profiler::{Config, FutureExt, Profiler, Scope, Tags, export::Otlp, tag, tags};
use profiler_tests::Result;
use profiler_tests::subject::{Rounds, Subject, main as run};
use shop::{book, cache, catalogue, dice, orders, pricing, report, search, service, stock};

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

    fn ways(&self) -> Vec<(&'static str, Rounds<'_>)> {
        let (scope_tags, poll_tags) = (tags(7), tags(7));
        vec![
            ("prebuilt", Box::new(move |rounds| (0..rounds).for_each(|_| drop(Scope::enter(&scope_tags))))),
            (
                "built",
                Box::new(|rounds| {
                    (0..rounds).for_each(|round| drop(tag!("endpoint" => "/orders", "tenant" => round % 64)));
                }),
            ),
            ("poll", Box::new(move |rounds| poll(pending::<()>().with_tags(poll_tags.clone()), rounds))),
            ("request", shop::tagged_requests()),
            ("bare poll", Box::new(|rounds| poll(pending::<()>(), rounds))),
        ]
    }

    fn finish(self) -> Result<()> {
        match self.0.shutdown(Duration::from_secs(10)) {
            true => Ok(()),
            false => Err("not everything was delivered in 10 s".into()),
        }
    }
}

fn tags(tenant: u32) -> Tags {
    tags!("endpoint" => "/orders", "tenant" => tenant)
}

fn poll(future: impl Future, rounds: u32) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..rounds).for_each(|_| drop(black_box(future.as_mut().poll(&mut context))));
}

fn main() -> ExitCode {
    run::<Ours>(shop::serve_tagged)
}
