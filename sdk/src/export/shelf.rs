//! The place of one destination in the spool.
//!
//! In: which records it needs no more, which memory has forgotten. Out: its records, oldest first, without those that are meant for
//! others. Nothing here waits for the disk but who reads, and that for seconds at most.

use std::sync::Arc;

use bytes::Bytes;

use super::form::Form;
use super::manifest::Manifest;
use super::spool::{Receipt, Spool};
use crate::error::Error;

/// Records that are passed over at a time, for they are another destination's.
const PASSED_OVER: usize = 64;

/// A destination in the spool.
#[derive(Debug)]
pub(super) struct Shelf {
    spool: Arc<Spool>,
    /// Its index there.
    destination: usize,
    /// This process, by a random number.
    run: u64,
    key: u32,
    /// The keys of other destinations, whose records it could take and is not to.
    others: Vec<u32>,
    is_ageless: bool,
}

/// A record that comes back.
#[derive(Debug, Clone)]
pub(super) struct Replayed {
    pub(super) manifest: Manifest,
    pub(super) receipt: Arc<Receipt>,
    pub(super) body: Bytes,
}

impl Shelf {
    /// That of the destination which takes `form`, beside others which take `forms`.
    pub(super) fn new(spool: Arc<Spool>, destination: usize, run: u64, form: &Form, forms: &[Form]) -> Self {
        let (key, is_ageless) = (form.key(), form.is_ageless());
        let others = forms.iter().map(Form::key).filter(|other| *other != key).collect();
        Self { spool, destination, run, key, others, is_ageless }
    }

    /// This process.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// Whether the destination takes what is older than others take.
    pub(super) fn is_ageless(&self) -> bool {
        self.is_ageless
    }

    /// The record is needed no more.
    pub(super) fn settle(&self, receipt: Arc<Receipt>) {
        self.spool.settle(self.destination, receipt);
    }

    /// Memory has forgotten the record.
    pub(super) fn release(&self, receipt: Arc<Receipt>) {
        self.spool.release(self.destination, receipt);
    }

    /// The oldest record that is to be sent, if there is one.
    ///
    /// # Errors
    /// If the disk hangs.
    pub(super) async fn read(&self) -> Result<Option<Replayed>, Error> {
        for _ in 0..PASSED_OVER {
            let Some(read) = self.spool.read(self.destination).await? else { break };
            match Manifest::decode(&read.receipt.counts) {
                Some(manifest) if !self.is_of_another(&manifest) => {
                    return Ok(Some(Replayed { manifest, receipt: read.receipt, body: read.body }));
                }
                _ => self.settle(read.receipt),
            }
        }
        Ok(None)
    }

    /// Whether it was written for a destination that is there, too, and has labels of its own in it.
    fn is_of_another(&self, manifest: &Manifest) -> bool {
        manifest.key != self.key && self.others.contains(&manifest.key)
    }
}
