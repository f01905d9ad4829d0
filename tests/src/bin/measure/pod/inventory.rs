//! The Go service of the examples (`examples/go/inventory`) under requests.
//!
//! In: how many ask at once. Out: a process that serves until it is dropped. Those who ask are threads of their own, each with a connection that it
//! keeps; what they send is part of no trace that is recorded, so that no sample has a span.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::Running;
use profiler_tests::workload::Random;

use super::LIMIT;

/// Longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Items of an order, as many as the shop's orders have.
const ITEMS: u64 = 12;

/// The service at work.
#[derive(Debug)]
pub(crate) struct Inventory {
    running: Running,
    ended: Arc<AtomicBool>,
    asking: Vec<JoinHandle<()>>,
}

impl Inventory {
    pub(super) fn start(command: &mut Command, at_once: u64) -> Result<Self> {
        let mut running = Running::start(command.args(["-listen", "127.0.0.1:0", "-until-eof"]), LIMIT)?;
        let line = running.line()?;
        let address = line.strip_prefix("ready http://").ok_or_else(|| format!("`inventory` said {line:?}"))?;
        let (address, ended) = (address.parse::<SocketAddr>()?, Arc::new(AtomicBool::new(false)));
        // The first answers here, so that one that does not work is known.
        Connection::open(address)?.ask(&mut Random::new(0))?;
        let asking = (1..=at_once).map(|seed| {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || ask_until(&ended, address, &mut Random::new(seed)))
        });
        Ok(Self { asking: asking.collect(), running, ended })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> String {
        self.running.id().to_string()
    }

    /// Whether all who ask have had answers until now.
    pub(crate) fn is_asked(&self) -> bool {
        !self.asking.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Inventory {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.asking.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Asks for one order after the other; ends before its time where there is no answer.
fn ask_until(ended: &AtomicBool, address: SocketAddr, random: &mut Random) {
    let Ok(mut connection) = Connection::open(address) else { return };
    while !ended.load(Ordering::Relaxed) && connection.ask(random).is_ok() {}
}

struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// One request, and all of its answer.
    fn ask(&mut self, random: &mut Random) -> Result<()> {
        let item = |_| format!(r#"{{"sku":"sku-{}","quantity":{}}}"#, random.below(10_000), 1 + random.below(9));
        let body = format!("[{}]", (0..ITEMS).map(item).collect::<Vec<_>>().join(","));
        write!(
            self.stream.get_mut(),
            "POST /reservations HTTP/1.1\r\nhost: inventory\r\ntraceparent: 00-{}-{}-00\r\ncontent-length: {}\r\n\r\n{body}",
            "1".repeat(32),
            "2".repeat(16),
            body.len()
        )?;
        let mut length = 0;
        for place in 0.. {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let line = line.trim_end();
            if place == 0 && !line.ends_with("200 OK") {
                return Err(format!("`inventory` answered {line:?}").into());
            }
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut answer = vec![0; length];
        Ok(self.stream.read_exact(&mut answer)?)
    }
}
