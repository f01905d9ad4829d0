//! The order book: the receipts of late, kept by one task that owns them.
//!
//! In: receipts, through a bounded channel; whoever sends waits while it is full. Out: the receipts kept, shared, not
//! copied. The task ends with the last handle on the book. Memory is bounded by `KEPT` receipts.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::orders::Receipt;

/// Receipts kept; an older one goes when a new one comes.
const KEPT: usize = 300;

/// A handle on the order book.
#[derive(Debug)]
pub(crate) struct Book {
    requests: mpsc::Sender<Request>,
}

/// What the task is asked to do.
#[derive(Debug)]
enum Request {
    Record(Arc<Receipt>),
    Recent(oneshot::Sender<Vec<Arc<Receipt>>>),
}

/// The task is gone, as it is while the shop closes.
#[derive(Debug, thiserror::Error)]
#[error("the order book is closed")]
pub(crate) struct Closed;

impl Book {
    /// Starts the task with an empty book; needs a runtime.
    pub(crate) fn open() -> Self {
        let (requests, inbox) = mpsc::channel(64);
        tokio::spawn(keep(inbox));
        Self { requests }
    }

    /// Adds a receipt.
    pub(crate) async fn record(&self, receipt: Receipt) -> Result<(), Closed> {
        self.requests.send(Request::Record(Arc::new(receipt))).await.map_err(|_| Closed)
    }

    /// What is kept, oldest first.
    pub(crate) async fn recent(&self) -> Result<Vec<Arc<Receipt>>, Closed> {
        let (answer, receipts) = oneshot::channel();
        self.requests.send(Request::Recent(answer)).await.map_err(|_| Closed)?;
        receipts.await.map_err(|_| Closed)
    }
}

/// Serves the requests one after the other until no handle is left.
async fn keep(mut inbox: mpsc::Receiver<Request>) {
    let mut kept = VecDeque::with_capacity(KEPT);
    while let Some(request) = inbox.recv().await {
        match request {
            Request::Record(receipt) => {
                if kept.len() == KEPT {
                    kept.pop_front();
                }
                kept.push_back(receipt);
            }
            // Whoever asked may have gone away meanwhile.
            Request::Recent(answer) => drop(answer.send(kept.iter().cloned().collect())),
        }
    }
}
