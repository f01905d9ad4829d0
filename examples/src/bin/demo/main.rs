//! `demo`: what `make demo` runs. A web shop in Rust under load, the inventory in Go that it calls, and the sidecar of both.
//!
//! In: the `shop` and the `profiler-sidecar` beside this program; `DEMO_INVENTORY`, the inventory in Go, else the shop's own stands in for it;
//! `DEMO_SIDECAR=off`, for none; `DEMO_SECONDS`, to end by itself. Out, on standard output: what is going on, the address of the page, after ten seconds
//! the hottest functions by endpoint and the address of a trace that both processes were sampled in, and the functions over the whole run when it ends. Ctrl-C and SIGTERM end it; nobody outlives
//! it, for they end with the pipes between them.

mod service;
mod table;
mod trace;

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use service::{Service, beside};
use table::{fetch, table};

/// When the table comes.
const FIRST_TABLE: Duration = Duration::from_secs(10);
/// What it shows the functions of: what the load asks the shop for, the last one seldom, and what the shop asks the inventory for.
const OF_THE_SHOP: [&str; 3] = ["/orders", "/search", "/report"];
const OF_THE_INVENTORY: [&str; 1] = ["/reservations"];
/// Connections of the load.
const CONNECTIONS: u32 = 4;
/// Where the sidecar's page is, if nobody else is there.
const PAGE: &str = "127.0.0.1:6070";
/// Where it is else.
const ANY_PORT: &str = "127.0.0.1:0";
/// How long a profile of the sidecar is: the page is to move.
const INTERVAL: &str = "2s";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The signals that end the demo.
#[derive(Debug)]
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

/// Everybody.
#[derive(Debug)]
struct Pod {
    shop: Service,
    inventory: Service,
    sidecar: Option<Service>,
    /// The sidecar samples the inventory.
    both: bool,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole demo, from start to end.
async fn run() -> Outcome<()> {
    let length = demo_length(std::env::var("DEMO_SECONDS").ok().as_deref())?;
    let mut stop = Stop::listen()?;
    let mut pod = Pod::open().await?;
    pod.introduce()?;

    let began = Instant::now();
    let first = length.map_or(FIRST_TABLE, |length| length.min(FIRST_TABLE));
    say(&format!("Sampling; the hottest functions by endpoint follow in {} s.", first.as_secs()))?;
    let goes_on = pod.shop.run_until(Some(began + first), &mut stop).await?;
    if goes_on {
        say(&format!("\n{}", pod.tables().await?))?;
        if let Some(link) = pod.trace().await {
            say(&format!("One trace through both: {link}\n"))?;
        }
    }
    if goes_on && length != Some(first) {
        let end = length.map_or("Ctrl-C".to_owned(), |length| format!("{} s are over", length.as_secs()));
        say(&format!("Going on until {end}. The flame graph: {}", pod.page()))?;
        pod.shop.run_until(length.map(|length| began + length), &mut stop).await?;
        say(&format!("\nAt the end:\n\n{}", pod.tables().await?))?;
    }
    tokio::select! {
        closed = pod.close() => say(&format!("The shop has closed: {}", closed?))?,
        () = stop.told() => {}
    }
    Ok(())
}

/// `DEMO_SECONDS`, if set.
fn demo_length(text: Option<&str>) -> Outcome<Option<Duration>> {
    match text.map(str::parse) {
        None => Ok(None),
        Some(Ok(seconds @ 1..=86_400)) => Ok(Some(Duration::from_secs(seconds))),
        Some(_) => Err(format!("DEMO_SECONDS={:?}: expected whole seconds from 1 to 86400", text.unwrap_or("")).into()),
    }
}

impl Pod {
    async fn open() -> Outcome<Self> {
        let inventory = open_inventory().await?;
        let sidecar = match open_sidecar(&inventory).await {
            Ok(sidecar) => Some(sidecar),
            Err(error) => {
                say(&format!("No sidecar: {error}. The shop profiles itself all the same."))?;
                None
            }
        };
        let stock = inventory.said("ready").unwrap_or("").trim_start_matches("http://");
        let mut shop = Command::new(beside("shop")?);
        shop.args(["--load", &CONNECTIONS.to_string(), "--inventory", stock, "--listen", "127.0.0.1:0", "--until-eof"]);
        if let Some(receiver) = sidecar.as_ref().and_then(|sidecar| sidecar.said("receives")) {
            shop.env("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", receiver)
                .env("OTEL_EXPORTER_OTLP_PROFILES_PROTOCOL", "grpc");
            shop.env("PROFILER_INTERVAL", INTERVAL);
        }
        let shop = Service::start("shop", &mut shop).await?;
        // The shop's own inventory profiles itself.
        let is_sampled = inventory.said("profiles").is_none();
        let both = match sidecar.as_ref().and_then(|sidecar| sidecar.said("profiles")).filter(|_| is_sampled) {
            Some(page) => serde_json::from_str::<Value>(&fetch(page, "/stats").await?)?["sampling"] == true,
            None => false,
        };
        Ok(Self { shop, inventory, sidecar, both })
    }

    /// The page that shows most.
    fn page(&self) -> &str {
        let sidecar = self.sidecar.as_ref().and_then(|sidecar| sidecar.said("profiles"));
        sidecar.or_else(|| self.shop.said("profiles")).unwrap_or("")
    }

    fn introduce(&self) -> io::Result<()> {
        let shop = self.shop.said("ready").unwrap_or("");
        say(&format!("A web shop answers {CONNECTIONS} connections of load at {shop}, profiled meanwhile."))?;
        say(&format!("The flame graph, live: {}", self.page()))?;
        if self.both {
            say(
                "It shows the shop, which profiles itself, and the inventory that it calls in the same traces, which the sidecar profiles.",
            )?;
        } else if let Some(page) = self.inventory.said("profiles") {
            say(&format!("The same for the inventory, which the shop calls in the same traces: {page}"))?;
        }
        Ok(())
    }

    /// The hottest functions of both, as far as they are known.
    async fn tables(&self) -> Outcome<String> {
        let mut tables = table(self.shop.said("profiles").unwrap_or(""), None, &OF_THE_SHOP).await?;
        if self.both {
            let of_the_inventory = table(self.page(), self.inventory.pid(), &OF_THE_INVENTORY).await?;
            write!(tables, "\nThe inventory, from outside:\n\n{of_the_inventory}")?;
        }
        Ok(tables)
    }

    /// The address of a trace that was sampled in both, where there is one by now.
    async fn trace(&self) -> Option<String> {
        let (inventory, shop) = (self.inventory.pid().filter(|_| self.both)?, self.shop.pid()?);
        trace::link(self.page(), inventory, shop).await.ok()?
    }

    /// Closes everybody, the shop first; what it said last.
    async fn close(self) -> Outcome<String> {
        let last = self.shop.close().await?;
        self.inventory.close().await?;
        if let Some(sidecar) = self.sidecar {
            sidecar.close().await?;
        }
        Ok(last)
    }
}

/// The inventory: the one in Go where it was built, else the shop's own.
async fn open_inventory() -> Outcome<Service> {
    let mut command = match std::env::var_os("DEMO_INVENTORY") {
        Some(program) => Command::new(program),
        None => {
            let mut command = Command::new(beside("shop")?);
            command.args(["inventory", "--serve", "127.0.0.1:0"]);
            command
        }
    };
    Service::start("inventory", command.args(["--listen", "127.0.0.1:0", "--until-eof"])).await
}

/// The sidecar, which profiles the inventory and takes what the shop's profiler sends.
async fn open_sidecar(inventory: &Service) -> Outcome<Service> {
    if std::env::var_os("DEMO_SIDECAR").is_some_and(|value| value == "off") {
        return Err("DEMO_SIDECAR=off".into());
    }
    let pid = inventory.pid().ok_or("the inventory has ended")?.to_string();
    if is_free(PAGE) {
        match start_sidecar(&pid, PAGE).await {
            // Somebody else took it meanwhile.
            Err(_) if !is_free(PAGE) => {}
            outcome => return outcome,
        }
    }
    start_sidecar(&pid, ANY_PORT).await
}

/// Starts the sidecar, with its page there.
async fn start_sidecar(pid: &str, page: &str) -> Outcome<Service> {
    let mut command = Command::new(beside("profiler-sidecar")?);
    command.args(["run", "--until-eof", "--interval", INTERVAL, "--pid", pid, "--serve", page]);
    if std::env::var_os("PROFILER_LOG").is_none() {
        command.env("PROFILER_LOG", "warn");
    }
    Service::start("sidecar", command.args(["--receive", ANY_PORT])).await
}

/// Whether nobody listens there.
fn is_free(address: &str) -> bool {
    std::net::TcpListener::bind(address).is_ok()
}

impl Stop {
    fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for SIGINT or SIGTERM.
    async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// One line, at once, also into a pipe.
fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a length is whole seconds, or absent, and that anything else is refused by name.
    #[test]
    fn a_length_is_whole_seconds() {
        assert_eq!(demo_length(None).unwrap(), None);
        assert_eq!(demo_length(Some("30")).unwrap(), Some(Duration::from_secs(30)));
        for text in ["", "0", "-3", "1.5", "soon", "86401"] {
            assert!(demo_length(Some(text)).unwrap_err().to_string().contains("DEMO_SECONDS"), "{text}");
        }
    }
}
