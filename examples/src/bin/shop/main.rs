//! `shop`: a small web shop under the profiler, as a service of yours could be.
//!
//! In: the command line and `OTEL_EXPORTER_OTLP_*` (where profiles, traces and metrics go). Out: HTTP on `--listen`, profiles on
//! `--serve`, on standard output `ready URL` and, as the last line, one JSON object with what was served.
//! Runs the async runtime on all cores; with `--load`, requests come from a child process, so that its work is not in
//! the profile. Read `service` next: that is where work is tagged; `traces` gives each request a span, `metrics` says how the
//! profiler fares. `shop inventory` is a second
//! service, which the first one calls.

mod book;
mod cache;
mod catalogue;
mod cli;
mod client;
mod dice;
mod inventory;
mod load;
mod metrics;
mod orders;
mod otlp;
mod pricing;
mod report;
mod routes;
mod search;
mod service;
mod stock;
mod traces;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use axum::middleware;
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use cache::Cache;
use cli::{Cli, Command};
use load::Load;
use profiler::Profiler;
use service::Shop;

profiler::jemalloc!(); // profiles of the heap, too

/// How long requests may still take once the shop closes.
const GRACE: Duration = Duration::from_secs(2);

/// The last line on standard output.
#[derive(Debug, Serialize)]
struct Summary {
    /// Requests answered or failed: as the load's connections saw them, or, without load, as the service did.
    requests: u64,
    /// Those of them that failed: no answer, or one that says so.
    errors: u64,
    /// CPU time of this process, all threads, user and system, until the shop closed.
    cpu_seconds: f64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(io::stderr).init();
    let outcome = match &cli.command {
        Some(Command::Client(target)) => client::run(target),
        Some(Command::Inventory(cli)) => inventory::run(cli),
        None => run(&cli),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "shop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Profiles, serves until told to stop, and says what it was.
fn run(cli: &Cli) -> Result<(), Box<dyn std::error::Error>> {
    let profiler = profiler::start(profiler::Config::new("shop").serve(cli.profiles().to_string()))?;
    if let Some(address) = profiler.serve_address() {
        say(&format!("profiles http://{address}/"))?;
    }

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let summary = runtime.block_on(serve(cli, &profiler))?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(profiler); // sends what is left
    say(&serde_json::to_string(&summary)?)?;
    Ok(())
}

/// Opens the shop, and its load if asked for, until a signal or a limit of the command line ends it.
async fn serve(cli: &Cli, profiler: &Profiler) -> Result<Summary, Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(cli.listen)
        .await
        .map_err(|error| format!("--listen {}: {error}; name a free address, such as 127.0.0.1:0", cli.listen))?;
    let address = listener.local_addr()?;
    let spans = traces::open("shop")?;
    let meters = metrics::open("shop", profiler)?;
    let shop = Shop::open(cli.inventory, cli.leak.then(Cache::default));
    // Before anyone is told that the shop is ready, and so could tell it to stop.
    let stops = Stops::listen()?;
    let (close, closing) = oneshot::channel::<()>();
    let router = routes::router(shop.clone())
        .layer(profiler::tower::TagLayer::new()) // all work for a request: endpoint=/orders, method=POST
        .layer(profiler::tower::TagLayer::with(|request| profiler::tags!("tenant" => routes::tenant(request.headers))))
        .layer(middleware::from_fn(traces::trace));
    let server = axum::serve(listener, router).with_graceful_shutdown(async { closing.await.unwrap_or_default() });
    let server = tokio::spawn(server.into_future());
    let load = cli.load.map(|connections| Load::start(address, connections)).transpose()?;
    say(&format!("ready http://{address}"))?;

    let (requests, errors) = match load {
        None => {
            stops.wait(cli.seconds, cli.until_eof).await;
            shop.served()
        }
        Some(mut load) => {
            tokio::select! {
                () = stops.wait(cli.seconds, cli.until_eof) => {}
                ended = load.ended_early() => return Err(ended.into()),
            }
            load.stop().await?
        }
    };
    let clock = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_seconds = Duration::new(clock.tv_sec.try_into()?, clock.tv_nsec.try_into()?).as_secs_f64();
    drop(close);
    let _overdue = tokio::time::timeout(GRACE, server).await;
    traces::close(&spans);
    metrics::close(&meters);
    Ok(Summary { requests, errors, cpu_seconds })
}

/// The signals that ask the shop to stop, heard from when this is made.
struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for SIGINT, SIGTERM, the end of `--seconds`, or, with `--until-eof`, of standard input.
    async fn wait(mut self, seconds: Option<f64>, until_eof: bool) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = elapsed(seconds) => {}
            () = end_of_input(), if until_eof => {}
        }
    }
}

/// Waits for that long, or for ever.
async fn elapsed(seconds: Option<f64>) {
    match seconds {
        Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds)).await,
        None => std::future::pending().await,
    }
}

/// Waits until standard input is closed, as it is when whoever holds its other end dies.
async fn end_of_input() {
    let (ended, input) = oneshot::channel();
    // A thread of its own that nobody joins: a read cannot be called off.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        ended.send(())
    });
    let _ = input.await;
}

/// One line on standard output, at once, also when that is a pipe.
fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}
