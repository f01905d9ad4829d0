//! This profiler under measurement, with its defaults.
//!
//! In: a task of [`profiler_tests::subject`]. Out: OTLP over gRPC to the URL that it is given, as a user would configure it;
//! `measure` counts what arrives.

#[expect(dead_code, reason = "the shop's own program uses more of it")]
mod shop;

use std::future::pending;
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use profiler::{Config, FutureExt, Profiler, Scope, Tags, export::Otlp, tag, tags};
use profiler_tests::Result;
use profiler_tests::subject::{Rounds, Subject, Turns, main as run, say};
use shop::{book, cache, catalogue, dice, orders, pricing, report, search, service, stock};

struct Ours;

/// The one that runs.
static RUNNING: Mutex<Option<Profiler>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<Profiler>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subject for Ours {
    fn start(rate_hz: u32, url: &str) -> Result<Self> {
        *running() = Some(profiler::start(Config::new("subject").rate_hz(rate_hz).export(Otlp::grpc(url)))?);
        Ok(Self)
    }

    fn stacks(&mut self) -> Result<Option<u64>> {
        let running = running();
        let profiler = running.as_ref().ok_or("it has been shut down")?;
        if !profiler.flush(Duration::from_secs(5)) {
            return Err("not everything was delivered in 5 s".into());
        }
        let account = profiler.stats().account;
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
        match running().take().is_some_and(|profiler| profiler.shutdown(Duration::from_secs(10))) {
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

/// Serves; where a variable says how long turns are to be, and the time before them, without something in turn, which it says, too.
fn serve(spans: bool, ready: &mut dyn FnMut(SocketAddr)) -> Result<u64> {
    let Ok(turns) = std::env::var("MEASURE_TURNS") else { return shop::serve_tagged(spans, ready) };
    let [warm, turn, without] = turns.split(',').collect::<Vec<_>>()[..] else {
        return Err("MEASURE_TURNS is not two numbers of milliseconds and what is missing in turn".into());
    };
    let [warm, turn] = [warm.parse()?, turn.parse()?].map(Duration::from_millis);
    let turns = Turns::start(warm, turn, switch(without)?, shop::requests_until_now);
    let polls = shop::serve_in_turn(spans, ready)?;
    say(&turns.end()?);
    Ok(polls)
}

/// What turns something off and on again.
fn switch(what: &str) -> Result<fn(bool)> {
    Ok(match what {
        "nothing" => drop,
        "tags" => shop::turns::switch,
        "samples" => sample,
        "both" => |on| {
            shop::turns::switch(on);
            sample(on);
        },
        _ => return Err(format!("{what} can not be turned off: nothing, tags, samples or both").into()),
    })
}

fn sample(on: bool) {
    let running = running();
    let Some(profiler) = running.as_ref() else { return };
    match on {
        // What is refused shows: no sample arrives.
        true => drop(profiler.resume()),
        false => profiler.pause(),
    }
}

fn main() -> ExitCode {
    run::<Ours>(serve)
}
