//! The load itself: what the child process does.
//!
//! In: the shop's address and how many connections. Each one sends a request, waits for the answer, sends the next, and
//! keeps the connection. Out: one JSON line with the counts, once standard input ends. One thread.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::cache::TENANTS;
use crate::catalogue::{self, MATERIALS, NOUNS, PRODUCTS, QUALITIES};
use crate::cli::Target;
use crate::dice::Dice;
use crate::orders::{Item, Order};
use crate::pricing::Tier;

/// How long the last answers may take.
const PATIENCE: Duration = Duration::from_secs(5);

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// What the child reports.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Answered or failed.
    pub(crate) requests: u64,
    /// Not answered, or not with success.
    pub(crate) errors: u64,
}

/// What the connections count together, and when they stop. One thread: no order is needed between the fields.
#[derive(Debug, Default)]
struct Tally {
    requests: AtomicU64,
    errors: AtomicU64,
    stopping: AtomicBool,
}

/// Sends requests until standard input ends.
pub(crate) fn run(target: &Target) -> Result<(), Box<dyn std::error::Error>> {
    let counts = tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(send(target))?;
    // If this fails, the shop is gone and nobody is left to tell.
    let _told = writeln!(io::stdout(), "{}", serde_json::to_string(&counts)?);
    Ok(())
}

/// Keeps the connections busy until standard input ends, then lets each finish its request.
async fn send(target: &Target) -> io::Result<Counts> {
    // Ctrl-C reaches the whole foreground group; the shop hears it too and closes the pipe once it is ready to count.
    let _ignored = signal(SignalKind::interrupt())?;
    let tally = Arc::new(Tally::default());
    let mut connections = JoinSet::new();
    for seed in 0..target.connections {
        connections.spawn(keep_busy(target.address, Customer::new(seed.into()), tally.clone()));
    }
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
    tally.stopping.store(true, Ordering::Relaxed);
    let _overdue = tokio::time::timeout(PATIENCE, connections.join_all()).await;
    let [requests, errors] = [&tally.requests, &tally.errors].map(|count| count.load(Ordering::Relaxed));
    Ok(Counts { requests, errors })
}

/// One connection after the other, for as long as the load lasts.
async fn keep_busy(address: SocketAddr, mut customer: Customer, tally: Arc<Tally>) {
    while !tally.stopping.load(Ordering::Relaxed) {
        if use_connection(address, &mut customer, &tally).await.is_err() {
            tally.requests.fetch_add(1, Ordering::Relaxed);
            tally.errors.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Sends requests over one connection until the load ends or the connection breaks, which is the error.
async fn use_connection(address: SocketAddr, customer: &mut Customer, tally: &Tally) -> Result<(), Failed> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    while !tally.stopping.load(Ordering::Relaxed) {
        let succeeded = exchange(&mut sender, customer.request(address)?).await?;
        tally.requests.fetch_add(1, Ordering::Relaxed);
        tally.errors.fetch_add(u64::from(!succeeded), Ordering::Relaxed);
    }
    drop(sender);
    connection.await??;
    Ok(())
}

/// One request and its whole answer; whether that was a success.
async fn exchange(sender: &mut SendRequest<Full<Bytes>>, request: Request<Full<Bytes>>) -> Result<bool, Failed> {
    sender.ready().await?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    Ok(status.is_success())
}

/// Who sends requests over a connection.
#[derive(Debug)]
struct Customer {
    dice: Dice,
    sent: u64,
}

impl Customer {
    /// One like no other; each begins elsewhere in the hundred.
    fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), sent: 29 * seed }
    }

    /// The next request: of each hundred in a row, 65 orders, 34 searches and one report. The kinds take turns, for a report costs as much as many
    /// orders: chance would give one second far more work than the next.
    fn request(&mut self, address: SocketAddr) -> Result<Request<Full<Bytes>>, Failed> {
        self.sent += 1;
        let dice = &mut self.dice;
        // 37 has no divisor in common with 100: a hundred in a row are all there are.
        let (method, path, body) = match 37 * self.sent % 100 {
            0..65 => (Method::POST, "/orders".to_owned(), serde_json::to_vec(&order(dice))?),
            65..99 => (Method::GET, format!("/search?q={}", query(dice)), Vec::new()),
            _ => (Method::GET, format!("/report?format={}", dice.pick(&["csv", "json"])), Vec::new()),
        };
        let request = Request::builder().method(method).uri(path).header("host", address.to_string());
        let request = request.header("x-tenant", dice.pick(&TENANTS));
        Ok(request.body(Full::new(body.into()))?)
    }
}

/// An order of some dozen items.
fn order(dice: &mut Dice) -> Order {
    let item = |dice: &mut Dice| {
        let product = u32::try_from(dice.between(0, PRODUCTS.into())).unwrap_or(0);
        let quantity = dice.pick(&[1, 1, 1, 2, 2, 3, 6, 12, 40]);
        Item { sku: catalogue::sku(product), quantity }
    };
    Order {
        customer: format!("customer-{}", dice.between(0, 10_000)),
        tier: dice.pick(&[Tier::Guest, Tier::Guest, Tier::Member, Tier::Gold]),
        coupon: dice.pick(&[None, None, Some("WELCOME"), Some("AUTUMN"), Some("EXPIRED")]).map(str::to_owned),
        items: (0..dice.between(10, 60)).map(|_| item(dice)).collect(),
    }
}

/// Two to four words that products have, now and then with a slip of the finger.
fn query(dice: &mut Dice) -> String {
    let mut words = vec![dice.pick(&MATERIALS).to_owned(), dice.pick(&NOUNS).to_owned()];
    if dice.between(0, 2) == 0 {
        words.push(dice.pick(&QUALITIES).to_owned());
    }
    if dice.between(0, 3) == 0 {
        words.push(catalogue::brand(dice));
    }
    if dice.between(0, 5) == 0 {
        words[1].insert(1, 'h');
    }
    words.join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a hundred requests in a row are as many of each kind, wherever they begin.
    #[test]
    fn kinds_take_turns() {
        let mut customer = Customer::new(3);
        for _ in 0..7 {
            let mut kinds = [0; 3];
            for _ in 0..100 {
                let request = customer.request(([127, 0, 0, 1], 80).into()).unwrap();
                let kind = ["/orders", "/search", "/report"].iter().position(|path| *path == request.uri().path());
                kinds[kind.unwrap()] += 1;
            }
            assert_eq!(kinds, [65, 34, 1]);
        }
    }
}
