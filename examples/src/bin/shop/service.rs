//! What the shop does for a request, apart from HTTP: orders, search, report.
//!
//! In: typed requests from `routes`. Out: bodies of answers, or a failure. Tags and span of a request follow it through every
//! `.await` and are named only where its work goes to another thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::Context;
use tokio::sync::{RwLock, Semaphore, SemaphorePermit};

use crate::book::{Book, Closed};
use crate::cache::Cache;
use crate::catalogue::{Catalogue, PRODUCTS};
use crate::orders::{self, Refusal, SigningKey};
use crate::pricing::Rules;
use crate::report::{self, Format};
use crate::search::Index;
use crate::stock::{NotReserved, Stock};

/// Requests that are worked on at once; the next ones wait.
const AT_ONCE: usize = 256;
/// Hits in one answer.
const HITS: usize = 20;

/// The shop: what it sells, at what price, and what it sold.
#[derive(Debug)]
pub(crate) struct Shop {
    catalogue: Catalogue,
    index: Index,
    rules: RwLock<Rules>,
    key: SigningKey,
    book: Book,
    stock: Option<Stock>,
    cache: Option<Cache>,
    turns: Semaphore,
    requests: AtomicU64,
    errors: AtomicU64,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    NotReserved(#[from] NotReserved),
    #[error("the shop is closing")]
    Closing,
    #[error("the answer could not be written: {0}")]
    Unwritable(#[from] std::io::Error),
}

impl Shop {
    /// Fills the shelves; needs a runtime, for the order book is a task. The stock is kept by the service at `inventory`, and
    /// answers in a `cache`, if at all.
    pub(crate) fn open(inventory: Option<SocketAddr>, cache: Option<Cache>) -> Arc<Self> {
        let catalogue = Catalogue::generate(PRODUCTS);
        Arc::new(Self {
            index: Index::build(&catalogue),
            catalogue,
            rules: RwLock::new(Rules::of_the_season()),
            key: *b"a key of 64 bytes; a shop with something to lose reads it from a",
            book: Book::open(),
            stock: inventory.map(Stock::at),
            cache,
            turns: Semaphore::new(AT_ONCE),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        })
    }

    /// Prices, signs and records an order; the receipt as JSON.
    pub(crate) async fn place_order(&self, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let _turn = self.turn().await?;
        let rules = self.rules.read().await;
        let receipt = orders::accept(body, &self.catalogue, &rules, &self.key)?;
        let json = serde_json::to_vec(&receipt).map_err(std::io::Error::from)?;
        if let Some(stock) = &self.stock {
            stock.reserve(&receipt).await?;
        }
        self.book.record(receipt).await?;
        Ok(json)
    }

    /// The best hits for a query as JSON.
    pub(crate) async fn search(&self, tenant: &'static str, query: &str) -> Result<Vec<u8>, Failure> {
        let _turn = self.turn().await?;
        if let Some(answer) = self.cache.as_ref().and_then(|cache| cache.find(tenant, query)) {
            return Ok(answer);
        }
        let hits = self.index.search(&self.catalogue, query, HITS);
        let answer = serde_json::to_vec(&hits).map_err(std::io::Error::from)?;
        if let Some(cache) = &self.cache {
            cache.keep(tenant, query, &answer);
        }
        Ok(answer)
    }

    /// What sold of late, as a compressed file.
    pub(crate) async fn report(&self, format: Format) -> Result<Vec<u8>, Failure> {
        let _turn = self.turn().await?;
        let receipts = self.book.recent().await?;
        let request = Context::current();
        // Another thread: its work belongs to the request, too.
        let file = tokio::task::spawn_blocking(profiler::inherit(move || {
            let _span = request.attach();
            report::write(&receipts, format)
        }));
        Ok(file.await.map_err(|_| Failure::Closing)??)
    }

    /// Counts one request.
    pub(crate) fn count(&self, failed: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
    }

    /// Requests so far, and those of them that failed.
    pub(crate) fn served(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.errors.load(Ordering::Relaxed))
    }

    /// Waits until fewer than `AT_ONCE` requests are worked on.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Failure> {
        self.turns.acquire().await.map_err(|_| Failure::Closing)
    }
}

impl From<Closed> for Failure {
    fn from(_: Closed) -> Self {
        Self::Closing
    }
}
