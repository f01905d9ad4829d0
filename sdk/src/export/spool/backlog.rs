//! What one destination has not settled: which records it takes, which it has, which memory still holds for it.
//!
//! In: records as they are written, found and settled. Out: which record is to be read next for it, and which ones are lost
//! to it when a segment goes. Belongs to the thread that has the folder.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::record::Header;
use super::replay::Position;
use super::settled::Settled;

/// A destination, and the records that it takes.
#[derive(Debug, Clone)]
pub(in crate::export) struct Taker {
    /// Its name: by it, it is known to the next process.
    pub(in crate::export) name: String,
    /// Forms of bodies that it takes.
    pub(in crate::export) forms: Vec<u8>,
    /// Whether it can tell from these counts what is in a body: another version's it may not.
    pub(in crate::export) reads: fn(&[u8]) -> bool,
}

/// A record that was given to the spool, or came out of it.
#[derive(Debug)]
pub(in crate::export) struct Receipt {
    /// How the body is encoded.
    pub(in crate::export) form: u8,
    /// What is in the body.
    pub(in crate::export) counts: Box<[u8]>,
    /// Its number while the folder has it, else 0: not written yet, or could not be, or gone for room. One thread writes it, and
    /// nothing else is read on the strength of it.
    number: AtomicU64,
    /// Of a record that was read: whether who asked for it has taken it, or it went before. Who comes first decides.
    taken: OnceLock<bool>,
}

impl Receipt {
    /// A record that is to be written (`number` 0), or was read.
    pub(in crate::export) fn new(form: u8, counts: Box<[u8]>, number: u64) -> Arc<Self> {
        Arc::new(Self { form, counts, number: AtomicU64::new(number), taken: OnceLock::new() })
    }

    /// Whether the record is in the folder: it can be forgotten, and will come again.
    pub(in crate::export) fn is_kept(&self) -> bool {
        self.number() != 0
    }

    /// Its number, or 0.
    pub(in crate::export) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// It is in the folder by this number; 0: it is not.
    pub(in crate::export) fn keep(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Takes a record that was read in hand, until it is settled; `false` if it has gone from the folder meanwhile, and was told as lost.
    pub(in crate::export) fn take(&self) -> bool {
        *self.taken.get_or_init(|| true)
    }

    /// The record goes from the folder: whether it was read and somebody has taken it. If not, nobody will.
    fn go(&self) -> bool {
        self.keep(0);
        *self.taken.get_or_init(|| false)
    }
}

/// The state of one destination.
#[derive(Debug)]
pub(super) struct Backlog {
    pub(super) taker: Taker,
    pub(super) settled: Settled,
    /// Records that are in memory for it, by number: they are not read for it.
    held: BTreeMap<u64, Arc<Receipt>>,
    /// The record that was read last. Once it is taken it is in memory again, until it is settled.
    in_hand: Option<Arc<Receipt>>,
    pub(super) position: Position,
}

impl Backlog {
    pub(super) fn new(taker: Taker) -> Self {
        Self { taker, settled: Settled::default(), held: BTreeMap::new(), in_hand: None, position: Position::default() }
    }

    /// Begins anew with what an earlier process, or this one, left in the folder.
    pub(super) fn reset(&mut self, settled: Settled) {
        self.held.values().chain(&self.in_hand).for_each(|receipt| _ = receipt.go());
        *self = Self { settled, ..Self::new(self.taker.clone()) };
    }

    pub(super) fn takes(&self, form: u8, counts: &[u8]) -> bool {
        self.taker.forms.contains(&form) && (self.taker.reads)(counts)
    }

    /// A record was written that is in memory, too.
    pub(super) fn hold(&mut self, number: u64, receipt: &Arc<Receipt>) {
        if self.takes(receipt.form, &receipt.counts) {
            self.held.insert(number, Arc::clone(receipt));
        } else {
            self.settle(number);
        }
    }

    /// A record was read: it comes again until it is settled. Who asked may have given up: it is in hand only once it is taken.
    pub(super) fn hand_out(&mut self, receipt: &Arc<Receipt>) {
        self.in_hand = Some(Arc::clone(receipt));
    }

    /// Memory has forgotten it: it is to be read.
    pub(super) fn release(&mut self, number: u64) {
        if self.held.remove(&number).is_some() {
            self.position.rewind(number);
        }
    }

    /// These records are not in the folder any more, whatever they were. How many are lost to it: neither settled nor in memory.
    pub(super) fn forget(&mut self, numbers: Range<u64>) -> u64 {
        for number in self.held.range(numbers.clone()).map(|(number, _)| *number).collect::<Vec<_>>() {
            self.held.remove(&number).map(|receipt| receipt.go());
            self.settled.add(number..number.saturating_add(1));
        }
        if let Some(receipt) = self.in_hand.take_if(|receipt| numbers.contains(&receipt.number())) {
            let number = receipt.number();
            let in_memory = if receipt.go() { number..number.saturating_add(1) } else { 0..0 };
            self.settled.add(in_memory);
        }
        let lost = self.settled.lacking(numbers.clone()).iter().fold(0, |sum, part| sum + (part.end - part.start));
        self.settled.add(numbers);
        lost
    }

    /// It needs `number` no more.
    pub(super) fn settle(&mut self, number: u64) {
        self.held.remove(&number);
        self.in_hand.take_if(|receipt| receipt.number() == number);
        self.settled.add(number..number.saturating_add(1));
    }

    /// Whether a record is to be read for it.
    pub(super) fn wants(&self, header: &Header) -> bool {
        self.takes(header.form, &header.counts)
            && !self.settled.contains(header.number)
            && !self.held.contains_key(&header.number)
    }

    /// A record goes out of the folder: whether it is lost to this destination. What is in memory is not.
    pub(super) fn loses(&mut self, header: &Header) -> bool {
        let in_hand = self.in_hand.take_if(|receipt| receipt.number() == header.number);
        let lost = !in_hand.is_some_and(|receipt| receipt.go()) && self.wants(header);
        self.held.remove(&header.number).map(|receipt| receipt.go());
        self.settle(header.number);
        lost
    }
}
