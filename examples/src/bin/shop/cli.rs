//! The command line of the shop: what may be said, what it means, what is refused and why.
//!
//! Parsed once, at the start of `main`; the rest of the program sees typed values only.

use std::io;
use std::net::{SocketAddr, TcpListener};

use clap::{Parser, Subcommand};

/// Where profiles are served unless `--serve` says otherwise.
const DEFAULT_PROFILES: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6060);

/// A small web shop under the profiler: POST /orders, GET /search?q=…, GET /report.
#[derive(Debug, Parser)]
#[command(name = "shop", version)]
pub(crate) struct Cli {
    /// Address of the shop; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Address of the profiles: flame graph page and /debug/pprof/ [default: 127.0.0.1:6060, or a free port if taken].
    #[arg(long, value_name = "ADDRESS")]
    serve: Option<SocketAddr>,

    /// Send requests from a child process, over that many connections, each as fast as it gets answers.
    #[arg(long, value_name = "CONNECTIONS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) load: Option<u32>,

    /// Address of the service that keeps the stock (`shop inventory`); without it, nobody does.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) inventory: Option<SocketAddr>,

    /// Keep answers in a cache that leaks: docs/heap.md finds out where, and whose.
    #[arg(long)]
    pub(crate) leak: bool,

    /// Stop after that long; without it, at SIGINT or SIGTERM.
    #[arg(long, value_parser = parse_seconds)]
    pub(crate) seconds: Option<f64>,

    /// Stop, too, when standard input ends: a shop started through a pipe never outlives who started it.
    #[arg(long)]
    pub(crate) until_eof: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What else the same binary does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sends requests until standard input ends, then prints how many.
    #[command(hide = true)]
    Client(Target),
    /// Keeps the stock: POST /reservations.
    Inventory(InventoryCli),
}

/// The command line of the second service.
#[derive(Debug, clap::Args)]
pub(crate) struct InventoryCli {
    /// Address of the service; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub(crate) listen: SocketAddr,

    /// Address of its profiles.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6062")]
    pub(crate) serve: SocketAddr,

    /// Stop, too, when standard input ends.
    #[arg(long)]
    pub(crate) until_eof: bool,
}

/// Whom the client sends requests to.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// Address of the shop.
    pub(crate) address: SocketAddr,
    /// How many connections at once.
    pub(crate) connections: u32,
}

impl Cli {
    /// Where to serve profiles: as told, else on the default port or, if that is taken, on a free one.
    pub(crate) fn profiles(&self) -> SocketAddr {
        match self.serve {
            Some(address) => address,
            None if is_taken(DEFAULT_PROFILES) => {
                tracing::warn!("{DEFAULT_PROFILES} is taken, so profiles are served on a free port");
                SocketAddr::new(DEFAULT_PROFILES.ip(), 0)
            }
            None => DEFAULT_PROFILES,
        }
    }
}

/// Whether somebody listens there already.
fn is_taken(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Seconds, more than none and at most a year of them.
fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=31_536_000.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.001 to 31536000, such as 30".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a default port that is taken is replaced by a free one, and that an explicit one is not.
    #[test]
    fn only_the_default_port_is_replaced_when_taken() {
        let _default = TcpListener::bind(DEFAULT_PROFILES); // held here, or by somebody else: taken either way
        assert_eq!(Cli::parse_from(["shop"]).profiles().to_string(), "127.0.0.1:0");
        assert_eq!(Cli::parse_from(["shop", "--serve", "127.0.0.1:6060"]).profiles(), DEFAULT_PROFILES);
    }

    /// Check that times that mean nothing are refused with the range that does.
    #[test]
    fn seconds_outside_the_range_are_refused() {
        for text in ["0", "-1", "NaN", "inf", "ten", ""] {
            assert!(parse_seconds(text).unwrap_err().contains("0.001 to 31536000"), "{text}");
        }
        assert_eq!(parse_seconds("2.5"), Ok(2.5));
    }
}
